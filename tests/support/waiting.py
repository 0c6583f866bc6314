"""Waiting for a condition by polling. The bound is generous: it only ends a test that has already failed."""

import asyncio
import time
from collections.abc import Callable
from pathlib import Path

WAIT_SECONDS = 60.0
AGREEING = 30
"""Answers on new connections among which is one of each worker: of two surely, of four but for 1 in 1,000."""


async def until(condition: Callable[[], object]) -> None:
    """Return when the condition holds. Raises TimeoutError when it does not in time."""
    async with asyncio.timeout(WAIT_SECONDS):
        while not condition():
            await asyncio.sleep(0.02)


def wait_until(condition: Callable[[], object], seconds: float = WAIT_SECONDS) -> None:
    """Return when the condition holds. Raises TimeoutError when it does not in time."""
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end:
            raise TimeoutError
        time.sleep(0.02)


ESTABLISHED = "01"


def server_end(port: int, client_port: int) -> str | None:
    """The state of the server's end of a connection, None once it is gone. Its client reads nothing."""
    rows = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    ends = [f":{port:04X}", f":{client_port:04X}"]
    return next((row[3] for row in rows if [row[1][8:], row[2][8:]] == ends), None)


def everywhere(answer: Callable[[], object], expected: object) -> Callable[[], bool]:
    """A condition for the waits above: every worker answers as expected.

    The kernel gives each new connection to any worker, and workers see a change one after the other: a
    single expected answer says nothing of the next request.
    """
    return lambda: all(answer() == expected for _ in range(AGREEING))
