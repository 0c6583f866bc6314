"""Readers beside writers: each answer is one recorded version of one table, or an error of a known kind.

One table is written by hand: it appends, deletes, overwrites, adds deletion vectors, writes checkpoints of
two kinds and checksum files, and cleans the log up. deltalake writes the other one, and what its commits say
is recorded apart from the product. The tables are swapped by their directories, dropped and made again.
`DELTA_GATEWAY_WRITER_SECONDS` says for how long.
"""

import asyncio
import json
import logging
import os
import random
import re
import shutil
import subprocess
import sys
import threading
import time
import uuid
from collections import Counter
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path
from typing import Any, ClassVar

import aiohttp
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from support.deletion_vectors import encode, to_z85
from support.file_answers import MODULUS, Broken, Files, Whole, query
from support.gateway_process import running_gateway, share

log = logging.getLogger(__name__)

SECONDS = int(os.environ.get("DELTA_GATEWAY_WRITER_SECONDS", "5"))
NIGHTLY_SECONDS = 300
READERS = 16
PAGE_FILES = 20
FIRST_FILES = 60
TABLE = "s.default.t"
PROTOCOL = {
    "minReaderVersion": 3,
    "minWriterVersion": 7,
    "readerFeatures": ["deletionVectors"],
    "writerFeatures": ["deletionVectors"],
}
SCHEMA = {"type": "struct", "fields": [{"name": "c", "type": "long", "nullable": True, "metadata": {}}]}
ROWS = pa.schema(
    [
        (
            "protocol",
            pa.struct(
                [
                    ("minReaderVersion", pa.int32()),
                    ("minWriterVersion", pa.int32()),
                    ("readerFeatures", pa.list_(pa.string())),
                    ("writerFeatures", pa.list_(pa.string())),
                ]
            ),
        ),
        (
            "metaData",
            pa.struct(
                [
                    ("id", pa.string()),
                    ("format", pa.struct([("provider", pa.string())])),
                    ("schemaString", pa.string()),
                    ("partitionColumns", pa.list_(pa.string())),
                    ("configuration", pa.map_(pa.string(), pa.string())),
                ]
            ),
        ),
        (
            "add",
            pa.struct(
                [
                    ("path", pa.string()),
                    ("partitionValues", pa.map_(pa.string(), pa.string())),
                    ("size", pa.int64()),
                    ("modificationTime", pa.int64()),
                    ("dataChange", pa.bool_()),
                    (
                        "deletionVector",
                        pa.struct(
                            [
                                ("storageType", pa.string()),
                                ("pathOrInlineDv", pa.string()),
                                ("sizeInBytes", pa.int32()),
                                ("cardinality", pa.int64()),
                            ]
                        ),
                    ),
                ]
            ),
        ),
    ]
)
Records = dict[tuple[str, int], Files]
KNOWN_ERRORS = re.compile(
    "was replaced or deleted|was replaced or cleaned up|is not available|cannot be continued|has no Delta log"
    # Of a log that is being deleted, file by file.
    "|the commit is missing"
)
DELTALAKE = """
import json, sys
from contextlib import suppress
import pyarrow as pa
from deltalake import DeltaTable, write_deltalake
from deltalake.exceptions import DeltaError

RETENTION = {"delta.logRetentionDuration": "interval 10 seconds", "delta.checkpointInterval": "7"}

def act(root, step, number):
    rows = pa.table({"c": range(number, number + 50)})
    table = None if step == "create" else DeltaTable(root)
    match step:
        case "create": write_deltalake(root, rows, configuration=RETENTION)
        case "append" | "overwrite": write_deltalake(table, rows, mode=step)
        case "delete": table.delete(f"c % 23 = {number % 23}")
        case "optimize": table.optimize.compact()
        case "vacuum": table.vacuum(0, dry_run=False, enforce_retention_duration=False)
        case "restore" if table.version() > 3:
            # Data files of the version may be vacuumed: a delete could not read the restored table.
            with suppress(DeltaError):
                table.restore(table.version() - 1 - number % 3)
        case "checkpoint": table.create_checkpoint()
        case "clean_up": table.cleanup_metadata()

for line in sys.stdin:
    act(*json.loads(line))
    print("done", flush=True)
"""


