"""What protects everyone: how much one recipient, and all together, may ask for at a time.

In: the clock in seconds, costs, and frozen settings. Out: let in, let in after a short wait, or refused
with the seconds after which to come again. Waiting is bounded in time and in number, and no refusal asks
for more than `RETRY_AFTER_CEILING_SECONDS`: the Spark client gives up after 7 s. Nothing here knows HTTP.
"""

from __future__ import annotations

import asyncio
import math
import sys
from collections import deque
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import TYPE_CHECKING

from gateway.config.operation import CLIENT_PATIENCE_SECONDS, RecipientLimits

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

RELIEF_PAUSE_SECONDS = 0.2
UNLIMITED = sys.maxsize
RETRY_AFTER_CEILING_SECONDS = int(CLIENT_PATIENCE_SECONDS)


def share_of(limits: RecipientLimits, workers: int) -> RecipientLimits:
    """The part of one of several workers; together they allow about what one would."""

    def part(value: int | None) -> int | None:
        return None if value is None else max(1, math.ceil(value / workers))

    requests_per_second = limits.requests_per_second
    return replace(
        limits,
        requests_per_second=None if requests_per_second is None else requests_per_second / workers,
        burst_requests=max(1, math.ceil(limits.burst_requests / workers)),
        concurrent_streams=part(limits.concurrent_streams),
        files_per_minute=part(limits.files_per_minute),
    )


class Excess(StrEnum):
    """Which limit was met."""

    REQUESTS = "requests"
    STREAMS = "streams"
    FILES = "files"
    MEMORY = "memory"


class Exceeded(Exception):
    """A limit was met; `retry_after_seconds` is when to come again."""

    def __init__(self, excess: Excess, retry_after_seconds: float) -> None:
        super().__init__(f"over the limit of {excess}")
        self.excess = excess
        self.retry_after_seconds = max(1, min(RETRY_AFTER_CEILING_SECONDS, math.ceil(retry_after_seconds)))


class TokenBucket:
    """Tokens flow in at `rate` a second, up to `capacity`; who waits or pays afterwards may overdraw it.

    A clock that goes backwards gives nothing and takes nothing.
    """

    def __init__(self, rate: float, capacity: float, now_seconds: float) -> None:
        self._rate = rate
        self._capacity = capacity
        self._tokens = capacity
        self._at_seconds = now_seconds

    def configure(self, rate: float, capacity: float, now_seconds: float) -> None:
        """Flow at another rate, up to another capacity, from what is there."""
        self._tokens = min(capacity, self.balance(now_seconds))
        self._rate, self._capacity = rate, capacity

    def balance(self, now_seconds: float) -> float:
        """Tokens there; below zero when overdrawn."""
        elapsed = max(0.0, now_seconds - self._at_seconds)
        self._tokens = min(self._capacity, self._tokens + elapsed * self._rate)
        self._at_seconds = now_seconds
        return self._tokens

    def wait_seconds(self, tokens: float, now_seconds: float) -> float:
        """How long until that many tokens are there."""
        return max(0.0, (tokens - self.balance(now_seconds)) / self._rate)

    def take(self, tokens: float, now_seconds: float) -> None:
        """Take tokens, whether they are there or not."""
        self.balance(now_seconds)
        self._tokens -= tokens


