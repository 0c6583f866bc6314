"""All tables of one configuration, and the threads that read them.

In: the configuration, the catalog and the storages. Out: an `OpenTable` for a shared table, and the results
of blocking calls. A table is opened at its first request, so a broken storage fails only its own tables.
"""

from __future__ import annotations

import asyncio
import os
import weakref
from collections.abc import Awaitable, Callable, Iterable, Mapping
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain
from typing import Concatenate, ParamSpec, TypeVar

from msgspec import structs

from gateway import _native
from gateway.background import forget_error
from gateway.catalog.catalog import Catalog, Place, SharedTable
from gateway.config import Config, Location
from gateway.errors import Unavailable
from gateway.limits.admission import whole_pause
from gateway.limits.fair_admission import FairAdmission
from gateway.storage.breaker import StorageDown
from gateway.storage.calls import Caller
from gateway.storage.local.store import directory_key
from gateway.storage.registry import Storages
from gateway.storage.unity_catalog import UnityCatalogTable
from gateway.tables.completions import Completions
from gateway.tables.local_files import local_roots, root_id
from gateway.tables.open_table import CachedTable, LatestTable, NotCached, OpenTable
from gateway.tables.ratified import ManagedTable
from gateway.tables.shared_refresh import STORAGE_IS_DOWN, Ended, SharedRefresh
from gateway.tables.signers import TableSigners
from gateway.tables.visible_errors import shared_error
from gateway.times import MILLISECONDS

P = ParamSpec("P")
R = TypeVar("R")
MAX_BLOCKING_CALLS = 32
WAITING_TURNS, TURN_SECONDS = 256, 10.0
"""How many calls of a recipient wait for their turns, and for how long."""
STALENESS_ACCEPTABLE_SECONDS = 3600.0