class Deltalake:
    """deltalake in a process of its own: its writer may abort when the interpreter ends."""

    def __init__(self) -> None:
        command = [sys.executable, "-c", DELTALAKE]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def act(self, root: Path, step: str, number: int) -> None:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(json.dumps([str(root), step, number]) + "\n")
        self.process.stdin.flush()
        assert self.process.stdout.readline() == "done\n", step

    def close(self) -> None:
        self.process.kill()
        self.process.communicate()


class WrittenTable:
    """A table of deltalake. Its commits are replayed line by line once they are there."""

    STEPS: ClassVar[dict[str, int]] = {
        "append": 8,
        "delete": 3,
        "overwrite": 1,
        "optimize": 2,
        "vacuum": 1,
        "restore": 2,
        "checkpoint": 2,
        "clean_up": 1,
    }

    def __init__(self, root: Path, records: Records, drawn: random.Random, deltalake: Deltalake) -> None:
        self.root, self.records, self.drawn, self.deltalake = root, records, drawn, deltalake
        self.live: set[str] = set()
        self.version = -1
        self.act("create")

    def act(self, step: str) -> None:
        self.deltalake.act(self.root, step, self.drawn.randrange(1000))
        while (commit := self.root / f"_delta_log/{self.version + 1:020}.json").exists():
            for line in map(json.loads, commit.read_text().splitlines()):
                if "metaData" in line:
                    self.id = line["metaData"]["id"]
                if "add" in line:
                    self.live.add(line["add"]["path"])
                if "remove" in line:
                    self.live.discard(line["remove"]["path"])
            self.version += 1
            self.records[self.id, self.version] = Files.of(list(self.live))


