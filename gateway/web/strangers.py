"""Connections that have sent no authenticated request: few, small and short.

In: connections as they open, receive, are authenticated and close. Out: those that are over a bound are
aborted, the oldest first: a client that sends its request at once is never among them. Without these bounds a
stranger holds memory and descriptors for as long as it likes, with heads that it does not finish, requests
that it sends ahead, and answers that it does not read.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import OrderedDict
from typing import TYPE_CHECKING, Protocol

from gateway.config.networks import parse_address
from gateway.limits.attempts import network_of
from gateway.limits.descriptors import reserve_size
from gateway.telemetry.metrics import STRANGER_CLOSINGS

if TYPE_CHECKING:
    from collections.abc import Iterable

log = logging.getLogger("gateway.serving")

MAX_STRANGERS = 1024
MAX_OF_ADDRESS = 256
"""Of one IPv4 address, or of one IPv6 network of a host."""
MAX_HELD_BYTES = 8 * 1024 * 1024
"""Received bytes of all together that no handler has taken."""
LIFE_SECONDS = 20.0
"""Time for a request head, and time in which an answer has to be read."""
SWEEP_SECONDS = 1.0
REPORT_SECONDS = 60.0
MANY, OF_ADDRESS, HELD, SLOW, RESERVE = STRANGER_CLOSINGS
"""Why a connection was closed."""


class Stranger(Protocol):
    """A connection without an authenticated request."""

    def abort(self) -> None:
        """Close the connection at once."""

    def is_waiting(self) -> bool:
        """Return whether the connection waits for its client, and not for the server."""


class _State:
    __slots__ = ("held_bytes", "network", "since")

    def __init__(self, network: str, since: float) -> None:
        self.network = network
        self.since = since
        self.held_bytes = 0


class Strangers:
    """The connections of a listener without an authenticated request."""

    def __init__(self) -> None:
        self._states: OrderedDict[Stranger, _State] = OrderedDict()
        """In the order in which they began to wait for their clients."""
        self._of_network: dict[str, OrderedDict[Stranger, None]] = {}
        self._reserved: OrderedDict[Stranger, None] = OrderedDict()
        """Those with a descriptor of the reserve. The other half of it is for files and stores."""
        self._held_bytes = 0
        self._sweep: asyncio.TimerHandle | None = None
        self._closed = dict.fromkeys(STRANGER_CLOSINGS, 0)
        self._reported = 0
        self._report_at = 0.0

    def __len__(self) -> int:
        return len(self._states)

    def counts(self) -> Iterable[tuple[str, int]]:
        """Return the numbers of closed connections, by reason."""
        return self._closed.items()

    def made(self, connection: Stranger, peer: str | None, *, is_reserved: bool = False) -> None:
        """Add a connection that has just been opened. `is_reserved`: only the reserve was left for it."""
        if is_reserved:
            if len(self._reserved) >= reserve_size() // 2:
                self._close(next(iter(self._reserved)), RESERVE)
            self._reserved[connection] = None
        network = network_of(parse_address(peer) if peer else None)
        of_network = self._of_network.setdefault(network, OrderedDict())
        if len(of_network) >= MAX_OF_ADDRESS:
            self._close(next(iter(of_network)), OF_ADDRESS)
            of_network = self._of_network.setdefault(network, OrderedDict())
        elif len(self._states) >= MAX_STRANGERS:
            self._close(next(iter(self._states)), MANY)
        of_network[connection] = None
        self._states[connection] = _State(network, time.monotonic())
        if self._sweep is None:
            self._sweep = asyncio.get_running_loop().call_later(SWEEP_SECONDS, self._close_slow)

    def refused(self) -> None:
        """Count a request that a connection of the reserve is not for."""
        self._closed[RESERVE] += 1

    def received(self, connection: Stranger, size: int) -> None:
        """Count bytes that no handler has taken yet."""
        state = self._states.get(connection)
        if state is None:
            return
        state.held_bytes += size
        self._held_bytes += size
        while self._held_bytes > MAX_HELD_BYTES and self._states:
            self._close(next(iter(self._states)), HELD)

    def answered(self, connection: Stranger, held_bytes: int) -> None:
        """Begin the time of a connection again, whose request is answered. `held_bytes`: sent ahead."""
        state = self._states.get(connection)
        if state is not None:
            self._held_bytes += held_bytes - state.held_bytes
            state.held_bytes = held_bytes
            self._begin_again(connection, state)

    def lost(self, connection: Stranger) -> None:
        """Remove a connection that is closed, or has sent an authenticated request."""
        state = self._states.pop(connection, None)
        if state is None:
            return
        self._reserved.pop(connection, None)
        self._held_bytes -= state.held_bytes
        of_network = self._of_network[state.network]
        del of_network[connection]
        if not of_network:
            del self._of_network[state.network]

    def _begin_again(self, connection: Stranger, state: _State) -> None:
        state.since = time.monotonic()
        self._states.move_to_end(connection)
        self._of_network[state.network].move_to_end(connection)

    def _close(self, connection: Stranger, reason: str) -> None:
        self._closed[reason] += 1
        self.lost(connection)
        connection.abort()

    def _close_slow(self) -> None:
        now = time.monotonic()
        while self._states:
            connection, state = next(iter(self._states.items()))
            if now - state.since < LIFE_SECONDS:
                break
            if connection.is_waiting():
                self._close(connection, SLOW)
            else:
                self._begin_again(connection, state)
        self._report(now)
        loop = asyncio.get_running_loop()
        self._sweep = loop.call_later(SWEEP_SECONDS, self._close_slow) if self._states else None

    def _report(self, now: float) -> None:
        closed = sum(self._closed.values())
        if closed > self._reported and now >= self._report_at:
            log.warning(
                "%d connections without a valid token were closed: they were slow or too many",
                closed - self._reported,
            )
            self._reported, self._report_at = closed, now + REPORT_SECONDS
