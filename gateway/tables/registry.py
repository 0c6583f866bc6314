"""The native door: from a SharedTable to its native Table and signers, and the executor for calls that block.

In: the storages of a configuration and a table's location. Out: `OpenTable`, whose coroutines never block the
event loop. A table is opened when it is first asked for, so one broken storage fails its own tables alone.
URLs of local tables are those of the gateway's own files route.
"""

from __future__ import annotations

import asyncio
import logging
import math
import os
import select
import uuid
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Concatenate, Literal, ParamSpec, TypeVar

from gateway import _native
from gateway._native import (
    AnswerOptions,
    Changes,
    Explanation,
    LogError,
    NdjsonChunks,
    PruneCounts,
    Snapshot,
    Stop,
    StreamSummary,
)
from gateway.access.catalog import ID_NAMESPACE, Catalog, SharedTable
from gateway.config import Config, Location
from gateway.errors import InvalidParameter, Unavailable
from gateway.limits.admission import RETRY_AFTER_CEILING_SECONDS
from gateway.limits.process_memory import return_memory
from gateway.storage.breaker import StorageDown
from gateway.storage.registry import Storages, Store

__all__ = [
    "FILES_USE",
    "AnswerOptions",
    "Changes",
    "Explanation",
    "LogError",
    "Moment",
    "NdjsonChunks",
    "OpenTable",
    "PruneCounts",
    "Snapshot",
    "Stop",
    "StreamSummary",
    "Tables",
    "cache_bytes",
    "configure",
    "metadata_id_of",
    "read_whole",
    "release_memory",
    "shared_error",
    "versions_of",
]

log = logging.getLogger("gateway.tables")

P = ParamSpec("P")
R = TypeVar("R")

FILES_USE = b"files"
MAX_BLOCKING_CALLS = 32
MILLISECONDS = 1000
STALENESS_ACCEPTABLE_SECONDS = 3600.0


class Access:
    """A table's keys, which are renewed before they end, and the signers made of them. Thread-safe."""

    def __init__(self, roots: Sequence[tuple[Location, str, Store]]) -> None:
        """`roots`: the table's own, then others that its log may point to, each with its id for URLs."""
        self._roots = roots
        self._signers: tuple[list[object], _native.Signers] | None = None

    @property
    def is_fresh(self) -> bool:
        """Whether neither of the calls below would block."""
        stores = (store for _, _, store in self._roots)
        return self._signers is not None and all(
            store.keys is None or store.keys.are_fresh for store in stores
        )

    def signers_in_memory(self) -> _native.Signers | None:
        """Those that were made last, if their keys are still valid. Never blocks."""
        return self._signers[1] if self._signers is not None and self.is_fresh else None

    def renew(self) -> None:
        """See that the table can be read. Blocks while keys are renewed. Raises LogError."""
        self._roots[0][2].renew()

    def signers(self) -> _native.Signers:
        """Those of keys that are valid. Blocks and raises as `renew`."""
        made_of = [store.renew() for _, _, store in self._roots]
        known = self._signers
        if known is not None and all(now is then for now, then in zip(made_of, known[0], strict=True)):
            return known[1]
        (root, own), *others = [
            (root.url, store.signer(root, identity)) for root, identity, store in self._roots
        ]
        signers = _native.Signers(root, own, others)
        self._signers = (made_of, signers)
        return signers


