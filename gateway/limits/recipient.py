"""Limits of one recipient: requests, concurrent streams and signed files."""

from __future__ import annotations

import asyncio
import math
from dataclasses import replace
from typing import TYPE_CHECKING

from gateway.config.operation import RecipientLimits
from gateway.limits.admission import Admission, LimitExceeded, LimitKind
from gateway.limits.memory import UNLIMITED

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping


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
            raise LimitExceeded(LimitKind.REQUESTS, wait_seconds)
        self._requests.take(1, self._now_seconds())
        if wait_seconds:
            self._queued += 1
            try:
                await asyncio.sleep(wait_seconds)
            finally:
                self._queued -= 1

    def charge_files(self, files: int) -> None:
        """Charge the files that a stream signed; a stream that began is never cut for it."""
        if self._files is not None:
            self._files.take(files, self._now_seconds())

    async def enter_stream(self) -> None:
        """Take a stream's place. Raises Exceeded: none is free in time, or earlier files are not paid."""
        if self._files is not None:
            wait_seconds = self._files.wait_seconds(0, self._now_seconds())
            if wait_seconds > 0:
                raise LimitExceeded(LimitKind.FILES, wait_seconds)
        if not await self._streams.enter():
            raise LimitExceeded(LimitKind.STREAMS, self._limits.queue_seconds)

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
