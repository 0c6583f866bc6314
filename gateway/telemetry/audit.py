"""The audit log: a file of JSON lines, and its writer thread.

In: lines of `audit_record`. Out: complete lines in the file. A thread appends them, so a slow or full disk
never blocks the event loop. `put` never waits: a record that does not fit into the bounded queue is dropped
and counted. `written` waits until its record is in the file.
"""

from __future__ import annotations

import asyncio
import fcntl
import logging
import os
import select
import stat
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from itertools import accumulate, islice, takewhile
from pathlib import Path

from gateway.config import Config
from gateway.paths import exists

Tell = Callable[[bool], None]
"""Called when the line is in the file, or a write failed."""

log = logging.getLogger("gateway.serving")

RETRY_SECONDS = 1.0
LOCK_SECONDS = 0.5
"""Time to wait for the lock of another process, which may be stopped while it holds the lock."""
IDLE_SECONDS = 60.0
"""A file is closed after this time without records: rotated and deleted, it keeps its space until then."""
BATCH_RECORDS = 512
RECORD_BYTES = 2048
"""Space of the queue for each record: three times the size of a usual one."""


@dataclass(slots=True)
class AuditCounts:
    """The numbers of records by outcome."""

    written: int = 0
    dropped: int = 0
    failures: int = 0