@dataclass(frozen=True, slots=True)
class ServedTables:
    """Sets that requests look tables up in.

    Attributes:
        tables: the tables.
        places: what their logs are read from.
        local_roots: local roots of the tables and of the configuration, by the ids in signed URLs.

    """

    tables: frozenset[SharedTable]
    places: frozenset[Place]
    local_roots: Mapping[str, Location]

    @staticmethod
    def of(config: Config, catalog: Catalog) -> ServedTables:
        """Return the sets of a catalog. Slow for thousands of tables."""
        return ServedTables(
            frozenset(catalog.tables()),
            frozenset(table.place for table in catalog.tables()),
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
            config, url_key=url_keys[0], environment=os.environ, previous=earlier
        )
        self._natives: dict[Place, tuple[_native.Storage, _native.Table]] = {}
        self._open: dict[SharedTable, OpenTable] = {}
        self._refreshes: dict[Place, SharedRefresh[_native.Snapshot]] = {}
        self._asking: dict[Place, SharedRefresh[None]] = {}
        self._completions = Completions()
        self._executor = ThreadPoolExecutor(MAX_BLOCKING_CALLS, thread_name_prefix="tables")
        self._turns = FairAdmission()
        self._turns.configure(1, reserve=1, queue_length=WAITING_TURNS, queue_seconds=TURN_SECONDS)
        if previous is not None:
            self._take_over(previous, catalog)

    def open(self, table: SharedTable) -> OpenTable:
        """Return the open table. Reads nothing."""
        if table.rule is not None:
            # There may be a rule for each recipient, so tables with rules are not kept. They share
            # everything.
            return structs.replace(self.open(replace(table, rule=None)), shared=table)
        opened = self._open.get(table)
        if opened is None:
            opened = self._open[table] = self._make(table)
        return opened

    def largest(self, count: int) -> list[tuple[SharedTable, int]]:
        """Return the tables that hold most of the cache, and the bytes of each."""
        held = _native.cache_bytes_by_table()
        numbers = {place: native.number for place, (_, native) in self._natives.items()}
        sizes = [(table, held.get(numbers.get(table.place, -1), 0)) for table in self._open]
        largest = sorted(sizes, key=lambda entry: entry[1], reverse=True)[:count]
        return [(table, size) for table, size in largest if size]

    def serve(self, served: ServedTables) -> None:
        """Serve the tables of another catalog: close missing tables, and keep the others open."""
        self._local_roots = served.local_roots
        for table in [table for table in self._open if table not in served.tables]:
            del self._open[table]
        for place in [place for place in self._natives if place not in served.places]:
            del self._natives[place]
            self._refreshes.pop(place, None)
            self._asking.pop(place, None)
            self.storages.forget_location(place[0])
        self._forget_calls(served.places)

    async def blocking(self, call: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
        """Run a blocking call on a thread that belongs to no storage."""
        return await asyncio.get_running_loop().run_in_executor(
            self._executor, partial(call, *args, **kwargs)
        )

    async def in_turn(self, recipient: str, call: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
        """Run a call of Python that takes long, when no other one runs: recipients have their turns.

        The interpreter runs no two at once. With many threads the event loop would wait for it behind all of
        them: for seconds with 24 of the largest bodies, or with lists of 10,000 tables. Raises Unavailable.
        """
        if not await self._turns.enter(recipient, 1):
            raise Unavailable("the server is busy")
        running = asyncio.ensure_future(self.blocking(call, *args, **kwargs))
        running.add_done_callback(lambda _: self._turns.leave(recipient, 1))
        running.add_done_callback(forget_error)
        # A caller may leave earlier; the call has its turn until it returns.
        return await asyncio.shield(running)

    async def read(
        self,
        recipient: str,
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
                if opened.managed is not None and not self._is_recent(opened):
                    await self._ask(opened, opened.managed)
                return await self._on_storage(
                    Caller(recipient, table.id), table.location, call, opened, *args, **kwargs
                )
            except STORAGE_IS_DOWN as error:
                return await self._from_cache(opened, error, lambda cached: call(cached, *args, **kwargs))
        except _native.LogError as error:
            opened.url_signers.refused(error)
            raise shared_error(table, error) from None

    async def in_memory(
        self,
        table: SharedTable,
        call: Callable[Concatenate[OpenTable, P], R],
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> R:
        """Run a call that takes long and reads nothing, on a thread of no storage."""
        try:
            return await self.blocking(call, self.open(table), *args, **kwargs)
        except _native.LogError as error:
            raise shared_error(table, error) from None

    async def read_latest(
        self,
        recipient: str,
        opened: OpenTable,
        call: Callable[[OpenTable], R],
        at_once: Callable[[LatestTable], R | None],
        before_call: Callable[[], Awaitable[None]] | None = None,
    ) -> R:
        """Run a call that reads the latest version of a table, with that version.

        `at_once` is called first, on the event loop. It must not block, and returns None if something has to
        be read or takes long; then `call` runs on a thread, after `before_call`: on one of the storage if the
        files are not in memory. While the storage is down, as `read`.
        """
        try:
            try:
                known = self._fresh(opened)
                latest = opened.with_latest(await self._latest(opened) if known is None else known)
                answer = at_once(latest)
                if answer is not None:
                    return answer
                if before_call is not None:
                    await before_call()
                if latest.is_in_memory:
                    return await self.blocking(call, latest)
                caller = Caller(recipient, opened.shared.id)
                return await self._on_storage(caller, opened.shared.location, call, latest)
            except STORAGE_IS_DOWN as error:
                if before_call is not None:
                    await before_call()
                return await self._from_cache(opened, error, call)
        except _native.LogError as error:
            opened.url_signers.refused(error)
            raise shared_error(opened.shared, error) from None

    async def in_local_root(
        self, identity: str, call: Callable[Concatenate[str, P], R], *args: P.args, **kwargs: P.kwargs
    ) -> R | None:
        """Run a call on the directory with an id of signed URLs; None where no directory has it."""
        root = self._local_roots.get(identity)
        if root is None:
            return None
        return await self._on_storage(Caller(identity, identity), root, call, root.key, *args, **kwargs)

    def file_threads(self, identity: str) -> Executor | None:
        """Return the threads that read files of that directory for clients; None where there is none."""
        root = self._local_roots.get(identity)
        return None if root is None else self.storages.calls(root).file_threads

    async def _on_storage(
        self, caller: Caller, location: Location, call: Callable[P, R], *args: P.args, **kwargs: P.kwargs
    ) -> R:
        """Run a call on a thread of a storage. Raises Unavailable while the storage is down."""
        try:
            return await self.storages.calls(location).run(caller, call, *args, **kwargs)
        except StorageDown as down:
            raise _unavailable(down) from None

    def stream_ended(self, table: SharedTable, error: BaseException | None) -> None:
        """Report the end of a stream to the storage's circuit breaker; None for a complete stream."""
        self.storages.calls(table.location).stream_ended(table.id, error)

    def verify_local_url(
        self, identity: str, path: str, expires: str, signature: str, *, now_ms: int
    ) -> bool:
        """Return whether a URL of the files route was signed for the id's directory and has not expired."""
        # Without a directory the same work is done.
        root = self._local_roots.get(identity, Location("file", "", ""))
        checked = [
            _native.verify_local_url(path, expires, signature, key=directory_key(key, root), now_ms=now_ms)
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

    @staticmethod
    def _fresh(opened: OpenTable) -> _native.Snapshot | None:
        """Return the latest version as of a refresh that is recent enough; None without one."""
        staleness_ms = opened.max_staleness_ms
        return opened.table.latest_if_fresh(max_staleness_ms=staleness_ms) if staleness_ms else None

    def _latest(self, opened: OpenTable) -> asyncio.Future[_native.Snapshot]:
        """Return the latest version as of a refresh that begins now."""
        place = opened.shared.place
        refresh = self._refreshes.get(place)
        if refresh is None:
            # Weak: in a cycle, the tables of a replaced configuration would stay until a whole collection.
            tables = weakref.proxy(self)
            refresh = self._refreshes[place] = SharedRefresh(
                partial(Tables._refresh, tables, opened), partial(Tables._probe, tables, opened)
            )
        return refresh.latest()

    async def _refresh(self, opened: OpenTable, requests: Callable[[], int]) -> _native.Snapshot:
        """Find the latest version of a table on a thread of its storage."""
        if opened.managed is not None:
            await self._ask(opened, opened.managed)
        calls = self.storages.calls(opened.shared.location)
        try:
            return await calls.run_for(_refreshing(opened), requests, opened.newest)
        except StorageDown as down:
            raise _unavailable(down) from None

    async def _ask(self, opened: OpenTable, managed: ManagedTable) -> None:
        """Ask the catalog of a table by a request that begins now, and that waiting requests share."""
        asking = self._asking.get(opened.shared.place)
        if asking is None:
            call = partial(Tables._asked, weakref.proxy(self), opened, managed)
            asking = self._asking[opened.shared.place] = SharedRefresh(call)
        await asking.latest()

    async def _asked(self, opened: OpenTable, managed: ManagedTable, requests: Callable[[], int]) -> None:
        if (catalog := opened.shared.managed_by) is None:
            return
        try:
            await self.storages.calls_to(catalog).run_for(_refreshing(opened), requests, managed.ask)
        except StorageDown as down:
            raise _unavailable(down, "the table's catalog does not answer") from None

    def _is_recent(self, opened: OpenTable) -> bool:
        """Return whether the last answer of a table's catalog may be used."""
        staleness_ms = opened.max_staleness_ms
        return staleness_ms > 0 and opened.table.is_ratified(max_age_ms=staleness_ms)

    def _probe(self, opened: OpenTable, ended: Ended, requests: Callable[[], int]) -> bool:
        """Start a refresh that needs no thread. False if the log has to be listed or the storage is busy."""
        if opened.managed is not None or not opened.url_signers.renew_at_once():
            return False
        location = opened.shared.location

        def probed(outcome: _native.Snapshot | Exception | None) -> None:
            ended(_unavailable(outcome) if isinstance(outcome, StorageDown) else outcome)

        return self.storages.calls(location).start_at_once(
            _refreshing(opened), partial(self._completions.probe, opened.table), probed, requests
        )

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
            managed=opened.managed,
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
        native, catalog = self._native_table(table), table.managed_by
        managed = None
        if catalog is not None:
            managed = ManagedTable(native, UnityCatalogTable(catalog), table.location)
        return OpenTable(table, native, signers, int(staleness_seconds * MILLISECONDS), managed=managed)

    def _native_table(self, table: SharedTable) -> _native.Table:
        # A table in several shares has one native table.
        if table.place not in self._natives:
            storage = self.storages.store(table.location).native
            has_catalog = table.managed_by is not None
            made = _native.Table(storage, table.location.key, has_catalog=has_catalog)
            self._natives[table.place] = (storage, made)
        return self._natives[table.place][1]

    def _take_over(self, previous: Tables, catalog: Catalog) -> None:
        # One queue for the life of the process, because it is registered with the event loop.
        self._completions = previous._completions
        self._forget_calls(table.place for table in catalog.tables())
        for table in catalog.tables():
            known = previous._natives.get(table.place)
            # A storage with an invalid configuration fails the requests of its tables, not the reload.
            with suppress(_native.LogError):
                if known is not None and known[0] is self.storages.store(table.location).native:
                    self._natives[table.place] = known

    def _forget_calls(self, places: Iterable[Place]) -> None:
        """Forget the calls of storages and catalogs that have no place or root of the configuration."""
        places = tuple(places)
        searched = chain.from_iterable(source.discovery.roots for source in self._config.sources)
        # The few roots come first: to avoid searching thousands of tables for a storage with a root.
        locations = (location for location, _ in places)
        catalogs = (catalog for _, catalog in places if catalog is not None)
        self.storages.forget_calls(chain(self._config.gateway.allowed_roots, searched, locations), catalogs)


def _refreshing(opened: OpenTable) -> Caller:
    return Caller(opened.shared.id, opened.shared.id)


def _unavailable(down: StorageDown, text: str | None = None) -> Unavailable:
    return Unavailable(text or str(down), retry_after_seconds=whole_pause(down.retry_after_seconds))
