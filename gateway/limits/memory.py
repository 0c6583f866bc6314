"""The memory limit of all streams together."""

from __future__ import annotations

import asyncio
import sys
from typing import TYPE_CHECKING

from gateway.limits.admission import Admission, LimitExceeded, LimitKind

if TYPE_CHECKING:
    from collections.abc import Callable

RELIEF_PAUSE_SECONDS = 0.2
UNLIMITED = sys.maxsize


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
            raise LimitExceeded(LimitKind.MEMORY, self._queue_seconds)
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
