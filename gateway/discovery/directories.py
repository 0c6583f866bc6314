"""The searches of discovery: the tables in the directories of a template.

In: a storage, a template with its limits, and the tables that are known. Out: the tables that are there, the
directories that cannot be shared with the reasons, and the directories that the search has not listed. A
search lists directories and reads no log. The directory of a known table is listed by each tenth search only:
the listing of its parent shows that the directory still exists.
"""

from __future__ import annotations

import errno
import os
import stat
import time
import zlib
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace

from gateway import _native
from gateway.catalog.conflicts import LeftOut
from gateway.catalog.discovered import FoundTable
from gateway.config import Location, Source
from gateway.config.checks import MAX_NAME_LENGTH
from gateway.config.location_template import SCHEMA, Level
from gateway.discovery.known_tables import KnownTables, Limit, SearchResult, within_limit
from gateway.discovery.names import TOO_LONG, name_problem
from gateway.storage.refusals import explained
from gateway.storage.stores import Store
from gateway.tables.search import LOG_DIRECTORY, below, is_table, may_hold_tables

CONCURRENT_LISTINGS = 8
RECHECK_EVERY = 10
"""A search lists the directories of one known table in this number."""
SEARCH_SECONDS = 300.0
"""After this time a search lists nothing more."""
THREAD = "discovery"


def search(store: Store, source: Source, known: KnownTables) -> SearchResult:
    """Search the tables of one place of the configuration. Blocks, and raises nothing of a storage."""
    root = source.discovery.template.root
    try:
        store.renew()
    except Exception as error:  # noqa: BLE001 - identities fail by errors of many libraries
        return SearchResult(unknown=frozenset({root}), problem=error_text(root.kind, error), is_cut=True)
    if root.kind == "file" and not os.path.isdir(root.key):  # noqa: PTH112 - as the native reader
        # A mount that is gone is no proof that its tables are.
        return SearchResult(unknown=frozenset({root}), problem="there is no such directory", is_cut=True)
    device = _device(root.key) if root.kind == "file" else None
    with ThreadPoolExecutor(CONCURRENT_LISTINGS, thread_name_prefix=THREAD) as threads:
        return replace(_Search(store.native, source, known, threads).run(), device=device)


def _is_endless(path: str) -> bool:
    """Return whether a link leads back to itself, also by way of a path below it."""
    try:
        os.stat(path)  # noqa: PTH116 - as above
    except OSError as error:
        return error.errno == errno.ELOOP
    return False


def _device(path: str) -> int | None:
    try:
        return os.stat(path).st_dev  # noqa: PTH116 - as above
    except OSError:
        return None


@dataclass(frozen=True, slots=True)
class _Directory:
    """A directory on the way to tables, with the names so far."""

    location: Location
    schema: str
    names: tuple[str, ...] = ()


