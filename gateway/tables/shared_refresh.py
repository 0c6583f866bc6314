"""Shares refreshes of a table between requests.

A request takes part in a refresh that begins after the request arrived. Under load one refresh answers all
waiting requests, and no request reads a version that was out of date when it arrived.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from gateway import _native
from gateway.errors import Unavailable

STORAGE_IS_DOWN = (Unavailable, _native.StorageUnavailable)
"""The errors of a storage that does not answer."""

Waiting = list[asyncio.Future[_native.Snapshot]]


class SharedRefresh:
    """The refreshes of one table. Not thread-safe: for the event loop only."""

    def __init__(self, refresh: Callable[[], Awaitable[_native.Snapshot]]) -> None:
        self._refresh = refresh
        self._running: asyncio.Task[None] | None = None
        self._waiting: Waiting = []
        """Requests that came after the running refresh began."""
        self._served: Waiting = []

    def requests(self) -> int:
        """Return the number of requests that wait, at least 1."""
        return max(1, len(self._served) + len(self._waiting))

    async def latest(self) -> _native.Snapshot:
        """Return the latest version as of a refresh that begins after this call. Raises its error."""
        found: asyncio.Future[_native.Snapshot] = asyncio.get_running_loop().create_future()
        self._waiting.append(found)
        if self._running is None:
            self._running = asyncio.create_task(self._run())
        return await found

    async def _run(self) -> None:
        try:
            while self._waiting:
                await self._serve()
        finally:
            self._running = None

    async def _serve(self) -> None:
        waiting, self._waiting = self._waiting, []
        self._served = waiting
        try:
            latest = await self._refresh()
        except STORAGE_IS_DOWN as error:
            # Later requests share the failure: one refresh after another would multiply their delay.
            later, self._waiting = self._waiting, []
            _fail(waiting + later, error)
        except Exception as error:  # noqa: BLE001 - it is raised by the requests
            _fail(waiting, error)
        except BaseException:
            for found in waiting + self._waiting:
                found.cancel()
            raise
        else:
            for found in waiting:
                if not found.done():
                    found.set_result(latest)


def _fail(waiting: Waiting, error: Exception) -> None:
    for found in waiting:
        if not found.done():
            found.set_exception(error)
