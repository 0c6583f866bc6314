"""The storages of a configuration.

In: a location. Out: its `Store` for reading and signing, and its `StorageCalls`, which bound the blocking
calls.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import datetime
from functools import partial
from typing import Any

from gateway import _native
from gateway.config import Config, Location, StorageEntry
from gateway.config.storages.azure import AzureEntry
from gateway.config.storages.entry import LocalEntry
from gateway.config.storages.gcs import GcsEntry
from gateway.config.storages.r2 import R2Entry
from gateway.config.storages.s3 import S3Entry
from gateway.config.table_catalog import TableCatalog
from gateway.storage.aws.store import S3Store
from gateway.storage.azure.store import AzureStore
from gateway.storage.calls import StorageCalls
from gateway.storage.credentials import CredentialsFailed
from gateway.storage.gcs.store import GcsStore
from gateway.storage.local.mounts import mount_of, mount_points
from gateway.storage.local.store import LocalStore
from gateway.storage.r2.store import R2Store
from gateway.storage.stores import Connections, Store
from gateway.storage.unity_catalog import OddAnswer

Observe = Callable[[str, str, float], None]
CATALOG_SECONDS = 30.0
"""The total time of a call: a catalog that sends slowly never reaches the timeout of a read."""
_CATALOG = "catalog "
"""Begins the names of catalogs."""
_MOUNT = "file://"
"""Begins the names of mounts."""
_STORES: Mapping[type, Callable[[Location, Any, Connections], Store]] = {
    S3Entry: S3Store.of,
    R2Entry: R2Store.of,
    AzureEntry: AzureStore.of,
    GcsEntry: GcsStore.of,
    LocalEntry: LocalStore.of,
}
"""What makes the store of an entry."""


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
        self._connections = Connections(config, url_key=url_key, environment=environment)
        self._stores: dict[tuple[str, str], Store] = {}
        self._calls: dict[str, StorageCalls] = {}
        self._names: dict[Location, str] = {}
        self._observe: Observe = lambda _storage, _outcome, _seconds: None
        if previous is not None:
            self._take_over(previous)

    def store(self, location: Location) -> Store:
        """Return the store of a location. Reads nothing."""
        entry = self.entry(location)
        key = (location.bucket_url, entry.prefix.url)
        if key not in self._stores:
            self._stores[key] = _STORES[type(entry)](location, entry, self._connections)
        return self._stores[key]

    def entry(self, location: Location) -> StorageEntry:
        """Return the entry of a location."""
        return self._config.gateway.storage(location)

    def calls(self, location: Location) -> StorageCalls:
        """Return the bounded calls of a location's bucket, or of the mount that holds its directory."""
        return self._calls_of(self.name(location))

    def calls_to(self, catalog: TableCatalog) -> StorageCalls:
        """Return the bounded calls of a catalog that manages tables."""
        return self._calls_of(f"{_CATALOG}{catalog.url}", CATALOG_SECONDS)

    def _calls_of(self, name: str, most_seconds: float = math.inf) -> StorageCalls:
        if name not in self._calls:
            seconds = min(self._config.request_timeout_seconds or math.inf, most_seconds)
            self._calls[name] = StorageCalls(
                name,
                self._config.gateway.storage_faults,
                now_seconds=time.monotonic,
                is_fault=lambda error: (
                    isinstance(error, _native.StorageUnavailable) and not isinstance(error, OddAnswer)
                ),
                is_unsent=lambda error: isinstance(error, CredentialsFailed),
                call_seconds=seconds if seconds < math.inf else None,
                observe=self._observe,
            )
        return self._calls[name]

    def breakers(self) -> Iterator[tuple[str, bool]]:
        """Iterate over the used storages, with whether they fail by their circuit breaker."""
        for name, calls in self._calls.items():
            yield name, calls.breaker.is_failing(calls.now_seconds())

    def used(self) -> list[StorageCalls]:
        """Return the calls of the used storages."""
        return list(self._calls.values())

    def expiries(self) -> Iterator[tuple[str, datetime]]:
        """Iterate over the storages whose credentials expire, with the time."""
        for (_, prefix), store in self._stores.items():
            current = store.keys.current if store.keys else None
            if current is not None and current.expires is not None:
                yield prefix, current.expires

    def due(self) -> list[Store]:
        """Return the stores whose credentials are due for renewal, before a request needs them."""
        keyed = [(store, store.keys) for store in self._stores.values()]
        return [
            store
            for store, keys in keyed
            if keys and (keys.current is not None or keys.is_missing) and not keys.is_valid
        ]

    def renew_due(self) -> None:
        """Renew the credentials that are due, each identity on its thread. Never blocks."""
        stores: dict[int, list[Store]] = {}
        for store in self.due():
            stores.setdefault(id(store.keys), []).append(store)
        for sharing in stores.values():
            if sharing[0].keys is not None:
                sharing[0].keys.start(partial(_renew, sharing))

    def close(self) -> None:
        """Stop the threads; running calls end by themselves."""
        for calls in self._calls.values():
            calls.close()

    def forget_calls(self, locations: Iterable[Location], catalogs: Iterable[TableCatalog] = ()) -> None:
        """Forget the calls of storages that have none of the locations, and of other catalogs.

        Their circuit breakers would stay open, as no call closes them.
        """
        unused, mounts = set(self._calls), mount_points()
        unused.difference_update(f"{_CATALOG}{catalog.url}" for catalog in catalogs)
        for location in locations:
            if not unused:
                break
            # Of thousands of local tables, only those below a mount of `unused` need the search for a mount.
            known = self._names.get(location)
            if known is not None:
                unused.discard(known)
            elif location.kind != "file" or any(_may_hold(name, location) for name in unused):
                unused.discard(name_of(location, mounts))
        for name in unused:
            del self._calls[name]

    def forget_location(self, location: Location) -> None:
        """Forget which storage a location has: the storage of a removed table."""
        self._names.pop(location, None)

    def observe_by(self, observe: Observe) -> None:
        """Report storage, outcome (`answered`, `failed`, `refused`) and seconds of each call."""
        self._observe = observe
        for calls in self._calls.values():
            calls.observe = observe

    def _take_over(self, previous: Storages) -> None:
        used = {id(store.native) for store in previous._stores.values()}
        self._connections.take_over(previous._connections, used)
        if previous._config.gateway.storage_faults == self._config.gateway.storage_faults and (
            previous._config.request_timeout_seconds == self._config.request_timeout_seconds
        ):
            self._calls = dict(previous._calls)

    def name(self, location: Location) -> str:
        """Return the name of a location's storage, under which its calls are counted."""
        name = self._names.get(location)
        if name is None:
            name = self._names[location] = name_of(location)
        return name


def _renew(stores: Iterable[Store]) -> None:
    for store in stores:
        store.renew()


def name_of(location: Location, mounts: Iterable[str] | None = None) -> str:
    """Return the name of a location's storage: locations that fail together have one name.

    `mounts`: the mount points of this machine; None reads them.
    """
    if location.kind == "file":
        return f"{_MOUNT}{mount_of(location.key, mount_points() if mounts is None else mounts)}"
    # An account of Azure has one host and one limit of requests for all containers.
    return location.account_url if location.account else location.bucket_url


def _may_hold(name: str, location: Location) -> bool:
    """Return whether a storage is a mount above a local directory; another mount may be between them."""
    mount = name.removeprefix(_MOUNT)
    return name.startswith(_MOUNT) and mount_of(location.key, [mount]) == mount
