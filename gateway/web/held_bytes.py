"""What the connections of recipients hold together, beside the answers that have memory of their own.

In: connections after what may add to it. Out: over the bound, those that have held something for longest are
aborted. A recipient may send requests ahead of answers that it does not read, and parts of bodies, over as
many connections as there are descriptors.
"""

from __future__ import annotations

import logging
import time
from typing import Protocol

log = logging.getLogger("gateway.serving")

USUAL_BYTES = 32 * 1024 * 1024
GRACE_SECONDS = 5.0
"""Time in which a client may read or send what is held, in up to `IN_GRACE` times the bound."""
IN_GRACE = 4


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
        self._set(connection, connection.held_bytes())
        while self.used_bytes > self.bound_bytes:
            oldest, (counted_bytes, since) = next(iter(self._of.items()))
            held_bytes = oldest.held_bytes()
            if held_bytes < counted_bytes:
                # Nothing tells that its client has read.
                self._set(oldest, held_bytes)
                continue
            is_new = time.monotonic() - since < GRACE_SECONDS
            if is_new and self.used_bytes <= IN_GRACE * self.bound_bytes:
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
