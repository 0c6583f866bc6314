"""All tables of one configuration, and the threads that read them.

In: the configuration, the catalog and the storages. Out: an `OpenTable` for a shared table, and the results
of blocking calls. A table is opened at its first request, so a broken storage fails only its own tables.
"""

from __future__ import annotations

import asyncio
import math
import os
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from typing import Concatenate, ParamSpec, TypeVar

from gateway import _native
from gateway.access.catalog import Catalog, SharedTable
from gateway.config import Config, Location
from gateway.errors import Unavailable
from gateway.limits.admission import RETRY_AFTER_CEILING_SECONDS
from gateway.storage.breaker import StorageDown
from gateway.storage.registry import Storages
from gateway.tables.local_files import local_roots, root_id
from gateway.tables.open_table import KeptTable, NotKept, OpenTable
from gateway.tables.signers import Access
from gateway.tables.visible_errors import shared_error

P = ParamSpec("P")
R = TypeVar("R")
MAX_BLOCKING_CALLS = 32
MILLISECONDS = 1000
STALENESS_ACCEPTABLE_SECONDS = 3600.0


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
        self._local_roots = local_roots(config, catalog)
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
