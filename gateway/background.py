"""Work that runs beside a context."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager, suppress
from typing import Any


@asynccontextmanager
async def alongside(work: Coroutine[Any, Any, None]) -> AsyncIterator[None]:
    """Run `work` within the context, which cancels it at its end and waits for that."""
    task = asyncio.ensure_future(work)
    try:
        yield
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


def forget_error(done: asyncio.Future[Any]) -> None:
    """Retrieve the error of work whose caller may have left."""
    if not done.cancelled():
        done.exception()
