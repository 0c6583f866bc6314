"""Readers beside a writer by hand: each answer is one recorded version of one table, or an error.

The writer appends, deletes, overwrites, writes checkpoints of two kinds and checksum files, cleans the log
up, drops the table and makes another one in its place, and swaps its directory with that of another table.
`DELTA_GATEWAY_WRITER_SECONDS` says for how long.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import random
import shutil
import threading
import time
import uuid
from collections import Counter
from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import Any

import aiohttp
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from support.file_answers import MODULUS, Broken, Files, Whole, query
from support.gateway_process import running_gateway, share

log = logging.getLogger(__name__)

SECONDS = int(os.environ.get("DELTA_GATEWAY_WRITER_SECONDS", "10"))
READERS = 16
PAGE_FILES = 20
FIRST_FILES = 60
TABLE = "s.default.t"
PROTOCOL = {"minReaderVersion": 1, "minWriterVersion": 2}
SCHEMA = {"type": "struct", "fields": [{"name": "c", "type": "long", "nullable": True, "metadata": {}}]}
ROWS = pa.schema(
    [
        ("protocol", pa.struct([("minReaderVersion", pa.int32()), ("minWriterVersion", pa.int32())])),
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
                ]
            ),
        ),
    ]
)
Records = dict[tuple[str, int], Files]


class Table:
    """A table in a directory, which may be moved; its versions are recorded before they can be read."""

    def __init__(self, root: Path, records: Records, drawn: random.Random) -> None:
        self.root, self.records, self.drawn = root, records, drawn
        self.id = str(uuid.UUID(int=drawn.getrandbits(128)))
        self.live: list[str] = []
        self.numbers = count()
        self.version = -1
        self.checkpoints: list[int] = []
        (root / "_delta_log").mkdir(parents=True)
        self.commit([{"protocol": PROTOCOL}, {"metaData": self.metadata()}], FIRST_FILES, 0)

    def metadata(self) -> dict[str, Any]:
        return {
            "id": self.id,
            "format": {"provider": "parquet", "options": {}},
            "schemaString": json.dumps(SCHEMA),
            "partitionColumns": [],
            "configuration": {},
        }

    def add(self, path: str) -> dict[str, Any]:
        return {
            "add": {
                "path": path,
                "partitionValues": {},
                "size": 10,
                "modificationTime": 1,
                "dataChange": True,
            }
        }

    def commit(self, lines: list[dict[str, Any]], added: int, removed: int) -> None:
        gone = self.drawn.sample(self.live, removed)
        new = [f"{self.id}-{next(self.numbers)}" for _ in range(added)]
        self.live = [path for path in self.live if path not in set(gone)] + new
        self.version += 1
        self.records[self.id, self.version] = Files.of(self.live)
        lines = lines + [
            {"remove": {"path": path, "dataChange": True, "deletionTimestamp": 1}} for path in gone
        ]
        self.put(f"{self.version:020}.json", lines + [self.add(path) for path in new])
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
    """Changes the table at a root by one drawn step after another."""

    def __init__(self, root: Path) -> None:
        super().__init__()
        self.root, self.other = root, root.with_name("other")
        self.records: Records = {}
        self.drawn = random.Random(34)
        self.table = Table(root, self.records, self.drawn)
        self.waiting = Table(self.other, self.records, self.drawn)
        self.steps: Counter[str] = Counter()
        self.stop = threading.Event()
        self.failure: Exception | None = None

    def run(self) -> None:
        table_steps = {"append": 8, "delete": 5, "overwrite": 1, "checkpoint": 3, "clean_up": 2}
        weights = table_steps | {"drop": 1, "swap": 1}
        try:
            while not self.stop.wait(self.drawn.random() * 0.02):
                (step,) = self.drawn.choices(list(weights), list(weights.values()))
                self.steps[step] += 1
                act: Callable[[], None] = getattr(self.table if step in table_steps else self, step)
                act()
        except Exception as error:  # noqa: BLE001 - the test raises it
            self.failure = error

    def drop(self) -> None:
        """Delete the table, file by file, and make another one in its place."""
        shutil.rmtree(self.root)
        self.table = Table(self.root, self.records, self.drawn)

    def swap(self) -> None:
        aside = self.root.with_name("aside")
        self.root.rename(aside)
        self.other.rename(self.root)
        aside.rename(self.other)
        self.table, self.waiting = self.waiting, self.table
        self.table.root, self.waiting.root = self.root, self.other


async def whole(session: aiohttp.ClientSession, base: str) -> Whole:
    return await query(session, base, TABLE, with_end=True)


async def earlier(session: aiohttp.ClientSession, base: str) -> Whole:
    """A version before the latest, which may be one of another table by now."""
    latest = await query(session, base, TABLE, {"limitHint": 1}, with_end=True)
    return await query(session, base, TABLE, {"version": max(0, latest.version - 1)}, with_end=True)


async def pages(session: aiohttp.ClientSession, base: str) -> Whole:
    first = page = await query(session, base, TABLE, {"maxFiles": PAGE_FILES}, with_end=True)
    files = page.files
    while page.next_page_token is not None:
        body = {"maxFiles": PAGE_FILES, "pageToken": page.next_page_token}
        page = await query(session, base, TABLE, body, with_end=True)
        assert (page.version, page.table_id) == (first.version, first.table_id)
        files = Files(files.count + page.files.count, (files.digest + page.files.digest) % MODULUS)
    return Whole(first.version, first.table_id, files, None)


@pytest.mark.timeout(SECONDS + 90)
async def test_each_answer_is_one_version_of_one_table_or_an_error(tmp_path: Path) -> None:
    root = tmp_path / "table"
    writer = Writer(root)
    answers: Counter[str] = Counter()
    errors: Counter[str] = Counter()

    async def read(session: aiohttp.ClientSession, base: str, number: int) -> None:
        kind = (whole, pages, earlier)[number % 3]
        while time.monotonic() < end:
            try:
                found = await kind(session, base)
            except Broken as broken:
                errors[str(broken)[:60]] += 1
                continue
            assert writer.records[found.table_id, found.version] == found.files, (kind.__name__, found)
            answers[kind.__name__] += 1

    shares = [share("s", {"t": str(root)})]
    with running_gateway(tmp_path, shares, {"drainDelaySeconds": 0}) as gateway:
        base = f"http://127.0.0.1:{gateway.port}"
        end = time.monotonic() + SECONDS
        writer.start()
        try:
            async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as session:
                await asyncio.gather(*(read(session, base, number) for number in range(READERS)))
        finally:
            writer.stop.set()
            writer.join()
    log.info("answers %s, errors %s, steps %s", dict(answers), dict(errors), dict(writer.steps))
    if writer.failure is not None:
        raise writer.failure
    assert min(answers.values()) > 0
    assert 4 * sum(answers.values()) > sum(errors.values())
    assert min(writer.steps.values()) > 0
