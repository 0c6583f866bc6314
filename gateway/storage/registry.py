"""The storages of a configuration.

In: a location. Out: its `Store` for reading and signing, and its `StorageCalls`, which bound the blocking
calls.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from datetime import datetime
from typing import TYPE_CHECKING

from gateway import _native
from gateway.storage.aws.credentials import (
    SUPPORTED,
    S3Credentials,
    default_credentials,
    default_region,
)
from gateway.storage.aws.roles import CredentialsUnavailable, role_of
from gateway.storage.breaker import State
from gateway.storage.calls import StorageCalls
from gateway.storage.mounts import mount_of, mount_points
from gateway.storage.refreshing_credentials import RefreshingCredentials
from gateway.storage.stores import LocalStore, S3Store, Store

if TYPE_CHECKING:
    from gateway.config import Config, Location, StorageEntry

Observe = Callable[[str, str, float], None]


class Storages:
    """All storages of one configuration, made at their first use."""

    def __init__(
        self,
        config: Config,
        *,
        url_key: bytes,
        environment: Mapping[str, str],
        previous: Storages | None = None,
    ) -> None:
        """`url_key` signs URLs of local files."""
        self._config = config
        self._url_key = url_key
        self._environment = environment
        self._stores: dict[tuple[str, str], Store] = {}
        self._calls: dict[str, StorageCalls] = {}
        self._names: dict[Location, str] = {}
        self._natives: dict[tuple[object, ...], _native.Storage] = {}
        self._observe: Observe = lambda _storage, _outcome, _seconds: None
        if previous is not None:
            self._take_over(previous)

    def store(self, location: Location) -> Store:
        """Return the store of a location. Reads nothing."""
        entry = self.entry(location)
        key = (location.bucket, entry.prefix.url if entry else "")
        if key not in self._stores:
            self._stores[key] = self._make(location, entry)
        return self._stores[key]

    def entry(self, location: Location) -> StorageEntry | None:
        """Return the entry with the longest prefix that contains a location."""
        holding = [entry for entry in self._config.gateway.storages if entry.prefix.contains(location)]
        return max(holding, key=lambda entry: len(entry.prefix.key), default=None)

    def calls(self, location: Location) -> StorageCalls:
        """Return the bounded calls of a location's bucket, or of the mount that holds its directory."""
        name = self._name(location)
        if name not in self._calls:
            self._calls[name] = StorageCalls(
                name,
                self._config.gateway.storage_faults,
                now_seconds=time.monotonic,
                is_fault=lambda error: isinstance(error, _native.StorageUnavailable),
                call_seconds=self._config.request_timeout_seconds or None,
                observe=self._observe,
            )
        return self._calls[name]

    def breakers(self) -> Iterator[tuple[str, bool]]:
        """Iterate over the used storages, with whether their circuit breaker is open."""
        for name, calls in self._calls.items():
            yield name, calls.breaker.state is not State.CLOSED

    def expiries(self) -> Iterator[tuple[str, datetime]]:
        """Iterate over the storages whose credentials expire, with the time."""
        for (bucket, prefix), store in self._stores.items():
            current = store.keys.current if store.keys else None
            if current is not None and current.expires is not None:
                yield prefix or f"s3://{bucket}/", current.expires

    def due(self) -> list[Store]:
        """Return the stores whose credentials are due for renewal, before a request needs them."""
        keyed = [(store, store.keys) for store in self._stores.values()]
        return [store for store, keys in keyed if keys and keys.current is not None and not keys.is_valid]

    def close(self) -> None:
        """Stop the threads; running calls end by themselves."""
        for calls in self._calls.values():
            calls.close()

    def observe_by(self, observe: Observe) -> None:
        """Report storage, outcome (`answered`, `failed`, `refused`) and seconds of each call."""
        self._observe = observe
        for calls in self._calls.values():
            calls.observe = observe

    def _take_over(self, previous: Storages) -> None:
        used = {id(store.native) for store in previous._stores.values()}
        self._natives = {key: native for key, native in previous._natives.items() if id(native) in used}
        if previous._config.gateway.storage_faults == self._config.gateway.storage_faults and (
            previous._config.request_timeout_seconds == self._config.request_timeout_seconds
        ):
            self._calls = dict(previous._calls)

    def _name(self, location: Location) -> str:
        if location not in self._names:
            self._names[location] = name_of(location)
        return self._names[location]

    def _make(self, location: Location, entry: StorageEntry | None) -> Store:
        if location.kind == "file":
            base_url = f"{self._config.endpoint_url}/files"
            return LocalStore(self._native(location, None), base_url, self._url_key)
        if location.kind != "s3":
            raise _native.StorageDenied(f"locations of {location.kind} cannot be read yet")
        keys = RefreshingCredentials(lambda: self._credentials(entry, keys.current))
        return S3Store(self._native(location, entry), entry, self._region(entry), keys)

    def _native(self, location: Location, entry: StorageEntry | None) -> _native.Storage:
        region = self._region(entry) if location.kind == "s3" else ""
        # Credentials can be replaced in a native storage; any other change needs a new one.
        key = (location.kind, location.bucket, region, _without_keys(entry))
        if key not in self._natives:
            self._natives[key] = (
                _native.Storage.local()
                if location.kind == "file"
                else _s3_storage(location.bucket, region, entry)
            )
        return self._natives[key]

    def _credentials(self, entry: StorageEntry | None, previous: S3Credentials | None) -> S3Credentials:
        if entry and entry.access_key_id and entry.secret_access_key:
            return S3Credentials(
                entry.access_key_id, entry.secret_access_key, entry.session_token, entry.session_expires
            )
        found = default_credentials(self._environment)
        if found is not None:
            return found
        if previous is not None and previous.file is not None:
            # It is being written, or is away: a role would be another identity.
            raise CredentialsUnavailable("the shared credentials file has no keys")
        role = role_of(self._environment, self._region(entry))
        if role is None:
            raise CredentialsUnavailable(f"no keys were found; supported: {SUPPORTED}", lasting=True)
        try:
            return role.assume()
        except CredentialsUnavailable as reason:
            if role.name != "instance":
                raise
            # The instance role is the last resort: nothing says that this machine has one.
            raise CredentialsUnavailable(
                f"no keys were found ({reason}); supported: {SUPPORTED}", lasting=True
            ) from None

    def _region(self, entry: StorageEntry | None) -> str:
        return (entry.region if entry else None) or default_region(self._environment)


def renew(stores: Iterable[Store]) -> None:
    """Renew credentials. Blocks. Errors are logged, and raised by the requests that need the credentials."""
    for store in stores:
        with suppress(_native.LogError):
            store.renew()


def name_of(location: Location) -> str:
    """Return the name of a location's storage: locations that fail together have one name."""
    if location.kind == "file":
        return f"file://{mount_of(location.key, mount_points())}"
    if location.kind == "azure":
        # The account has one host and one limit of requests for all containers.
        return f"https://{location.account}.blob.{location.domain}"
    return location.bucket_url


def _s3_storage(bucket: str, region: str, entry: StorageEntry | None) -> _native.Storage:
    if entry is None:
        return _native.Storage.s3(bucket, region=region)
    return _native.Storage.s3(
        bucket,
        region=region,
        endpoint=entry.endpoint,
        path_style=entry.path_style,
        timeout_seconds=entry.timeout_seconds,
        retry_seconds=entry.retry_seconds,
    )


def _without_keys(entry: StorageEntry | None) -> StorageEntry | None:
    if entry is None:
        return None
    return replace(
        entry,
        public_endpoint=None,
        access_key_id=None,
        secret_access_key=None,
        session_token=None,
        session_expires=None,
    )
