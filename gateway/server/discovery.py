"""Keeps discovered tables up to date while a server runs.

In: the places of the configuration where tables are discovered, and the storages. Out: a new `Discovered`
whenever searches find other tables. One process of a server searches: the serving process, or the supervisor
of workers, which writes the found tables into a file that all workers follow. Searches run on threads, never
on the event loop.
"""

from __future__ import annotations

import asyncio
import logging
import math
import os
import re
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from hashlib import sha256
from typing import TypeVar

import msgspec

from gateway.background import forget_error
from gateway.catalog.conflicts import LeftOut
from gateway.catalog.discovered import NOTHING_DISCOVERED, Discovered, FoundTable, SourceKey
from gateway.config import Config, Source
from gateway.discovery.directories import SEARCH_SECONDS, THREAD
from gateway.discovery.known_tables import LIMITS, KnownTables, SearchResult
from gateway.discovery.searches import search_of
from gateway.governance.follow import following
from gateway.storage.registry import Storages
from gateway.storage.threads import DaemonThreads
from gateway.telemetry.metrics import DiscoveryMetrics

log = logging.getLogger("gateway.discovery")

POLL_SECONDS = 0.5
START_SECONDS = 10.0
"""The start of a server waits this long for the first searches."""
CONCURRENT_SEARCHES = 8
SLOT_SECONDS = 5.0
"""The time for which a search holds a slot, so that a slow one delays others by no more than this."""
RUNNING_SEARCHES = 16
"""Maximum number of searches at once, including slow searches. Each has up to nine threads."""
PATIENCE_SECONDS = SEARCH_SECONDS + 30.0
"""A search that has no end after this time hangs, and counts as failed."""
HANGS = f"a storage has not answered for {PATIENCE_SECONDS:g} s"
RETRY_SECONDS = 5.0
LOGGED_REFUSALS = 20
HASH_BYTES = 32
PART_ATTEMPTS, PART_SECONDS = 100, 0.01
_NUMBER = re.compile(r"[0-9][0-9.]*")
"""Durations and counts: problems that differ in them alone are the same."""

_Content = tuple[list[tuple[SourceKey, tuple[FoundTable, ...]]], frozenset[SourceKey]]
T = TypeVar("T")


