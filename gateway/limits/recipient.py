"""The limits of each recipient: a token bucket of requests, a number of streams, files per minute.

In: the limits of a configuration and the memory that the workers of a server share. Out: gates that admit,
delay or refuse. A limit holds over all workers; only the queues belong to one worker.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Callable, Mapping
from typing import Literal

from gateway._native import SharedBucket, SharedLimits, SharedStreams
from gateway.config.operation import RecipientLimits
from gateway.limits.admission import Admission, LimitExceeded, LimitKind
from gateway.limits.memory import UNLIMITED
from gateway.limits.shared_memory import limits_of_one

POLL_SECONDS = 0.02
"""Time between two checks of a waiting stream for a place that another worker has released."""
KEY_BYTES = 16


class _Streams(Admission):
    """The streams of a recipient in this worker. A limit counts the streams of all workers.

    Without a limit they are counted in this worker alone, for a limit that a reload sets while they run.
    """

    def __init__(self, shared: SharedStreams) -> None:
        super().__init__(UNLIMITED, queue_length=0, queue_seconds=0)
        self._shared = shared
        self._poll_timer: asyncio.TimerHandle | None = None

    def configure(self, capacity: int, *, queue_length: int, queue_seconds: float) -> None:
        if self.capacity == UNLIMITED != capacity:
            self._shared.set(self.used)
        super().configure(capacity, queue_length=queue_length, queue_seconds=queue_seconds)

    def leave(self, cost: int = 1) -> None:
        if self.capacity != UNLIMITED:
            self._shared.leave()
        super().leave(cost)

    def _take(self, cost: int) -> bool:
        if self.capacity != UNLIMITED and not self._shared.enter(self.capacity):
            return False
        self.used += cost
        return True

    async def _wait(self, cost: int) -> bool:
        if self._poll_timer is None:
            self._poll_later()
        return await super()._wait(cost)

    def _poll_later(self) -> None:
        self._poll_timer = asyncio.get_running_loop().call_later(POLL_SECONDS, self._poll)

    def _poll(self) -> None:
        self._poll_timer = None
        self._admit()
        if self.waiting:
            self._poll_later()


class RecipientGate:
    """The limits of one recipient and their use."""

    def __init__(
        self, key: bytes, limits: RecipientLimits, now_seconds: Callable[[], float], shared: SharedLimits
    ) -> None:
        """`key`: the hash of the recipient's name."""
        self._key = key
        self._now_seconds = now_seconds
        self._shared = shared
        self._queued = 0
        self._requests: SharedBucket | None = None
        self._files: SharedBucket | None = None
        self._credentials: SharedBucket | None = None
        self._streams = _Streams(shared.streams(key))
        self.configure(limits)

    def configure(self, limits: RecipientLimits) -> None:
        """Change the limits; their use stays."""
        self._limits = limits
        self._requests = self._bucket("requests", limits.requests_per_second, limits.burst_requests)
        self.limits_requests = self._requests is not None
        """Whether `request` has a limit."""
        self._files = self._bucket_per_minute("files", limits.files_per_minute)
        self._credentials = self._bucket_per_minute("credentials", limits.credentials_per_minute)
        self._streams.configure(
            UNLIMITED if limits.concurrent_streams is None else limits.concurrent_streams,
            queue_length=limits.queue_length,
            queue_seconds=limits.queue_seconds,
        )

    def _bucket_per_minute(
        self, kind: Literal["files", "credentials"], limit: int | None
    ) -> SharedBucket | None:
        return None if limit is None else self._bucket(kind, limit / 60, limit)

    def _bucket(
        self, kind: Literal["requests", "files", "credentials"], rate: float | None, capacity: int
    ) -> SharedBucket | None:
        if rate is None:
            return None
        return self._shared.bucket(
            self._key, kind, rate=rate, capacity=capacity, now_seconds=self._now_seconds()
        )

    async def request(self) -> None:
        """Admit one request, after a short wait when they come too fast. Raises LimitExceeded."""
        if self._requests is None:
            return
        may_wait = self._queued < self._limits.queue_length
        patience_seconds = self._limits.queue_seconds if may_wait else 0.0
        is_taken, wait_seconds = self._requests.take(
            1, self._now_seconds(), patience_seconds=patience_seconds
        )
        if not is_taken:
            raise LimitExceeded(LimitKind.REQUESTS, wait_seconds)
        if wait_seconds:
            self._queued += 1
            try:
                await asyncio.sleep(wait_seconds)
            finally:
                self._queued -= 1

    def charge_files(self, files: int) -> None:
        """Charge the files that a stream has signed; a running stream is never cut for them."""
        if self._files is not None:
            self._files.charge(files, self._now_seconds())

    def charge_credential(self) -> None:
        """Admit a request for temporary credentials. Raises LimitExceeded."""
        if self._credentials is None:
            return
        is_taken, wait_seconds = self._credentials.take(1, self._now_seconds(), patience_seconds=0.0)
        if not is_taken:
            raise LimitExceeded(LimitKind.CREDENTIALS, wait_seconds)

    def enter_stream_at_once(self) -> bool:
        """Admit a stream. False: `enter_stream` decides, and nothing is taken."""
        return self._files is None and self._streams.enter_at_once()

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
        shared: SharedLimits | None = None,
    ) -> None:
        """`shared`: the limits that all workers share; without it each process has its limits."""
        self._now_seconds = now_seconds
        self._shared = shared or limits_of_one()
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
            gate = self._gates.get(key) or self._made(key)
            self._gates[key] = self._gates[recipient] = gate
        return gate

    def _made(self, name: str) -> RecipientGate:
        key = hashlib.blake2b(name.encode("utf-8", "surrogatepass"), digest_size=KEY_BYTES).digest()
        return RecipientGate(key, self._limits_of(name), self._now_seconds, self._shared)
