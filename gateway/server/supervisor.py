"""Several serving processes on one port, and the supervisor that restarts them.

In: a command that serves, the number of workers, and secrets for each. Out: each worker is a spawned process
with its own listening socket on the common port, a control socket to the supervisor, and the file of the
limits that all workers share. A worker that ends is restarted, and its admitted requests are given back. Its
listening socket stays open, so waiting connections are answered by the next process while the streams of
other workers continue. A worker that answers nothing for a while writes the stacks of its threads and is
ended. When the next process cannot start, the socket is replaced by one that does not listen until a
worker serves: the kernel sends new connections to the other workers. When the supervisor ends, the workers
see the end of the control socket and drain.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import socket
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import count
from typing import Any

from gateway.admin.administration import WorkerReload
from gateway.background import forget_error
from gateway.errors import StartFailed
from gateway.limits.shared_memory import LimitsFile
from gateway.server.listeners import without_listening
from gateway.server.slot import LENGTH_BYTES, SLOT_VARIABLE, STACKS_SIGNAL, message_line, messages
from gateway.telemetry.memory_file import memory_file
from gateway.telemetry.shared_values import WorkerValues

log = logging.getLogger("gateway.workers")

RELOAD_SECONDS = 30.0
ASK_SECONDS = 25.0
WORKERS_ASKED = 2
"""Of a question for a single worker, one after the other."""
START_SECONDS = 60.0
"""A restarted worker that is not ready within this time is killed: it may hang."""
STEADY_SECONDS = 10.0
PING_SECONDS = 5.0
HUNG_SECONDS = 30.0
"""A worker that sends nothing for this time is ended. It is pinged every `PING_SECONDS`."""
STACKS_SECONDS = 1.0
"""Time to write the stacks of its threads."""
MAX_STACKS_BYTES = 64 * 1024
FIRST_PAUSE_SECONDS = 0.05
LONGEST_PAUSE_SECONDS = 2.0
OBSTACLE_POLL_SECONDS = 1.0
OBSTACLE_SECONDS = 5.0
"""Maximum time to check what keeps a worker from starting."""


@dataclass(slots=True)
class _Worker:
    index: int
    listener: socket.socket
    process: asyncio.subprocess.Process | None = None
    control_socket: socket.socket | None = None
    """None until the worker serves."""
    requests: dict[int, asyncio.Future[Any]] = field(default_factory=dict)
    """Reloads and questions without an answer yet."""
    sending: asyncio.Lock = field(default_factory=asyncio.Lock)
    """Held while a line is sent to the worker."""
    line: asyncio.Future[None] | None = None
    """The line that is being sent, until it is sent whole."""
    is_silent: bool = False
    """The last question was not answered in time: the worker may hang."""
    values: WorkerValues = field(default_factory=WorkerValues)
    """Of its metrics."""
    streams: dict[str, dict[str, Any]] = field(default_factory=dict)
    """The audit records of streams that run for long, by their requests."""
    has_spoken: bool = False
    """The worker has sent something since it was last looked at."""
    ready: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when a process of this slot serves for the first time."""
    serving: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when the current process serves."""
    stacks: int = -1
    """The descriptor of the file for the stacks of the current process."""
    pause_seconds: float = FIRST_PAUSE_SECONDS

    def sent(self, line: asyncio.Future[None]) -> None:
        """Start the next line, whether this line was sent or not."""
        self.line = None
        self.sending.release()
        if not line.cancelled():
            # The caller may have left, so nothing else retrieves an error of the socket.
            line.exception()


class WorkerEvents:
    """What happens to workers, for metrics and records."""

    def ended(self, process_id: int) -> None:
        """Called for each worker that ended by itself."""

    def hung(self) -> None:
        """Called for each worker that is ended because it answers nothing."""

    def cut(self, records: Sequence[Mapping[str, Any]]) -> None:
        """Called with the audit records of streams that ended with their worker."""


async def _nothing() -> str | None:
    """Nothing keeps a worker from starting."""
    return None


class Supervisor:
    """Starts and restarts the workers, forwards signals and reloads, and stops them."""

    def __init__(
        self,
        command: Sequence[str],
        listeners: Sequence[socket.socket],
        *,
        environment: Mapping[str, str],
        secrets: Callable[[], bytes] = bytes,
        obstacle: Callable[[], Awaitable[str | None]] = _nothing,
        start_seconds: float = START_SECONDS,
        ping_seconds: float = PING_SECONDS,
        hung_seconds: float = HUNG_SECONDS,
        events: WorkerEvents | None = None,
        shared: Sequence[int] = (),
    ) -> None:
        """`secrets` returns the bytes that a worker receives at each of its starts.

        `obstacle` returns why a worker that ended could not start again just now; None: it can.

        `hung_seconds`: a worker that sends nothing for this time is ended. `shared`: further descriptors that
        each worker inherits.
        """
        self._command = tuple(command)
        self._secrets = secrets
        self._request_ids = count()
        self._environment = environment
        self._obstacle = obstacle
        self._look: asyncio.Future[str | None] | None = None
        self._start_seconds = start_seconds
        self._ping_seconds = ping_seconds
        self._hung_seconds = hung_seconds
        self._events = events or WorkerEvents()
        self._workers = [_Worker(index, listener) for index, listener in enumerate(listeners)]
        self._shared = tuple(shared)
        self._limits = LimitsFile(len(listeners))
        self._tasks: list[asyncio.Task[None]] = []
        self._ending = False

    @property
    def process_ids(self) -> list[int]:
        """The process ids of the running workers."""
        return [
            worker.process.pid
            for worker in self._workers
            if worker.process is not None and worker.process.returncode is None
        ]

    @property
    def values(self) -> list[WorkerValues]:
        """The values of the workers' metrics."""
        return [worker.values for worker in self._workers]

    async def start(self) -> None:
        """Start all workers and wait until they are ready. Raises StartFailed after stopping them."""
        first_failure: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self._tasks = [
            asyncio.create_task(self._run_until_end(worker, first_failure)) for worker in self._workers
        ]
        all_ready = asyncio.gather(*(worker.ready.wait() for worker in self._workers))
        watched: set[asyncio.Future[Any]] = {all_ready, first_failure, *self._tasks}
        try:
            await asyncio.wait(watched, return_when=asyncio.FIRST_COMPLETED)
        finally:
            all_ready.cancel()
            with suppress(asyncio.CancelledError):
                await all_ready
        ended = [task for task in self._tasks if task.done()]
        if first_failure.done() or ended:
            await self.stop(seconds=5.0)
            for task in ended:
                task.result()
            raise StartFailed(first_failure.result())

    async def reload(self, *, seconds: float = RELOAD_SECONDS) -> list[WorkerReload]:
        """Reload every worker; return the results in the workers' order."""
        return list(await asyncio.gather(*(self._reload(worker, seconds) for worker in self._workers)))

    async def _reload(self, worker: _Worker, seconds: float) -> WorkerReload:
        process_id = worker.process.pid if worker.process else None
        if worker.control_socket is None:
            return WorkerReload(worker.index, process_id, "the worker is starting")
        try:
            result = await self._requested(worker, seconds)
            refused = "the reload failed, see the log" if result is None else result["refused"]
        except TimeoutError:
            refused = f"no answer within {seconds:g} s"
        except OSError:
            refused = "the worker ended"
        return WorkerReload(worker.index, process_id, refused)

    async def ask(self, question: Any, *, one: bool = False, seconds: float = ASK_SECONDS) -> list[Any]:
        """Return the answers of all workers that answer in time; with `one` the answer of a single worker.

        `seconds`: the time in which a worker has to answer. With `one`, a second worker is asked after that.
        """
        serving = [worker for worker in self._workers if worker.control_socket is not None]
        if not one:
            answers = await asyncio.gather(*(self._ask(worker, question, seconds) for worker in serving))
            return [answer for answer in answers if answer is not None]
        for worker in sorted(serving, key=lambda worker: worker.is_silent)[:WORKERS_ASKED]:
            answer = await self._ask(worker, question, seconds)
            if answer is not None:
                return [answer]
        return []

    async def _ask(self, worker: _Worker, question: Any, seconds: float) -> Any:
        try:
            return await self._requested(worker, seconds, question=question)
        except TimeoutError:
            worker.is_silent = True
        except OSError:
            pass
        return None

    async def _requested(self, worker: _Worker, seconds: float, **request: Any) -> Any:
        """Return the answer of a worker to a request; None: it fails. Raises TimeoutError, OSError."""
        number = next(self._request_ids)
        answer = worker.requests[number] = asyncio.get_running_loop().create_future()
        # Where the request cannot be sent, nothing waits for its answer.
        answer.add_done_callback(forget_error)
        try:
            async with asyncio.timeout(seconds):
                await self._send(worker, message_line(number=number, **request))
                return await answer
        finally:
            del worker.requests[number]

    async def _send(self, worker: _Worker, text: bytes) -> None:
        """Send a line whole: the socket takes long lines in several parts. Raises OSError.

        A cancelled caller leaves, and the rest of a partly sent line is sent without it.
        """
        await worker.sending.acquire()
        if worker.control_socket is None:
            worker.sending.release()
            raise ConnectionResetError("the worker ended")
        sending = worker.line = asyncio.ensure_future(
            asyncio.get_running_loop().sock_sendall(worker.control_socket, text)
        )
        sending.add_done_callback(worker.sent)
        # Neither cancels the line with its caller, nor the caller with the line, which ends with its worker.
        await asyncio.wait([sending])
        if sending.cancelled():
            raise ConnectionResetError("the worker ended")
        sending.result()

    def forward(self, number: signal.Signals) -> None:
        """Send a signal to every worker."""
        for worker in self._workers:
            self._signal(worker, number)

    def hang_up(self) -> None:
        """Send SIGHUP to the workers that serve; a starting worker reads its files anyway."""
        for worker in self._workers:
            if worker.control_socket is not None:
                self._signal(worker, signal.SIGHUP)

    async def stop(self, *, seconds: float) -> None:
        """Drain the workers; kill those that are not done after `seconds`."""
        self._ending = True
        if not self._workers:
            return
        for worker in self._workers:
            worker.listener.close()
        self.forward(signal.SIGTERM)
        _, pending = await asyncio.wait(self._tasks, timeout=seconds) if self._tasks else (set(), set())
        if pending:
            log.warning("%d workers did not drain within %.0f s and are killed", len(pending), seconds)
            self.forward(signal.SIGKILL)
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._limits.close()
        for worker in self._workers:
            worker.values.close()
        self._workers = []

    async def _run_until_end(self, worker: _Worker, first_failure: asyncio.Future[int]) -> None:
        loop = asyncio.get_running_loop()
        while not self._ending:
            began = loop.time()
            try:
                exit_code = await self._run(worker)
            except OSError as error:
                # The first start fails for the caller; later a retry may succeed.
                if not worker.ready.is_set():
                    raise
                log.error("worker %d cannot be started: %s", worker.index, error.strerror or error)  # noqa: TRY400
                worker.listener = without_listening(worker.listener)
                await self._back_off(worker)
                continue
            if self._ending:
                return
            if not worker.ready.is_set():
                if not first_failure.done():
                    first_failure.set_result(exit_code)
                return
            if not worker.serving.is_set():
                worker.listener = without_listening(worker.listener)
            await self._pause(worker, exit_code, loop.time() - began)
            await self._wait_until_startable(worker)

    async def _wait_until_startable(self, worker: _Worker) -> None:
        """Wait while something keeps a worker from starting again; the others get its connections."""
        waits = False
        while not self._ending:
            try:
                async with asyncio.timeout(OBSTACLE_SECONDS):
                    reason = await self._shared_look()
            except TimeoutError:
                reason = f"no answer within {OBSTACLE_SECONDS:g} s"
            except Exception:
                # The start itself reports the problem.
                log.exception("worker %d starts again without a check of what it needs", worker.index)
                return
            if reason is None:
                return
            if not waits:
                worker.listener = without_listening(worker.listener)
                log.error("worker %d waits before it starts again: %s", worker.index, reason)
            waits = True
            await asyncio.sleep(OBSTACLE_POLL_SECONDS)

    async def _shared_look(self) -> str | None:
        """Look for an obstacle, once at a time for all workers: a check may hold a thread for long."""
        if self._look is None or self._look.done():
            self._look = asyncio.ensure_future(self._obstacle())
        return await asyncio.shield(self._look)

    async def _run(self, worker: _Worker) -> int:
        worker.serving.clear()
        process, own_end = await self._spawned(worker)
        worker.process = process
        watching = asyncio.create_task(self._watch(worker))
        try:
            if self._ending:
                process.terminate()
            secrets, loop = self._secrets(), asyncio.get_running_loop()
            with suppress(OSError):
                length = len(secrets).to_bytes(LENGTH_BYTES, "big")
                await loop.sock_sendall(own_end, length + secrets)
                async for message in messages(own_end):
                    self._take(worker, own_end, message)
            exit_code = await process.wait()
            self._limits.clear_worker(worker.index)
            return exit_code
        finally:
            watching.cancel()
            await self._forget_process(worker)
            own_end.close()

    async def _forget_process(self, worker: _Worker) -> None:
        """End the open requests of a worker that has ended, and record its streams."""
        worker.control_socket = None
        os.close(worker.stacks)
        worker.values.end()
        if worker.streams:
            self._events.cut([*worker.streams.values()])
            worker.streams.clear()
        for answer in worker.requests.values():
            if not answer.done():
                answer.set_exception(ConnectionResetError("the worker ended"))
        if worker.line is not None:
            worker.line.cancel()
            with suppress(asyncio.CancelledError, OSError):
                await worker.line

    async def _spawned(self, worker: _Worker) -> tuple[asyncio.subprocess.Process, socket.socket]:
        """Start a process of the command; return it with the supervisor's end of its control socket."""
        # The sockets first: unlike a descriptor they are closed if the rest fails.
        own_end, worker_end = socket.socketpair()
        own_end.setblocking(False)
        values, stacks = worker.values.begin(), memory_file("stacks")
        descriptors = (
            worker.listener.fileno(),
            worker_end.fileno(),
            self._limits.descriptor,
            *values,
            stacks,
        )
        slot = f"{worker.index},{len(self._workers)},{','.join(map(str, descriptors))}"
        try:
            process = await asyncio.create_subprocess_exec(
                *self._command,
                env={**self._environment, SLOT_VARIABLE: slot},
                pass_fds=(*descriptors, *self._shared),
                start_new_session=True,
            )
        except BaseException:
            own_end.close()
            os.close(stacks)
            raise
        finally:
            worker_end.close()
        worker.stacks = stacks
        return process, own_end

    def _take(self, worker: _Worker, control_socket: socket.socket, message: Mapping[str, Any]) -> None:
        if "ready" in message:
            worker.serving.set()
            worker.control_socket = control_socket
            worker.ready.set()
        # After a signal to this worker alone, new connections go to the others.
        if "draining" in message and not self._ending:
            worker.listener = without_listening(worker.listener)
        worker.is_silent = False
        worker.has_spoken = True
        if "begun" in message:
            worker.streams[message["begun"]] = message["record"]
        worker.streams.pop(message.get("ended", ""), None)
        answer = worker.requests.get(message.get("number", -1))
        if answer is not None and not answer.done():
            answer.set_result(message["answer"])

    async def _watch(self, worker: _Worker) -> None:
        """End a process of a worker that is not ready in time, or answers nothing for too long."""
        try:
            # The first start has no time limit: its caller waits for it.
            async with asyncio.timeout(self._start_seconds if worker.ready.is_set() else None):
                await worker.serving.wait()
        except TimeoutError:
            log.error("worker %d is not ready after %g s and is killed", worker.index, self._start_seconds)  # noqa: TRY400
        else:
            await self._until_hung(worker)
            log.error(
                "worker %d (process %d) has answered nothing for %g s and is ended",
                worker.index,
                worker.process.pid if worker.process else 0,
                self._hung_seconds,
            )
            self._events.hung()
        self._signal(worker, STACKS_SIGNAL)
        await asyncio.sleep(STACKS_SECONDS)
        stacks = os.pread(worker.stacks, MAX_STACKS_BYTES, 0).decode(errors="replace")
        log.error("the threads of worker %d: %s", worker.index, stacks or "it cannot write them")
        self._signal(worker, signal.SIGKILL)

    async def _until_hung(self, worker: _Worker) -> None:
        """Return when a worker has sent nothing for too long, by a clock that stops with this process."""
        silent_seconds = 0.0
        while silent_seconds < self._hung_seconds:
            worker.has_spoken = False
            asked = asyncio.ensure_future(self._send(worker, message_line(ping=True)))
            await asyncio.sleep(self._ping_seconds)
            asked.cancel()
            await asyncio.gather(asked, return_exceptions=True)
            silent_seconds = 0.0 if worker.has_spoken else silent_seconds + self._ping_seconds

    async def _pause(self, worker: _Worker, exit_code: int, lived_seconds: float) -> None:
        process_id = worker.process.pid if worker.process else 0
        log.error("worker %d (process %d) ended with code %d", worker.index, process_id, exit_code)
        self._events.ended(process_id)
        if lived_seconds > STEADY_SECONDS:
            worker.pause_seconds = FIRST_PAUSE_SECONDS
        await self._back_off(worker)

    async def _back_off(self, worker: _Worker) -> None:
        await asyncio.sleep(worker.pause_seconds)
        worker.pause_seconds = min(worker.pause_seconds * 2, LONGEST_PAUSE_SECONDS)

    def _signal(self, worker: _Worker, number: signal.Signals) -> None:
        if worker.process is not None and worker.process.returncode is None:
            with suppress(ProcessLookupError):
                os.kill(worker.process.pid, number)
