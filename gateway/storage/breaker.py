"""A circuit breaker for one storage."""

from __future__ import annotations

import random
from enum import StrEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from gateway.config.operation import StorageFaults

BUSY_SECONDS = 1.0


class State(StrEnum):
    """What the breaker thinks of its storage."""

    CLOSED = "closed"
    OPEN = "open"
    PROBING = "probing"


class StorageDown(Exception):
    """The storage is given up for now, or all its threads are busy."""

    def __init__(self, retry_after_seconds: float) -> None:
        super().__init__("the storage does not answer at present")
        self.retry_after_seconds = retry_after_seconds


class Breaker:
    """Counts failures in a row; opens at `failures`, then lets one call probe after a pause.

    Calls and streams are counted apart: a storage that answers listings and fails reads is down, too. Times
    come in from the caller, in seconds of a clock that does not jump.
    """

    def __init__(self, settings: StorageFaults, *, jitter: Callable[[], float] = random.random) -> None:
        self._settings = settings
        self._jitter = jitter
        self._failures = 0
        self._broken_streams = 0
        self._until_seconds = 0.0
        self.state = State.CLOSED

    def refused_for(self, now_seconds: float) -> float:
        """0 when a call may go through (as the probe, when open), else the seconds until one may."""
        if self.state is State.CLOSED:
            return 0.0
        if now_seconds < self._until_seconds:
            return self._until_seconds - now_seconds
        # A probe that never reports back must not keep the storage closed for ever: it has a time of its own.
        self.state = State.PROBING
        self._until_seconds = now_seconds + self._pause()
        return 0.0

    def succeeded(self) -> None:
        """The storage answered, be it with an error of the caller's own making."""
        if self.state is State.OPEN:
            # It was under way when the storage was given up; the probe decides.
            return
        if self.state is State.PROBING:
            self._broken_streams = 0
        self._failures = 0
        self.state = State.CLOSED

    def failed(self, now_seconds: float) -> None:
        """The storage did not answer."""
        self._failures += 1
        if self.state is State.PROBING or self._failures >= self._settings.failures:
            self._open(now_seconds)

    def stream_ended(self, now_seconds: float, *, whole: bool) -> None:
        """A stream was read from the storage to its end, or only until the storage failed."""
        self._broken_streams = 0 if whole else self._broken_streams + 1
        if self._broken_streams >= self._settings.failures and self.state is State.CLOSED:
            self._open(now_seconds)

    def _open(self, now_seconds: float) -> None:
        self.state = State.OPEN
        self._until_seconds = now_seconds + self._pause()

    def _pause(self) -> float:
        return self._settings.open_seconds * (0.75 + self._jitter() / 2)
