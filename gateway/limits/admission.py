"""A bounded capacity with a bounded queue: the base of every limit.

Waiting is bounded in time and in number. No refusal requests a longer pause than
`RETRY_AFTER_CEILING_SECONDS`, because the Spark client fails after 7 s. Independent of HTTP.
"""

from __future__ import annotations

import asyncio
import math
from collections import deque
from enum import StrEnum

from gateway.config.operation import CLIENT_PATIENCE_SECONDS

RETRY_AFTER_CEILING_SECONDS = int(CLIENT_PATIENCE_SECONDS)


class LimitKind(StrEnum):
    """The kind of a limit."""

    REQUESTS = "requests"
    STREAMS = "streams"
    FILES = "files"
    MEMORY = "memory"
    CREDENTIALS = "credentials"
    ATTEMPTS = "attempts"
    READERS = "readers"
    DESCRIPTORS = "descriptors"


class LimitExceeded(Exception):
    """Raised over a limit; `retry_after_seconds` is the time to wait."""

    def __init__(self, limit: LimitKind, retry_after_seconds: float) -> None:
        super().__init__(f"over the limit of {limit}")
        self.limit = limit
        self.retry_after_seconds = whole_pause(retry_after_seconds)


def whole_pause(seconds: float) -> int:
    """Return the pause that a refusal asks for, in whole seconds."""
    return max(1, min(RETRY_AFTER_CEILING_SECONDS, math.ceil(seconds)))


class Admission:
    """A capacity with a queue, bounded in length and time.

    A cost above the capacity is admitted alone. The queue is first in, first out, so a large cost does not
    starve.
    """

    def __init__(self, capacity: int, *, queue_length: int, queue_seconds: float) -> None:
        self.capacity = capacity
        self.used = 0
        self._queue_length = queue_length
        self._queue_seconds = queue_seconds
        self._is_one_at_a_time = False
        self._waiting: deque[tuple[int, asyncio.Future[None]]] = deque()

    def configure(self, capacity: int, *, queue_length: int, queue_seconds: float) -> None:
        """Change the capacity and the queue. Admitted costs stay; waiting ones keep their time."""
        self.capacity, self._queue_length, self._queue_seconds = capacity, queue_length, queue_seconds
        self._admit()

    def run_one_at_a_time(self, is_on: bool) -> None:
        """Admit costs only one at a time, or all that fit again."""
        self._is_one_at_a_time = is_on
        self._admit()

    @property
    def waiting(self) -> int:
        """The number of waiting costs."""
        return len(self._waiting)

    def _take(self, cost: int) -> bool:
        if self.used and (self._is_one_at_a_time or self.used + cost > self.capacity):
            return False
        self.used += cost
        return True

    async def enter(self, cost: int = 1) -> bool:
        """Take `cost` of the capacity, and wait for it if necessary. False: refused, and nothing is taken."""
        if self.enter_at_once(cost):
            return True
        if len(self._waiting) >= self._queue_length:
            return False
        return await self._wait(cost)

    def enter_at_once(self, cost: int = 1) -> bool:
        """Take `cost` of the capacity. False: the request has to wait, and takes nothing."""
        return not self._waiting and self._take(cost)

    def leave(self, cost: int = 1) -> None:
        """Return what `enter` took."""
        self.used -= cost
        if self._waiting:
            self._admit()

    async def _wait(self, cost: int) -> bool:
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        entry = (cost, turn)
        self._waiting.append(entry)
        try:
            async with asyncio.timeout(self._queue_seconds):
                await turn
        except TimeoutError:
            # The admission may come in the same iteration of the loop as the timeout.
            if turn.done() and not turn.cancelled():
                return True
            self._forget(entry)
            return False
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():
                self.leave(cost)
            else:
                self._forget(entry)
            raise
        return True

    def _forget(self, entry: tuple[int, asyncio.Future[None]]) -> None:
        if entry in self._waiting:
            self._waiting.remove(entry)
        self._admit()

    def _admit(self) -> None:
        while self._waiting:
            cost, turn = self._waiting[0]
            if turn.done():
                self._waiting.popleft()
                continue
            if not self._take(cost):
                return
            self._waiting.popleft()
            turn.set_result(None)
