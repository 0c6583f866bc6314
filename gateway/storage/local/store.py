"""Directories: read by the native module, and signed for the gateway's route of files."""

from __future__ import annotations

import hmac
import os
from urllib.parse import quote

from gateway import _native
from gateway.config import Location
from gateway.config.storages.entry import LocalEntry
from gateway.storage.stores import Connections, Store


def directory_key(url_key: bytes, directory: Location) -> bytes:
    """Return the key of a directory's URLs: they open nothing in another one that takes its id."""
    return hmac.digest(url_key, os.fsencode(directory.url), "sha256")


class LocalStore(Store):
    """The local file system. Its URLs name the files route of the gateway."""

    keys = None

    def __init__(self, native: _native.Storage, base_url: str, url_key: bytes) -> None:
        self.native = native
        self._base_url = base_url
        self._url_key = url_key

    @classmethod
    def of(cls, _location: Location, _entry: LocalEntry, connections: Connections) -> LocalStore:
        """Return the store of all directories."""
        native, _ = connections.native(("file",), _native.Storage.local)
        return cls(native, f"{connections.config.endpoint_url}/files", connections.url_key)

    def renew(self) -> object:
        """Return the URL key; there is nothing to renew."""
        return self._url_key

    def signer(self, location: Location, identity: str) -> _native.Signer:
        """Return a signer of URLs that name a root by its id."""
        key = directory_key(self._url_key, location)
        return _native.Signer.local(f"{self._base_url}/{quote(identity, safe='')}", key=key)
