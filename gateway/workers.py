"""Several serving processes on one port, and the one that watches them.

In: a command that serves, and how many of it. Out: each runs as a fresh process (spawned, never forked from
one that has threads) with a listening socket of its own on the common port and a life line to the
supervisor. A worker that dies is begun anew; its socket outlives it, so connections that wait there are
answered by its successor and the streams of the others go on. When the supervisor dies, the workers see the
life line end and drain.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import socket
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

log = logging.getLogger("gateway.workers")

SLOT_VARIABLE = "DELTA_GATEWAY_WORKER"
READY = b"R"
STEADY_SECONDS = 10.0
FIRST_PAUSE_SECONDS = 0.05
LONGEST_PAUSE_SECONDS = 2.0


class StartFailed(Exception):
    """A worker ended before it was ready the first time; `exit_code` is its own."""

    def __init__(self, exit_code: int) -> None:
        super().__init__(f"a worker ended with code {exit_code} before it was ready")
        self.exit_code = exit_code


def bind(host: str, port: int, count: int) -> list[socket.socket]:
    """As many sockets on one port; the kernel spreads new connections over those that listen.

    Port 0 takes a free one. OSError when another program has the port.
    """
    sockets: list[socket.socket] = []
    try:
        for _ in range(count):
            sockets.append(_bind(host, port))
            port = sockets[0].getsockname()[1]
    except OSError:
        for bound in sockets:
            bound.close()
        raise
    return sockets


def _bind(host: str, port: int) -> socket.socket:
    family, kind, protocol, _, address = socket.getaddrinfo(
        host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
    )[0]
    bound = socket.socket(family, kind, protocol)
    try:
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        bound.bind(address)
    except OSError:
        bound.close()
        raise
    return bound


@dataclass(frozen=True, slots=True)
class Slot:
    """A worker's place: which of how many it is, its socket, and its life line."""

    index: int
    count: int
    listener: socket.socket
    life_line: socket.socket

    @staticmethod
    def of_environment(environment: Mapping[str, str]) -> Slot | None:
        """The slot that a supervisor gave to this process; None for one that serves alone."""
        text = environment.get(SLOT_VARIABLE)
        if text is None:
            return None
        index, count, listener, life_line = (int(part) for part in text.split(","))
        return Slot(index, count, socket.socket(fileno=listener), socket.socket(fileno=life_line))

    def ready(self) -> None:
        """Tell the supervisor that this worker serves."""
        with suppress(OSError):
            self.life_line.send(READY)

    async def supervisor_gone(self) -> None:
        """Return when the supervisor is no more."""
        self.life_line.setblocking(False)
        with suppress(OSError):
            while await asyncio.get_running_loop().sock_recv(self.life_line, 64):
                pass


@dataclass(slots=True)
class _Worker:
    index: int
    listener: socket.socket
    process: asyncio.subprocess.Process | None = None
    ready: asyncio.Event = field(default_factory=asyncio.Event)
    pause_seconds: float = FIRST_PAUSE_SECONDS


class Supervisor:
    """Begins the workers, begins dead ones anew, hands signals on, and ends them."""

    def __init__(
        self,
        command: Sequence[str],
        listeners: Sequence[socket.socket],
        *,
        environment: Mapping[str, str],
        on_restart: Callable[[int], None] = lambda _process_id: None,
    ) -> None:
        """`on_restart` is told the process id of each worker that ended by itself."""
        self._command = tuple(command)
        self._environment = environment
        self._on_restart = on_restart
        self._workers = [_Worker(index, listener) for index, listener in enumerate(listeners)]
        self._tasks: list[asyncio.Task[None]] = []
        self._ending = False

    @property
    def process_ids(self) -> list[int]:
        """Those of the workers that run."""
        return [
            worker.process.pid
            for worker in self._workers
            if worker.process is not None and worker.process.returncode is None
        ]

    async def start(self) -> None:
        """Begin all workers; returns when all are ready. Raises StartFailed, with none left running."""
        first_failure: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self._tasks = [asyncio.create_task(self._keep(worker, first_failure)) for worker in self._workers]
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

    def hand_on(self, number: signal.Signals) -> None:
        """Hand a signal on to every worker."""
        for worker in self._workers:
            self._signal(worker, number)

    async def stop(self, *, seconds: float) -> None:
        """Let the workers drain; those that are not done after `seconds` are killed."""
        self._ending = True
        for worker in self._workers:
            worker.listener.close()
        self.hand_on(signal.SIGTERM)
        _, pending = await asyncio.wait(self._tasks, timeout=seconds) if self._tasks else (set(), set())
        if pending:
            log.warning("%d workers did not drain within %.0f s and are killed", len(pending), seconds)
            self.hand_on(signal.SIGKILL)
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _keep(self, worker: _Worker, first_failure: asyncio.Future[int]) -> None:
        loop = asyncio.get_running_loop()
        while not self._ending:
            began = loop.time()
            exit_code = await self._run(worker)
            if self._ending:
                return
            if not worker.ready.is_set():
                if not first_failure.done():
                    first_failure.set_result(exit_code)
                return
            await self._pause(worker, exit_code, loop.time() - began)

    async def _run(self, worker: _Worker) -> int:
        ours, theirs = socket.socketpair()
        ours.setblocking(False)
        descriptors = (worker.listener.fileno(), theirs.fileno())
        slot = f"{worker.index},{len(self._workers)},{descriptors[0]},{descriptors[1]}"
        try:
            process = worker.process = await asyncio.create_subprocess_exec(
                *self._command,
                env={**self._environment, SLOT_VARIABLE: slot},
                pass_fds=descriptors,
                start_new_session=True,
            )
            theirs.close()
            if self._ending:
                process.terminate()
            with suppress(OSError):
                if await asyncio.get_running_loop().sock_recv(ours, 1) == READY:
                    worker.ready.set()
            return await process.wait()
        finally:
            ours.close()
            theirs.close()

    async def _pause(self, worker: _Worker, exit_code: int, lived_seconds: float) -> None:
        process_id = worker.process.pid if worker.process else 0
        log.error("worker %d (process %d) ended with code %d", worker.index, process_id, exit_code)
        self._on_restart(process_id)
        if lived_seconds > STEADY_SECONDS:
            worker.pause_seconds = FIRST_PAUSE_SECONDS
        await asyncio.sleep(worker.pause_seconds)
        worker.pause_seconds = min(worker.pause_seconds * 2, LONGEST_PAUSE_SECONDS)

    def _signal(self, worker: _Worker, number: signal.Signals) -> None:
        if worker.process is not None and worker.process.returncode is None:
            with suppress(ProcessLookupError):
                os.kill(worker.process.pid, number)
