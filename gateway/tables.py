"""The native door: from a SharedTable to its native Table and signers, and the executor for calls that block.

In: the configuration's storages and a table's location. Out: `OpenTable`, whose coroutines never block the
event loop. A table is opened when it is first asked for, so one broken storage fails its own tables alone.
URLs of local tables are those of the gateway's own files route.
"""

from __future__ import annotations

import asyncio
import os
import uuid
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import ParamSpec, TypeVar

from gateway import _native
from gateway.catalog import ID_NAMESPACE, SharedTable
from gateway.config import Config, Location, StorageEntry
from gateway.config.credentials import SUPPORTED, S3Credentials, default_credentials, default_region

P = ParamSpec("P")
R = TypeVar("R")

FILES_USE = b"files"
MAX_BLOCKING_CALLS = 32
MILLISECONDS = 1000


@dataclass(frozen=True, slots=True)
class OpenTable:
    """A table that can be read: native table, signers, and how stale its latest version may be."""

    native: _native.Table
    signers: _native.Signers
    max_staleness_ms: int

    def snapshot(self, *, version: int | None = None, timestamp_ms: int | None = None) -> _native.Snapshot:
        """The latest snapshot, or that of a version or timestamp. Blocks."""
        return self.native.snapshot(
            version=version, timestamp_ms=timestamp_ms, max_staleness_ms=self.max_staleness_ms
        )


class Tables:
    """All tables of one configuration."""

    def __init__(
        self,
        config: Config,
        *,
        url_keys: list[bytes],
        environment: Mapping[str, str] = os.environ,
    ) -> None:
        """`url_keys` sign the URLs of local files: the first signs, all verify."""
        self._config = config
        self._url_keys = url_keys
        self._environment = environment
        self._storages: dict[tuple[str, str], _native.Storage] = {}
        self._open: dict[tuple[str, Location], OpenTable] = {}
        self._executor = ThreadPoolExecutor(MAX_BLOCKING_CALLS, thread_name_prefix="tables")

    def open(self, table: SharedTable) -> OpenTable:
        """Open a table, or give it as it was opened before. Reads nothing."""
        key = (table.id, table.location)
        if key not in self._open:
            self._open[key] = self._make(table)
        return self._open[key]

    async def blocking(self, call: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
        """Run a call that blocks on a thread."""
        return await asyncio.get_running_loop().run_in_executor(
            self._executor, partial(call, *args, **kwargs)
        )

    def verify_local_url(self, path: str, expires: str, signature: str, *, now_ms: int) -> bool:
        """Whether a URL of the files route was signed by one of our keys and is still valid."""
        checked = [
            _native.verify_local_url(path, expires, signature, key=key, now_ms=now_ms)
            for key in self._url_keys
        ]
        return any(checked)

    def local_roots(self, table: SharedTable) -> Mapping[str, str]:
        """Directories that the files route may serve for a table, by the id in the URL."""
        roots = [self._root_id(root) for root in self._config.gateway.allowed_roots if root.kind == "file"]
        return dict(roots) | ({table.id: table.location.key} if table.location.kind == "file" else {})

    def close(self) -> None:
        """Let go of the threads; calls that run end by themselves."""
        self._executor.shutdown(wait=False, cancel_futures=True)

    def _make(self, table: SharedTable) -> OpenTable:
        allowed = self._config.gateway.allowed_roots
        native = _native.Table(self._storage(table.location), table.location.key)
        signers = _native.Signers(
            table.location.url,
            self._signer(table.location, table.id),
            [(root.url, self._signer(root, self._root_id(root)[0])) for root in allowed],
        )
        staleness_seconds = self._config.gateway.max_staleness_seconds
        if self._config.staleness_acceptable:
            staleness_seconds = max(staleness_seconds, STALENESS_ACCEPTABLE_SECONDS)
        return OpenTable(native, signers, int(staleness_seconds * MILLISECONDS))

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
        )

    def _signer(self, location: Location, identity: str) -> _native.Signer:
        if location.kind == "file":
            base_url = f"{self._config.public_url}{self._config.prefix}/files/{identity}"
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

    @staticmethod
    def _root_id(root: Location) -> tuple[str, str]:
        return str(uuid.uuid5(ID_NAMESPACE, root.url)), root.key


STALENESS_ACCEPTABLE_SECONDS = 3600.0
