"""The running requests of a process, and their end before the process ends.

In: the task of each request. Out: its memory is returned at its end. At the end of a drain the tasks are
cancelled with a reason, so that an answer ends with the error of the protocol and not as if its client had
left.
"""

from __future__ import annotations

import asyncio
import time
from typing import Final

from gateway.errors import Unavailable
from gateway.web.context import RequestContext

_SERVER_ENDS: Final = "the server is shutting down"


class RunningRequests:
    """The tasks of the requests that are being answered."""

    def __init__(self) -> None:
        self._tasks: dict[asyncio.Task[object], RequestContext] = {}

    def add(self, context: RequestContext) -> None:
        """Add the current task. Its end is when the answer is sent or its client has left."""
        task = asyncio.current_task()
        if task is None:
            raise RuntimeError("a request has a task")
        self._tasks[task] = context
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[object]) -> None:
        context = self._tasks.pop(task)
        if context.memory is not None:
            context.memory.leave()

    async def none(self, seconds: float) -> bool:
        """Wait at most that long until there are none. False: not in time."""
        end_seconds = time.monotonic() + seconds
        # Connections that were accepted before the listener closed may begin others meanwhile.
        while self._tasks and (left_seconds := end_seconds - time.monotonic()) > 0:
            await asyncio.wait(tuple(self._tasks), timeout=left_seconds)
        return not self._tasks

    async def end(self, seconds: float) -> int:
        """End all requests within that time, and return their number."""
        tasks = tuple(self._tasks)
        for task in tasks:
            task.cancel(_SERVER_ENDS)
        if tasks:
            await asyncio.wait(tasks, timeout=seconds)
        return len(tasks)


def shutting_down() -> Unavailable:
    """Return the error of a request that the end of the server cuts off."""
    return Unavailable(_SERVER_ENDS)


def is_end_of_server(cancelled: asyncio.CancelledError) -> bool:
    """Return whether a request was cancelled because the server ends. If so, its task continues."""
    if cancelled.args != (_SERVER_ENDS,):
        return False
    task = asyncio.current_task()
    if task is not None:
        task.uncancel()
    return True