class Admission:
    """A capacity shared by those who are inside; others wait in order, a bounded number for a bounded time.

    A cost above the capacity is admitted alone. The first to wait is the first to be served, so a large one
    is not starved.
    """

    def __init__(self, capacity: int, *, queue_length: int, queue_seconds: float) -> None:
        self.capacity = capacity
        self.used = 0
        self._queue_length = queue_length
        self._queue_seconds = queue_seconds
        self._waiting: deque[tuple[int, asyncio.Future[None]]] = deque()

    def configure(self, capacity: int, *, queue_length: int, queue_seconds: float) -> None:
        """Change the capacity and the queue. Those inside stay; those who wait keep their time."""
        self.capacity, self._queue_length, self._queue_seconds = capacity, queue_length, queue_seconds
        self._admit()

    @property
    def waiting(self) -> int:
        """How many wait."""
        return len(self._waiting)

    def _fits(self, cost: int) -> bool:
        return not self.used or self.used + cost <= self.capacity

    async def enter(self, cost: int = 1) -> bool:
        """Take `cost` of the capacity, waiting for it if need be. False: refused, nothing is taken."""
        if not self._waiting and self._fits(cost):
            self.used += cost
            return True
        if len(self._waiting) >= self._queue_length:
            return False
        return await self._wait(cost)

    def leave(self, cost: int = 1) -> None:
        """Give back what `enter` took."""
        self.used -= cost
        self._admit()

    async def _wait(self, cost: int) -> bool:
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        place = (cost, turn)
        self._waiting.append(place)
        try:
            async with asyncio.timeout(self._queue_seconds):
                await turn
        except TimeoutError:
            # The turn may have come in the very tick in which the time ran out.
            if turn.done() and not turn.cancelled():
                return True
            self._forget(place)
            return False
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():
                self.leave(cost)
            else:
                self._forget(place)
            raise
        return True

    def _forget(self, place: tuple[int, asyncio.Future[None]]) -> None:
        if place in self._waiting:
            self._waiting.remove(place)
        self._admit()

    def _admit(self) -> None:
        while self._waiting:
            cost, turn = self._waiting[0]
            if turn.done():
                self._waiting.popleft()
                continue
            if not self._fits(cost):
                return
            self._waiting.popleft()
            self.used += cost
            turn.set_result(None)


class RecipientGate:
    """One recipient's buckets and slots."""

    def __init__(self, limits: RecipientLimits, now_seconds: Callable[[], float]) -> None:
        self._now_seconds = now_seconds
        self._queued = 0
        self._requests: TokenBucket | None = None
        self._files: TokenBucket | None = None
        # Streams count without a limit, too: one may come while they run.
        self._streams = Admission(UNLIMITED, queue_length=0, queue_seconds=0)
        self.configure(limits)

    def configure(self, limits: RecipientLimits) -> None:
        """Change the limits. What was used of the earlier ones stays used."""
        self._limits = limits
        rate, per_minute = limits.requests_per_second, limits.files_per_minute
        self._requests = self._bucket(self._requests, rate, limits.burst_requests)
        self._files = self._bucket(
            self._files, None if per_minute is None else per_minute / 60, per_minute or 0
        )
        self._streams.configure(
            UNLIMITED if limits.concurrent_streams is None else limits.concurrent_streams,
            queue_length=limits.queue_length,
            queue_seconds=limits.queue_seconds,
        )

    def _bucket(self, known: TokenBucket | None, rate: float | None, capacity: float) -> TokenBucket | None:
        if rate is None:
            return None
        now = self._now_seconds()
        if known is None:
            return TokenBucket(rate, capacity, now)
        known.configure(rate, capacity, now)
        return known

    async def request(self) -> None:
        """Let one request in, after a short wait when they come too fast. Raises Exceeded."""
        if self._requests is None:
            return
        wait_seconds = self._requests.wait_seconds(1, self._now_seconds())
        crowded = wait_seconds > 0 and self._queued >= self._limits.queue_length
        if crowded or wait_seconds > self._limits.queue_seconds:
            raise Exceeded(Excess.REQUESTS, wait_seconds)
        self._requests.take(1, self._now_seconds())
        if wait_seconds:
            self._queued += 1
            try:
                await asyncio.sleep(wait_seconds)
            finally:
                self._queued -= 1

    def signed(self, files: int) -> None:
        """Charge the files that a stream signed; a stream that began is never cut for it."""
        if self._files is not None:
            self._files.take(files, self._now_seconds())

    async def enter_stream(self) -> None:
        """Take a stream's place. Raises Exceeded: none is free in time, or earlier files are not paid."""
        if self._files is not None:
            wait_seconds = self._files.wait_seconds(0, self._now_seconds())
            if wait_seconds > 0:
                raise Exceeded(Excess.FILES, wait_seconds)
        if not await self._streams.enter():
            raise Exceeded(Excess.STREAMS, self._limits.queue_seconds)

    def leave_stream(self) -> None:
        """Give the place back."""
        self._streams.leave()


