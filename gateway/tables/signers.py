"""The URL signers of a table, renewed together with the credentials of its storages."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from gateway import _native
from gateway.config import Location
from gateway.storage.refusals import refuses_credentials
from gateway.storage.stores import Store

log = logging.getLogger("gateway.storages")
FIRST_REQUEST_SECONDS = 3.0
"""The longest wait for the first credentials of another root: once for each identity."""


class TableSigners:
    """Signers of a table's URLs, made again whenever credentials are renewed. Thread-safe."""

    def __init__(self, roots: Sequence[tuple[Location, str, Store]]) -> None:
        """`roots`: of the table, then others that its log may refer to, each with its id in URLs."""
        self._roots = roots
        self._signers: tuple[list[object], _native.Signers] | None = None
        self._missing: frozenset[int] = frozenset()
        """The other roots without credentials. Their files fail, and no others."""

    @property
    def is_valid(self) -> bool:
        """Return whether `renew` and `signers` return at once."""
        # A root that was without credentials and has some is not valid either: the signers are made again.
        if self._signers is None:
            return False
        for index, (_, _, store) in enumerate(self._roots):
            if _has_valid_keys(store) is (index in self._missing):
                return False
        return True

    def signers_in_memory(self) -> _native.Signers | None:
        """Return the last signers, if their credentials are valid. Never blocks."""
        return self._signers[1] if self._signers is not None and self.is_valid else None

    def renew_at_once(self) -> bool:
        """Apply renewed credentials that read the table; False if `renew` would block. Never blocks."""
        store = self._roots[0][2]
        if not _has_valid_keys(store):
            return False
        store.renew()
        return True

    def renew(self) -> None:
        """Renew the credentials that read the table, where they expire. Blocks. Raises LogError."""
        self._roots[0][2].renew()

    def refused(self, error: _native.LogError) -> None:
        """Let the next `renew` request the credentials that read the table, if an error is about them.

        A store may forget a session before its end.
        """
        location, _, store = self._roots[0]
        if store.keys is None or not isinstance(error, _native.StorageDenied):
            return
        if refuses_credentials(location.kind, error.detail or ""):
            store.keys.refused()

    def signers(self) -> _native.Signers:
        """Return signers with valid credentials. Blocks and raises as `renew`."""
        of_table = self._roots[0][2].renew()
        known = self._signers
        if len(self._roots) == 1 and known is not None and known[0][0] is of_table:
            return known[1]
        made_of = [of_table, *self._renewed()]
        missing = frozenset(index for index, keys in enumerate(made_of) if keys is None)
        self._log_missing(missing)
        self._missing = missing
        if known is not None and all(now is then for now, then in zip(made_of, known[0], strict=True)):
            return known[1]
        root, identity, store = self._roots[0]
        of_other_roots = [(other[0].url, _signer(*other, keys)) for other, keys in self._others(made_of)]
        signers = _native.Signers(root.url, store.signer(root, identity), of_other_roots)
        self._signers = (made_of, signers)
        return signers

    def _others(self, made_of: Sequence[object]) -> list[tuple[tuple[Location, str, Store], object]]:
        return list(zip(self._roots[1:], made_of[1:], strict=True))

    def _renewed(self) -> list[object]:
        """Return the credentials of the other roots, None for a root without any.

        They are requested in the background: a request waits only for the first, and only briefly.
        """
        stores = [store for _, _, store in self._roots[1:]]
        for store in stores:
            if store.keys is not None and not store.keys.is_valid:
                store.keys.start(store.renew)
        return [_found(store) for store in stores]

    def _log_missing(self, missing: frozenset[int]) -> None:
        for index in missing - self._missing:
            root = self._roots[index][0].url
            log.warning("files below the allowed root %s cannot be signed: it has no credentials", root)


def _signer(root: Location, identity: str, store: Store, keys: object) -> _native.Signer:
    """Return the signer of another root; one that fails if its identity has no credentials or cannot sign."""
    if keys is not None:
        try:
            return store.signer(root, identity)
        except _native.LogError as error:
            log.warning("files below the allowed root %s cannot be signed: %s", root.url, error)
    return store.signer_without_credentials(root)


def _found(store: Store) -> object:
    """Return the credentials of a store that were found in time."""
    keys = store.keys
    if keys is None:
        return store.renew()
    if not keys.is_valid and keys.unexpired() is None:
        keys.wait(FIRST_REQUEST_SECONDS)
    return keys.current if keys.is_valid else keys.unexpired()


def _has_valid_keys(store: Store) -> bool:
    return store.keys is None or store.keys.is_valid
