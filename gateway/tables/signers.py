"""The URL signers of a table, renewed together with the credentials of its storages."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from gateway import _native
from gateway.config import Location
from gateway.storage.stores import Store, signer_without_credentials

log = logging.getLogger("gateway.storages")


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
        return self._signers is not None and all(
            _has_valid_keys(store) is (index not in self._missing)
            for index, (_, _, store) in enumerate(self._roots)
        )

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

    def signers(self) -> _native.Signers:
        """Return signers with valid credentials. Blocks and raises as `renew`."""
        made_of = [self._roots[0][2].renew(), *map(self._renewed, range(1, len(self._roots)))]
        self._missing = frozenset(index for index, keys in enumerate(made_of) if keys is None)
        known = self._signers
        if known is not None and all(now is then for now, then in zip(made_of, known[0], strict=True)):
            return known[1]
        root, identity, store = self._roots[0]
        others = [(other[0].url, _signer(*other, keys)) for other, keys in self._others(made_of)]
        signers = _native.Signers(root.url, store.signer(root, identity), others)
        self._signers = (made_of, signers)
        return signers

    def _others(self, made_of: Sequence[object]) -> list[tuple[tuple[Location, str, Store], object]]:
        return list(zip(self._roots[1:], made_of[1:], strict=True))

    def _renewed(self, index: int) -> object:
        """Renew the credentials of another root; None without any."""
        root, _, store = self._roots[index]
        if index in self._missing and not _has_valid_keys(store):
            # They are requested in the background: tables elsewhere do not wait for them.
            return None
        try:
            return store.renew()
        except _native.LogError:
            log.warning("files below the allowed root %s cannot be signed: it has no credentials", root.url)
            return None


def _signer(root: Location, identity: str, store: Store, keys: object) -> _native.Signer:
    """Return the signer of another root; one that fails if its identity has no credentials or cannot sign."""
    if keys is not None:
        try:
            return store.signer(root, identity)
        except _native.LogError as error:
            log.warning("files below the allowed root %s cannot be signed: %s", root.url, error)
    return signer_without_credentials(root)


def _has_valid_keys(store: Store) -> bool:
    return store.keys is None or store.keys.is_valid