class Discoverer:
    """Searches the places of a configuration again and again."""

    def __init__(
        self,
        config: Callable[[], Config],
        sources: Callable[[], Iterable[Source]],
        storages: Callable[[], Storages],
        take: Callable[[Discovered], Awaitable[None]],
        metrics: DiscoveryMetrics,
    ) -> None:
        """`sources` returns the places of the configuration and of shares in the database.

        `take` is called on the event loop with the found tables, whenever they change.
        """
        self._config = config
        self._sources = sources
        self._storages = storages
        self._take = take
        self._metrics = metrics
        self._places: dict[SourceKey, _Place] = {}
        self._seen: Config | None = None
        self._running: dict[SourceKey, asyncio.Task[None]] = {}
        self._slots = asyncio.Semaphore(CONCURRENT_SEARCHES)
        self._searching = asyncio.Semaphore(RUNNING_SEARCHES)
        self._taking = asyncio.Lock()
        self._publish_seconds = math.inf
        """The time of the next attempt to publish, after one that failed, for example on a full disk."""

    @asynccontextmanager
    async def following(self, *, start_seconds: float = START_SECONDS) -> AsyncIterator[None]:
        """Search within the context, which begins after the first searches or `start_seconds`."""
        try:
            await self._look()
            if self._running:
                _, late = await asyncio.wait([*self._running.values()], timeout=start_seconds)
                if late:
                    log.warning("the first searches for tables last longer; the server starts before them")
            async with following(_pause, lambda _: self._look(), _report, retry_seconds=POLL_SECONDS):
                yield
        finally:
            for search in [*self._running.values()]:
                search.cancel()
                with suppress(asyncio.CancelledError):
                    await search

    async def _look(self) -> None:
        """Start the searches that are due, and forget places that the configuration no longer has."""
        config = self._config()
        sources = {source.key: source for source in self._sources()}
        gone = [key for key, place in self._places.items() if not _keeps(place.source, sources.get(key))]
        for key in gone:
            self._metrics.forget(self._places.pop(key).source.shown)
        if gone or time.monotonic() >= self._publish_seconds:
            await self._publish()
        # A reload searches again at once: its storages may be others.
        is_changed, self._seen = config is not self._seen, config
        for key, source in sources.items():
            place = self._places.get(key)
            if place is None:
                place = self._places[key] = _Place(source)
            place.source = source
            if is_changed:
                place.due_seconds = 0.0
            if key not in self._running and time.monotonic() >= place.due_seconds:
                place.began_seconds = time.monotonic()
                place.due_seconds = place.began_seconds + source.discovery.every_seconds
                self._running[key] = asyncio.ensure_future(self._search(key, place))

    async def _search(self, key: SourceKey, place: _Place) -> None:
        try:
            compared = await self._found(place)
            # The configuration may have changed during the search.
            if self._places.get(key) is place:
                self._report(place, compared)
                before = (place.is_reached, place.was_whole)
                place.known, place.tables = compared.known, compared.tables
                place.was_whole = place.is_reached and (place.was_whole or not place.known.last.is_cut)
                if not place.was_whole:
                    # Soon at first: its store may start later than the server.
                    pause_seconds = RETRY_SECONDS * 2.0 ** min(place.known.searches - 1, 10)
                    place.due_seconds = min(place.due_seconds, time.monotonic() + pause_seconds)
                if compared.is_changed or (place.is_reached, place.was_whole) != before:
                    await self._publish()
        except Exception:
            log.exception("the search of %s failed; it is tried again", place.source.shown)
        finally:
            self._running.pop(key, None)

    async def _found(self, place: _Place) -> _Found:
        """Search a place on a thread. A search that hangs is given up, and changes no table."""
        result = HANGS if place.is_hanging else await self._result(place)
        return await _on_thread(lambda: _compared(place, result))

    async def _result(self, place: _Place) -> SearchResult | str:
        """Return the result of a search, or why there is none."""
        try:
            # One that hangs is given up in time, and leaves its place to another.
            async with self._searching:
                async with self._slots:
                    running = _on_thread(search_of(self._storages(), place.source, place.known))
                    await asyncio.wait([running], timeout=SLOT_SECONDS)
                await asyncio.wait([running], timeout=PATIENCE_SECONDS)
            if running.done():
                return await running
            # Nothing can end the thread, so no second one waits for the same storage.
            place.abandoned = running
            running.add_done_callback(forget_error)
        except Exception as error:
            log.exception("the search of %s failed; it is tried again", place.source.shown)
            return type(error).__name__
        return HANGS

    async def _publish(self) -> None:
        async with self._taking:
            self._publish_seconds = time.monotonic() + RETRY_SECONDS
            reached = {key: place for key, place in self._places.items() if place.is_reached}
            partial = frozenset(key for key, place in reached.items() if not place.was_whole)
            await self._take(Discovered({key: place.tables for key, place in reached.items()}, partial))
            self._publish_seconds = math.inf

    def _report(self, place: _Place, compared: _Found) -> None:
        """Count a search, and log its news."""
        result, name = compared.known.last, place.source.shown
        outcome = "complete" if not result.problem else "partial" if result.tables else "failed"
        self._metrics.searches.labels(outcome).inc()
        self._metrics.tables.labels(name).set(len(compared.tables))
        self._metrics.refused.labels(name).set(len(compared.refused))
        self._metrics.incomplete.labels(name).set(1 if result.problem else 0)
        self._metrics.missing.labels(name).set(len(compared.known.missing))
        self._metrics.calls.labels(name).set(result.calls)
        for limit in LIMITS:
            self._metrics.limited.labels(name, limit).set(1 if result.limit == limit else 0)
        if _NUMBER.sub("", result.problem) != _NUMBER.sub("", place.known.last.problem) and result.problem:
            log.warning("the search of %s is not complete, known tables stay: %s", name, result.problem)
        elif not result.problem and place.known.last.problem:
            log.info("the search of %s is complete again", name)
        withdrawn = sum(table not in compared.known.seen for table in place.known.missing)
        if withdrawn:
            log.warning("%d tables of %s are withdrawn: two searches have not found them", withdrawn, name)
        if len(compared.tables) != len(place.tables):
            log.info("%d tables are discovered in %s", len(compared.tables), name)
        before = {*_dotted(place.tables)}
        new = [name for name in _dotted(compared.tables) if name not in before]
        if new:
            log.warning(
                "%d found names in %s contain a dot, such as %a: no official client can address them; "
                "replaceDots writes _ for it",
                len(new),
                name,
                new[0],
            )
        for refused in compared.new_refusals[:LOGGED_REFUSALS]:
            log.warning("%s is not shared by %s: %s", ascii(refused.name), name, refused.reason)
        if len(compared.new_refusals) > LOGGED_REFUSALS:
            log.warning("%d more are not shared by %s", len(compared.new_refusals) - LOGGED_REFUSALS, name)
        place.refused = compared.refused


def _keeps(before: Source, after: Source | None) -> bool:
    """Return whether tables that were found stay: below a lower depth they are not shared, nor missing."""
    return after is not None and after.discovery.max_depth >= before.discovery.max_depth


