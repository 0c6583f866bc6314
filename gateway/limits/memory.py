"""The memory limit of all streams together."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable

from msgspec import Struct

from gateway.limits.admission import LimitExceeded, LimitKind
from gateway.limits.fair_admission import FairAdmission

RELIEF_PAUSE_SECONDS = 0.2
UNLIMITED = sys.maxsize
FROM_MEMORY = 0
"""The streams that an answer from columns in memory counts as: it has chunks, and reads no row groups."""
CHUNKS_PART = 16
"""The part of a stream that its chunks take."""
FROM_MEMORY_PART = 8
"""The part of the limit that is left to answers from memory: those that read logs do not refuse them."""


class AdmittedStream(Struct, eq=False):
    """The memory of one request, which it returns at its end."""

    gate: MemoryGate
    recipient: str
    admission: FairAdmission
    bytes: int

    def take(self, admission: FairAdmission, taken_bytes: int) -> None:
        """Hold what was taken for it."""
        self.admission, self.bytes = admission, taken_bytes

    async def read_log(self, streams: int = 1) -> None:
        """Take the memory of an answer that reads the log. Raises LimitExceeded if there is none in time."""
        more_bytes = self.gate.bytes_of(streams) - self.bytes
        if more_bytes <= 0:
            return
        if self.gate.runs_alone(self.admission, self.bytes):
            self.admission.add(self.recipient, more_bytes)
            self.bytes += more_bytes
            return
        # What it has is returned first: many that wait with a part of the memory would wait for each other.
        self.leave()
        await self.gate.admit(self, streams)

    def leave(self) -> None:
        """Return all of it."""
        if self.bytes:
            self.admission.leave(self.recipient, self.bytes)
            self.bytes = 0


class MemoryGate:
    """The memory limit of all streams together, and of the process.

    `stream_bytes` is the memory of one stream: its chunks and row groups. Answers that read logs have seven
    eighths of the limit, those of files in memory the rest and what is free of the others. Of each, one
    recipient leaves room for a stream of another, however many unread answers it has. While the process
    itself is above `limit_bytes`, new streams wait while caches are freed. Once nothing can be freed they run
    one at a time, until the process is below the limit: refusing all streams would not shrink it.
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
        self._resident_bytes = resident_bytes
        self._relieve = relieve
        self._relief: asyncio.Task[None] | None = None
        self._is_exhausted = False
        self._waiting = 0
        self._of_logs, self._from_memory = FairAdmission(), FairAdmission()
        self.configure(
            limit_bytes, stream_bytes=stream_bytes, queue_length=queue_length, queue_seconds=queue_seconds
        )

    def configure(
        self, limit_bytes: int, *, stream_bytes: int, queue_length: int, queue_seconds: float
    ) -> None:
        """Change the limits. Running streams keep their memory."""
        self.limit_bytes, self._stream_bytes = limit_bytes, stream_bytes
        self._queue_length, self._queue_seconds = queue_length, queue_seconds
        self._chunks_bytes = max(1, stream_bytes // CHUNKS_PART)
        from_memory_bytes = limit_bytes // FROM_MEMORY_PART
        for admission, capacity, reserve in (
            (self._of_logs, limit_bytes - from_memory_bytes, stream_bytes),
            (self._from_memory, from_memory_bytes, self._chunks_bytes),
        ):
            admission.configure(
                capacity, reserve=reserve, queue_length=queue_length, queue_seconds=queue_seconds
            )

    @property
    def used_bytes(self) -> int:
        """The memory promised to running streams."""
        return self._of_logs.used + self._from_memory.used

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
            self._is_below()
        elif (self._relief is None or self._relief.done()) and not (self._is_exhausted and self.used_bytes):
            _ = self._relieve_soon()

    def bytes_of(self, streams: int) -> int:
        """Return the memory of so many streams."""
        return streams * self._stream_bytes if streams else self._chunks_bytes

    def runs_alone(self, admission: FairAdmission, taken_bytes: int) -> bool:
        """Return whether a stream with what it took is the one that runs in an exhausted process."""
        return self.is_exhausted and admission is self._of_logs and admission.used == taken_bytes

    def enter_stream_at_once(self, recipient: str, streams: int = 1) -> AdmittedStream | None:
        """Take memory as `enter_stream`, without waiting. None: that decides, and nothing is taken."""
        if self.is_above:
            return None
        self._is_below()
        admission = self._of_logs if streams else self._from_memory
        admitted_bytes = self.bytes_of(streams)
        if not admission.enter_at_once(recipient, admitted_bytes):
            # Many slow readers of hot tables may have what no answer from a log waits for.
            if streams != FROM_MEMORY or not self._of_logs.enter_at_once(recipient, admitted_bytes):
                return None
            admission = self._of_logs
        return AdmittedStream(self, recipient, admission, admitted_bytes)

    async def enter_stream(self, recipient: str, streams: int = 1) -> AdmittedStream:
        """Take the memory of one or several streams, or of one `FROM_MEMORY`.

        Raises LimitExceeded when there is none in time.
        """
        stream = AdmittedStream(self, recipient, self._of_logs, 0)
        await self.admit(stream, streams)
        return stream

    async def admit(self, stream: AdmittedStream, streams: int) -> None:
        """Take memory as `enter_stream`, for a stream that has none."""
        if not self.is_above:
            self._is_below()
            fits = True
        else:
            fits = await self._is_relieved()
        is_from_memory = streams == FROM_MEMORY and not self.is_exhausted
        admission = self._from_memory if is_from_memory else self._of_logs
        taken_bytes = self.bytes_of(streams)
        if not fits or not await admission.enter(stream.recipient, taken_bytes):
            raise LimitExceeded(LimitKind.MEMORY, self._queue_seconds)
        stream.take(admission, taken_bytes)
        if not self.is_above:
            self._is_below()

    def _is_below(self) -> None:
        if self._is_exhausted:
            self._is_exhausted = False
            self._of_logs.run_one_at_a_time(False)

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
        self._is_below()

    def _relieve_soon(self) -> asyncio.Task[None]:
        self._relief = asyncio.create_task(self._relieve_once())
        return self._relief

    async def _relieve_once(self) -> None:
        has_freed = await asyncio.get_running_loop().run_in_executor(None, self._relieve)
        # What a stream leaves behind is freed, and the process may still be above its limit.
        if not has_freed:
            self._is_exhausted = True
            self._of_logs.run_one_at_a_time(True)
