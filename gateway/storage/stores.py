"""The common parts of all kinds of stores, and the objects that the stores of one configuration share.

In: a location and its entry. Out: the store that reads and signs the location, and that issues credentials.
"""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Generic, TypeVar

from gateway import _native
from gateway.config import Config, Location, Secret, StorageEntry
from gateway.storage.credentials import Credentials, CredentialsUnavailable
from gateway.storage.refreshing_credentials import RefreshingCredentials
from gateway.storage.vending.credential import CredentialRequest, TemporaryCredential

C = TypeVar("C", bound=Credentials)
T = TypeVar("T")
E = TypeVar("E", bound="StorageEntry")
NEVER_SECONDS = 24 * 3600
"""The time limit of a listing where requests have none."""
_NO_CREDENTIALS = "the storage issues no credentials"
Issue = Callable[[CredentialRequest], TemporaryCredential]


class Applied:
    """The credentials that a native storage has. The stores of several configurations may share it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._credentials: object = None

    def replace(self, credentials: C, replace: Callable[[C], None]) -> None:
        """Call `replace`, unless the native storage has these credentials."""
        if credentials is not self._credentials:
            with self._lock:
                replace(credentials)
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
        # Credentials can be replaced in a native storage; any other change needs a new one. Each entry has
        # its own, as the entries of a bucket may have different identities.
        if key not in self._natives:
            self._natives[key] = (make(), Applied())
        return self._natives[key]

    def shared(self, kind: type[T]) -> T:
        """Return the object of a class that all stores share while the environment is the same."""
        instance: T = self._shared.setdefault(kind, kind())
        return instance

    def limits(self, entry: StorageEntry) -> dict[str, Any]:
        """Return the time limits of a native storage."""
        return {
            # A listing of very many pages ends with the request that needs it.
            "listing_seconds": self.config.request_timeout_seconds or NEVER_SECONDS,
            "timeout_seconds": entry.timeout_seconds,
            "retry_seconds": entry.retry_seconds,
        }


class NotListed(Exception):
    """Raised for a directory that a credential does not list; the text is the reason."""


class ListingDenied(NotListed):
    """Raised when the store denies access."""


class Store(ABC):
    """A kind of store. Its class method `of` makes the store of a location and its entry."""

    native: _native.Storage

    signs_by_calls: ClassVar[bool] = False
    """A URL may take a call of a service."""
    keys: RefreshingCredentials[Any] | None
    """The credentials of reading and signing; None where there are none to renew."""

    @abstractmethod
    def renew(self) -> object:
        """Renew the credentials of reading; return what signers are made of. Blocks."""

    @abstractmethod
    def signer(self, location: Location, identity: str) -> _native.Signer:
        """Return a signer for a location, with the current credentials."""

    def signer_without_credentials(self, location: Location) -> _native.Signer:
        """Return a signer that raises StorageDenied when a URL is needed, where signing needs keys."""
        return self.signer(location, "")

    def issuer(self, *, now_ms: Callable[[], int]) -> Issue:  # noqa: ARG002 - of a store
        """Return a function that issues temporary credentials below a location.

        It blocks, and raises CredentialsUnavailable and LogError.
        """
        raise CredentialsUnavailable(_NO_CREDENTIALS, lasting=True)

    def list_with(self, _credential: TemporaryCredential, _key: str) -> None:
        """List a directory by a temporary credential. Blocks. Raises NotListed and LogError."""
        raise NotListed(_NO_CREDENTIALS)

    def advice(self, config: Config, files: Sequence[tuple[str, int]]) -> Iterable[str]:  # noqa: ARG002 - of a store
        """Return advice for the operator. `files`: the names of tables, and the numbers of their files."""
        return ()


@dataclass(eq=False, repr=False)
class RemoteStore(Store, Generic[E, C]):
    """A bucket or container, as an entry of the configuration describes it."""

    native: _native.Storage
    applied: Applied
    connections: Connections
    entry: E
    keys: RefreshingCredentials[C]

    def renew(self) -> C:
        """Apply valid credentials to the native storage and return them."""
        keys = self.keys.get()
        self.applied.replace(keys, self._replace)
        return keys

    @abstractmethod
    def _replace(self, keys: C) -> None: ...


def text_of(secret: Secret | None) -> str | None:
    """Return the text of a secret that may be absent."""
    return secret.reveal() if secret is not None else None


def _can_end(keys: RefreshingCredentials[Any]) -> bool:
    """Return whether keys were requested; keys without an end are read again at no cost."""
    return keys.current is not None and keys.current.expires is not None