class AuditLog:
    """An append-only file and its writer thread.

    The file can be rotated by renaming: it is reopened when its name refers to another file. Several
    processes may append to one file: a batch of whole lines is one write, and begins on a new line even if
    another process has left an incomplete line.
    """

    def __init__(
        self,
        path: Path,
        *,
        queue_records: int = 10_000,
        must_open: bool = True,
        on_trouble: Callable[[str], None] = lambda _text: None,
        on_recovery: Callable[[str], None] = lambda _text: None,
    ) -> None:
        """Open the file. Raises OSError if it `must_open`, so that the start finds problems.

        The writer thread calls `on_trouble` when writing fails, and `on_recovery` when it works again.
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
        """The end of the last batch that this process has written completely."""
        self.healthy = True
        self.counts = AuditCounts()
        try:
            self._open()
        except OSError as error:
            if must_open:
                raise OSError(f"the audit log {path} cannot be opened: {error.strerror}") from None
        self._thread = threading.Thread(target=self._run, name="audit", daemon=True)
        self._thread.start()

    @property
    def waiting(self) -> int:
        """Return the number of records in the queue."""
        return len(self._queue)

    def put(self, line: bytes) -> bool:
        """Queue a line. Returns False if the queue is full; the line is then dropped and counted."""
        return self._enqueue(line, None)

    async def written(self, line: bytes, *, timeout_seconds: float) -> bool:
        """Queue a line and wait until it is in the file. Returns False after the timeout or a failed write.

        After a failed write, and until one succeeds, it queues nothing and returns False at once.
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
            with self._wake:
                # After a stop of this process it may be written, and no write to come reports a recovery.
                if any(waiting is tell for _, waiting in self._queue):
                    # The next record would wait as long. The end of the hanging write reports the recovery.
                    self._failed(f"a record takes longer than {timeout_seconds:g} s")
            return False

    def write(self, *lines: bytes, timeout_seconds: float) -> bool:
        """Write lines as `written` does, on a thread that may block. The timeout applies to each part."""
        return self.healthy and all(self._write(turn, timeout_seconds) for turn in self._turns(lines))

    def put_all(self, lines: Sequence[bytes], *, timeout_seconds: float) -> None:
        """Queue lines as `put` does, on a thread that may block: it waits for space in the queue.

        Lines without space after the timeout are dropped and counted.
        """
        turns = [*self._turns(lines)]
        for turn in turns[:-1]:
            if not self._write(turn, timeout_seconds, ends_by_failure=False):
                timeout_seconds = 0.0
        for line in turns[-1] if turns else ():
            self._enqueue(line, None)

    def _turns(self, lines: Sequence[bytes]) -> Iterator[Sequence[bytes]]:
        """Split lines into parts that fit into the queue."""
        length = max(1, min(BATCH_RECORDS, self._queue_records // 8))
        return (lines[begin : begin + length] for begin in range(0, len(lines), length))

    def _write(self, lines: Sequence[bytes], timeout_seconds: float, *, ends_by_failure: bool = True) -> bool:
        done, outcome = threading.Event(), [False]

        def tell(is_written: bool) -> None:
            if is_written or ends_by_failure:
                outcome[:] = [is_written]
                done.set()

        queued = [self._enqueue(line, None) for line in lines[:-1]]
        return all([*queued, self._enqueue(lines[-1], tell)]) and done.wait(timeout_seconds) and outcome[0]

    def close(self, *, timeout_seconds: float = 5.0) -> None:
        """Write queued records, then stop. Records that are not written in time count as dropped."""
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
        """Return whether a line does not fit. An empty queue accepts a line of any length."""
        is_long = self._held_bytes + line_bytes > self._queue_bytes
        return len(self._queue) >= self._queue_records or (is_long and len(self._queue) > 0)

    def _run(self) -> None:
        while batch := self._next_batch():
            # A full disk may take a part of a batch. Only the rest is written again.
            written = self._append([line for line, _ in batch])
            self._finish(batch[:written], is_whole=written == len(batch))
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
        self._let_go()

    def _next_batch(self) -> list[tuple[bytes, Tell | None]]:
        while not self._is_awake():
            # The reader of a pipe would see its end.
            if self._is_regular:
                self._let_go()
        with self._wake:
            batch = list(islice(self._queue, BATCH_RECORDS))
        if self._is_regular:
            return batch
        # More would come in parts, between those of other processes.
        ends = accumulate(len(line) for line, _ in batch)
        fitting = sum(1 for _ in takewhile(select.PIPE_BUF.__ge__, ends))
        return batch[: max(1, fitting)]

    def _is_awake(self) -> bool:
        """Wait for a record or the end; False: there is none for a while."""
        with self._wake:
            return self._wake.wait_for(lambda: bool(self._queue) or self._closing, IDLE_SECONDS)

    def _finish(self, batch: list[tuple[bytes, Tell | None]], *, is_whole: bool) -> None:
        with self._wake:
            for _ in batch:
                line, _ = self._queue.popleft()
                self._held_bytes -= len(line)
            self.counts.written += len(batch)
            if is_whole and not self.healthy:
                self.healthy = True
                self._on_recovery("the audit log is written again")
        for _, tell in batch:
            if tell is not None:
                tell(True)

    def _append(self, lines: list[bytes]) -> int:
        """Append lines; return the number of lines that are completely in the file."""
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
        return whole

    @contextmanager
    def _alone(self, descriptor: int) -> Iterator[bool]:
        """Lock the file within the context. Yields False if another process holds the lock."""
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
        """Return whether the file ends with a whole line. False if this is unknown."""
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
        self._let_go()
        self._descriptor, self._end_bytes = self._opened(), 0
        return self._descriptor

    def _let_go(self) -> None:
        if self._descriptor is not None:
            descriptor, self._descriptor = self._descriptor, None
            # Whatever it reports, it is closed.
            with suppress(OSError):
                os.close(descriptor)

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
        # For a pipe without a reader this is an error. Otherwise the start would wait for one.
        descriptor = os.open(self._path, os.O_WRONLY | os.O_NONBLOCK | flags, 0o640)
        os.set_blocking(descriptor, True)
        return descriptor

    @staticmethod
    def trouble(path: Path) -> str | None:
        """Return why a log at this path cannot be written; None if it can. Creates nothing."""
        if exists(path):
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


def open_audit(config: Config, *, must_open: bool = True) -> AuditLog | None:
    """Open the audit log, if one is configured. Raises OSError, unless the first record may open it."""
    settings = config.gateway.audit
    if settings is None:
        return None
    return AuditLog(
        settings.file,
        queue_records=settings.queue_records,
        must_open=must_open or settings.fail_closed,
        on_trouble=log.error,
        on_recovery=log.info,
    )
