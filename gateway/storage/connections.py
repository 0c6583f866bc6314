"""What the stores of one configuration share: credentials by identity, and native storages by address."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Mapping
from typing import TYPE_CHECKING, Any, TypeVar

from gateway import _native
from gateway.storage.credentials import Credentials
from gateway.storage.refreshing_credentials import RefreshingCredentials

if TYPE_CHECKING:
    from gateway.config import Config, StorageEntry

C = TypeVar("C", bound=Credentials)
T = TypeVar("T")
NEVER_SECONDS = 24 * 3600
"""The time limit of a listing where requests have none."""


class Applied:
    """The credentials that a native storage has. The stores of several configurations may share it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._credentials: object = None

    def replace(self, credentials: object, replace: Callable[[], None]) -> None:
        """Call `replace`, unless the native storage has these credentials."""
        if credentials is not self._credentials:
            with self._lock:
                replace()
                self._credentials = credentials


class Connections:
    """The identities and the native storages of one configuration, made at their first use."""

    def __init__(self, config: Config, *, url_key: bytes, environment: Mapping[str, str]) -> None:
        """`url_key` signs URLs of local files."""
        self.config = config
        self.url_key = url_key
        self.environment = environment
        self._keys: dict[tuple[object, ...], RefreshingCredentials[Any]] = {}
        self._earlier_keys: dict[tuple[object, ...], RefreshingCredentials[Any]] = {}
        """Of the previous configuration. A service that fails at a reload ends no session."""
        self._natives: dict[tuple[object, ...], tuple[_native.Storage, Applied]] = {}
        self._shared: dict[type, Any] = {}

    def take_over(self, previous: Connections, used: Collection[int]) -> None:
        """Take what stays valid of the previous configuration. `used`: ids of its native storages in use."""
        self._natives = {key: native for key, native in previous._natives.items() if id(native[0]) in used}
        if previous.environment == self.environment:
            self._shared = previous._shared
            self._earlier_keys = {key: keys for key, keys in previous._keys.items() if _can_end(keys)}

    def credentials(
        self, key: tuple[object, ...], identity: Callable[[], Callable[[], C]]
    ) -> RefreshingCredentials[C]:
        """Return the credentials of an identity, which all of its buckets share."""
        if key not in self._keys:
            self._keys[key] = RefreshingCredentials(identity(), previous=self._earlier_keys.pop(key, None))
        return self._keys[key]

    def native(
        self, key: tuple[object, ...], make: Callable[[], _native.Storage]
    ) -> tuple[_native.Storage, Applied]:
        """Return the native storage of an address."""
        # Credentials can be replaced in a native storage; any other change needs a new one. Each entry has
        # its own, as the entries of a bucket may have different identities.
        if key not in self._natives:
            self._natives[key] = (make(), Applied())
        return self._natives[key]

    def shared(self, kind: type[T]) -> T:
        """Return the one object of a class that all stores share while the environment is the same."""
        found: T = self._shared.setdefault(kind, kind())
        return found

    def limits(self, entry: StorageEntry) -> dict[str, Any]:
        """Return the time limits of a native storage."""
        return {
            # A listing of very many pages ends with the request that needs it.
            "listing_seconds": self.config.request_timeout_seconds or NEVER_SECONDS,
            "timeout_seconds": entry.timeout_seconds,
            "retry_seconds": entry.retry_seconds,
        }


def _can_end(keys: RefreshingCredentials[Any]) -> bool:
    """Return whether keys were requested; keys without an end are read again at no cost."""
    return keys.current is not None and keys.current.expires is not None