class Table:
    """A table by hand in a directory that may be moved; versions are recorded before they can be read."""

    STEPS: ClassVar[dict[str, int]] = {
        "append": 8,
        "delete": 5,
        "overwrite": 1,
        "add_vectors": 3,
        "checkpoint": 3,
        "clean_up": 2,
    }

    def __init__(self, root: Path, records: Records, drawn: random.Random) -> None:
        self.root, self.records, self.drawn = root, records, drawn
        self.id = str(uuid.UUID(int=drawn.getrandbits(128)))
        self.live: dict[str, bytes] = {}
        """By path: the deletion vector, or nothing."""
        self.numbers = count()
        self.version = -1
        self.checkpoints: list[int] = []
        (root / "_delta_log").mkdir(parents=True)
        self.commit([{"protocol": PROTOCOL}, {"metaData": self.metadata()}], FIRST_FILES, 0)

    def act(self, step: str) -> None:
        act: Callable[[], None] = getattr(self, step)
        act()

    def metadata(self) -> dict[str, Any]:
        return {
            "id": self.id,
            "format": {"provider": "parquet", "options": {}},
            "schemaString": json.dumps(SCHEMA),
            "partitionColumns": [],
            "configuration": {},
        }

    def action(self, kind: str, path: str, vector: bytes, **fields: object) -> dict[str, Any]:
        action: dict[str, Any] = {"path": path, "dataChange": True, **fields}
        if vector:
            action["deletionVector"] = {
                "storageType": "i",
                "pathOrInlineDv": to_z85(vector),
                "sizeInBytes": len(vector),
                "cardinality": 2,
            }
        return {kind: action}

    def add(self, path: str) -> dict[str, Any]:
        fields = {"partitionValues": {}, "size": 10, "modificationTime": 1}
        return self.action("add", path, self.live[path], **fields)

    def commit(self, lines: list[dict[str, Any]], added: int, removed: int, replaced: int = 0) -> None:
        """Removes and adds files, and gives others a new deletion vector."""
        gone = self.drawn.sample(list(self.live), removed + replaced)
        removals = [self.action("remove", path, self.live[path], deletionTimestamp=1) for path in gone]
        new = {f"{self.id}-{next(self.numbers)}": b"" for _ in range(added)}
        new |= {path: encode(self.drawn.sample(range(1000), 2)) for path in gone[removed:]}
        self.live = {path: vector for path, vector in self.live.items() if path not in gone} | new
        self.version += 1
        vectors = [to_z85(vector) for vector in self.live.values() if vector]
        self.records[self.id, self.version] = Files.of(list(self.live), vectors)
        self.put(f"{self.version:020}.json", [*lines, *removals, *map(self.add, new)])
        if self.drawn.random() < 0.5:
            stated = {"tableSizeBytes": 10 * len(self.live), "numFiles": len(self.live)}
            self.put(f"{self.version:020}.crc", [stated | {"numMetadata": 1, "numProtocol": 1}])

    def put(self, name: str, lines: list[dict[str, Any]]) -> None:
        made = self.root / "_delta_log" / f".{name}"
        made.write_text("".join(json.dumps(line) + "\n" for line in lines))
        made.rename(made.with_name(name))

    def append(self) -> None:
        self.commit([{"commitInfo": {"operation": "WRITE"}}], self.drawn.randrange(1, 10), 0)

    def delete(self) -> None:
        self.commit(
            [{"commitInfo": {"operation": "DELETE"}}], 0, min(len(self.live), self.drawn.randrange(8))
        )

    def overwrite(self) -> None:
        self.commit([{"commitInfo": {"operation": "WRITE"}}], self.drawn.randrange(40, 80), len(self.live))

    def add_vectors(self) -> None:
        replaced = min(len(self.live), self.drawn.randrange(1, 8))
        self.commit([{"commitInfo": {"operation": "DELETE"}}], 0, 0, replaced)

    def checkpoint(self) -> None:
        rows = [{"protocol": PROTOCOL}, {"metaData": self.metadata()}, *map(self.add, self.live)]
        if self.drawn.random() < 0.5:
            name = f"{self.version:020}.checkpoint.{uuid.UUID(int=self.drawn.getrandbits(128))}.json"
            self.put(name, [{"checkpointMetadata": {"version": self.version}}, *rows])
        else:
            made = self.root / "_delta_log" / f".{self.version}.parquet"
            pq.write_table(pa.Table.from_pylist(rows, ROWS), made)
            made.rename(made.with_name(f"{self.version:020}.checkpoint.parquet"))
        self.put(
            "_last_checkpoint",
            [{"version": self.version, "size": len(rows), "numOfAddFiles": len(self.live)}],
        )
        self.checkpoints.append(self.version)

    def clean_up(self) -> None:
        """Delete all before the last checkpoint, oldest first."""
        if not self.checkpoints:
            return
        for file in sorted((self.root / "_delta_log").iterdir()):
            version = file.name.partition(".")[0]
            if version.isdigit() and int(version) < self.checkpoints[-1]:
                file.unlink()


class Writer(threading.Thread):
    """Changes the table at a root by each step once, and then by drawn steps."""

    def __init__(self, root: Path, deltalake: Deltalake) -> None:
        super().__init__()
        self.root, self.other, self.deltalake = root, root.with_name("other"), deltalake
        self.records: Records = {}
        self.drawn = random.Random(34)
        self.table: Table | WrittenTable = Table(root, self.records, self.drawn)
        self.waiting: Table | WrittenTable = WrittenTable(self.other, self.records, self.drawn, deltalake)
        self.steps: Counter[str] = Counter()
        self.has_made_each = False
        self.stop = threading.Event()
        self.failure: Exception | None = None

    def run(self) -> None:
        first = [*Table.STEPS, "swap", *WrittenTable.STEPS, "drop", "drop"]
        try:
            while not self.stop.wait(self.drawn.random() * 0.02):
                weights = self.table.STEPS | {"drop": 1, "swap": 1}
                (step,) = self.drawn.choices(list(weights), list(weights.values()))
                self.act(first.pop(0) if first else step)
                self.has_made_each = not first
        except Exception as error:  # noqa: BLE001 - the test raises it
            self.failure = error

    def act(self, step: str) -> None:
        self.steps[f"{type(self.table).__name__}.{step}"] += 1
        match step:
            case "drop":
                self.drop()
            case "swap":
                self.swap()
            case _:
                self.table.act(step)

    def drop(self) -> None:
        """Delete the table, file by file, and make one of the other kind in its place."""
        shutil.rmtree(self.root)
        if isinstance(self.table, Table):
            self.table = WrittenTable(self.root, self.records, self.drawn, self.deltalake)
        else:
            self.table = Table(self.root, self.records, self.drawn)

    def swap(self) -> None:
        aside = self.root.with_name("aside")
        self.root.rename(aside)
        self.other.rename(self.root)
        aside.rename(self.other)
        self.table, self.waiting = self.waiting, self.table
        self.table.root, self.waiting.root = self.root, self.other


