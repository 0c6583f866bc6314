"""A circuit breaker for one storage."""

from __future__ import annotations

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


class Breaker:
    """A circuit breaker: opens after consecutive failures, then lets one probe pass after a pause.

    Calls and streams are counted separately: a storage that answers listings and fails reads is down, too.
    The caller passes the time, in seconds of a monotonic clock.
    """

    def __init__(self, settings: StorageFaults, *, jitter: Callable[[], float] = random.random) -> None:
        self._settings = settings
        self._jitter = jitter
        self._failures = 0
        self._broken_streams = 0
        self._until_seconds = 0.0
        self.state = State.CLOSED

    def is_failing(self, now_seconds: float) -> bool:
        """Return whether calls are refused, or were lately and none has succeeded since."""
        return self.state is not State.CLOSED and now_seconds < self._until_seconds + FORGOTTEN_SECONDS

    def refused_for(self, now_seconds: float) -> float:
        """Return 0 when a call may pass, as the probe when open, else the seconds until then."""
        if self.state is State.CLOSED:
            return 0.0
        if now_seconds < self._until_seconds:
            return self._until_seconds - now_seconds
        # A probe that never returns must not block the storage forever, so it has a timeout.
        self.state = State.PROBING
        self._until_seconds = now_seconds + self._pause()
        return 0.0

    def succeeded(self) -> None:
        """Count an answer of the storage, also an error that is not the storage's fault."""
        if self.state is State.OPEN:
            # The call started before the breaker opened; only the probe closes it.
            return
        if self.state is State.PROBING:
            self._broken_streams = 0
        self._failures = 0
        self.state = State.CLOSED

    def failed(self, now_seconds: float) -> None:
        """Count a call without an answer."""
        self._failures += 1
        if self.state is State.PROBING or self._failures >= self._settings.failures:
            self._open(now_seconds)

    def stream_ended(self, now_seconds: float, *, whole: bool) -> None:
        """Count a stream that ended, completely or by a failure of the storage."""
        self._broken_streams = 0 if whole else self._broken_streams + 1
        if self._broken_streams >= self._settings.failures and self.state is State.CLOSED:
            self._open(now_seconds)

    def _open(self, now_seconds: float) -> None:
        self.state = State.OPEN
        self._until_seconds = now_seconds + self._pause()

    def _pause(self) -> float:
        return self._settings.open_seconds * (0.75 + self._jitter() / 2)
