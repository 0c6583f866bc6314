"""All tables of one configuration, and the threads that read them.

In: the configuration, the catalog and the storages. Out: an `OpenTable` for a shared table, and the results
of blocking calls. A table is opened at its first request, so a broken storage fails only its own tables.
"""

from __future__ import annotations

import asyncio
import math
import os
import weakref
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain
from typing import Concatenate, ParamSpec, TypeVar

from gateway import _native
from gateway.catalog.catalog import Catalog, SharedTable
from gateway.config import Config, Location
from gateway.errors import Unavailable
from gateway.limits.admission import RETRY_AFTER_CEILING_SECONDS
from gateway.storage.breaker import StorageDown
from gateway.storage.registry import Storages
from gateway.tables.completions import Completions
from gateway.tables.local_files import local_roots, root_id
from gateway.tables.open_table import CachedTable, LatestTable, NotCached, OpenTable
from gateway.tables.runtime import cache_bytes_by_table
from gateway.tables.shared_refresh import STORAGE_IS_DOWN, Ended, SharedRefresh
from gateway.tables.signers import TableSigners
from gateway.tables.visible_errors import shared_error
from gateway.times import MILLISECONDS

P = ParamSpec("P")
R = TypeVar("R")
MAX_BLOCKING_CALLS = 32
STALENESS_ACCEPTABLE_SECONDS = 3600.0


@dataclass(frozen=True, slots=True)
class ServedTables:
    """Sets that requests look tables up in.

    Attributes:
        tables: the tables.
        locations: their locations.
        local_roots: their local roots, and those of the configuration, by the ids in signed URLs.

    """

    tables: frozenset[SharedTable]
    locations: frozenset[Location]
    local_roots: Mapping[str, Location]

    @staticmethod
    def of(config: Config, catalog: Catalog) -> ServedTables:
        """Return the sets of a catalog. Slow for thousands of tables."""
        return ServedTables(
            frozenset(catalog.tables()),
            frozenset(table.location for table in catalog.tables()),
            local_roots(config, catalog),
        )


