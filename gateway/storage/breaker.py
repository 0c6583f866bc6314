"""One storage's calls: bounded, and stopped for a while once it fails again and again.

In: blocking native calls, and how streams ended that such a call began. Out: the calls' results, or
`StorageDown`: at once while the storage is known to be down, and in the end when a call hangs. Each storage
has threads and a queue of its own, so one that hangs holds nobody else's. Which errors speak of the storage
(and not of one table) is decided by the caller's `is_fault`.
"""

from __future__ import annotations

import asyncio
import random
from concurrent.futures import ThreadPoolExecutor
from enum import StrEnum
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

from gateway.limits.admission import Admission

if TYPE_CHECKING:
    from collections.abc import Callable

    from gateway.config.operation import StorageFaults

P = ParamSpec("P")
T = TypeVar("T")


BUSY_SECONDS = 1.0
CALLS = "storage-"
"""What the names of the threads begin with."""


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


class StorageCalls:
    """The threads, the queue and the breaker of one storage."""

    def __init__(
        self,
        name: str,
        settings: StorageFaults,
        *,
        now_seconds: Callable[[], float],
        is_fault: Callable[[BaseException], bool],
        call_seconds: float | None = None,
        observe: Callable[[str, str, float], None] = lambda _name, _outcome, _seconds: None,
    ) -> None:
        """`call_seconds` is when a caller stops waiting for a call that hangs; None: never.

        `observe` is told each call's storage, outcome (`answered`, `failed`, `refused`) and seconds.
        """
        self.name = name
        self.observe = observe
        self.breaker = Breaker(settings)
        self._now_seconds = now_seconds
        self._is_fault = is_fault
        self._call_seconds = call_seconds
        self._hanging: set[asyncio.Future[Any]] = set()
        """Calls that nobody waits for any more; they were counted as failed."""
        self._admission = Admission(
            settings.concurrent_calls,
            queue_length=settings.queued_calls,
            queue_seconds=settings.queue_seconds,
        )
        self._threads = ThreadPoolExecutor(settings.concurrent_calls, thread_name_prefix=f"{CALLS}{name}")

    async def run(self, call: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Call in a thread of this storage. Raises StorageDown, or what the call raises."""
        refused_seconds = self.breaker.refused_for(self._now_seconds())
        if not refused_seconds and not await self._admission.enter():
            refused_seconds = BUSY_SECONDS
        if refused_seconds:
            self.observe(self.name, "refused", 0.0)
            raise StorageDown(refused_seconds)
        return await self._called(lambda: call(*args, **kwargs))

    def stream_ended(self, error: BaseException | None) -> None:
        """Count how a stream ended whose call was answered; None: whole."""
        if error is None or self._is_fault(error):
            self.breaker.stream_ended(self._now_seconds(), whole=error is None)
        if error is not None and self._is_fault(error):
            self.observe(self.name, "failed", 0.0)

    def close(self) -> None:
        """Take no more calls; those that run end by their own time-outs."""
        self._threads.shutdown(wait=False, cancel_futures=True)

    async def _called(self, call: Callable[[], T]) -> T:
        running = asyncio.get_running_loop().run_in_executor(self._threads, call)
        # The thread's place is given back when the thread is done, not when its caller stops waiting.
        begun = self._now_seconds()
        running.add_done_callback(lambda ended: self._ended(ended, begun))
        try:
            async with asyncio.timeout(self._call_seconds):
                return await asyncio.shield(running)
        except TimeoutError:
            if running.done():
                raise
            self._hanging.add(running)
            self._count(begun, failed=True)
            raise StorageDown(BUSY_SECONDS) from None

    def _ended(self, running: asyncio.Future[T], begun: float) -> None:
        self._admission.leave()
        error = None if running.cancelled() else running.exception()
        if running in self._hanging:
            self._hanging.remove(running)
        elif not running.cancelled():
            self._count(begun, failed=error is not None and self._is_fault(error))

    def _count(self, begun: float, *, failed: bool) -> None:
        now_seconds = self._now_seconds()
        self.observe(self.name, "failed" if failed else "answered", now_seconds - begun)
        if failed:
            self.breaker.failed(now_seconds)
        else:
            self.breaker.succeeded()