@dataclass(frozen=True, slots=True)
class OpenTable:
    """A table that can be read, within what is shared of its history. Its methods block."""

    shared: SharedTable
    table: _native.Table
    access: Access
    max_staleness_ms: int
    stale: bool = False
    """Its storage is down, and what is read is what was kept of it."""
    warned: set[str] = field(default_factory=set, compare=False)
    """What the log was told of it; each is told once."""

    @property
    def native(self) -> _native.Table:
        """The table without regard to what is shared of its history, ready to be read."""
        self.access.renew()
        return self.table

    @property
    def signers(self) -> _native.Signers:
        """Those that make URLs of its files."""
        return self.access.signers()

    def snapshot(self, *, version: int | None = None, timestamp_ms: int | None = None) -> _native.Snapshot:
        """The latest snapshot, or that of a version or timestamp, which need history sharing."""
        if version is None and timestamp_ms is None:
            latest = self.native.snapshot(max_staleness_ms=self.max_staleness_ms)
            self._warn_of_bad_hint(latest)
            return latest
        self.require_history()
        if version is not None:
            self._require_shared(version)
            return self.native.snapshot(version=version)
        snapshot = self.native.snapshot(timestamp_ms=timestamp_ms)
        if snapshot.version < self.shared.start_version:
            raise too_early(self.shared)
        return snapshot

    def pinned(self, *, identity: str) -> _native.Snapshot:
        """The snapshot that an earlier answer names, for its next pages."""
        return self.native.snapshot(identity=identity)

    def given(self, version: int) -> _native.Snapshot:
        """A version that the recipient was given before, whether its history is shared or not."""
        return self.native.snapshot(version=version)

    def latest_in_memory(self) -> _native.Snapshot | None:
        """The latest snapshot, if a look is fresh and nothing has to be read or renewed. Never blocks."""
        if not self.access.is_fresh:
            return None
        snapshot = self.table.latest_if_fresh(max_staleness_ms=self.max_staleness_ms)
        return snapshot if snapshot is not None and snapshot.is_in_memory else None

    def version_at_or_after(self, timestamp_ms: int) -> int:
        """The earliest shared version that was committed at or after a timestamp."""
        self.require_history()
        return max(self.native.version_at_or_after(timestamp_ms), self.shared.start_version)

    def changes(
        self,
        *,
        start: Moment,
        end: Moment,
        change_data_feed: bool,
        heading: Literal["start", "latest"] | int = "start",
        stop: Stop | None = None,
    ) -> _native.Changes:
        """A range of shared versions; a start before the first commit is the first shared version.

        `heading` chooses the version whose metadata stands before the changes. The work ends at `stop`.
        """
        self.require_history()
        if start.version is not None:
            self._require_shared(start.version)
        first = start.version
        if first is None and start.timestamp_ms is not None:
            first = self.version_at_or_after(start.timestamp_ms)
        last = end.version
        if last is None and end.timestamp_ms is not None:
            last = self.native.version_at_or_before(end.timestamp_ms)
            if last < self.shared.start_version:
                raise too_early(self.shared)
        if first is None:
            raise InvalidParameter("give exactly one of startingVersion and startingTimestamp")
        if last is not None and last < first:
            raise InvalidParameter(f"the range ends at version {last}, before its start at version {first}")
        return self.native.changes(
            starting_version=first,
            ending_version=last,
            change_data_feed=change_data_feed,
            heading=heading,
            max_staleness_ms=self.max_staleness_ms,
            stop=stop,
        )

    def require_files(self, snapshot: _native.Snapshot) -> None:
        """Refuse a snapshot whose files cannot be listed: the files of this one can be read."""

    def _warn_of_bad_hint(self, snapshot: _native.Snapshot) -> None:
        if snapshot.has_bad_hint and "hint" not in self.warned:
            self.warned.add("hint")
            log.warning(
                "table %s: _last_checkpoint leads to nothing, so its whole log is listed",
                self.shared.full_name,
            )

    def require_history(self) -> None:
        """Refuse what needs history sharing where it is off, before anything is read."""
        if not self.shared.history_shared:
            raise InvalidParameter(
                "the table is shared without its history: only its latest version can be read, without "
                "version, timestamp, startingVersion and startingTimestamp, and without changes"
            )

    def _require_shared(self, version: int) -> None:
        if version < self.shared.start_version:
            raise InvalidParameter(
                f"version {version} is not shared; the first shared version is {self.shared.start_version}"
            )


class NotKept(Exception):
    """What is asked of a table whose storage is down is not in memory."""


@dataclass(frozen=True, slots=True)
class KeptTable(OpenTable):
    """What is kept in memory of a table whose storage is down.

    Its methods read nothing, begin to read nothing and never block, because the storage may hang. They raise
    NotKept for what they would have to read.
    """

    kept: _native.Snapshot = field(kw_only=True)

    @property
    def native(self) -> _native.Table:
        """Nothing can be read."""
        raise NotKept

    @property
    def signers(self) -> _native.Signers:
        """Those that were made last."""
        signers = self.access.signers_in_memory()
        if signers is None:
            raise NotKept
        return signers

    def snapshot(self, *, version: int | None = None, timestamp_ms: int | None = None) -> _native.Snapshot:
        """The kept snapshot, if it is the one that is asked for."""
        if timestamp_ms is not None:
            self.require_history()
            raise NotKept
        if version is None:
            return self._readable(self.kept)
        self.require_history()
        self._require_shared(version)
        return self.given(version)

    def pinned(self, *, identity: str) -> _native.Snapshot:
        """The kept snapshot, if an earlier answer names it."""
        if identity != self.kept.identity:
            raise NotKept
        return self._readable(self.kept)

    def given(self, version: int) -> _native.Snapshot:
        """The kept snapshot, if it is of that version."""
        if version != self.kept.version:
            raise NotKept
        return self._readable(self.kept)

    @staticmethod
    def _readable(snapshot: _native.Snapshot) -> _native.Snapshot:
        """The snapshot, if its first lines can be written without reading."""
        if not snapshot.has_totals:
            raise NotKept
        return snapshot

    def require_files(self, snapshot: _native.Snapshot) -> None:
        """Refuse to list files that would have to be read."""
        if not snapshot.is_in_memory:
            raise NotKept


