"""Defers SIGINT and SIGTERM over steps that belong together, and ignores SIGHUP.

In: `hold` before the first step, `release` after the last. Out: a signal that arrives in between is sent
again at the end.
"""

from __future__ import annotations

import signal
import threading
from types import FrameType
from typing import Any

NUMBERS = (signal.SIGINT, signal.SIGTERM)


def ignore_hang_up() -> None:
    """Ignore SIGHUP before the server watches its files, and after it."""
    signal.signal(signal.SIGHUP, signal.SIG_IGN)


class DeferredSignals:
    """Defers the two signals that end a command. Cannot be nested."""

    def __init__(self) -> None:
        self._handlers: dict[signal.Signals, Any] = {}
        self._received: list[int] = []

    def hold(self) -> None:
        """Record the signals from here on instead of ending. Blocking calls are not interrupted."""
        if threading.current_thread() is not threading.main_thread():
            return
        for number in NUMBERS:
            handler = signal.getsignal(number)
            # None: a handler that is not Python's cannot be restored.
            if handler is not None and number not in self._handlers:
                self._handlers[number] = handler
                signal.signal(number, self._note)

    def release(self) -> None:
        """Restore the handlers and send recorded signals: SIGINT then raises KeyboardInterrupt here."""
        handlers, self._handlers = self._handlers, {}
        for number, handler in handlers.items():
            signal.signal(number, handler)
        received, self._received = self._received, []
        for signal_number in dict.fromkeys(received):
            signal.raise_signal(signal_number)

    def _note(self, number: int, _frame: FrameType | None) -> None:
        self._received.append(number)
