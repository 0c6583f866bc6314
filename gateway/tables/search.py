"""Finds the Delta tables below a location.

In: a storage and a location. Out: the tables by the directories that lead to them. The search is bounded in
depth and in the number of directories, and never looks into a table.
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace

from gateway import _native
from gateway.config import Location

LOG_DIRECTORY = "_delta_log"
MAX_DEPTH = 3
"""Catalog, schema, table."""
MAX_DIRECTORIES = 2000
CONCURRENT_LISTINGS = 16


@dataclass(frozen=True, slots=True)
class FoundTable:
    """A table, and the names of the directories from the searched location to it; none for the location."""

    location: Location
    path: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Search:
    """The result of a search; not complete if there were more directories than are looked into."""

    location: Location
    tables: tuple[FoundTable, ...]
    is_complete: bool


def find_tables(storage: _native.Storage, location: Location) -> Search:
    """Return the tables at or below a location, by path. Blocks. Raises LogError, FileNotFoundError."""
    try:
        return _search(storage, location)
    except _native.CorruptLog:
        # A prefix without objects is empty; only a bucket can be missing.
        raise FileNotFoundError(f"there is no bucket '{location.bucket}'") from None


def _search(storage: _native.Storage, location: Location) -> Search:
    tables: list[FoundTable] = []
    level = [FoundTable(location, ())]
    looked, is_complete = 0, True
    with ThreadPoolExecutor(CONCURRENT_LISTINGS, thread_name_prefix="search") as threads:
        for depth in range(MAX_DEPTH + 1):
            if looked + len(level) > MAX_DIRECTORIES:
                level, is_complete = level[: MAX_DIRECTORIES - looked], False
            looked += len(level)
            listings = threads.map(lambda at: storage.list_directories(at.location.key), level)
            below: list[FoundTable] = []
            for directory, (names, is_truncated) in zip(level, listings, strict=True):
                if LOG_DIRECTORY in names or (is_truncated and _has_log(storage, directory.location)):
                    tables.append(directory)
                    continue
                is_complete = is_complete and not is_truncated
                if depth < MAX_DEPTH:
                    below += _children(directory, names)
            level = below
    return Search(location, tuple(sorted(tables, key=lambda table: table.path)), is_complete)


def _children(directory: FoundTable, names: list[str]) -> Iterator[FoundTable]:
    """Iterate over the directories that may hold tables: not hidden ones and those of partition values."""
    for name in names:
        if not name.startswith((".", "_")) and "=" not in name:
            location = directory.location
            key = f"{location.key.rstrip('/')}/{name}" if location.key else name
            yield FoundTable(replace(location, key=key), (*directory.path, name))


def _has_log(storage: _native.Storage, location: Location) -> bool:
    """Return whether a directory with very many entries is a table."""
    try:
        _native.Table(storage, location.key).snapshot()
    except _native.TableNotFound:
        return False
    except _native.LogError:
        # There is a log, and its error is that of a later open.
        return True
    return True
