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
    """The memory limit of all streams together, and of the process.

    `stream_bytes` is the memory of one stream: its chunks and row groups. While the process itself is above
    `limit_bytes`, no stream is admitted: new ones wait while caches are freed.
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
        """`relieve` frees caches; it may block."""
        self.limit_bytes = limit_bytes
        self.admitted = 0
        """The number of streams admitted so far."""
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
        """Change the limits. Running streams keep their memory."""
        self.limit_bytes = limit_bytes
        self._stream_bytes = stream_bytes
        self._queue_length, self._queue_seconds = queue_length, queue_seconds
        self._admission.configure(limit_bytes, queue_length=queue_length, queue_seconds=queue_seconds)

    @property
    def used_bytes(self) -> int:
        """The memory promised to running streams."""
        return self._admission.used

    async def enter_stream(self) -> int:
        """Take a stream's memory and return its bytes. Raises LimitExceeded when there is none in time."""
        fits = self._resident_bytes() <= self.limit_bytes or await self._is_relieved()
        admitted_bytes = self._stream_bytes
        if not fits or not await self._admission.enter(admitted_bytes):
            raise LimitExceeded(LimitKind.MEMORY, self._queue_seconds)
        self.admitted += 1
        return admitted_bytes

    def leave_stream(self, admitted_bytes: int) -> None:
        """Return the memory that `enter_stream` took."""
        self._admission.leave(admitted_bytes)

    async def _is_relieved(self) -> bool:
        """Wait until the process is below the limit. False: not in time, or too many streams wait."""
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
