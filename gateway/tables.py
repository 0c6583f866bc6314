"""The native door: from a SharedTable to its native Table and signers, and the executor for calls that block.

In: the configuration's storages and a table's location. Out: `OpenTable`, whose coroutines never block the
event loop. A table is opened when it is first asked for, so one broken storage fails its own tables alone.
URLs of local tables are those of the gateway's own files route.
"""

from __future__ import annotations

import asyncio
import math
import os
import select
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from typing import ParamSpec, TypeVar
from urllib.parse import quote

from gateway import _native
from gateway._native import Changes, Explanation, LogError, NdjsonChunks, Snapshot, StreamSummary
from gateway.breaker import State, StorageCalls, StorageDown
from gateway.catalog import ID_NAMESPACE, Catalog, SharedTable
from gateway.config import Config, Location, StorageEntry
from gateway.config.credentials import SUPPORTED, S3Credentials, default_credentials, default_region
from gateway.errors import InvalidParameter, Unavailable
from gateway.limits import RETRY_AFTER_CEILING_SECONDS

__all__ = [
    "FILES_USE",
    "Changes",
    "Explanation",
    "LogError",
    "Moment",
    "NdjsonChunks",
    "OpenTable",
    "Snapshot",
    "StreamSummary",
    "Tables",
    "configure",
    "read_whole",
    "versions_of",
]

P = ParamSpec("P")
R = TypeVar("R")

FILES_USE = b"files"
MAX_BLOCKING_CALLS = 32
MILLISECONDS = 1000
STALENESS_ACCEPTABLE_SECONDS = 3600.0


