"""The blocking calls of one storage: bounded, and rejected while its circuit breaker is open.

In: blocking native calls, and the outcome of streams that such a call started. Out: the results of the
calls, or StorageDown.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import Executor, ThreadPoolExecutor
from contextvars import ContextVar
from functools import partial
from typing import Any, Generic, NamedTuple, ParamSpec, TypeVar

from gateway.config.operation import StorageFaults
from gateway.limits.fair_admission import FairAdmission
from gateway.storage.breaker import BUSY_SECONDS, Breaker, State, StorageDown

P = ParamSpec("P")
T = TypeVar("T")
CALLS = "storage-"
"""The prefix of thread names."""
FILE_THREADS = 64
RESERVE_PART = 4
"""One in that many threads is for calls of others than the one that has all the rest."""
DATA_FILE_THREADS: ContextVar[Executor | None] = ContextVar("DATA_FILE_THREADS", default=None)
"""The threads for calls that a request makes on the event loop's executor; None: the default executor."""


class Caller(NamedTuple):
    """Who calls a storage, and for which table.

    The `owner` is a recipient, or the table that several refresh together: while others wait, none has all
    threads.
    """

    owner: str
    table: str


class StorageCalls:
    """The threads, the queue and the circuit breaker of one storage."""

    def __init__(
        self,
        name: str,
        settings: StorageFaults,
        *,
        now_seconds: Callable[[], float],
        is_fault: Callable[[BaseException], bool],
        is_unsent: Callable[[BaseException], bool] = lambda _error: False,
        call_seconds: float | None = None,
        observe: Callable[[str, str, float], None] = lambda _name, _outcome, _seconds: None,
        threads: Executor | None = None,
    ) -> None:
        """After `call_seconds` a caller stops waiting for a call that hangs; None: never.

        `is_fault`: an error of the storage. `is_unsent`: one from before the storage was called, which the
        circuit breaker does not count.
        `observe` is called with storage, outcome (`answered`, `failed`, `refused`) and seconds of each call.
        `threads` run the calls; None: a pool of this storage.
        """
        self.name = name
        self.observe = observe
        self.breaker = Breaker(settings)
        self.now_seconds = now_seconds
        """The time of a monotonic clock."""
        self.last_failure: tuple[float, str] | None = None
        """The time of the last fault of the storage or of its credentials, and its text for recipients."""
        self._is_fault = is_fault
        self._is_unsent = is_unsent
        self._call_seconds = call_seconds
        self._hanging: set[asyncio.Future[Any]] = set()
        """Calls whose callers stopped waiting; they are counted as failed."""
        self._admission = FairAdmission()
        self._admission.configure(
            settings.concurrent_calls,
            reserve=settings.concurrent_calls // RESERVE_PART,
            queue_length=settings.queued_calls,
            queue_seconds=settings.queue_seconds,
        )
        self._threads = threads or ThreadPoolExecutor(
            settings.concurrent_calls, thread_name_prefix=f"{CALLS}{name}"
        )
        self.file_threads = ThreadPoolExecutor(FILE_THREADS, thread_name_prefix=f"{CALLS}{name}-files")
        """The threads that read data files for clients, which hang with their storage."""

    async def run(self, caller: Caller, call: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Run a call on a thread of this storage. Raises StorageDown, or the error of the call."""
        return await self.run_for(caller, lambda: 1, partial(call, *args, **kwargs))

    async def run_for(self, caller: Caller, callers: Callable[[], int], call: Callable[[], T]) -> T:
        """Run a call that several callers share. Raises as `run`.

        A failure counts once for each of the `callers`, so the circuit breaker opens as if each had made a
        call.
        """
        refused_seconds = self.breaker.refused_for(self.now_seconds(), caller.table)
        if not refused_seconds and not await self._admission.enter(caller.owner, 1):
            refused_seconds = BUSY_SECONDS
        if refused_seconds:
            self.observe(self.name, "refused", 0.0)
            raise StorageDown(refused_seconds)
        try:
            running = asyncio.get_running_loop().run_in_executor(self._threads, call)
        except BaseException:
            self._admission.leave(caller.owner, 1)
            raise
        running.add_done_callback(lambda _: self._admission.leave(caller.owner, 1))
        return await self._ended_in_time(caller, running, callers)

    def start_at_once(
        self,
        caller: Caller,
        start: Callable[[Callable[[T | Exception], None]], bool],
        ended: Callable[[T | Exception], None],
        callers: Callable[[], int],
    ) -> bool:
        """Start a call that needs no thread. False if it would have to wait: nothing was started.

        `start` gets a function that takes the result or the error of the call, on the event loop and later.
        `ended` is called with the same, or with StorageDown for a call that hangs. It counts as in `run_for`.
        """
        if self.breaker.state is not State.CLOSED or not self._admission.enter_at_once(caller.owner, 1):
            return False
        call = _DirectCall(self, caller, ended, callers)
        try:
            is_started = start(call.end)
        except BaseException:
            self._admission.leave(caller.owner, 1)
            raise
        if is_started:
            call.end_after(self._call_seconds)
        else:
            self._admission.leave(caller.owner, 1)
        return is_started

    def stream_ended(self, table: str, error: BaseException | None) -> None:
        """Count the end of a stream that a call has started; None for a complete stream."""
        if error is None or (self._is_fault(error) and not self._is_unsent(error)):
            self.breaker.stream_ended(self.now_seconds(), table, whole=error is None)
        if error is not None and self._is_fault(error):
            self._remember(error)
            self.observe(self.name, "failed", 0.0)

    def close(self) -> None:
        """Reject new calls; running calls end by their own timeouts."""
        self._threads.shutdown(wait=False, cancel_futures=True)
        self.file_threads.shutdown(wait=False, cancel_futures=True)

    async def _ended_in_time(
        self, caller: Caller, running: asyncio.Future[T], callers: Callable[[], int]
    ) -> T:
        """Wait for a call. Its caller may leave earlier; the call has its place until it returns."""
        loop = asyncio.get_running_loop()
        # A plain future and a timer: asyncio's `timeout` and `shield` cost a tenth of a small request.
        ended: asyncio.Future[None] = loop.create_future()
        start_seconds = self.now_seconds()

        def end(_: object = None) -> None:
            if not ended.done():
                ended.set_result(None)

        def returned(call: asyncio.Future[T]) -> None:
            self._ended(caller, call, start_seconds, callers)
            end()

        running.add_done_callback(returned)
        timer = loop.call_later(self._call_seconds, end) if self._call_seconds is not None else None
        try:
            await ended
        finally:
            if timer is not None:
                timer.cancel()
        if running.done():
            return running.result()
        self._hanging.add(running)
        self._remember(StorageDown(BUSY_SECONDS))
        self._count(caller, start_seconds, failures=callers())
        raise StorageDown(BUSY_SECONDS)

    def direct_call_ended(
        self, caller: Caller, error: Exception | None, start_seconds: float, callers: Callable[[], int] | None
    ) -> None:
        """Count the end of a call without a thread; without callers they have stopped waiting before."""
        self._admission.leave(caller.owner, 1)
        if callers is not None:
            self._count_ended(caller, error, start_seconds, callers)

    def count_hanging(self, caller: Caller, start_seconds: float, callers: Callable[[], int]) -> None:
        """Count a call for which its callers stop waiting."""
        self._remember(StorageDown(BUSY_SECONDS))
        self._count(caller, start_seconds, failures=callers())

    def _ended(
        self, caller: Caller, running: asyncio.Future[T], start_seconds: float, callers: Callable[[], int]
    ) -> None:
        error = None if running.cancelled() else running.exception()
        if running in self._hanging:
            self._hanging.remove(running)
        elif not running.cancelled():
            self._count_ended(caller, error, start_seconds, callers)

    def _count_ended(
        self, caller: Caller, error: BaseException | None, start_seconds: float, callers: Callable[[], int]
    ) -> None:
        if error is not None and self._is_unsent(error):
            self._remember(error)
            self.observe(self.name, "failed", self.now_seconds() - start_seconds)
            return
        is_fault = error is not None and self._is_fault(error)
        if error is not None and is_fault:
            self._remember(error)
        self._count(caller, start_seconds, failures=callers() if is_fault else 0)

    def _remember(self, error: BaseException) -> None:
        self.last_failure = (self.now_seconds(), str(error))

    def _count(self, caller: Caller, start_seconds: float, *, failures: int) -> None:
        now_seconds = self.now_seconds()
        self.observe(self.name, "failed" if failures else "answered", now_seconds - start_seconds)
        for _ in range(failures):
            self.breaker.failed(now_seconds, caller.table)
        if not failures:
            self.breaker.succeeded(now_seconds, caller.table)


class _DirectCall(Generic[T]):
    """A call that needs no thread, from its start to its end."""

    __slots__ = ("_caller", "_callers", "_calls", "_ended", "_start_seconds", "_timer")

    def __init__(
        self,
        calls: StorageCalls,
        caller: Caller,
        ended: Callable[[T | Exception], None],
        callers: Callable[[], int],
    ) -> None:
        self._calls = calls
        self._caller = caller
        self._callers = callers
        self._ended: Callable[[T | Exception], None] | None = ended
        """None once the caller has stopped waiting."""
        self._start_seconds = calls.now_seconds()
        self._timer: asyncio.TimerHandle | None = None

    def end_after(self, seconds: float | None) -> None:
        """Stop waiting after this time."""
        if seconds is not None:
            self._timer = asyncio.get_running_loop().call_later(seconds, self._hangs)

    def end(self, outcome: T | Exception) -> None:
        """Take the result or the error."""
        if self._timer is not None:
            self._timer.cancel()
        ended, self._ended = self._ended, None
        error = outcome if isinstance(outcome, Exception) else None
        callers = self._callers if ended else None
        self._calls.direct_call_ended(self._caller, error, self._start_seconds, callers)
        if ended is not None:
            ended(outcome)

    def _hangs(self) -> None:
        ended, self._ended = self._ended, None
        if ended is not None:
            self._calls.count_hanging(self._caller, self._start_seconds, self._callers)
            ended(StorageDown(BUSY_SECONDS))