class Tables:
    """All tables of one configuration."""

    def __init__(
        self,
        config: Config,
        catalog: Catalog,
        *,
        url_keys: list[bytes],
        environment: Mapping[str, str] = os.environ,
        previous: Tables | None = None,
    ) -> None:
        """`url_keys` sign the URLs of local files: the first one signs, all verify.

        Unchanged tables of the `previous` configuration keep their native table with its caches.
        """
        self._config = config
        self._url_keys = url_keys
        self._local_roots: Mapping[str, Location] = local_roots(config, catalog)
        earlier = previous.storages if previous is not None else None
        self.storages: Storages = Storages(
            config, url_key=url_keys[0], environment=environment, previous=earlier
        )
        self._natives: dict[Location, tuple[_native.Storage, _native.Table]] = {}
        self._open: dict[SharedTable, OpenTable] = {}
        self._refreshes: dict[Location, SharedRefresh] = {}
        self._completions = Completions()
        self._executor = ThreadPoolExecutor(MAX_BLOCKING_CALLS, thread_name_prefix="tables")
        if previous is not None:
            self._take_over(previous, catalog)

    def open(self, table: SharedTable) -> OpenTable:
        """Return the open table. Reads nothing."""
        if table.rule is not None:
            # There may be a rule for each recipient, so tables with rules are not kept. They share
            # everything.
            return replace(self.open(replace(table, rule=None)), shared=table)
        opened = self._open.get(table)
        if opened is None:
            opened = self._open[table] = self._make(table)
        return opened

    def largest(self, count: int) -> list[tuple[SharedTable, int]]:
        """Return the tables that hold most of the cache, and the bytes of each."""
        held = cache_bytes_by_table()
        numbers = {location: native.number for location, (_, native) in self._natives.items()}
        sizes = [(table, held.get(numbers.get(table.location, -1), 0)) for table in self._open]
        largest = sorted(sizes, key=lambda entry: entry[1], reverse=True)[:count]
        return [(table, size) for table, size in largest if size]

    def serve(self, served: ServedTables) -> None:
        """Serve the tables of another catalog: close missing tables, and keep the others open."""
        self._local_roots = served.local_roots
        for table in [table for table in self._open if table not in served.tables]:
            del self._open[table]
        for location in [location for location in self._natives if location not in served.locations]:
            del self._natives[location]
            self._refreshes.pop(location, None)
            self.storages.forget_location(location)
        self._forget_calls(served.locations)

    async def blocking(self, call: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
        """Run a blocking call on a thread that belongs to no storage."""
        return await asyncio.get_running_loop().run_in_executor(
            self._executor, partial(call, *args, **kwargs)
        )

    async def read(
        self,
        table: SharedTable,
        call: Callable[Concatenate[OpenTable, P], R],
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> R:
        """Run a call that reads a table, on a thread of its storage.

        While the storage is down, the call is repeated with the cached snapshot, if that is recent enough.
        Raises Unavailable where the cached snapshot is not enough.
        """
        opened = self.open(table)
        try:
            try:
                return await self._on_storage(table.location, call, opened, *args, **kwargs)
            except STORAGE_IS_DOWN as error:
                return await self._from_cache(opened, error, lambda cached: call(cached, *args, **kwargs))
        except _native.LogError as error:
            raise shared_error(table, error) from None

    async def read_latest(
        self, opened: OpenTable, call: Callable[[OpenTable], R], at_once: Callable[[LatestTable], R | None]
    ) -> R:
        """Run a call that reads the latest version of a table, with that version.

        `at_once` is called first, on the event loop. It must not block, and returns None if something has to
        be read; then `call` runs on a thread of the storage. While the storage is down, as `read`.
        """
        try:
            try:
                latest = opened.with_latest(await self._latest(opened))
                answer = at_once(latest)
                if answer is not None:
                    return answer
                return await self._on_storage(opened.shared.location, call, latest)
            except STORAGE_IS_DOWN as error:
                return await self._from_cache(opened, error, call)
        except _native.LogError as error:
            raise shared_error(opened.shared, error) from None

    async def in_local_root(
        self, identity: str, call: Callable[Concatenate[str, P], R], *args: P.args, **kwargs: P.kwargs
    ) -> R | None:
        """Run a call on the directory with an id of signed URLs; None where no directory has it."""
        root = self._local_roots.get(identity)
        if root is None:
            return None
        return await self._on_storage(root, call, root.key, *args, **kwargs)

    def file_threads(self, identity: str) -> Executor | None:
        """Return the threads that read files of that directory for clients; None where there is none."""
        root = self._local_roots.get(identity)
        return None if root is None else self.storages.calls(root).file_threads

    async def _on_storage(
        self, location: Location, call: Callable[P, R], *args: P.args, **kwargs: P.kwargs
    ) -> R:
        """Run a call on a thread of a storage. Raises Unavailable while the storage is down."""
        try:
            return await self.storages.calls(location).run(call, *args, **kwargs)
        except StorageDown as down:
            raise _unavailable(down) from None

    def stream_ended(self, table: SharedTable, error: BaseException | None) -> None:
        """Report the end of a stream to the storage's circuit breaker; None for a complete stream."""
        self.storages.calls(table.location).stream_ended(error)

    def verify_local_url(self, path: str, expires: str, signature: str, *, now_ms: int) -> bool:
        """Return whether a URL of the files route has a valid signature and has not expired."""
        checked = [
            _native.verify_local_url(path, expires, signature, key=key, now_ms=now_ms)
            for key in self._url_keys
        ]
        return any(checked)

    def local_root(self, identity: str) -> str | None:
        """Return the directory with an id of signed URLs."""
        root = self._local_roots.get(identity)
        return None if root is None else root.key

    def close(self) -> None:
        """Stop the threads; running calls end by themselves."""
        self._executor.shutdown(wait=False, cancel_futures=True)
        self._completions.close()
        self.storages.close()

    async def _latest(self, opened: OpenTable) -> _native.Snapshot:
        """Return the latest version as of a refresh that is recent enough, or begins now."""
        if opened.max_staleness_ms:
            fresh = opened.table.latest_if_fresh(max_staleness_ms=opened.max_staleness_ms)
            if fresh is not None:
                return fresh
        location = opened.shared.location
        refresh = self._refreshes.get(location)
        if refresh is None:
            # Weak: in a cycle, the tables of a replaced configuration would stay until a whole collection.
            tables = weakref.proxy(self)
            refresh = self._refreshes[location] = SharedRefresh(
                partial(Tables._refresh, tables, opened), partial(Tables._probe, tables, opened)
            )
        return await refresh.latest()

    async def _refresh(self, opened: OpenTable) -> _native.Snapshot:
        """Find the latest version of a table on a thread of its storage."""
        location = opened.shared.location
        try:
            return await self.storages.calls(location).run_for(self._requests(location), opened.snapshot)
        except StorageDown as down:
            raise _unavailable(down) from None

    def _probe(self, opened: OpenTable, ended: Ended) -> bool:
        """Start a refresh that needs no thread. False if the log has to be listed or the storage is busy."""
        if not opened.url_signers.renew_at_once():
            return False
        location = opened.shared.location

        def probed(outcome: _native.Snapshot | Exception | None) -> None:
            ended(_unavailable(outcome) if isinstance(outcome, StorageDown) else outcome)

        return self.storages.calls(location).start_at_once(
            partial(self._completions.probe, opened.table), probed, self._requests(location)
        )

    def _requests(self, location: Location) -> Callable[[], int]:
        """Return a context that counts the requests waiting for a refresh."""
        refresh = self._refreshes.get(location)
        # A table can be withdrawn while its refresh waits.
        return refresh.requests if refresh is not None else lambda: 1

    async def _from_cache(self, opened: OpenTable, error: Exception, call: Callable[[OpenTable], R]) -> R:
        """Repeat a call with the cached snapshot if that is recent enough, or raise its error."""
        cached = self._cached(opened)
        if cached is not None:
            # On another thread, because threads of the storage may hang.
            with suppress(NotCached):
                return await self.blocking(call, cached)
        raise error

    def _cached(self, opened: OpenTable) -> CachedTable | None:
        stale_seconds = self._config.gateway.storage_faults.stale_seconds
        cached = (
            opened.table.latest_known(max_age_ms=int(stale_seconds * MILLISECONDS)) if stale_seconds else None
        )
        if cached is None:
            return None
        return CachedTable(
            opened.shared,
            opened.table,
            opened.url_signers,
            opened.max_staleness_ms,
            stale=True,
            warned=opened.warned,
            cached=cached,
        )

    def _make(self, table: SharedTable) -> OpenTable:
        staleness_seconds = self._config.gateway.max_staleness_seconds
        if self._config.staleness_acceptable:
            staleness_seconds = max(staleness_seconds, STALENESS_ACCEPTABLE_SECONDS)
        allowed = self._config.gateway.allowed_roots
        roots = [(table.location, table.id), *((root, root_id(root)) for root in allowed)]
        signers = TableSigners([(root, identity, self.storages.store(root)) for root, identity in roots])
        return OpenTable(
            table, self._native_table(table.location), signers, int(staleness_seconds * MILLISECONDS)
        )

    def _native_table(self, location: Location) -> _native.Table:
        # A table in several shares has one native table.
        if location not in self._natives:
            storage = self.storages.store(location).native
            self._natives[location] = (storage, _native.Table(storage, location.key))
        return self._natives[location][1]

    def _take_over(self, previous: Tables, catalog: Catalog) -> None:
        # One queue for the life of the process, because it is registered with the event loop.
        self._completions = previous._completions
        self._forget_calls(table.location for table in catalog.tables())
        for table in catalog.tables():
            known = previous._natives.get(table.location)
            # A storage with an invalid configuration fails the requests of its tables, not the reload.
            with suppress(_native.LogError):
                if known is not None and known[0] is self.storages.store(table.location).native:
                    self._natives[table.location] = known

    def _forget_calls(self, locations: Iterable[Location]) -> None:
        """Forget the calls of storages that no location and no root of the configuration needs."""
        searched = chain.from_iterable(source.discovery.roots for source in self._config.sources)
        # The few roots come first, to avoid searching thousands of tables for a storage with a root.
        self.storages.forget_calls(chain(self._config.gateway.allowed_roots, searched, locations))


def _unavailable(down: StorageDown) -> Unavailable:
    seconds = min(RETRY_AFTER_CEILING_SECONDS, max(1, math.ceil(down.retry_after_seconds)))
    return Unavailable(str(down), retry_after_seconds=seconds)
