"""The URL signers of a table, renewed together with the credentials of its storages."""

from __future__ import annotations

from collections.abc import Sequence

from gateway import _native
from gateway.config import Location
from gateway.storage.stores import Store


class Access:
    """A table's keys, which are renewed before they end, and the signers made of them. Thread-safe."""

    def __init__(self, roots: Sequence[tuple[Location, str, Store]]) -> None:
        """`roots`: the table's own, then others that its log may point to, each with its id for URLs."""
        self._roots = roots
        self._signers: tuple[list[object], _native.Signers] | None = None

    @property
    def is_fresh(self) -> bool:
        """Whether neither of the calls below would block."""
        stores = (store for _, _, store in self._roots)
        return self._signers is not None and all(
            store.keys is None or store.keys.are_fresh for store in stores
        )

    def signers_in_memory(self) -> _native.Signers | None:
        """Those that were made last, if their keys are still valid. Never blocks."""
        return self._signers[1] if self._signers is not None and self.is_fresh else None

    def renew(self) -> None:
        """See that the table can be read. Blocks while keys are renewed. Raises LogError."""
        self._roots[0][2].renew()

    def signers(self) -> _native.Signers:
        """Those of keys that are valid. Blocks and raises as `renew`."""
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
