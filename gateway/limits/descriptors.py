"""The descriptors of the process: few for readers of local files, and a reserve for probes.

In: descriptors as they are opened, and readers of local files as they begin and end. Out: LimitExceeded for a
reader that is one too many, how much each may read at once, and which connections are in the reserve.
"""

from __future__ import annotations

import resource
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

from gateway.limits.admission import RETRY_AFTER_CEILING_SECONDS, LimitExceeded, LimitKind

RESERVE_PART = 8
"""One in that many descriptors is in the reserve, up to a number."""
MAX_RESERVED = 256
MOST = 2**20
"""Of a process without a limit."""
READERS_PART = 4
"""A reader has two descriptors, so readers of local files have at most half of those before the reserve."""
ADDRESS_PART, URL_PART = 2, 4
"""The parts of the readers of a process that one client and one URL have."""
MOST_PIECE_BYTES, LEAST_PIECE_BYTES = 256 * 1024, 16 * 1024
"""Of a file: what is read at once, and sent within the time of a slow reader."""
PIECES_PART = 64
"""Of the memory: that is what the pieces take, while their readers are few enough for the least."""


def reserve_size() -> int:
    """Return the number of descriptors in the reserve."""
    return min(MAX_RESERVED, _limit() // RESERVE_PART)


def first_reserved() -> int:
    """Return the first descriptor of the reserve."""
    return _limit() - reserve_size()


def _limit() -> int:
    limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return MOST if limit == resource.RLIM_INFINITY else limit


def is_reserved(descriptor: int) -> bool:
    """Return whether a descriptor is in the reserve. The system opens the lowest: all others are in use."""
    return descriptor >= first_reserved()


class FileReaders:
    """The clients that read local files."""

    def __init__(self, memory_bytes: int) -> None:
        """`memory_bytes`: of the process. A part of it is for what is read and not sent."""
        self.memory_bytes = memory_bytes
        self._all = 0
        self._of_client: Counter[str] = Counter()
        self._of_url: Counter[str] = Counter()

    def piece_bytes(self) -> int:
        """Return how much of its file a reader reads at once: the less, the more there are."""
        own_bytes = self.memory_bytes // PIECES_PART // max(1, self._all)
        return max(LEAST_PIECE_BYTES, min(MOST_PIECE_BYTES, own_bytes))

    @contextmanager
    def reading(self, client: str, url: str) -> Iterator[None]:
        """Admit a reader while the context is open. Raises LimitExceeded.

        `client`: its address, since a URL names no recipient.
        """
        most = max(1, first_reserved() // READERS_PART)
        if self._all >= most:
            raise LimitExceeded(LimitKind.DESCRIPTORS, RETRY_AFTER_CEILING_SECONDS)
        if self._of_client[client] >= _part(most, ADDRESS_PART) or self._of_url[url] >= _part(most, URL_PART):
            raise LimitExceeded(LimitKind.READERS, RETRY_AFTER_CEILING_SECONDS)
        self._all += 1
        self._of_client[client] += 1
        self._of_url[url] += 1
        try:
            yield
        finally:
            self._all -= 1
            _leave(self._of_client, client)
            _leave(self._of_url, url)


def _part(most: int, part: int) -> int:
    return max(1, most // part)


def _leave(readers: Counter[str], key: str) -> None:
    readers[key] -= 1
    if not readers[key]:
        del readers[key]
