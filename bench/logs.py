"""The tables of a run: their logs in a directory and in the object store, and the files of right answers.

In: a directory that keeps logs between runs, and the store. Out: tables made on first use. Expected files
come from `make_log.py` and from pyarrow, not from the code that is measured.
"""

import hashlib
import json
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
from make_log import FIRST_DAY, MODULUS, ROWS_PER_GROUP, LogOptions, make_adds, make_log
from store import Store

SMALL = 20
DAY_HINT = json.dumps({"predicateHints": [f"date = '{FIRST_DAY}'"]})


@dataclass(frozen=True)
class Expected:
    """The number of files of an answer and the digest of their ids."""

    files: int
    digest: str


@dataclass(frozen=True)
class Table:
    """A table of a run."""

    name: str
    directory: Path
    expected: Expected
    version: int
    text_bytes: int
    """Of the paths and statistics of its files."""
    options: LogOptions

    @cached_property
    def first_day(self) -> Expected:
        """The files of the first day, as pyarrow reads them."""
        prefix = f"date={FIRST_DAY}/"
        ids = [file_id(path) for path in self.live_paths() if path.startswith(prefix)]
        return Expected(len(ids), f"{sum(ids) % MODULUS:032x}")

    @cached_property
    def middle(self) -> Expected:
        """The files of `middle_hint`: a thousandth of the checkpoint, by the bounds of a column."""
        first, count = self._middle
        begin = first - first % ROWS_PER_GROUP
        adds = make_adds(self.options, begin, first - begin + count)[first - begin :]
        ids = [file_id(add["path"]) for add in adds]
        return Expected(len(ids), f"{sum(ids) % MODULUS:032x}")

    @property
    def middle_hint(self) -> str:
        """A predicate that statistics decide."""
        first, count = self._middle
        return json.dumps({"predicateHints": [f"id >= {first * 1000}", f"id < {(first + count) * 1000}"]})

    @property
    def _middle(self) -> tuple[int, int]:
        return self.options.adds // 2, self.options.adds // 1000

    def holds(self, ids: list[str]) -> bool:
        """Return whether all ids are those of different live files."""
        wanted = {int(text, 16) for text in ids}
        if len(wanted) < len(ids):
            return False
        for path in self.live_paths():
            wanted.discard(file_id(path))
            if not wanted:
                break
        return not wanted

    def live_paths(self) -> Iterator[str]:
        """The paths of live files: those of the commits, then those of the checkpoint."""
        log = self.directory / "_delta_log"
        actions = [
            json.loads(line)
            for version in range(1, self.version + 1)
            for line in (log / f"{version:020d}.json").read_text().splitlines()
        ]
        removed = {action["remove"]["path"] for action in actions if "remove" in action}
        yield from (action["add"]["path"] for action in actions if "add" in action)
        for checkpoint in log.glob("*.checkpoint.parquet"):
            for batch in pq.ParquetFile(checkpoint).iter_batches(columns=["add.path"]):
                for path in batch.column("add").field("path").to_pylist():
                    if path is not None and path not in removed:
                        yield path

    @property
    def checkpoint_bytes(self) -> int:
        """The size of the only checkpoint."""
        (found,) = (self.directory / "_delta_log").glob("*.checkpoint.parquet")
        return found.stat().st_size


def file_id(path: str) -> int:
    """Return the id of a file in the parquet format, as a number."""
    return int.from_bytes(hashlib.md5(path.encode()).digest())


class Logs:
    """The tables of a run, made and uploaded on first use."""

    def __init__(self, directory: Path, store: Store | None) -> None:
        self._directory = directory
        self._store = store
        self._tables: dict[str, Table] = {}

    def plain(self, files: int, writer: str = "") -> Table:
        """Return a table that is not ordered by its partition columns; `writer` wrote its checkpoint."""
        if writer:
            name = f"{files}-{writer}".replace(" ", "-")
            return self.made(name, LogOptions(adds=files, writer=writer, adds_per_commit=200))
        # A small table is its checkpoint alone; the commits of a larger one add and remove some files.
        commits = 0 if files <= SMALL else LogOptions.commits
        return self.made(str(files), LogOptions(adds=files, commits=commits))

    def clustered(self, files: int) -> Table:
        """Return a table ordered by date, with typed columns of partition values and statistics."""
        options = LogOptions(adds=files, commits=0, parsed=True, clustered=True)
        return self.made(f"{files}-clustered", options)

    def made(self, name: str, options: LogOptions) -> Table:
        if name not in self._tables:
            directory = self._directory / name
            facts: dict[str, Any] = make_log(directory, options)
            expected = Expected(facts["files"], facts["digest"])
            version, text_bytes = facts["version"], facts["text_bytes"]
            self._tables[name] = Table(name, directory, expected, version, text_bytes, options)
        return self._tables[name]

    def location(self, table: Table) -> str:
        """Return where a table is in the store; upload it on first use."""
        if self._store is None:
            raise RuntimeError("there is no store")
        return self._store.location(table.directory, table.name)
