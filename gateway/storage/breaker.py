"""A circuit breaker for one storage."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from enum import StrEnum

from gateway.config.operation import StorageFaults

BUSY_SECONDS = 1.0
FORGOTTEN_SECONDS = 900.0
"""A storage that nobody has called for this time after a failure may be well again."""


class State(StrEnum):
    """The state of a circuit breaker."""

    CLOSED = "closed"
    OPEN = "open"
    PROBING = "probing"


class StorageDown(Exception):
    """Raised while the circuit breaker is open, or when all threads of the storage are busy."""

    def __init__(self, retry_after_seconds: float) -> None:
        super().__init__("the storage does not answer")
        self.retry_after_seconds = retry_after_seconds


class _Failures:
    """Failures in a row, and the tables that they are of."""

    def __init__(self) -> None:
        self.count = 0
        self.tables: set[str] = set()
        self._answered, self._answered_seconds = "", -math.inf
        """The table and the time of the last success."""

    def add(self, table: str) -> None:
        self.count += 1
        self.tables.add(table)

    def end(self) -> None:
        self.count = 0
        self.tables.clear()

    def answered(self, table: str, now_seconds: float) -> None:
        self.end()
        self._answered, self._answered_seconds = table, now_seconds

    def are_of_one_table(self, since_seconds: float) -> bool:
        """Return whether one table fails, and another one was answered last and since then."""
        is_recent = self._answered_seconds >= since_seconds
        return is_recent and len(self.tables) == 1 and self._answered not in self.tables


class Breaker:
    """A circuit breaker: opens after consecutive failures, then lets one probe pass after a pause.

    A store may refuse the requests for one prefix alone: failures of one table do not open it where another
    one was answered within the pause, and a table that has not failed probes at once.
    Calls and streams are counted separately: a storage that answers listings and fails reads is down, too.
    The caller passes the time, in seconds of a monotonic clock.
    """

    def __init__(self, settings: StorageFaults, *, jitter: Callable[[], float] = random.random) -> None:
        self._settings = settings
        self._jitter = jitter
        self._failed, self._broken = _Failures(), _Failures()
        self._until_seconds = 0.0
        self.state = State.CLOSED

    def is_failing(self, now_seconds: float) -> bool:
        """Return whether calls are refused, or were lately and none has succeeded since."""
        return self.state is not State.CLOSED and now_seconds < self._until_seconds + FORGOTTEN_SECONDS

    def refused_for(self, now_seconds: float, table: str = "") -> float:
        """Return 0 when a call may pass, as the probe when open, else the seconds until then."""
        if self.state is State.CLOSED:
            return 0.0
        has_failed = table in self._failed.tables | self._broken.tables
        if now_seconds < self._until_seconds and (has_failed or self.state is State.PROBING):
            return self._until_seconds - now_seconds
        # A probe that never returns must not block the storage forever, so it has a timeout.
        self.state = State.PROBING
        self._until_seconds = now_seconds + self._pause()
        return 0.0

    def succeeded(self, now_seconds: float, table: str = "") -> None:
        """Count an answer of the storage, also an error that is not the storage's fault."""
        if self.state is State.OPEN:
            # The call started before the breaker opened; only the probe closes it.
            return
        if self.state is State.PROBING:
            self._broken.end()
        self._failed.answered(table, now_seconds)
        self.state = State.CLOSED

    def failed(self, now_seconds: float, table: str = "") -> None:
        """Count a call without an answer."""
        self._failed.add(table)
        if self.state is State.PROBING or self._are_of_storage(self._failed, now_seconds):
            self._open(now_seconds)

    def stream_ended(self, now_seconds: float, table: str = "", *, whole: bool) -> None:
        """Count a stream that ended, completely or by a failure of the storage."""
        if whole:
            self._broken.answered(table, now_seconds)
            return
        self._broken.add(table)
        if self.state is State.CLOSED and self._are_of_storage(self._broken, now_seconds):
            self._open(now_seconds)

    def _are_of_storage(self, failures: _Failures, now_seconds: float) -> bool:
        is_enough = failures.count >= self._settings.failures
        return is_enough and not failures.are_of_one_table(now_seconds - self._settings.open_seconds)

    def _open(self, now_seconds: float) -> None:
        self.state = State.OPEN
        self._until_seconds = now_seconds + self._pause()

    def _pause(self) -> float:
        return self._settings.open_seconds * (0.75 + self._jitter() / 2)