class _Search:
    """One search, from the root of a template to the directories of tables."""

    def __init__(
        self, storage: _native.Storage, source: Source, known: KnownTables, threads: ThreadPoolExecutor
    ) -> None:
        self._storage = storage
        self._source = source
        self._threads = threads
        self._known = {table.location for table in known.seen}
        self._round = known.searches % RECHECK_EVERY
        self._end_seconds = time.monotonic() + SEARCH_SECONDS
        self._calls = 0
        self._problem = ""
        self._limit: Limit | None = None
        self._is_failing = self._is_cut = False
        self._tables: list[FoundTable] = []
        self._refused: list[LeftOut] = []
        self._unknown: set[Location] = set()
        root = source.discovery.template.root
        # Of a local directory, links may lead anywhere.
        self._real_root = os.path.realpath(root.key) if root.kind == "file" else None

    def run(self) -> SearchResult:
        """List the directories of each level of the template, and the directories of tables."""
        discovery = self._source.discovery
        level = [_Directory(discovery.template.root, self._source.schema or "")]
        for template in discovery.template.levels:
            level = list(self._step(template, level))
        for depth in range(discovery.max_depth + 1):
            level = self._take_tables(level, goes_deeper=depth < discovery.max_depth)
        tables = self._within_limit()
        return SearchResult(
            tables,
            tuple(self._refused),
            frozenset(self._unknown),
            calls=self._calls,
            problem=self._problem,
            limit=self._limit,
            is_cut=self._is_cut,
        )

    def _step(self, level: Level, directories: Iterable[_Directory]) -> Iterator[_Directory]:
        """Iterate over the directories of a template's level below others."""
        if level.names is None:
            for directory in directories:
                location = below(directory.location, level.before)
                if not self._is_link_out(location):
                    yield replace(directory, location=location)
            return
        for directory, names, _ in self._listed(list(directories)):
            for name in filter(may_hold_tables, names):
                named = level.name_in(name)
                if named is None:
                    continue
                child = self._child(directory, name, named, is_schema=level.names == SCHEMA)
                if child is not None:
                    yield child

    def _child(self, directory: _Directory, name: str, named: str, *, is_schema: bool) -> _Directory | None:
        """Return a directory below another; None for one that cannot be shared."""
        location = below(directory.location, name)
        named = self._source.discovery.shared_name(named)
        reason = name_problem(named)
        if reason is not None:
            self._refused.append(LeftOut(location.url, reason))
            return None
        if self._is_link_out(location):
            return None
        if is_schema:
            return replace(directory, location=location, schema=named)
        return replace(directory, location=location, names=(*directory.names, named))

    def _is_link_out(self, location: Location) -> bool:
        """Return whether a directory is a link out of the searched location or to itself, and refuse it."""
        if self._real_root is None or not os.path.islink(location.key):  # noqa: PTH114 - as `realpath`
            return False
        real = os.path.realpath(location.key)
        is_endless = _is_endless(location.key)
        if real.startswith(self._real_root.rstrip("/") + "/") and not is_endless:
            return False
        reason = "it is a link to itself" if is_endless else "it is a link out of the searched location"
        self._refused.append(LeftOut(location.url, reason))
        return True

    def _take_tables(self, directories: list[_Directory], *, goes_deeper: bool) -> list[_Directory]:
        """Add the directories that are tables, and return those below the others."""
        unlisted = []
        for directory in directories:
            # The directory of a table may have very many files, whose listing is slow.
            is_there = (
                directory.location in self._known and not self._is_due(directory.location)
                if self._real_root is None
                else self._has_local_log(directory.location)
            )
            if is_there:
                self._add(directory)
            elif self._real_root is None or goes_deeper:
                unlisted.append(directory)
        deeper = []
        for directory, names, is_truncated in self._listed(unlisted):
            if self._is_table(directory.location, names, is_truncated=is_truncated):
                self._add(directory)
            elif goes_deeper:
                children = (
                    self._child(directory, name, name, is_schema=False)
                    for name in filter(may_hold_tables, names)
                )
                deeper += [child for child in children if child is not None]
        return deeper

    def _has_local_log(self, location: Location) -> bool:
        """Return whether a local directory has a log. An error other than its absence says nothing."""
        log = below(location, LOG_DIRECTORY)
        try:
            is_there = stat.S_ISDIR(os.stat(log.key).st_mode)  # noqa: PTH116 - as above
        except (FileNotFoundError, NotADirectoryError):
            return False
        except OSError as error:
            # No file can have a name that is too long, as for the native reader.
            if error.errno == errno.ENAMETOOLONG:
                return False
            # The next search would get these again.
            self._is_cut = self._is_cut or error.errno not in (errno.EACCES, errno.EPERM, errno.ELOOP)
            self._unknown.add(location)
            self._problem = self._problem or f"{type(error).__name__}: {error.strerror}"
            return False
        return is_there and not self._is_link_out(log)

    def _is_due(self, location: Location) -> bool:
        return zlib.crc32(location.key.encode("utf-8", "surrogateescape")) % RECHECK_EVERY == self._round

    def _is_table(self, location: Location, names: list[str], *, is_truncated: bool) -> bool:
        if LOG_DIRECTORY in names or not is_truncated:
            return LOG_DIRECTORY in names
        self._calls += 1
        return is_table(self._storage, location, names, is_truncated=True)

    def _add(self, directory: _Directory) -> None:
        name = "_".join(directory.names)
        if len(name) > MAX_NAME_LENGTH:
            self._refused.append(LeftOut(directory.location.url, TOO_LONG))
            return
        self._tables.append(FoundTable(directory.schema, name, directory.location))

    def _listed(self, directories: list[_Directory]) -> Iterator[tuple[_Directory, list[str], bool]]:
        """Iterate over directories, each with the names of its directories and whether there are more."""
        for start in range(0, len(directories), CONCURRENT_LISTINGS):
            together = directories[start : start + CONCURRENT_LISTINGS]
            left = max(0, self._source.discovery.max_calls - self._calls)
            if len(together) > left:
                self._end("calls", f"maxCalls ends the search after {self._calls} listings")
            if time.monotonic() > self._end_seconds:
                self._end("time", f"the search ends after {SEARCH_SECONDS:g} s")
                left = 0
            if self._is_failing:
                left = 0
            self._unknown.update(directory.location for directory in together[left:])
            self._calls += len(together[:left])
            listings = self._threads.map(self._listing, together[:left])
            for directory, listing in zip(together[:left], listings, strict=True):
                if listing is None:
                    self._unknown.add(directory.location)
                    continue
                names, is_truncated = listing
                if is_truncated and LOG_DIRECTORY not in names:
                    self._unknown.add(directory.location)
                    self._problem = self._problem or "a directory has more entries than are listed"
                yield directory, names, is_truncated

    def _listing(self, directory: _Directory) -> tuple[list[str], bool] | None:
        try:
            return self._storage.list_directories(directory.location.key)
        except _native.LogError as error:
            # Below the root, single directories may be denied, and local ones may be mounts or links.
            is_denied = isinstance(error, _native.StorageDenied)
            self._is_cut = self._is_cut or not is_denied
            is_alone = self._real_root is not None or is_denied
            if not is_alone or directory.location == self._source.discovery.template.root:
                self._is_failing = True
            self._problem = self._problem or error_text(directory.location.kind, error)
            return None

    def _end(self, limit: Limit, problem: str) -> None:
        self._limit = self._limit or limit
        self._problem = self._problem or problem

    def _within_limit(self) -> tuple[FoundTable, ...]:
        limit = self._source.discovery.max_tables
        if len(self._tables) > limit:
            self._end("tables", f"maxTables: {len(self._tables)} tables are there")
        return within_limit(self._tables, self._known, limit)


def error_text(kind: str, error: Exception) -> str:
    """Return an error of a kind of storage for the operator."""
    detail = getattr(error, "detail", None) or str(error)
    return f"{type(error).__name__}: {explained(kind, detail) or detail}"