@dataclass(frozen=True, slots=True)
class Moment:
    """A version, a timestamp in milliseconds, or neither."""

    version: int | None = None
    timestamp_ms: int | None = None


def versions_of(read: Snapshot | Changes) -> list[int]:
    """The first and the last version of what was read, and the one whose metadata heads its answer."""
    if isinstance(read, Snapshot):
        return [read.version, read.version, read.version]
    return [read.starting_version, read.ending_version, read.heading_version]


def metadata_id_of(read: Snapshot | Changes) -> str:
    """The id in the Delta table's own metadata."""
    return read.table_id if isinstance(read, Snapshot) else read.snapshot.table_id


def read_whole(chunks: NdjsonChunks, *, keep_bytes: int | None = None) -> bytes:
    """A whole answer, or its first bytes when only those are kept. Blocks."""
    kept = bytearray()
    while True:
        chunk = chunks.next_chunk()
        if chunk is not None:
            if keep_bytes is None or len(kept) < keep_bytes:
                kept += memoryview(chunk)
        elif chunks.done:
            return bytes(kept)
        else:
            select.select([chunks.fileno()], [], [])


def configure(*, threads: int | None, cache_bytes: int) -> None:
    """Set what the native code of this process may use. Before the first table."""
    _native.configure(threads=threads, cache_bytes=cache_bytes)


def cache_bytes() -> int:
    """What the columns of hot tables and remembered versions take in this process."""
    return _native.cache_used_bytes()


