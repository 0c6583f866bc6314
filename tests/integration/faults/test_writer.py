"""A writer commits, checkpoints and cleans up during paged reads: each reader gets one consistent version."""

import asyncio
import json
import re
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import aiohttp
import pytest
from support.file_answers import MODULUS, Broken, Files, query
from support.gateway_process import running_gateway, share
from tables.large_logs import make_log

READERS = 24
ADDS = 2_000
PAGE_FILES = 300
LEAST_SECONDS = 6
MOST_SECONDS = 170
MORE_THAN_VERSIONS = 20
LEAST_CHECKPOINTS = 3
COMMITS_PER_CHECKPOINT = 15
# Shorter than slow readers take for their pages: cleanup takes the log from under them.
KEPT_COMMITS = 30
CLEANED_UP = re.compile("was replaced or deleted|is not available|the log was cleaned up")
"""Said of a checkpoint that was still to be read, or of a version between its pages."""
CHECKPOINT = """
import sys, deltalake
deltalake.DeltaTable(sys.argv[1]).create_checkpoint()
print("done", flush=True)
"""


class Writer(threading.Thread):
    """Appends commits; writes checkpoints by deltalake; deletes the log before the last but one of them."""

    def __init__(self, root: Path, version: int, live: dict[str, dict]) -> None:
        super().__init__()
        self.root, self.version, self.live = root, version, live
        self.versions = {version: Files.of(list(live))}
        self.checkpoints: list[int] = []
        self.stop = threading.Event()
        self.maker = make_log()

    def run(self) -> None:
        while not self.stop.wait(0.03):
            self.commit()
            if self.version % COMMITS_PER_CHECKPOINT == 0:
                self.checkpoint()
                self.vacuum()

    def commit(self) -> None:
        version = self.version + 1
        options = self.maker.LogOptions(adds=ADDS, seed=9)
        added = self.maker.make_adds(options, ADDS + version * 10, 10)
        removed = [self.live.pop(path) for path in list(self.live)[:5]]
        self.live |= {add["path"]: add for add in added}
        # Known before it can be read.
        self.versions[version] = Files.of(list(self.live))
        lines = [{"commitInfo": {"timestamp": int(time.time() * 1000), "operation": "WRITE"}}]
        lines += [{"add": add} for add in added]
        lines += [self.maker.removal(add, version) for add in removed]
        log = self.root / "_delta_log"
        half = log / f".{version}.half"
        half.write_text("".join(json.dumps(line) + "\n" for line in lines))
        half.rename(log / f"{version:020d}.json")
        self.version = version

    def checkpoint(self) -> None:
        # In a process of its own: its writer may abort when the interpreter ends.
        made = subprocess.run(
            [sys.executable, "-c", CHECKPOINT, str(self.root)], capture_output=True, check=False
        )
        assert b"done" in made.stdout, made.stderr
        self.checkpoints.append(self.version)

    def vacuum(self) -> None:
        if len(self.checkpoints) < 2:
            return
        oldest = max(0, self.checkpoints[-2] - KEPT_COMMITS)
        for file in (self.root / "_delta_log").glob("*"):
            version = file.name.partition(".")[0]
            if version.isdigit() and int(version) < oldest:
                file.unlink()


@pytest.fixture
def table(tmp_path):
    maker = make_log()
    root = tmp_path / "table"
    options = maker.LogOptions(adds=ADDS, commits=0)
    maker.make_log(root, options)
    live = {add["path"]: add for add in maker.make_adds(options, 0, ADDS)}
    yield root, live
    shutil.rmtree(root)


async def test_each_reader_gets_exactly_one_version_though_the_log_is_cleaned_up(table, tmp_path):
    root, live = table
    with running_gateway(tmp_path, [share("s", {"t": str(root)})], {"drainDelaySeconds": 0}) as gateway:
        base = f"http://127.0.0.1:{gateway.port}"
        writer = Writer(root, 0, live)
        writer.start()
        try:
            whole = await read_until(base, lambda found: is_enough(found, writer))
        finally:
            writer.stop.set()
            writer.join()
    for version, files in whole:
        assert writer.versions[version] == files
    assert is_enough(whole, writer)


def is_enough(whole: list[tuple[int, Files]], writer: Writer) -> bool:
    """Whether readers met many versions, on average more than one each, and the log was cleaned up."""
    versions = {version for version, _ in whole}
    return (
        len(versions) > MORE_THAN_VERSIONS
        and len(whole) > READERS
        and len(writer.checkpoints) >= LEAST_CHECKPOINTS
    )


async def read_until(base: str, enough: Callable[[list[tuple[int, Files]]], bool]) -> list[tuple[int, Files]]:
    """Reads for LEAST_SECONDS, and on a busy machine for as long as it takes."""
    whole: list[tuple[int, Files]] = []
    started = time.monotonic()

    def ends() -> bool:
        seconds = time.monotonic() - started
        return seconds > MOST_SECONDS or (seconds > LEAST_SECONDS and enough(whole))

    async def reader(session: aiohttp.ClientSession, number: int) -> None:
        last = -1
        while not ends():
            try:
                version, files = await (pages if number % 2 else plain)(session, base)
            except Broken as broken:
                if CLEANED_UP.search(str(broken)):
                    continue
                raise
            assert version >= last, "a table went backwards"
            last = version
            whole.append((version, files))

    connector = aiohttp.TCPConnector(limit=0)
    async with aiohttp.ClientSession(connector=connector) as session, asyncio.timeout(MOST_SECONDS + 60):
        await asyncio.gather(*(reader(session, number) for number in range(READERS)))
    return whole


async def plain(session: aiohttp.ClientSession, base: str) -> tuple[int, Files]:
    answer = await query(session, base, "s.default.t", with_end=True)
    return answer.version, answer.files


async def pages(session: aiohttp.ClientSession, base: str) -> tuple[int, Files]:
    body: dict = {"maxFiles": PAGE_FILES}
    count = digest = 0
    versions = set()
    while True:
        answer = await query(session, base, "s.default.t", body, with_end=True)
        versions.add(answer.version)
        count += answer.files.count
        digest = (digest + answer.files.digest) % MODULUS
        if answer.next_page_token is None:
            assert len(versions) == 1
            return versions.pop(), Files(count, digest)
        body = {"maxFiles": PAGE_FILES, "pageToken": answer.next_page_token}
