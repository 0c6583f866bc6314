"""The memory limit of all streams together."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable

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


class AdmittedStream:
    """The memory of one request, which it returns at its end."""

    __slots__ = ("_admission", "_bytes", "_gate", "_needed", "recipient")

    def __init__(self, gate: MemoryGate, recipient: str, admission: FairAdmission, taken_bytes: int) -> None:
        self.recipient, self._gate = recipient, gate
        self._admission, self._bytes, self._needed = admission, taken_bytes, taken_bytes

    def take(self, admission: FairAdmission, taken_bytes: int, needed_bytes: int) -> None:
        """Hold what was taken for it, and is more than it needs where it runs alone."""
        self._admission, self._bytes, self._needed = admission, taken_bytes, needed_bytes

    @property
    def bytes(self) -> int:
        """The admitted memory."""
        return self._bytes

    async def read_log(self, streams: int = 1) -> None:
        """Take the memory of an answer that reads the log. Raises LimitExceeded if there is none in time."""
        if self._gate.is_enough(self._bytes, streams):
            return
        # What it has is returned first: many that wait with a part of the memory would wait for each other.
        self.leave()
        await self._gate.admit(self, streams)

    @property
    def runs_alone(self) -> bool:
        """Whether it has more than it needs, so that no other one runs."""
        return self._bytes > self._needed

    def share(self) -> None:
        """Return what it took to run alone."""
        if self.runs_alone:
            self._admission.leave(self.recipient, self._bytes - self._needed)
            self._bytes = self._needed

    def leave(self) -> None:
        """Return all of it."""
        if self._bytes:
            self._admission.leave(self.recipient, self._bytes)
            self._bytes = 0


class MemoryGate:
    """The memory limit of all streams together, and of the process.

    `stream_bytes` is the memory of one stream: its chunks and row groups. Answers that read logs have seven
    eighths of the limit, those of files in memory the rest and what is free of the others. Of each, one
    recipient leaves room for a stream of another, however many unread answers it has. While the process
    itself is above `limit_bytes`, new streams wait while caches are freed. Once nothing can be freed they run
    one at a time: refusing all streams would not shrink the process. The one that runs then takes all, until
    the process is below the limit.
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
        self._alone: AdmittedStream | None = None
        """The last stream that took the whole limit."""
        self._waiting = 0
        self._of_logs, self._from_memory = FairAdmission(), FairAdmission()
        self._configure()

    def configure(
        self, limit_bytes: int, *, stream_bytes: int, queue_length: int, queue_seconds: float
    ) -> None:
        """Change the limits. Running streams keep their memory."""
        self.limit_bytes = limit_bytes
        self._stream_bytes = stream_bytes
        self._queue_length, self._queue_seconds = queue_length, queue_seconds
        self._configure()

    def _configure(self) -> None:
        self._chunks_bytes = max(1, self._stream_bytes // CHUNKS_PART)
        from_memory_bytes = self.limit_bytes // FROM_MEMORY_PART
        for admission, capacity, reserve in (
            (self._of_logs, self.limit_bytes - from_memory_bytes, self._stream_bytes),
            (self._from_memory, from_memory_bytes, self._chunks_bytes),
        ):
            admission.configure(
                capacity,
                reserve=reserve,
                queue_length=self._queue_length,
                queue_seconds=self._queue_seconds,
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

    def is_enough(self, admitted_bytes: int, streams: int) -> bool:
        """Return whether that memory is of so many streams, or all that one can get."""
        return admitted_bytes >= min(streams * self._stream_bytes, self.limit_bytes)

    def enter_stream_at_once(self, recipient: str, streams: int = 1) -> AdmittedStream | None:
        """Take memory as `enter_stream`, without waiting. None: that decides, and nothing is taken."""
        if self._resident_bytes() > self.limit_bytes:
            return None
        if self._is_exhausted or self._alone is not None:
            self._is_below()
        admission, admitted_bytes = self._place(streams)
        if not admission.enter_at_once(recipient, admitted_bytes):
            # Many slow readers of hot tables may have what no answer from a log waits for.
            if streams != FROM_MEMORY or not self._of_logs.enter_at_once(recipient, admitted_bytes):
                return None
            admission = self._of_logs
        self.admitted += 1
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
        admission, needed_bytes = self._place(streams)
        taken_bytes = needed_bytes
        if self.is_exhausted:
            # A cost of the whole limit is admitted alone.
            admission, taken_bytes = self._of_logs, max(needed_bytes, self.limit_bytes)
        if not fits or not await admission.enter(stream.recipient, taken_bytes):
            raise LimitExceeded(LimitKind.MEMORY, self._queue_seconds)
        self.admitted += 1
        stream.take(admission, taken_bytes, needed_bytes)
        if stream.runs_alone:
            self._alone = stream
            if not self.is_above:
                self._is_below()

    def _is_below(self) -> None:
        self._is_exhausted = False
        if self._alone is not None:
            self._alone.share()
            self._alone = None

    def _place(self, streams: int) -> tuple[FairAdmission, int]:
        """Return where so many streams are admitted, and their memory."""
        if streams == FROM_MEMORY:
            return self._from_memory, self._chunks_bytes
        return self._of_logs, streams * self._stream_bytes

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

    def _relieve_soon(self) -> asyncio.Future[bool]:
        self._relief = relief = asyncio.get_running_loop().run_in_executor(None, self._relieve)
        relief.add_done_callback(self._relieved)
        return relief

    def _relieved(self, relief: asyncio.Future[bool]) -> None:
        # What a stream leaves behind is freed, and the process may still be above its limit.
        if not relief.cancelled() and relief.exception() is None and not relief.result():
            self._is_exhausted = True
