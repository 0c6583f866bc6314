"""Sends log lines through a bounded queue and a thread: nothing waits for their reader.

In: records of the standard library's logging. Out: one JSON object a line on the standard error. A reader
that stalls fills the queue, which is bounded in bytes; further lines are lost, and the log states their
number as soon as it is read again. The end of the process waits for the last lines a bounded time only.
"""

from __future__ import annotations

import logging
import os
import select
import stat
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import TracebackType

from gateway.encoding import json_line

QUEUE_BYTES = 2 * 1024 * 1024
PAUSE_SECONDS = 0.2
"""Between two writes: a thread that wakes for each line would interrupt the event loop each time."""
CLOSE_SECONDS = 1.0
PIPE_BYTES = select.PIPE_BUF
"""The number of bytes that a pipe of several processes takes in one piece."""
FILE_BYTES = 1024 * 1024
STANDARD_ERROR = 2
ACCESS_LOG = "gateway.access"
"""The logger whose messages are whole lines of JSON already."""


@dataclass(slots=True)
class LogCounts:
    """The numbers of log lines by outcome."""

    written: int = 0
    lost: int = 0


class LogWriter:
    """A queue of lines and the thread that writes them to a file descriptor."""

    def __init__(
        self,
        descriptor: int = STANDARD_ERROR,
        *,
        queue_bytes: int = QUEUE_BYTES,
    ) -> None:
        self.counts = LogCounts()
        self._descriptor = descriptor
        self._piece_bytes = PIPE_BYTES if _is_pipe(descriptor) else FILE_BYTES
        self._queue_bytes = queue_bytes
        self._lock = threading.Lock()
        self._waiting: list[bytes] = []
        self._held_bytes = 0
        """The bytes of waiting lines and of lines being written."""
        self._told_lost = 0
        """The lost lines that are already reported, or cannot be."""
        self._has_failed = False
        """The last write has failed."""
        self._filled = threading.Event()
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._run, name="log", daemon=True)
        self._thread.start()

    def put(self, lines: bytes) -> bool:
        """Queue lines, each with its end. False: they do not fit and are lost. Never waits for the reader."""
        with self._lock:
            if self._held_bytes + len(lines) > self._queue_bytes or self._closing.is_set():
                self.counts.lost += lines.count(b"\n")
                return False
            self._held_bytes += len(lines)
            self._waiting.append(lines)
        # The thread clears it before it takes the lines, so a set event is seen after these lines.
        if not self._filled.is_set():
            self._filled.set()
        return True

    def close(self, *, timeout_seconds: float = CLOSE_SECONDS) -> None:
        """Write the queued lines for at most this time. The rest, and later lines, are lost."""
        self._closing.set()
        self._filled.set()
        self._thread.join(timeout_seconds)

    def _run(self) -> None:
        while not self._closing.is_set():
            self._filled.wait()
            self._filled.clear()
            self._write_waiting()
            self._closing.wait(PAUSE_SECONDS)
        self._write_waiting()

    def _write_waiting(self) -> None:
        with self._lock:
            waiting, self._waiting = self._waiting, []
            lost = self.counts.lost - self._told_lost
            self._told_lost += lost
        if lost:
            self._write(_lost_line(lost))
        lines = b"".join(waiting)
        self._write(lines)
        with self._lock:
            self._held_bytes -= len(lines)

    def _write(self, lines: bytes) -> None:
        for piece in _pieces(lines, self._piece_bytes):
            lost = self._unwritten(piece).count(b"\n")
            self.counts.written += piece.count(b"\n") - lost
            if lost:
                # Nothing is written, so only the counter can report it.
                with self._lock:
                    self.counts.lost += lost
                    self._told_lost += lost

    def _unwritten(self, piece: bytes) -> bytes:
        """Write a piece; return what could not be written, because the disk is full or the reader is gone."""
        # A part of a line may be there, of this process or of another one.
        rest = memoryview(b"\n" + piece if self._has_failed else piece)
        while rest:
            try:
                rest = rest[os.write(self._descriptor, rest) :]
                self._has_failed = False
            except BlockingIOError:
                # Another process that has the same pipe may have made it non-blocking.
                poll = select.poll()
                poll.register(self._descriptor, select.POLLOUT)
                poll.poll()
            except OSError:
                self._has_failed = True
                break
        return bytes(rest)[-len(piece) :]


