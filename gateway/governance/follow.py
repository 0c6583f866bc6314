"""The loop by which a server follows changes of its database, of its files and of discovered tables.

In: how to read the next value, how to apply it, and how to report the outcome. The loop runs for as long as
its context, whatever fails. `Failures` logs each reason once.
"""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import TypeVar

from gateway.background import alongside

log = logging.getLogger("gateway.serving")

LATE_SECONDS = 1.0
"""A wait that ends later than this says that the process was stopped, and nothing of what it waited for."""

T = TypeVar("T")


@asynccontextmanager
async def following(
    read: Callable[[], Awaitable[T]],
    apply: Callable[[T], Awaitable[None]],
    report: Callable[[Exception | None], Awaitable[None]],
    *,
    retry_seconds: float,
    patience_seconds: float = math.inf,
) -> AsyncIterator[None]:
    """Follow within the context.

    `read` waits until there may be something new. `report` is called after each round with the error of the
    reading or applying, or None. While a reading lasts, it is called with a TimeoutError every
    `patience_seconds`, but not for time in which this process was stopped. After an error the next round
    begins `retry_seconds` later.
    """
    async with alongside(_follow(read, apply, report, retry_seconds, patience_seconds)):
        yield


async def _follow(
    read: Callable[[], Awaitable[T]],
    apply: Callable[[T], Awaitable[None]],
    report: Callable[[Exception | None], Awaitable[None]],
    retry_seconds: float,
    patience_seconds: float,
) -> None:
    while True:
        failed: Exception | None = None
        try:
            await apply(await patiently(read, report, patience_seconds))
        except Exception as error:  # noqa: BLE001 - without this loop no change would take effect
            failed = error
        await _reported(report, failed)
        if failed is not None:
            await asyncio.sleep(retry_seconds)


async def patiently(
    read: Callable[[], Awaitable[T]],
    report: Callable[[Exception | None], Awaitable[None]],
    patience_seconds: float,
) -> T:
    """Return what `read` returns, and report as `following` while it lasts."""
    reading = asyncio.ensure_future(read())
    try:
        while True:
            began_seconds = time.monotonic()
            if (await asyncio.wait([reading], timeout=patience_seconds))[0]:
                return await reading
            if time.monotonic() - began_seconds < patience_seconds + LATE_SECONDS:
                await _reported(report, TimeoutError(f"no answer within {patience_seconds:g} s"))
    finally:
        if not reading.done():
            # It would go on without the thread that it needs.
            reading.cancel()
            await asyncio.wait([reading])


async def _reported(report: Callable[[Exception | None], Awaitable[None]], error: Exception | None) -> None:
    try:
        await report(error)
    except Exception:
        log.exception("a report fails; the next one is made")


class Failures:
    """Logs why something fails, once for each reason in a row, and when it works again."""

    def __init__(self, target: logging.Logger, level: int, failing: str, again: str) -> None:
        """`failing` has a `%s` for the reason."""
        self._target = target
        self._level = level
        self._failing = failing
        self._again = again
        self.reason: str | None = None
        """Why it fails; None while it works."""

    def report(self, error: Exception | None) -> None:
        """Take the outcome of the last attempt."""
        reason = None if error is None else str(error) or type(error).__name__
        if reason is not None and reason != self.reason:
            self._target.log(self._level, self._failing, reason)
        elif reason is None and self.reason is not None:
            self._target.info(self._again)
        self.reason = reason