async def ask(session: aiohttp.ClientSession, base: str, **body: object) -> Whole:
    return await query(session, base, TABLE, body, with_end=True, with_vectors=True)


async def whole(session: aiohttp.ClientSession, base: str) -> Whole:
    return await ask(session, base)


async def hinted(session: aiohttp.ClientSession, base: str) -> Whole:
    """With a limit that no table reaches."""
    return await ask(session, base, limitHint=1 << 40)


async def earlier(session: aiohttp.ClientSession, base: str) -> Whole:
    """A version before the latest, which may be one of another table by now."""
    latest = await ask(session, base, limitHint=1)
    return await ask(session, base, version=max(0, latest.version - 1))


async def pages(session: aiohttp.ClientSession, base: str) -> Whole:
    first = page = await ask(session, base, maxFiles=PAGE_FILES)
    files = page.files
    while page.next_page_token is not None:
        page = await ask(session, base, maxFiles=PAGE_FILES, pageToken=page.next_page_token)
        assert (page.version, page.table_id) == (first.version, first.table_id)
        files = Files(files.count + page.files.count, (files.digest + page.files.digest) % MODULUS)
    return Whole(first.version, first.table_id, files, None)


@pytest.fixture
def deltalake() -> Iterator[Deltalake]:
    started = Deltalake()
    yield started
    started.close()


@pytest.mark.parametrize(
    "seconds",
    [
        pytest.param(SECONDS, marks=pytest.mark.timeout(SECONDS + 600)),
        pytest.param(
            NIGHTLY_SECONDS, marks=[pytest.mark.nightly, pytest.mark.timeout(NIGHTLY_SECONDS + 600)]
        ),
    ],
)
async def test_each_answer_is_one_version_of_one_table_or_an_error(
    tmp_path: Path, deltalake: Deltalake, seconds: int
) -> None:
    root = tmp_path / "table"
    writer = Writer(root, deltalake)
    answers: list[tuple[str, Whole]] = []
    errors: Counter[str] = Counter()

    async def read(session: aiohttp.ClientSession, base: str, number: int) -> None:
        kind = (whole, pages, earlier, hinted)[number % 4]
        while time.monotonic() < end or (writer.is_alive() and not writer.has_made_each):
            try:
                answers.append((kind.__name__, await kind(session, base)))
            except Broken as broken:
                errors[re.sub(r"[0-9a-f]{16,}|\d+", "#", str(broken))] += 1

    shares = [share("s", {"t": str(root)})]
    with running_gateway(tmp_path, shares, {"drainDelaySeconds": 0}) as gateway:
        base = f"http://127.0.0.1:{gateway.port}"
        end = time.monotonic() + seconds
        writer.start()
        try:
            async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as session:
                await asyncio.gather(*(read(session, base, number) for number in range(READERS)))
        finally:
            writer.stop.set()
            writer.join()
    kinds = Counter(kind for kind, _ in answers)
    log.info("answers %s, errors %s, steps %s", dict(kinds), dict(errors), dict(writer.steps))
    if writer.failure is not None:
        raise writer.failure
    wrong = [
        found
        for found in answers
        if writer.records.get((found[1].table_id, found[1].version)) != found[1].files
    ]
    assert not wrong
    assert not [error for error in errors if not KNOWN_ERRORS.search(error)]
    assert len(kinds) == 4
    assert 4 * len(answers) > sum(errors.values())