class QueuedHandler(logging.Handler):
    """Gives records to a writer, each as a line of JSON with its time and level."""

    def __init__(self, writer: LogWriter) -> None:
        super().__init__()
        self.writer = writer

    def emit(self, record: logging.LogRecord) -> None:
        try:
            self.writer.put(line_of(record))
        except Exception:  # noqa: BLE001 - logging would write it to the standard error, which may block
            self.writer.counts.lost += 1

    def close(self) -> None:
        """Write the queued lines within a bounded time."""
        super().close()
        self.writer.close()


def line_of(record: logging.LogRecord) -> bytes:
    """The record as a line of JSON, with its end."""
    message = record.getMessage()
    if record.name == ACCESS_LOG:
        return message.encode() + b"\n"
    fields = {
        "time_ms": int(record.created * 1000),
        "level": record.levelname,
        "logger": record.name,
        "message": _readable(message),
    }
    if record.exc_info:
        fields["traceback"] = _readable(logging.Formatter().formatException(record.exc_info))
    return json_line(fields)


def log_counts() -> LogCounts | None:
    """Return the line counts of this process; None if it has no queue."""
    for handler in logging.getLogger().handlers:
        if isinstance(handler, QueuedHandler):
            return handler.writer.counts
    return None


@contextmanager
def queued_logs(descriptor: int = STANDARD_ERROR) -> Iterator[LogWriter]:
    """Send all logs, warnings and uncaught exceptions of threads through a queue within the context."""
    root, writer = logging.getLogger(), LogWriter(descriptor)
    handlers, level = root.handlers[:], root.level
    hooks = sys.unraisablehook, threading.excepthook
    # No line has the thread or the process of its record.
    facts = logging.logThreads, logging.logProcesses, logging.logMultiprocessing
    logging.logThreads = logging.logProcesses = logging.logMultiprocessing = False
    root.handlers = [QueuedHandler(writer)]
    root.setLevel(logging.INFO)
    logging.captureWarnings(True)
    sys.unraisablehook = _log_unraisable
    threading.excepthook = _log_uncaught
    try:
        yield writer
    finally:
        sys.unraisablehook, threading.excepthook = hooks
        logging.logThreads, logging.logProcesses, logging.logMultiprocessing = facts
        logging.captureWarnings(False)
        root.handlers, root.level = handlers, level
        writer.close()


def _log_unraisable(unraisable: sys.UnraisableHookArgs) -> None:
    _log_exception(
        unraisable.err_msg or "an exception was ignored", unraisable.exc_value, unraisable.exc_traceback
    )


def _log_uncaught(uncaught: threading.ExceptHookArgs) -> None:
    name = uncaught.thread.name if uncaught.thread else "unknown"
    _log_exception(f"thread {name} ended by an exception", uncaught.exc_value, uncaught.exc_traceback)


def _log_exception(message: str, error: BaseException | None, traceback: TracebackType | None) -> None:
    info = (type(error), error, traceback) if error is not None else None
    logging.getLogger("gateway").error(message, exc_info=info)


def _is_pipe(descriptor: int) -> bool:
    try:
        return stat.S_ISFIFO(os.fstat(descriptor).st_mode)
    except OSError:
        # It is closed: each line counts as lost.
        return False


def _lost_line(count: int) -> bytes:
    message = f"{count} log lines were lost: their reader was too slow"
    return line_of(logging.makeLogRecord({"name": "gateway.log", "levelname": "WARNING", "msg": message}))


def _pieces(lines: bytes, most_bytes: int) -> Iterator[bytes]:
    """Group whole lines into pieces that one write takes. A longer line is one piece."""
    begin = 0
    while begin < len(lines):
        end = lines.rfind(b"\n", begin, begin + most_bytes) + 1 or lines.find(b"\n", begin) + 1 or len(lines)
        yield lines[begin:end]
        begin = end


def _readable(text: str) -> str:
    """A text without lone surrogates, which JSON does not have."""
    return text if text.isascii() else text.encode(errors="replace").decode()