@dataclass(frozen=True, slots=True)
class OpenTable:
    """A table that can be read, within what is shared of its history. Its methods block."""

    shared: SharedTable
    native: _native.Table
    signers: _native.Signers
    max_staleness_ms: int
    stale: bool = False
    """Its storage is down, and what is read is what was kept of it."""

    def snapshot(self, *, version: int | None = None, timestamp_ms: int | None = None) -> _native.Snapshot:
        """The latest snapshot, or that of a version or timestamp, which need history sharing."""
        if version is None and timestamp_ms is None:
            return self.native.snapshot(max_staleness_ms=self.max_staleness_ms)
        self.require_history()
        if version is not None:
            self._require_shared(version)
            return self.native.snapshot(version=version)
        snapshot = self.native.snapshot(timestamp_ms=timestamp_ms)
        self._require_shared(snapshot.version)
        return snapshot

    def latest_in_memory(self) -> _native.Snapshot | None:
        """The latest snapshot, if a look is fresh and nothing has to be read. Never blocks."""
        snapshot = self.native.latest_if_fresh(max_staleness_ms=self.max_staleness_ms)
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
    ) -> _native.Changes:
        """A range of shared versions; a start before the first commit is the first shared version."""
        self.require_history()
        if start.version is not None:
            self._require_shared(start.version)
        first = start.version
        if first is None and start.timestamp_ms is not None:
            first = self.version_at_or_after(start.timestamp_ms)
        last = end.version
        if last is None and end.timestamp_ms is not None:
            last = self.native.version_at_or_before(end.timestamp_ms)
        if first is None:
            raise InvalidParameter("give exactly one of startingVersion and startingTimestamp")
        if last is not None and last < first:
            raise InvalidParameter(f"the range ends at version {last}, before its start at version {first}")
        return self.native.changes(
            starting_version=first, ending_version=last, change_data_feed=change_data_feed
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


@dataclass(frozen=True, slots=True)
class Moment:
    """A version, a timestamp in milliseconds, or neither."""

    version: int | None = None
    timestamp_ms: int | None = None


def versions_of(read: Snapshot | Changes) -> list[int]:
    """The first and the last version of what was read."""
    if isinstance(read, Snapshot):
        return [read.version, read.version]
    return [read.starting_version, read.ending_version]


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


class Tables:
    """All tables of one configuration."""

    def __init__(
        self,
        config: Config,
        catalog: Catalog,
        *,
        url_keys: list[bytes],
        environment: Mapping[str, str] = os.environ,
    ) -> None:
        """`url_keys` sign the URLs of local files: the first signs, all verify."""
        self._config = config
        self._url_keys = url_keys
        self._environment = environment
        self._local_roots = _local_roots(config, catalog)
        self._storages: dict[tuple[str, str], _native.Storage] = {}
        self._natives: dict[Location, _native.Table] = {}
        self._open: dict[SharedTable, OpenTable] = {}
        self._executor = ThreadPoolExecutor(MAX_BLOCKING_CALLS, thread_name_prefix="tables")
        self._calls: dict[str, StorageCalls] = {}
        self._read_at_seconds: dict[SharedTable, float] = {}
        self.observe: Callable[[str, str, float], None] = lambda _storage, _outcome, _seconds: None

    def open(self, table: SharedTable) -> OpenTable:
        """Open a table, or give it as it was opened before. Reads nothing."""
        if table not in self._open:
            self._open[table] = self._make(table)
        return self._open[table]

    async def blocking(self, call: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
        """Run a call that blocks on a thread."""
        return await asyncio.get_running_loop().run_in_executor(
            self._executor, partial(call, *args, **kwargs)
        )

    async def reading(self, table: SharedTable, call: Callable[[OpenTable], R]) -> R:
        """Run a call that reads a table, on a thread of its storage.

        While the storage is down, the call is made once more with what was kept of the table, if that is
        young enough. Raises Unavailable when it is not.
        """
        opened = self.open(table)
        try:
            read = await self._calls_of(table.location).run(call, opened)
        except (StorageDown, _native.StorageUnavailable) as down:
            kept = self._kept(opened)
            if kept is None and isinstance(down, StorageDown):
                seconds = min(RETRY_AFTER_CEILING_SECONDS, max(1, math.ceil(down.retry_after_seconds)))
                raise Unavailable(str(down), retry_after_seconds=seconds) from None
            if kept is None:
                raise
            return await self.blocking(call, kept)
        self._read_at_seconds[table] = time.monotonic()
        return read

    def breakers(self) -> Iterator[tuple[str, bool]]:
        """Each storage that was used, and whether it is given up at present."""
        for name, calls in self._calls.items():
            yield name, calls.breaker.state is not State.CLOSED

    def verify_local_url(self, path: str, expires: str, signature: str, *, now_ms: int) -> bool:
        """Whether a URL of the files route was signed by one of our keys and is still valid."""
        checked = [
            _native.verify_local_url(path, expires, signature, key=key, now_ms=now_ms)
            for key in self._url_keys
        ]
        return any(checked)

    def local_root(self, identity: str) -> str | None:
        """The directory that a signed URL of the files route names by an id."""
        return self._local_roots.get(identity)

    def close(self) -> None:
        """Let go of the threads; calls that run end by themselves."""
        self._executor.shutdown(wait=False, cancel_futures=True)
        for calls in self._calls.values():
            calls.close()

    def _kept(self, opened: OpenTable) -> OpenTable | None:
        stale_seconds = self._config.gateway.storage_faults.stale_seconds
        age_seconds = time.monotonic() - self._read_at_seconds.get(opened.shared, -math.inf)
        if age_seconds > stale_seconds:
            return None
        return replace(opened, max_staleness_ms=int(stale_seconds * MILLISECONDS), stale=True)

    def _observed(self, storage: str, outcome: str, seconds: float) -> None:
        self.observe(storage, outcome, seconds)

    def _calls_of(self, location: Location) -> StorageCalls:
        name = f"s3://{location.bucket}" if location.kind == "s3" else "file"
        if name not in self._calls:
            self._calls[name] = StorageCalls(
                name,
                self._config.gateway.storage_faults,
                now_seconds=time.monotonic,
                is_fault=lambda error: isinstance(error, _native.StorageUnavailable),
                observe=self._observed,
            )
        return self._calls[name]

    def _make(self, table: SharedTable) -> OpenTable:
        allowed = self._config.gateway.allowed_roots
        # A table that stands in several shares is read once.
        native = self._natives.get(table.location)
        if native is None:
            native = _native.Table(self._storage(table.location), table.location.key)
            self._natives[table.location] = native
        signers = _native.Signers(
            table.location.url,
            self._signer(table.location, table.id),
            [(root.url, self._signer(root, root_id(root))) for root in allowed],
        )
        staleness_seconds = self._config.gateway.max_staleness_seconds
        if self._config.staleness_acceptable:
            staleness_seconds = max(staleness_seconds, STALENESS_ACCEPTABLE_SECONDS)
        return OpenTable(table, native, signers, int(staleness_seconds * MILLISECONDS))

    def _storage(self, location: Location) -> _native.Storage:
        entry = self._entry(location)
        key = (location.bucket, entry.prefix.url if entry else "")
        if key not in self._storages:
            self._storages[key] = self._make_storage(location, entry)
        return self._storages[key]

    def _make_storage(self, location: Location, entry: StorageEntry | None) -> _native.Storage:
        if location.kind == "file":
            return _native.Storage.local()
        keys = self._credentials(entry)
        return _native.Storage.s3(
            location.bucket,
            region=self._region(entry),
            endpoint=entry.endpoint if entry else None,
            path_style=entry.path_style if entry else False,
            access_key_id=keys.access_key_id.reveal(),
            secret_access_key=keys.secret_access_key.reveal(),
            session_token=keys.session_token.reveal() if keys.session_token else None,
            **(
                {"timeout_seconds": entry.timeout_seconds, "retry_seconds": entry.retry_seconds}
                if entry
                else {}
            ),
        )

    def _signer(self, location: Location, identity: str) -> _native.Signer:
        if location.kind == "file":
            base_url = f"{self._config.public_url}{self._config.prefix}/files/{quote(identity, safe='')}"
            return _native.Signer.local(base_url, key=self._url_keys[0])
        entry = self._entry(location)
        keys = self._credentials(entry)
        return _native.Signer.s3(
            location.bucket,
            region=self._region(entry),
            endpoint=(entry.public_endpoint or entry.endpoint) if entry else None,
            path_style=entry.path_style if entry else False,
            access_key_id=keys.access_key_id.reveal(),
            secret_access_key=keys.secret_access_key.reveal(),
            session_token=keys.session_token.reveal() if keys.session_token else None,
            credentials_expire_ms=int(keys.expires.timestamp() * MILLISECONDS) if keys.expires else None,
        )

    def _entry(self, location: Location) -> StorageEntry | None:
        """The storage with the longest prefix that holds a location."""
        holding = [entry for entry in self._config.gateway.storages if entry.prefix.contains(location)]
        return max(holding, key=lambda entry: len(entry.prefix.key), default=None)

    def _credentials(self, entry: StorageEntry | None) -> S3Credentials:
        if entry and entry.access_key_id and entry.secret_access_key:
            return S3Credentials(
                entry.access_key_id, entry.secret_access_key, entry.session_token, entry.session_expires
            )
        found = default_credentials(self._environment)
        if found is None:
            raise _native.StorageDenied(f"no credentials to sign URLs with; supported: {SUPPORTED}")
        return found

    def _region(self, entry: StorageEntry | None) -> str:
        return (entry.region if entry else None) or default_region(self._environment)


def root_id(root: Location) -> str:
    """The id by which URLs name a root that is no table's own."""
    return str(uuid.uuid5(ID_NAMESPACE, root.url))


def _local_roots(config: Config, catalog: Catalog) -> dict[str, str]:
    allowed = {root_id(root): root for root in config.gateway.allowed_roots}
    tables = {table.id: table.location for table in catalog.tables()}
    return {identity: root.key for identity, root in (allowed | tables).items() if root.kind == "file"}
