"""A store: how the locations of a bucket, a container or a machine are read, signed and lent."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Generic, TypeVar

from gateway import _native
from gateway.storage.connections import Applied, Connections
from gateway.storage.credentials import Credentials, CredentialsUnavailable
from gateway.storage.refreshing_credentials import RefreshingCredentials
from gateway.storage.vending.credential import CredentialRequest, TemporaryCredential

if TYPE_CHECKING:
    from gateway.config import Config, Location, Secret, StorageEntry

C = TypeVar("C", bound=Credentials)
E = TypeVar("E", bound="StorageEntry")
_NO_CREDENTIALS = "the storage issues no credentials"
Issue = Callable[[CredentialRequest], TemporaryCredential]


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
        self.applied.replace(keys, lambda: self._replace(keys))
        return keys

    @abstractmethod
    def _replace(self, keys: C) -> None: ...


def text_of(secret: Secret | None) -> str | None:
    """Return the text of a secret that may be absent."""
    return secret.reveal() if secret is not None else None
