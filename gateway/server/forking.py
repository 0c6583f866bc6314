"""The first workers of a server, forked from their supervisor before it has threads.

In: the listening sockets of a process with one thread. Out: its workers, or in each of them its slot. They
have the modules, the configuration and the rows of the database from their supervisor, so these are
imported, parsed and read once for all workers. The memory of the modules stays common for the most part; that
of the rows does not, as each worker counts references to them while it makes its tables. The threads of a
process do not survive a fork, and the locks that they hold stay locked: a process with threads forks nothing,
nor does one on a system without what is needed. The supervisor then spawns all workers, as it spawns each
that is started again.
"""

from __future__ import annotations

import asyncio
import gc
import os
import signal
import socket
import sys
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from gateway.limits.shared_memory import LimitsFile
from gateway.server.slot import Slot

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

THREADS = Path("/proc/self/task")


@dataclass(slots=True)
class ForkedWorker:
    """A forked process and the supervisor's end of its control socket, in the form of asyncio's processes."""

    index: int
    pid: int
    control_socket: socket.socket
    descriptor: int
    """Of the process, readable at its end. Opened at its start: later there may be no descriptor left."""
    returncode: int | None = field(default=None, init=False)
    """As of `subprocess`: negative for a signal. None until `wait` has returned."""

    async def wait(self) -> int:
        """Wait until the process has ended, and return its exit code."""
        ended, loop = asyncio.Event(), asyncio.get_running_loop()
        loop.add_reader(self.descriptor, ended.set)
        try:
            await ended.wait()
        finally:
            loop.remove_reader(self.descriptor)
            os.close(self.descriptor)
        # It does not wait: the process has ended.
        _, status = os.waitpid(self.pid, 0)  # noqa: ASYNC222
        self.returncode = os.waitstatus_to_exitcode(status)
        return self.returncode

    def terminate(self) -> None:
        """Send SIGTERM."""
        with suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGTERM)


@dataclass(frozen=True, slots=True)
class ForkedWorkers:
    """The workers, which may be fewer than those of the server, and the file of the limits of all."""

    limits: LimitsFile
    workers: Sequence[ForkedWorker]


def can_fork() -> bool:
    """Return whether this process has one thread, on a system that reports the end of processes."""
    if sys.platform != "linux":
        return False
    try:
        os.close(os.pidfd_open(os.getpid()))
        return len(list(THREADS.iterdir())) == 1
    except (AttributeError, OSError):
        return False


def fork_workers(
    listeners: Sequence[socket.socket], others: Sequence[socket.socket], environment: Callable[[], None]
) -> ForkedWorkers | Slot:
    """Fork a worker for each listener. Returns the slot, without secrets, in a worker.

    `others`: sockets of the supervisor alone. `environment` is called in each worker. Where the system makes
    no further process, the workers so far are returned.
    """
    limits, forked = LimitsFile(len(listeners)), list[ForkedWorker]()
    # Where it is ignored, as some launchers leave it, the system forgets how a worker has ended.
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    # What is in memory here stays as it is: collections would write to pages that are common.
    gc.freeze()
    for index, listener in enumerate(listeners):
        own_end, worker_end = socket.socketpair()
        try:
            pid = os.fork()
        except OSError:
            own_end.close()
            worker_end.close()
            break
        if not pid:
            os.setsid()
            environment()
            # A worker that had them would keep a port, or the supervisor's end of another's control socket.
            for one in (own_end, *others, *(worker.control_socket for worker in forked)):
                one.close()
            for worker in forked:
                os.close(worker.descriptor)
            for one in listeners:
                if one is not listener:
                    one.close()
            return Slot(index, len(listeners), listener, worker_end, limits.descriptor)
        worker_end.close()
        own_end.setblocking(False)
        forked.append(ForkedWorker(index, pid, own_end, os.pidfd_open(pid)))
    return ForkedWorkers(limits, forked)
