"""Waiting for a condition by polling. The bound is generous: it only ends a test that has already failed."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

WAIT_SECONDS = 60.0
AGREEING = 30
"""Answers on new connections among which is one of each worker: of two surely, of four but for 1 in 1,000."""


async def until(condition: Callable[[], object], seconds: float = WAIT_SECONDS) -> None:
    """Return when the condition holds. Raises TimeoutError when it does not in time."""
    async with asyncio.timeout(seconds):
        while not condition():
            await asyncio.sleep(0.02)


def wait_until(condition: Callable[[], object], seconds: float = WAIT_SECONDS) -> None:
    """Return when the condition holds. Raises TimeoutError when it does not in time."""
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end:
            raise TimeoutError
        time.sleep(0.02)


def everywhere(answer: Callable[[], object], expected: object) -> Callable[[], bool]:
    """A condition for the waits above: every worker answers as expected.

    The kernel gives each new connection to any worker, and workers see a change one after the other: a
    single expected answer says nothing of the next request.
    """
    return lambda: all(answer() == expected for _ in range(AGREEING))
