"""Finds the Delta tables below a location.

In: a storage and a location. Out: the tables by the directories that lead to them. The search is bounded in
depth and in the number of directories, never looks into a table, and skips directories that it cannot list,
such as `lost+found`.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path

from gateway import _native
from gateway.config import Location

LOG_DIRECTORY = "_delta_log"
MAX_DEPTH = 3
"""Catalog, schema, table."""
MAX_DIRECTORIES = 2000
CONCURRENT_LISTINGS = 16


@dataclass(frozen=True, slots=True)
class FoundTable:
    """A table, and the names of the directories that lead to it from the searched location."""

    location: Location
    path: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Search:
    """The result of a search; incomplete if it reached the maximum number of directories.

    `unlisted` are the directories below the location that cannot be listed.
    """

    location: Location
    tables: tuple[FoundTable, ...]
    is_complete: bool
    unlisted: tuple[Location, ...]


def find_tables(storage: _native.Storage, location: Location) -> Search:
    """Return the tables at or below a location, by path. Blocks. Raises LogError, FileNotFoundError."""
    try:
        return _search(storage, location)
    except _native.TableNotFound:
        # A prefix without objects is empty; only a bucket can be missing.
        raise FileNotFoundError(f"there is no bucket '{location.bucket}'") from None


def _search(storage: _native.Storage, location: Location) -> Search:
    tables: list[FoundTable] = []
    unlisted: list[Location] = []
    level = [FoundTable(location, ())]
    looked, is_complete = 0, True
    with ThreadPoolExecutor(CONCURRENT_LISTINGS, thread_name_prefix="search") as threads:
        for depth in range(MAX_DEPTH + 1):
            if looked + len(level) > MAX_DIRECTORIES:
                level, is_complete = level[: MAX_DIRECTORIES - looked], False
            looked += len(level)
            listings = threads.map(lambda at: _listing(storage, at), level)
            below: list[FoundTable] = []
            for directory, listing in zip(level, listings, strict=True):
                if listing is None:
                    unlisted.append(directory.location)
                    continue
                names, is_truncated = listing
                if is_table(storage, directory.location, names, is_truncated=is_truncated):
                    tables.append(directory)
                    continue
                is_complete = is_complete and not is_truncated
                if depth < MAX_DEPTH:
                    below += _children(directory, names)
            level = below
    in_order = tuple(sorted(tables, key=lambda table: table.path))
    return Search(location, in_order, is_complete, tuple(unlisted))


def _listing(storage: _native.Storage, directory: FoundTable) -> tuple[list[str], bool] | None:
    """Return subdirectories and whether there are more; None if a directory below cannot be listed."""
    try:
        return storage.list_directories(directory.location.key)
    except _native.LogError as error:
        # Of a local directory, each one below may be a mount or a link.
        is_alone = directory.location.kind == "file" or isinstance(error, _native.StorageDenied)
        if not (directory.path and is_alone):
            raise
        return None


def is_table(
    storage: _native.Storage, location: Location, directories: list[str], *, is_truncated: bool
) -> bool:
    """Return whether a directory with the listed directories is a table. Blocks."""
    return LOG_DIRECTORY in directories or (is_truncated and _has_log(storage, location))


def below(location: Location, directory: str) -> Location:
    """Return the location of a directory directly below another."""
    return replace(location, key=f"{location.key.rstrip('/')}/{directory}" if location.key else directory)


def may_hold_tables(directory: str) -> bool:
    """Return whether a directory may hold tables: it is not hidden and has no partition value."""
    return not directory.startswith((".", "_")) and "=" not in directory


def _children(directory: FoundTable, names: list[str]) -> Iterator[FoundTable]:
    """Iterate over the directories that may hold tables."""
    for name in filter(may_hold_tables, names):
        location = below(directory.location, name)
        if location.kind == "file" and _leads_back(Path(location.key)):
            continue
        yield FoundTable(location, (*directory.path, name))


def _leads_back(directory: Path) -> bool:
    if not directory.is_symlink():
        return False
    target = os.path.realpath(directory)
    return any(os.path.realpath(parent) == target for parent in directory.parents)


def _has_log(storage: _native.Storage, location: Location) -> bool:
    """Return whether a directory with very many entries is a table."""
    try:
        _native.Table(storage, location.key).snapshot()
    except _native.TableNotFound:
        return False
    except _native.LogError:
        # The log exists; opening the table reports its error.
        return True
    return True
