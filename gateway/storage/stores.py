"""Stores of each kind: how a location is read and how its URLs are signed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol
from urllib.parse import quote

from gateway import _native
from gateway.storage.aws.credentials import (
    S3Credentials,
)
from gateway.storage.refreshing_credentials import RefreshingCredentials

if TYPE_CHECKING:
    from gateway.config import Location, StorageEntry

MILLISECONDS = 1000


class Store(Protocol):
    """A kind of store: how its locations are read and signed."""

    native: _native.Storage

    @property
    def keys(self) -> RefreshingCredentials | None:
        """The credentials of reading and signing; None where there are none to renew."""

    def renew(self) -> object:
        """Renew the credentials of reading; return what signers are made of. Blocks."""

    def signer(self, location: Location, identity: str) -> _native.Signer:
        """Return a signer for a location, with the current credentials."""


class LocalStore:
    """The local file system; its URLs are those of the gateway's files route."""

    keys = None

    def __init__(self, native: _native.Storage, base_url: str, url_key: bytes) -> None:
        self.native = native
        self._base_url = base_url
        self._url_key = url_key

    def renew(self) -> object:
        """Return the URL key; there is nothing to renew."""
        return self._url_key

    def signer(self, _location: Location, identity: str) -> _native.Signer:
        """Return a signer of URLs that name a root by its id."""
        return _native.Signer.local(f"{self._base_url}/{quote(identity, safe='')}", key=self._url_key)


class S3Store:
    """A bucket, as an entry of the configuration describes it."""

    def __init__(
        self, native: _native.Storage, entry: StorageEntry | None, region: str, keys: RefreshingCredentials
    ) -> None:
        self.native = native
        self.keys = keys
        self._entry = entry
        self._region = region
        self._applied: S3Credentials | None = None

    def renew(self) -> S3Credentials:
        """Apply valid credentials to the native storage and return them."""
        keys = self.keys.get()
        if keys is not self._applied:
            self.native.replace_credentials(
                access_key_id=keys.access_key_id.reveal(),
                secret_access_key=keys.secret_access_key.reveal(),
                session_token=keys.session_token.reveal() if keys.session_token else None,
            )
            self._applied = keys
        return keys

    def signer(self, location: Location, _identity: str) -> _native.Signer:
        """Return a signer for the whole bucket."""
        entry, keys = self._entry, self.keys.get()
        return _native.Signer.s3(
            location.bucket,
            region=self._region,
            endpoint=(entry.public_endpoint or entry.endpoint) if entry else None,
            path_style=entry.path_style if entry else False,
            access_key_id=keys.access_key_id.reveal(),
            secret_access_key=keys.secret_access_key.reveal(),
            session_token=keys.session_token.reveal() if keys.session_token else None,
            credentials_expire_ms=int(keys.expires.timestamp() * MILLISECONDS) if keys.expires else None,
        )