async def _pause() -> None:
    await asyncio.sleep(POLL_SECONDS)


async def _report(error: Exception | None) -> None:
    if error is not None:
        log.error("the discovery of tables failed; it is tried again", exc_info=error)


class _Place:
    """A place of the configuration, and what its searches have found."""

    def __init__(self, source: Source) -> None:
        self.source = source
        self.due_seconds = self.began_seconds = 0.0
        self.known = KnownTables()
        self.tables: tuple[FoundTable, ...] = ()
        self.refused: frozenset[LeftOut] = frozenset()
        self.was_whole = False
        """Since it is reached, a search had no fault: what it has not found is not there, or is refused."""
        self.abandoned: asyncio.Future[SearchResult] | None = None
        """A search that was given up because it hangs."""

    @property
    def is_reached(self) -> bool:
        """Return whether its tables are known. Only a complete search says that there is none."""
        return bool(self.known.seen) or (self.known.searches > 0 and not self.known.last.problem)

    @property
    def is_hanging(self) -> bool:
        """Return whether a search that was given up still hangs."""
        return self.abandoned is not None and not self.abandoned.done()


@dataclass(frozen=True, slots=True)
class _Found:
    """What a search has changed."""

    known: KnownTables
    tables: tuple[FoundTable, ...]
    refused: frozenset[LeftOut]
    new_refusals: tuple[LeftOut, ...]
    is_changed: bool


def _compared(place: _Place, result: SearchResult | str) -> _Found:
    """Return the changes of a search, or of a failed search its reason. Slow for thousands of tables."""
    known = place.known
    after = known.after(
        known.failed(result) if isinstance(result, str) else result,
        now_seconds=place.began_seconds,
        keep_seconds=place.source.discovery.keep_seconds,
        every_seconds=place.source.discovery.every_seconds,
    )
    tables, clashing = after.distinct()
    refused = (*after.last.refused, *clashing)
    new = tuple(entry for entry in refused if entry not in place.refused)
    return _Found(after, tables, frozenset(refused), new, tables != place.tables)


def _on_thread(work: Callable[[], T]) -> asyncio.Future[T]:
    """Run work on a new thread: a hanging search takes no thread of another one."""
    return asyncio.wrap_future(DaemonThreads(THREAD).submit(work))


def _dotted(tables: Iterable[FoundTable]) -> list[str]:
    """Return the names of schemas and tables that contain a dot, each once."""
    names = dict.fromkeys(name for table in tables for name in (table.schema, table.name))
    return [name for name in names if "." in name]


class DiscoveredFile:
    """The file in memory in which a supervisor passes the discovered tables to its workers.

    A file with a name may be deleted for its age or replaced by another user. The content comes behind its
    hash: it is not replaced as a whole, so a reader that finds a part of it tries again.
    """

    def __init__(self, descriptor: int) -> None:
        self.descriptor = descriptor
        self._seen: bytes | None = None

    async def write(self, discovered: Discovered) -> None:
        """Replace the content."""
        await asyncio.to_thread(self._write, discovered)

    @asynccontextmanager
    async def following(self, take: Callable[[Discovered], Awaitable[None]]) -> AsyncIterator[None]:
        """Call `take` with the content, and again whenever it changes, within the context."""
        await self._take_new(take)
        async with following(_pause, lambda _: self._take_new(take), _report, retry_seconds=POLL_SECONDS):
            yield

    async def _take_new(self, take: Callable[[Discovered], Awaitable[None]]) -> None:
        if os.pread(self.descriptor, HASH_BYTES, 0) != self._seen:
            seen, discovered = await asyncio.to_thread(self._read)
            await take(discovered)
            self._seen = seen

    def _read(self) -> tuple[bytes, Discovered]:
        """Return the hash and the tables; nothing is discovered before there are any. Raises OSError."""
        for _ in range(PART_ATTEMPTS):
            content = os.pread(self.descriptor, os.fstat(self.descriptor).st_size, 0)
            if not content:
                return content, NOTHING_DISCOVERED
            seen, tables = content[:HASH_BYTES], content[HASH_BYTES:]
            if sha256(tables).digest() == seen:
                found, partial = msgspec.json.decode(tables, type=_Content)
                return seen, Discovered(dict(found), partial)
            time.sleep(PART_SECONDS)
        raise OSError("the list of discovered tables is not complete")

    def _write(self, discovered: Discovered) -> None:
        tables = msgspec.json.encode((list(discovered.tables.items()), discovered.partial))
        size = os.pwrite(self.descriptor, sha256(tables).digest() + tables, 0)
        os.ftruncate(self.descriptor, size)
