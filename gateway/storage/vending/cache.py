"""Issued credentials, bounded in bytes. The least recently used ones are removed first."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Generic, TypeVar

from gateway.storage.vending.credential import TemporaryCredential

ENTRY_BYTES = 1024
"""The size of a key and of the objects of an entry, without the texts of the credential."""


@dataclass(frozen=True, slots=True)
class _Entry:
    credential: TemporaryCredential
    since_ms: int
    until_ms: int

    @property
    def size_bytes(self) -> int:
        return ENTRY_BYTES + self.credential.size_bytes


K = TypeVar("K", bound=Hashable)


class CredentialCache(Generic[K]):
    """Credentials by everything that they depend on, each until half of its life is over."""

    def __init__(self, maximum_bytes: int) -> None:
        self._maximum_bytes = maximum_bytes
        self._entries: OrderedDict[K, _Entry] = OrderedDict()
        self.size_bytes = 0

    def __len__(self) -> int:
        return len(self._entries)

    def find(self, key: K, *, now_ms: int) -> TemporaryCredential | None:
        """Return a credential with more than half of its life."""
        entry = self._entries.get(key)
        if entry is None:
            return None
        # A clock that has stepped back was ahead when an end was computed by it.
        if not entry.since_ms <= now_ms < entry.until_ms:
            self.remove(key)
            return None
        self._entries.move_to_end(key)
        return entry.credential

    def put(self, key: K, credential: TemporaryCredential, *, now_ms: int) -> None:
        """Keep a credential until half of its life is over."""
        entry = _Entry(credential, now_ms, now_ms + (credential.expires_ms - now_ms) // 2)
        self.remove(key)
        self._entries[key] = entry
        self.size_bytes += entry.size_bytes
        while self.size_bytes > self._maximum_bytes:
            self.remove(next(iter(self._entries)))

    def remove_if(self, matches: Callable[[K], bool]) -> None:
        """Remove the credentials whose key matches."""
        for key in [key for key in self._entries if matches(key)]:
            self.remove(key)

    def remove(self, key: K) -> None:
        """Remove a credential, if there is one."""
        entry = self._entries.pop(key, None)
        if entry is not None:
            self.size_bytes -= entry.size_bytes
