"""The running requests of a process, and their end before the process ends.

In: the task of each request. Out: at the end of a drain the tasks are cancelled with a reason, so that an
answer ends with the error of the protocol and not as if its client had left.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

from gateway.errors import Unavailable

_SERVER_ENDS: Final = "the server is shutting down"


class RunningRequests:
    """The tasks of the requests that are being answered."""

    def __init__(self) -> None:
        self._tasks: dict[asyncio.Task[object], Callable[[], None]] = {}
        """With what is called at their ends."""

    def add(self) -> None:
        """Add the current task."""
        task = asyncio.current_task()
        if task is None:
            raise RuntimeError("a request has a task")
        self._tasks[task] = _nothing
        task.add_done_callback(self._ended)

    def at_end(self, call: Callable[[], None]) -> None:
        """Call at the end of the current task, which is when the answer is sent or its client has left.

        A task has one such call.
        """
        task = asyncio.current_task()
        if task is None or self._tasks.get(task) is not _nothing:
            raise RuntimeError("a request has a task, and one call at its end")
        self._tasks[task] = call

    def _ended(self, task: asyncio.Task[object]) -> None:
        self._tasks.pop(task)()

    async def none(self, seconds: float) -> bool:
        """Wait at most that long until there are none. False: not in time."""
        if self._tasks:
            await asyncio.wait(tuple(self._tasks), timeout=max(0.0, seconds))
        return not self._tasks

    async def end(self, seconds: float) -> int:
        """End all requests within that time, and return their number."""
        tasks = tuple(self._tasks)
        for task in tasks:
            task.cancel(_SERVER_ENDS)
        await self.none(seconds)
        return len(tasks)


def _nothing() -> None:
    pass


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
