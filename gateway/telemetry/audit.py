"""The audit log: a file of JSON lines, and the thread that writes to it.

In: lines of `audit_record`. Out: complete lines, appended to the file by a thread, so that a slow or full
disk never blocks the event loop. `put` never waits: records that do not fit the bounded queue are dropped
and counted. `written` waits until the record is in the file, where the configuration requires it.
"""

from __future__ import annotations

import asyncio
import fcntl
import logging
import os
import stat
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from gateway.config import Config

Tell = Callable[[bool], None]
"""Called when the line is in the file, or a write failed."""

log = logging.getLogger("gateway.serving")

RETRY_SECONDS = 1.0
LOCK_SECONDS = 0.5
"""Time to wait for another process that writes to the file. One that is stopped delays no record longer."""
BATCH_RECORDS = 512
RECORD_BYTES = 2048
"""The bytes that the queue holds for each of its records: three times a usual record."""


@dataclass(slots=True)
class AuditCounts:
    """The numbers of records by outcome."""

    written: int = 0
    dropped: int = 0
    failures: int = 0


class AuditLog:
    """An append-only file and the thread that writes to it.

    The file is opened again when its name points to another file, so that it can be rotated by renaming.
    Several processes may append to one file: whole batches of lines are one write, and begin at the start of
    a line even if another process has left an incomplete one.
    """

    def __init__(
        self,
        path: Path,
        *,
        queue_records: int = 10_000,
        on_trouble: Callable[[str], None] = lambda _text: None,
        on_recovery: Callable[[str], None] = lambda _text: None,
    ) -> None:
        """`on_trouble` is called when writing fails, `on_recovery` when it works again.

        Both are called in the writer's thread.
        Raises OSError for a file that cannot be opened: the start finds problems with its directory or
        rights, not the first request.
        """
        self._path = path
        self._queue_records = queue_records
        self._on_trouble = on_trouble
        self._on_recovery = on_recovery
        self._queue_bytes = queue_records * RECORD_BYTES
        self._queue: deque[tuple[bytes, Tell | None]] = deque()
        self._held_bytes = 0
        self._wake = threading.Condition()
        self._closing = False
        self._descriptor: int | None = None
        self._is_regular = self._is_readable = True
        self._end_bytes = 0
        """Where the last whole batch of this process ended, if it did."""
        self.healthy = True
        self.counts = AuditCounts()
        try:
            self._open()
        except OSError as error:
            raise OSError(f"the audit log {path} cannot be opened: {error.strerror}") from None
        self._thread = threading.Thread(target=self._run, name="audit", daemon=True)
        self._thread.start()

    @property
    def waiting(self) -> int:
        """Return the number of records in the queue."""
        return len(self._queue)

    def put(self, line: bytes) -> bool:
        """Queue a line; False when the queue is full and the line is lost (and counted)."""
        return self._enqueue(line, None)

    async def written(self, line: bytes, *, timeout_seconds: float) -> bool:
        """Queue a line and wait until it is in the file. False if it is not in time, or once a write fails.

        While the file cannot be written it is False at once, and the line is not queued.
        """
        if not self.healthy:
            return False
        loop = asyncio.get_running_loop()
        done: asyncio.Future[bool] = loop.create_future()

        def finished(is_written: bool) -> None:
            if not done.done():
                done.set_result(is_written)

        def tell(is_written: bool) -> None:
            if not loop.is_closed():
                loop.call_soon_threadsafe(finished, is_written)

        if not self._enqueue(line, tell):
            return False
        try:
            async with asyncio.timeout(timeout_seconds):
                return await done
        except TimeoutError:
            # The next record would wait as long. The write that hangs tells of its end.
            self._failed(f"a record takes longer than {timeout_seconds:g} s")
            return False

    def write(self, *lines: bytes, timeout_seconds: float) -> bool:
        """As `written`, for a thread that may block. The timeout applies to each part that fits the queue."""
        return self.healthy and all(self._write(turn, timeout_seconds) for turn in self._turns(lines))

    def put_all(self, lines: Sequence[bytes], *, timeout_seconds: float) -> None:
        """Queue lines as `put`, and wait for the room of more than fit. For a thread that may block.

        If no room appears within the time, the remaining lines are lost and counted.
        """
        turns = [*self._turns(lines)]
        for turn in turns[:-1]:
            if not self._write(turn, timeout_seconds, ends_by_failure=False):
                timeout_seconds = 0.0
        for line in turns[-1] if turns else ():
            self._enqueue(line, None)

    def _turns(self, lines: Sequence[bytes]) -> Iterator[Sequence[bytes]]:
        """Iterate over parts of lines that the queue has room for."""
        length = max(1, min(BATCH_RECORDS, self._queue_records // 8))
        return (lines[begin : begin + length] for begin in range(0, len(lines), length))

    def _write(self, lines: Sequence[bytes], timeout_seconds: float, *, ends_by_failure: bool = True) -> bool:
        done, told = threading.Event(), [False]

        def tell(is_written: bool) -> None:
            if is_written or ends_by_failure:
                told[:] = [is_written]
                done.set()

        queued = [self._enqueue(line, None) for line in lines[:-1]]
        return all([*queued, self._enqueue(lines[-1], tell)]) and done.wait(timeout_seconds) and told[0]

    def close(self, *, timeout_seconds: float = 5.0) -> None:
        """Write queued records, then stop; records that are not written in time count as dropped."""
        with self._wake:
            self._closing = True
            self._wake.notify()
        self._thread.join(timeout_seconds)

    def _enqueue(self, line: bytes, tell: Tell | None) -> bool:
        with self._wake:
            if self._closing or self._is_full(len(line)):
                self.counts.dropped += 1
                return False
            self._queue.append((line, tell))
            self._held_bytes += len(line)
            self._wake.notify()
            return True

    def _is_full(self, line_bytes: int) -> bool:
        """Return whether a line does not fit. A line longer than the queue waits until the queue is empty."""
        is_long = self._held_bytes + line_bytes > self._queue_bytes
        return len(self._queue) >= self._queue_records or (is_long and len(self._queue) > 0)

    def _run(self) -> None:
        while batch := self._next_batch():
            # On a nearly full disk a part was written: only the rest is written again.
            written = self._append([line for line, _ in batch])
            self._finish(batch[:written])
            if written < len(batch):
                with self._wake:
                    waiting = [tell for _, tell in self._queue if tell is not None]
                for tell in waiting:
                    tell(False)
                if self._closing:
                    break
                time.sleep(RETRY_SECONDS)
        with self._wake:
            self.counts.dropped += len(self._queue)
            self._queue.clear()
        if self._descriptor is not None:
            os.close(self._descriptor)

    def _next_batch(self) -> list[tuple[bytes, Tell | None]]:
        with self._wake:
            while not self._queue and not self._closing:
                self._wake.wait()
            return [self._queue[index] for index in range(min(len(self._queue), BATCH_RECORDS))]

    def _finish(self, batch: list[tuple[bytes, Tell | None]]) -> None:
        with self._wake:
            for _ in batch:
                line, _ = self._queue.popleft()
                self._held_bytes -= len(line)
            self.counts.written += len(batch)
        for _, tell in batch:
            if tell is not None:
                tell(True)

    def _append(self, lines: list[bytes]) -> int:
        """Append lines, and return how many of them are completely in the file."""
        try:
            descriptor = self._open()
            data = b"".join(lines)
            with self._alone(descriptor) as is_alone:
                begin = b"" if self._at_line_start(descriptor, is_alone=is_alone) else b"\n"
                written = os.write(descriptor, begin + data) - len(begin)
                is_whole = written == len(data) and self._is_regular
                self._end_bytes = os.lseek(descriptor, 0, os.SEEK_CUR) if is_whole else -1
        except OSError as error:
            self._failed(os.strerror(error.errno or 0))
            return 0
        whole = 0
        for line in lines:
            written -= len(line)
            if written < 0:
                self._failed("the disk took only a part of it")
                return whole
            whole += 1
        if not self.healthy:
            self.healthy = True
            self._on_recovery("the audit log is written again")
        return whole

    @contextmanager
    def _alone(self, descriptor: int) -> Iterator[bool]:
        """Keep other processes from writing within the context. False: another one holds the file."""
        end_seconds = time.monotonic() + LOCK_SECONDS
        is_alone = not self._is_regular
        while not is_alone and time.monotonic() < end_seconds:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                is_alone = True
            except BlockingIOError:
                time.sleep(LOCK_SECONDS / 100)
            except OSError:
                # The file system has no locks.
                break
        try:
            yield is_alone
        finally:
            if is_alone and self._is_regular:
                fcntl.flock(descriptor, fcntl.LOCK_UN)

    def _at_line_start(self, descriptor: int, *, is_alone: bool) -> bool:
        """Return whether the next byte begins a line. Where that is unknown, the file gets an empty line."""
        if not self._is_regular:
            return True
        size = os.fstat(descriptor).st_size
        if size in (0, self._end_bytes):
            return True
        return is_alone and self._is_readable and os.pread(descriptor, 1, size - 1) == b"\n"

    def _failed(self, reason: str) -> None:
        self.counts.failures += 1
        if self.healthy:
            self.healthy = False
            self._on_trouble(f"the audit log cannot be written: {reason}")

    def _open(self) -> int:
        if self._descriptor is not None and self._same_file(self._descriptor):
            return self._descriptor
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None
        self._descriptor, self._end_bytes = self._opened(), 0
        return self._descriptor

    def _opened(self) -> int:
        flags = os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
        with suppress(FileNotFoundError):
            self._is_regular = stat.S_ISREG(self._path.stat().st_mode)
        if self._is_regular:
            with suppress(PermissionError):
                descriptor = os.open(self._path, os.O_RDWR | flags, 0o640)
                self._is_readable = True
                return descriptor
        self._is_readable = False
        return os.open(self._path, os.O_WRONLY | flags, 0o640)

    @staticmethod
    def trouble(path: Path) -> str | None:
        """Return why a log at this path cannot be written; None if it can. Creates nothing."""
        if path.exists():
            is_writable = path.is_file() or path.is_char_device() or path.is_fifo()
            return None if is_writable and os.access(path, os.W_OK) else "it cannot be written"
        directory = path.parent
        if not directory.is_dir():
            return f"the directory {directory} does not exist"
        return None if os.access(directory, os.W_OK | os.X_OK) else f"nothing can be created in {directory}"

    def _same_file(self, descriptor: int) -> bool:
        try:
            return os.path.samestat(self._path.stat(), os.fstat(descriptor))
        except FileNotFoundError:
            return False


def open_audit(config: Config) -> AuditLog | None:
    """Open the audit log, if one is configured. Raises OSError."""
    settings = config.gateway.audit
    if settings is None:
        return None
    return AuditLog(
        settings.file, queue_records=settings.queue_records, on_trouble=log.error, on_recovery=log.info
    )