def release_memory(*, hot: bool) -> None:
    """Give back what is kept for the streams to come, with `hot` also half of the hot columns. Blocks."""
    _native.release_spare_buffers()
    if hot:
        _native.shrink_cache(_native.cache_used_bytes() // 2)
    return_memory()


class Tables:
    """All tables of one configuration."""

    def __init__(
        self,
        config: Config,
        catalog: Catalog,
        *,
        url_keys: list[bytes],
        environment: Mapping[str, str] = os.environ,
        before: Tables | None = None,
    ) -> None:
        """`url_keys` sign the URLs of local files: the first signs, all verify.

        From those `before`, of the configuration that this one replaces, tables are taken over that are read
        as they were, with what is kept of them in memory.
        """
        self._config = config
        self._url_keys = url_keys
        self._local_roots = _local_roots(config, catalog)
        earlier = before.storages if before is not None else None
        self.storages: Storages = Storages(
            config, url_key=url_keys[0], environment=environment, before=earlier
        )
        self._natives: dict[Location, tuple[_native.Storage, _native.Table]] = {}
        self._open: dict[SharedTable, OpenTable] = {}
        self._executor = ThreadPoolExecutor(MAX_BLOCKING_CALLS, thread_name_prefix="tables")
        if before is not None:
            self._take_over(before, catalog)

    def open(self, table: SharedTable) -> OpenTable:
        """Open a table, or give it as it was opened before. Reads nothing."""
        opened = self._open.get(table)
        if opened is None:
            opened = self._open[table] = self._make(table)
        return opened

    async def blocking(self, call: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
        """Run a call that blocks on a thread."""
        return await asyncio.get_running_loop().run_in_executor(
            self._executor, partial(call, *args, **kwargs)
        )

    async def reading(self, table: SharedTable, call: Callable[[OpenTable], R]) -> R:
        """Run a call that reads a table, on a thread of its storage.

        While the storage is down, the call is made once more with what is kept of the table in memory, if
        that is young enough; it reads nothing then. Raises Unavailable when that does not answer it.
        """
        opened = self.open(table)
        try:
            try:
                return await self._on_storage(table.location, call, opened)
            except (Unavailable, _native.StorageUnavailable):
                kept = self._kept(opened)
                if kept is None:
                    raise
                # On no thread of the storage, which may hang; nor does the call wait for it.
                with suppress(NotKept):
                    return await self.blocking(call, kept)
                raise
        except _native.LogError as error:
            raise shared_error(table, error) from None

    async def in_local_root(
        self, identity: str, call: Callable[Concatenate[str, P], R], *args: P.args, **kwargs: P.kwargs
    ) -> R | None:
        """Run a call that looks into the directory that a signed URL names by an id; None: there is none."""
        root = self._local_roots.get(identity)
        if root is None:
            return None
        return await self._on_storage(root, call, root.key, *args, **kwargs)

    async def _on_storage(
        self, location: Location, call: Callable[P, R], *args: P.args, **kwargs: P.kwargs
    ) -> R:
        """Run a call on a thread of a storage. Raises Unavailable while that is down."""
        try:
            return await self.storages.calls(location).run(call, *args, **kwargs)
        except StorageDown as down:
            seconds = min(RETRY_AFTER_CEILING_SECONDS, max(1, math.ceil(down.retry_after_seconds)))
            raise Unavailable(str(down), retry_after_seconds=seconds) from None

    def stream_ended(self, table: SharedTable, error: BaseException | None) -> None:
        """Count for a table's storage how a stream ended that was read from it; None: whole."""
        self.storages.calls(table.location).stream_ended(error)

    def verify_local_url(self, path: str, expires: str, signature: str, *, now_ms: int) -> bool:
        """Whether a URL of the files route was signed by one of our keys and is still valid."""
        checked = [
            _native.verify_local_url(path, expires, signature, key=key, now_ms=now_ms)
            for key in self._url_keys
        ]
        return any(checked)

    def local_root(self, identity: str) -> str | None:
        """The directory that a signed URL of the files route names by an id."""
        root = self._local_roots.get(identity)
        return None if root is None else root.key

    def close(self) -> None:
        """Let go of the threads; calls that run end by themselves."""
        self._executor.shutdown(wait=False, cancel_futures=True)
        self.storages.close()

    def _kept(self, opened: OpenTable) -> KeptTable | None:
        stale_seconds = self._config.gateway.storage_faults.stale_seconds
        kept = opened.table.kept(max_age_ms=int(stale_seconds * MILLISECONDS)) if stale_seconds else None
        if kept is None:
            return None
        return KeptTable(
            opened.shared,
            opened.table,
            opened.access,
            opened.max_staleness_ms,
            stale=True,
            warned=opened.warned,
            kept=kept,
        )

    def _make(self, table: SharedTable) -> OpenTable:
        staleness_seconds = self._config.gateway.max_staleness_seconds
        if self._config.staleness_acceptable:
            staleness_seconds = max(staleness_seconds, STALENESS_ACCEPTABLE_SECONDS)
        allowed = self._config.gateway.allowed_roots
        roots = [(table.location, table.id), *((root, root_id(root)) for root in allowed)]
        access = Access([(root, identity, self.storages.store(root)) for root, identity in roots])
        return OpenTable(
            table, self._native_table(table.location), access, int(staleness_seconds * MILLISECONDS)
        )

    def _native_table(self, location: Location) -> _native.Table:
        # A table that stands in several shares is read once.
        if location not in self._natives:
            storage = self.storages.store(location).native
            self._natives[location] = (storage, _native.Table(storage, location.key))
        return self._natives[location][1]

    def _take_over(self, before: Tables, catalog: Catalog) -> None:
        for table in catalog.tables():
            known = before._natives.get(table.location)
            # A storage that cannot work any more fails its own tables, when they are asked for.
            with suppress(_native.LogError):
                if known is not None and known[0] is self.storages.store(table.location).native:
                    self._natives[table.location] = known


def too_early(table: SharedTable) -> InvalidParameter:
    """The error for a time before the first shared version, whatever was committed by then."""
    return InvalidParameter(f"the timestamp is before the first shared version, {table.start_version}")


def shared_error(table: SharedTable, error: Exception) -> Exception:
    """The error as a recipient may see it: without versions and times of history that is not shared."""
    if table.history_shared and table.start_version == 0:
        return error
    if isinstance(error, _native.VersionNotFound):
        return _unavailable_version(table, error)
    if isinstance(error, _native.TimestampOutOfRange):
        if error.requested_ms < error.earliest_ms:
            return too_early(table)
        return InvalidParameter("the timestamp is after the last commit")
    if isinstance(error, _native.CorruptLog):
        # The name of a file of the log is a version.
        masked = _native.CorruptLog("the table's log is corrupt")
        masked.detail = "; ".join(filter(None, (str(error), error.detail)))
        return masked
    return error


def _unavailable_version(table: SharedTable, error: _native.VersionNotFound) -> InvalidParameter:
    earliest = max(error.earliest, table.start_version)
    if not table.history_shared:
        there = f"only the latest version is shared, {error.latest}"
    elif earliest > error.latest:
        there = "no shared version is there yet"
    else:
        there = f"the table has shared versions {earliest} to {error.latest}"
    return InvalidParameter(f"version {error.requested} is not available, {there}")


def root_id(root: Location) -> str:
    """The id by which URLs name a root that is no table's own."""
    return str(uuid.uuid5(ID_NAMESPACE, root.url))


def _local_roots(config: Config, catalog: Catalog) -> dict[str, Location]:
    allowed = {root_id(root): root for root in config.gateway.allowed_roots}
    tables = {table.id: table.location for table in catalog.tables()}
    return {identity: root for identity, root in (allowed | tables).items() if root.kind == "file"}
