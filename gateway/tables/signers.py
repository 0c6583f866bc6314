"""The URL signers of a table, renewed together with the credentials of its storages."""

from __future__ import annotations

from collections.abc import Sequence

from gateway import _native
from gateway.config import Location
from gateway.storage.stores import Store


class TableSigners:
    """Signers of a table's URLs, made again whenever credentials are renewed. Thread-safe."""

    def __init__(self, roots: Sequence[tuple[Location, str, Store]]) -> None:
        """`roots`: of the table, then others that its log may refer to, each with its id in URLs."""
        self._roots = roots
        self._signers: tuple[list[object], _native.Signers] | None = None

    @property
    def is_valid(self) -> bool:
        """Return whether `renew` and `signers` return at once."""
        return self._signers is not None and all(_has_valid_keys(store) for _, _, store in self._roots)

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
        made_of = [store.renew() for _, _, store in self._roots]
        known = self._signers
        if known is not None and all(now is then for now, then in zip(made_of, known[0], strict=True)):
            return known[1]
        (root, own), *others = [
            (root.url, store.signer(root, identity)) for root, identity, store in self._roots
        ]
        signers = _native.Signers(root, own, others)
        self._signers = (made_of, signers)
        return signers


def _has_valid_keys(store: Store) -> bool:
    return store.keys is None or store.keys.is_valid
