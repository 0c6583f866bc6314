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
    """Return the limits of one of several workers; together they allow about the whole."""

    def part(value: int | None) -> int | None:
        return None if value is None else max(1, math.ceil(value / workers))

    requests_per_second = limits.requests_per_second
    return replace(
        limits,
        requests_per_second=None if requests_per_second is None else requests_per_second / workers,
        burst_requests=max(1, math.ceil(limits.burst_requests / workers)),
        concurrent_streams=part(limits.concurrent_streams),
        files_per_minute=part(limits.files_per_minute),
        credentials_per_minute=part(limits.credentials_per_minute),
    )


class TokenBucket:
    """A token bucket: `rate` tokens a second, up to `capacity`. Its balance may become negative.

    A clock that goes backwards adds and removes nothing.
    """

    def __init__(self, rate: float, capacity: float, now_seconds: float) -> None:
        self._rate = rate
        self._capacity = capacity
        self._tokens = capacity
        self._at_seconds = now_seconds

    def configure(self, rate: float, capacity: float, now_seconds: float) -> None:
        """Change the rate and the capacity; the balance stays."""
        self._tokens = min(capacity, self.balance(now_seconds))
        self._rate, self._capacity = rate, capacity

    def balance(self, now_seconds: float) -> float:
        """Return the tokens in the bucket; negative when overdrawn."""
        elapsed = max(0.0, now_seconds - self._at_seconds)
        self._tokens = min(self._capacity, self._tokens + elapsed * self._rate)
        self._at_seconds = now_seconds
        return self._tokens

    def wait_seconds(self, tokens: float, now_seconds: float) -> float:
        """Return the time until that many tokens are available."""
        return max(0.0, (tokens - self.balance(now_seconds)) / self._rate)

    def take(self, tokens: float, now_seconds: float) -> None:
        """Take tokens, also when they are not available."""
        self.balance(now_seconds)
        self._tokens -= tokens


class RecipientGate:
    """The limits of one recipient and their use."""

    def __init__(self, limits: RecipientLimits, now_seconds: Callable[[], float]) -> None:
        self._now_seconds = now_seconds
        self._queued = 0
        self._requests: TokenBucket | None = None
        self._files: TokenBucket | None = None
        self._credentials: TokenBucket | None = None
        # Streams are counted without a limit, too: a reload may add one while they run.
        self._streams = Admission(UNLIMITED, queue_length=0, queue_seconds=0)
        self.configure(limits)

    def configure(self, limits: RecipientLimits) -> None:
        """Change the limits; their use stays."""
        self._limits = limits
        rate, per_minute = limits.requests_per_second, limits.files_per_minute
        self._requests = self._bucket(self._requests, rate, limits.burst_requests)
        self._files = self._bucket(
            self._files, None if per_minute is None else per_minute / 60, per_minute or 0
        )
        credentials = limits.credentials_per_minute
        self._credentials = self._bucket(
            self._credentials, None if credentials is None else credentials / 60, credentials or 0
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
        """Admit one request, after a short wait when they come too fast. Raises LimitExceeded."""
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
        """Charge the files that a stream has signed; a running stream is never cut for them."""
        if self._files is not None:
            self._files.take(files, self._now_seconds())

    def charge_credential(self) -> None:
        """Admit a request for temporary credentials. Raises LimitExceeded."""
        if self._credentials is None:
            return
        now_seconds = self._now_seconds()
        wait_seconds = self._credentials.wait_seconds(1, now_seconds)
        if wait_seconds > 0:
            raise LimitExceeded(LimitKind.CREDENTIALS, wait_seconds)
        self._credentials.take(1, now_seconds)

    async def enter_stream(self) -> None:
        """Admit a stream. Raises LimitExceeded when too many run, or earlier files are not yet paid for."""
        if self._files is not None:
            wait_seconds = self._files.wait_seconds(0, self._now_seconds())
            if wait_seconds > 0:
                raise LimitExceeded(LimitKind.FILES, wait_seconds)
        if not await self._streams.enter():
            raise LimitExceeded(LimitKind.STREAMS, self._limits.queue_seconds)

    def leave_stream(self) -> None:
        """Count the end of a stream."""
        self._streams.leave()


class RecipientGates:
    """The gates of all recipients, each made at its first request."""

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
        """Change the limits of all recipients; their use stays."""
        self._default = default
        self._named = {name.lower(): limits for name, limits in named.items()}
        for name, gate in self._gates.items():
            gate.configure(self._limits_of(name.lower()))

    def _limits_of(self, key: str) -> RecipientLimits:
        return self._named.get(key, self._default)

    def gate(self, recipient: str) -> RecipientGate:
        """Return the gate of an authenticated recipient; the number of gates is bounded by theirs."""
        gate = self._gates.get(recipient)
        if gate is None:
            key = recipient.lower()
            gate = self._gates.get(key) or RecipientGate(self._limits_of(key), self._now_seconds)
            self._gates[key] = self._gates[recipient] = gate
        return gate
