"""The memory limit of all streams together."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable

from gateway.limits.admission import Admission, LimitExceeded, LimitKind

RELIEF_PAUSE_SECONDS = 0.2
UNLIMITED = sys.maxsize
PART_OF_CHUNKS = 8
"""The part of a stream that its chunks take: one of files in memory reads no row groups."""


class AdmittedStream:
    """The memory of one request, which it returns at its end, and most of it before if it needs no more."""

    __slots__ = ("_bytes", "_gate", "_recipient")

    def __init__(self, gate: MemoryGate, recipient: str, admitted_bytes: int) -> None:
        self._gate, self._recipient, self._bytes = gate, recipient, admitted_bytes

    def keep_chunks(self) -> None:
        """Return what the chunks of a stream do not take. Does nothing to a stream that runs alone."""
        if not self._gate.is_exhausted:
            self._keep(max(1, self._bytes // PART_OF_CHUNKS))

    def leave(self) -> None:
        """Return all of it."""
        self._keep(0)

    def _keep(self, kept_bytes: int) -> None:
        returned, self._bytes = self._bytes - kept_bytes, kept_bytes
        self._gate.leave_stream(self._recipient, returned)


class MemoryGate:
    """The memory limit of all streams together, and of the process.

    `stream_bytes` is the memory of one stream: its chunks and row groups. One recipient leaves room for a
    stream of another, however many unread answers it has. While the process itself is above
    `limit_bytes`, new streams wait while caches are freed. Once nothing can be freed they run one at a time:
    refusing all streams would not shrink the process.
    """

    def __init__(
        self,
        limit_bytes: int,
        *,
        stream_bytes: int,
        queue_length: int,
        queue_seconds: float,
        resident_bytes: Callable[[], int],
        relieve: Callable[[], bool] = lambda: False,
    ) -> None:
        """`relieve` frees caches, and returns whether there was something to free; it may block."""
        self.limit_bytes = limit_bytes
        self.admitted = 0
        """The number of streams admitted so far."""
        self._stream_bytes = stream_bytes
        self._queue_seconds = queue_seconds
        self._queue_length = queue_length
        self._resident_bytes = resident_bytes
        self._relieve = relieve
        self._relief: asyncio.Future[bool] | None = None
        self._is_exhausted = False
        self._waiting = 0
        self._admission = Admission(limit_bytes, queue_length=queue_length, queue_seconds=queue_seconds)
        self._of_recipients: dict[str, Admission] = {}
        """Of those that have a stream, or wait for one."""

    def configure(
        self, limit_bytes: int, *, stream_bytes: int, queue_length: int, queue_seconds: float
    ) -> None:
        """Change the limits. Running streams keep their memory."""
        self.limit_bytes = limit_bytes
        self._stream_bytes = stream_bytes
        self._queue_length, self._queue_seconds = queue_length, queue_seconds
        self._admission.configure(limit_bytes, queue_length=queue_length, queue_seconds=queue_seconds)
        for admission in self._of_recipients.values():
            admission.configure(self._own_bytes, queue_length=queue_length, queue_seconds=queue_seconds)

    @property
    def _own_bytes(self) -> int:
        """The maximum memory of one recipient."""
        return max(self._stream_bytes, self.limit_bytes - self._stream_bytes)

    @property
    def used_bytes(self) -> int:
        """The memory promised to running streams."""
        return self._admission.used

    @property
    def is_exhausted(self) -> bool:
        """Whether the process is above its limit and nothing could be freed: streams run one at a time."""
        return self._is_exhausted and self.is_above

    @property
    def is_above(self) -> bool:
        """Whether the process is above its limit."""
        return self._resident_bytes() > self.limit_bytes

    def free(self) -> None:
        """Begin to free caches while the process is above its limit, also without a request."""
        if not self.is_above:
            self._is_exhausted = False
        elif (self._relief is None or self._relief.done()) and not (self._is_exhausted and self.used_bytes):
            _ = self._relieve_soon()

    def enter_stream_at_once(self, recipient: str, streams: int = 1) -> int:
        """Take memory as `enter_stream`, without waiting. 0: that decides, and nothing is taken."""
        if self.is_above:
            return 0
        self._is_exhausted = False
        admitted_bytes = streams * self._stream_bytes
        if not self._of_recipient(recipient).enter_at_once(admitted_bytes):
            return 0
        if not self._admission.enter_at_once(admitted_bytes):
            self._leave_own(recipient, admitted_bytes)
            return 0
        self.admitted += 1
        return admitted_bytes

    async def enter_stream(self, recipient: str, streams: int = 1) -> int:
        """Take the memory of one or several streams and return its bytes.

        Raises LimitExceeded when there is none in time.
        """
        if not self.is_above:
            self._is_exhausted = False
            fits = True
        else:
            fits = await self._is_relieved()
        # A cost of the whole limit is admitted alone.
        admitted_bytes = streams * self._stream_bytes
        if self.is_exhausted:
            admitted_bytes = max(admitted_bytes, self.limit_bytes)
        if not fits or not await self._enter(recipient, admitted_bytes):
            raise LimitExceeded(LimitKind.MEMORY, self._queue_seconds)
        self.admitted += 1
        return admitted_bytes

    def leave_stream(self, recipient: str, admitted_bytes: int) -> None:
        """Return the memory that `enter_stream` took."""
        self._admission.leave(admitted_bytes)
        self._leave_own(recipient, admitted_bytes)

    async def _enter(self, recipient: str, admitted_bytes: int) -> bool:
        """Take memory from the recipient's part, then from the memory of all. Waits in the queue of each."""
        if not await self._of_recipient(recipient).enter(admitted_bytes):
            return False
        has_entered = False
        try:
            has_entered = await self._admission.enter(admitted_bytes)
        finally:
            if not has_entered:
                self._leave_own(recipient, admitted_bytes)
        return has_entered

    def _of_recipient(self, recipient: str) -> Admission:
        admission = self._of_recipients.get(recipient)
        if admission is None:
            admission = self._of_recipients[recipient] = Admission(
                self._own_bytes, queue_length=self._queue_length, queue_seconds=self._queue_seconds
            )
        return admission

    def _leave_own(self, recipient: str, admitted_bytes: int) -> None:
        admission = self._of_recipients[recipient]
        admission.leave(admitted_bytes)
        if not admission.used and not admission.waiting:
            del self._of_recipients[recipient]

    async def _is_relieved(self) -> bool:
        """Wait until the process is below the limit, or nothing can be freed.

        False: not in time, or too many streams wait.
        """
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
        while self.is_above:
            relief = self._relief
            if relief is None or relief.done():
                relief = self._relieve_soon()
            await asyncio.shield(relief)
            if self.is_exhausted:
                return
            await asyncio.sleep(RELIEF_PAUSE_SECONDS)
        self._is_exhausted = False

    def _relieve_soon(self) -> asyncio.Future[bool]:
        self._relief = relief = asyncio.get_running_loop().run_in_executor(None, self._relieve)
        relief.add_done_callback(self._relieved)
        return relief

    def _relieved(self, relief: asyncio.Future[bool]) -> None:
        # What a stream leaves behind is freed, and the process may still be above its limit.
        if not relief.cancelled() and relief.exception() is None and not relief.result():
            self._is_exhausted = True
