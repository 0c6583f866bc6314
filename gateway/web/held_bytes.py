"""What the connections of recipients hold together, beside the answers that have memory of their own.

In: connections after what may add to it: requests ahead of answers that are not read, and parts of bodies.
Out: over the bound, those that have held something for longest are aborted.
"""

from __future__ import annotations

import logging
import time
from typing import Protocol

from gateway.web.strangers import GRACE_SECONDS

log = logging.getLogger("gateway.serving")

USUAL_BYTES = 32 * 1024 * 1024
IN_GRACE = 4
"""So many times the bound may be held for `GRACE_SECONDS`, in which clients read or send."""


class Holding(Protocol):
    """A connection that holds bytes."""

    def held_bytes(self) -> int:
        """Return about what is held now."""

    def abort(self) -> None:
        """Close the connection at once."""


class HeldBytes:
    """The bytes of connections, within a bound."""

    def __init__(self) -> None:
        self.bound_bytes = USUAL_BYTES
        self.used_bytes = 0
        self._of: dict[Holding, tuple[int, float]] = {}
        """With the time from which on it holds something, in that order."""

    def count(self, connection: Holding) -> None:
        """Count what a connection holds now."""
        held_bytes = connection.held_bytes()
        if held_bytes or connection in self._of:
            self._set(connection, held_bytes)
        while self.used_bytes > self.bound_bytes:
            oldest, (counted_bytes, since) = next(iter(self._of.items()))
            held_bytes = oldest.held_bytes()
            if held_bytes < counted_bytes:
                # Nothing tells that its client has read.
                self._set(oldest, held_bytes)
                continue
            if self.used_bytes <= IN_GRACE * self.bound_bytes and time.monotonic() - since < GRACE_SECONDS:
                break
            self.lost(oldest)
            log.info("a connection is cut off: what clients do not read or end has no memory left")
            oldest.abort()

    def lost(self, connection: Holding) -> None:
        """Remove a connection that is closed."""
        self._set(connection, 0)

    def _set(self, connection: Holding, held_bytes: int) -> None:
        counted_bytes, since = self._of.get(connection, (0, 0.0))
        if held_bytes == counted_bytes:
            return
        self.used_bytes += held_bytes - counted_bytes
        if held_bytes:
            self._of[connection] = held_bytes, since or time.monotonic()
        else:
            del self._of[connection]
