"""Connections that have sent no authenticated request: few, small and short.

In: connections as they open, shake hands, receive, are authenticated and close. Out: those that are over a
bound are aborted, the oldest first. Without these bounds a stranger holds memory and descriptors for as long
as it likes, with handshakes and heads that it does not finish, requests that it sends ahead, and answers that
it does not read.

Many clients may share one address, such as a proxy's, and proxies open connections ahead.
What waits for the server, or for its client for less than `GRACE_SECONDS`, is over no bound but that of a
flood. An idle connection holds nothing beside itself, and lives as long as a recipient's connection.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import OrderedDict
from collections.abc import Generator, Iterable, Iterator
from itertools import islice
from typing import Protocol

from gateway.config.networks import parse_address
from gateway.limits.attempts import network_of
from gateway.limits.descriptors import reserve_size
from gateway.telemetry.metrics import STRANGER_CLOSINGS

log = logging.getLogger("gateway.serving")

MAX_STRANGERS = 1024
MAX_OF_ADDRESS = 256
"""Of one IPv4 address, or of one IPv6 network of a host."""
PLAIN_BYTES, TLS_BYTES = 20 * 1024, 64 * 1024
"""Memory of a connection, and of one with TLS from the begin of its handshake on."""
MAX_HELD_BYTES = 24 * 1024 * 1024
"""Of all connections together, with received bytes that no handler has taken."""
GRACE_SECONDS = 5.0
MAX_HELD_BYTES_IN_FLOOD = 32 * 1024 * 1024
"""With new connections."""
LIFE_SECONDS = 20.0
"""Time for a request head, and time in which an answer has to be read."""
IDLE_SECONDS = 65.0
"""Time without a request, where the configuration gives none."""
SWEEP_SECONDS = 1.0
SWEEP_STEPS = 64
"""Connections that a sweep looks at before others have a turn: 0.1 to 0.2 ms."""
DONE = object()
REPORT_SECONDS = 60.0
MANY, OF_ADDRESS, HELD, SLOW, RESERVE = STRANGER_CLOSINGS
"""Why a connection was closed."""


class Stranger(Protocol):
    """A connection without an authenticated request."""

    def abort(self) -> None:
        """Close the connection at once."""

    def is_waiting(self) -> bool:
        """Return whether the connection waits for its client, and not for the server."""

    def is_idle(self) -> bool:
        """Return whether nothing of a request has come, and nothing of an answer is left to send."""


class _State:
    __slots__ = ("held_bytes", "network", "own_bytes", "rounds", "since")

    def __init__(self, network: str, own_bytes: int, since: float) -> None:
        self.network = network
        self.since = since
        self.rounds = 0
        """Sweeps since then that found the connection waiting for its client."""
        self.own_bytes = self.held_bytes = own_bytes


class Strangers:
    """The connections of a listener without an authenticated request."""

    def __init__(self) -> None:
        self._states: OrderedDict[Stranger, _State] = OrderedDict()
        """In the order in which they began to wait for their clients."""
        self._of_network: dict[str, int] = {}
        self._reserved: OrderedDict[Stranger, None] = OrderedDict()
        """Those with a descriptor of the reserve. The other half of it is for files and stores."""
        self.idle_seconds = IDLE_SECONDS
        self._held_bytes = 0
        self._sweep: asyncio.TimerHandle | None = None
        self._closed = dict.fromkeys(STRANGER_CLOSINGS, 0)
        self._reported = 0
        self._report_at = 0.0

    def __len__(self) -> int:
        return len(self._states)

    @property
    def has_room(self) -> bool:
        """Whether at most half of the bound is held: room for a burst of connections."""
        return self._held_bytes <= MAX_HELD_BYTES // 2

    def counts(self) -> Iterable[tuple[str, int]]:
        """Return the numbers of closed connections, by reason."""
        return self._closed.items()

    def made(
        self,
        connection: Stranger,
        peer: str | None,
        is_reserved: bool,
        *,
        own_bytes: int = PLAIN_BYTES,
    ) -> None:
        """Add a connection that has just been opened. `is_reserved`: only the reserve was left for it."""
        if is_reserved:
            if len(self._reserved) >= reserve_size() // 2:
                self._close(next(iter(self._reserved)), RESERVE)
            self._reserved[connection] = None
        network = network_of(parse_address(peer) if peer else None)
        self._of_network[network] = self._of_network.get(network, 0) + 1
        self._states[connection] = _State(network, own_bytes, time.monotonic())
        self._held_bytes += own_bytes
        self._close_oldest()
        if self._sweep is None:
            self._sweep = asyncio.get_running_loop().call_later(SWEEP_SECONDS, self._sweep_old)

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
        self._close_oldest()

    def _close_oldest(self) -> None:
        while self._held_bytes > MAX_HELD_BYTES:
            oldest, waiting = next(iter(self._states.items()))
            is_new = time.monotonic() - waiting.since < GRACE_SECONDS
            if is_new and self._held_bytes <= MAX_HELD_BYTES_IN_FLOOD:
                break
            self._close(oldest, HELD)

    def answered(self, connection: Stranger, held_bytes: int) -> None:
        """Begin the time of a connection again, whose request is answered. `held_bytes`: sent ahead."""
        state = self._states.get(connection)
        if state is not None:
            held_bytes += state.own_bytes
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
        self._of_network[state.network] -= 1
        if not self._of_network[state.network]:
            del self._of_network[state.network]

    def _begin_again(self, connection: Stranger, state: _State) -> None:
        state.since, state.rounds = time.monotonic(), 0
        self._states.move_to_end(connection)

    def _close(self, connection: Stranger, reason: str) -> None:
        if connection not in self._states:
            return
        self._closed[reason] += 1
        self.lost(connection)
        connection.abort()

    def _sweep_old(self) -> None:
        self._go_on(self._sweep_steps(time.monotonic()))

    def _go_on(self, steps: Iterator[None]) -> None:
        """Do a part of a sweep, and the rest after what the loop has to do besides."""
        for _ in islice(steps, SWEEP_STEPS):
            pass
        loop = asyncio.get_running_loop()
        if next(steps, DONE) is not DONE:
            loop.call_soon(self._go_on, steps)
        else:
            self._sweep = loop.call_later(SWEEP_SECONDS, self._sweep_old) if self._states else None

    def _sweep_steps(self, now: float) -> Iterator[None]:
        """A step looks at one connection."""
        old, holding = yield from self._old(now)
        for connections in holding.values():
            for connection in connections[:-MAX_OF_ADDRESS]:
                yield
                self._close_old(connection, OF_ADDRESS)
        for connection, network in old.items():
            yield
            if len(self._states) > MAX_STRANGERS and self._of_network.get(network, 0) > MAX_OF_ADDRESS:
                self._close_old(connection, OF_ADDRESS)
        for connection in old:
            yield
            if len(self._states) > MAX_STRANGERS:
                self._close_old(connection, MANY)
        self._report(now)

    def _old(
        self, now: float
    ) -> Generator[None, None, tuple[dict[Stranger, str], dict[str, list[Stranger]]]]:
        """Return what has waited for long, oldest first: with networks, and what holds bytes by network.

        Closes what has waited for too long.
        """
        old, holding = dict[Stranger, str](), dict[str, list[Stranger]]()
        for connection, state in list(self._states.items()):
            if now - state.since < GRACE_SECONDS:
                continue
            yield
            age = now - state.since
            if age < GRACE_SECONDS or connection not in self._states:
                continue
            if not connection.is_waiting():
                self._begin_again(connection, state)
                continue
            state.rounds += 1
            # A busy loop may not yet have read what the client has sent.
            if state.rounds == 1:
                continue
            is_idle = connection.is_idle()
            if age >= (self.idle_seconds if is_idle else LIFE_SECONDS):
                self._close(connection, SLOW)
                continue
            old[connection] = state.network
            if not is_idle:
                holding.setdefault(state.network, []).append(connection)
        return old, holding

    def _close_old(self, connection: Stranger, reason: str) -> None:
        """Close a connection unless its time has begun again since the sweep saw it."""
        state = self._states.get(connection)
        if state is not None and state.rounds:
            self._close(connection, reason)

    def _report(self, now: float) -> None:
        closed = sum(self._closed.values())
        if closed > self._reported and now >= self._report_at:
            log.warning(
                "%d connections without a valid token were closed: they were slow or too many",
                closed - self._reported,
            )
            self._reported, self._report_at = closed, now + REPORT_SECONDS