class RecipientGates:
    """The gate of each recipient, made at its first request."""

    def __init__(
        self,
        default: RecipientLimits,
        named: Mapping[str, RecipientLimits],
        now_seconds: Callable[[], float],
    ) -> None:
        self._now_seconds = now_seconds
        self._gates: dict[str, RecipientGate] = {}
        self.configure(default, named)

    def configure(self, default: RecipientLimits, named: Mapping[str, RecipientLimits]) -> None:
        """Change the limits of all recipients. What they used of the earlier ones stays used."""
        self._default = default
        self._named = {name.lower(): limits for name, limits in named.items()}
        for name, gate in self._gates.items():
            gate.configure(self._limits_of(name.lower()))

    def _limits_of(self, key: str) -> RecipientLimits:
        return self._named.get(key, self._default)

    def gate(self, recipient: str) -> RecipientGate:
        """The gate of a recipient that was let in by its token (so their number is bounded)."""
        gate = self._gates.get(recipient)
        if gate is None:
            key = recipient.lower()
            gate = self._gates.get(key) or RecipientGate(self._limits_of(key), self._now_seconds)
            self._gates[key] = self._gates[recipient] = gate
        return gate


class MemoryGate:
    """Global admission: what streams may need together, and what the process really holds.

    `stream_bytes` is what one stream keeps in flight (its chunks and row groups). When the process itself is
    above `limit_bytes`, no stream is admitted until it is not: new ones wait while it gives back what it
    can.
    """

    def __init__(
        self,
        limit_bytes: int,
        *,
        stream_bytes: int,
        queue_length: int,
        queue_seconds: float,
        resident_bytes: Callable[[], int],
        relieve: Callable[[], None] = lambda: None,
    ) -> None:
        """`relieve` gives memory back that can be filled again; it may block."""
        self.limit_bytes = limit_bytes
        self.admitted = 0
        """How many streams have been admitted so far."""
        self._stream_bytes = stream_bytes
        self._queue_seconds = queue_seconds
        self._queue_length = queue_length
        self._resident_bytes = resident_bytes
        self._relieve = relieve
        self._relief: asyncio.Future[None] | None = None
        self._waiting = 0
        self._admission = Admission(limit_bytes, queue_length=queue_length, queue_seconds=queue_seconds)

    def configure(
        self, limit_bytes: int, *, stream_bytes: int, queue_length: int, queue_seconds: float
    ) -> None:
        """Change the limits. Running streams keep what they took."""
        self.limit_bytes = limit_bytes
        self._stream_bytes = stream_bytes
        self._queue_length, self._queue_seconds = queue_length, queue_seconds
        self._admission.configure(limit_bytes, queue_length=queue_length, queue_seconds=queue_seconds)

    @property
    def used_bytes(self) -> int:
        """What is promised to running streams."""
        return self._admission.used

    async def enter_stream(self) -> int:
        """Take a stream's memory; returns its bytes. Raises Exceeded when there is none in time."""
        fits = self._resident_bytes() <= self.limit_bytes or await self._is_relieved()
        taken_bytes = self._stream_bytes
        if not fits or not await self._admission.enter(taken_bytes):
            raise Exceeded(Excess.MEMORY, self._queue_seconds)
        self.admitted += 1
        return taken_bytes

    def leave_stream(self, taken_bytes: int) -> None:
        """Give the memory back that `enter_stream` took."""
        self._admission.leave(taken_bytes)

    async def _is_relieved(self) -> bool:
        """Wait for the process to come below the limit. False: it did not in time, or too many wait."""
        if self._waiting >= self._queue_length:
            return False
        self._waiting += 1
        try:
            async with asyncio.timeout(self._queue_seconds):
                await self._come_below()
        except TimeoutError:
            return False
        finally:
            self._waiting -= 1
        return True

    async def _come_below(self) -> None:
        while self._resident_bytes() > self.limit_bytes:
            if self._relief is None or self._relief.done():
                self._relief = asyncio.get_running_loop().run_in_executor(None, self._relieve)
            await asyncio.shield(self._relief)
            await asyncio.sleep(RELIEF_PAUSE_SECONDS)


@dataclass(frozen=True, slots=True)
class DrainRate:
    """The slowest reader that is borne."""

    minimum_bytes_per_second: int = 1024
    grace_seconds: float = 30.0

    def write_seconds(self, chunk_bytes: int) -> float | None:
        """How long writing a chunk may take before its reader is cut off; None: for ever."""
        if self.minimum_bytes_per_second <= 0:
            return None
        return self.grace_seconds + chunk_bytes / self.minimum_bytes_per_second
