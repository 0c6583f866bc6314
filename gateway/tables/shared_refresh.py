"""Shares refreshes of a table between requests.

A request takes part in a refresh that begins after the request arrived. Under load one refresh answers all
waiting requests, and no request reads a version that was out of date when it arrived.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, Generic, TypeVar

from gateway import _native
from gateway.errors import Unavailable

STORAGE_IS_DOWN = (Unavailable, _native.StorageUnavailable)
"""The errors of a storage that does not answer."""

Found = TypeVar("Found")
Ended = Callable[[_native.Snapshot | Exception | None], None]


class SharedRefresh(Generic[Found]):
    """The refreshes of one table: of its latest version, or of its catalog's answer.

    Not thread-safe: for the event loop only.
    """

    def __init__(
        self,
        refresh: Callable[[Callable[[], int]], Awaitable[Found]],
        probe: Callable[[Callable[[Any], None], Callable[[], int]], bool] = lambda _ended, _requests: False,
    ) -> None:
        """`probe` may start a refresh that needs no task: it returns True, and later calls its argument.

        The argument takes the latest version, an error, or None if `refresh` has to run after all. Both get
        `requests`.
        """
        self._refresh = refresh
        self._probe = probe
        self._runs = False
        self._task: asyncio.Task[None] | None = None
        self._waiting: list[asyncio.Future[Found]] = []
        """Requests that came after the running refresh began."""
        self._served: list[asyncio.Future[Found]] = []

    def requests(self) -> int:
        """Return the number of requests that wait, at least 1."""
        return max(1, len(self._served) + len(self._waiting))

    def latest(self) -> asyncio.Future[Found]:
        """Return the latest version as of a refresh that begins after this call, or its error."""
        loop = asyncio.get_running_loop()
        latest: asyncio.Future[Found] = loop.create_future()
        self._waiting.append(latest)
        if not self._runs:
            self._runs = True
            # Not at once: requests that arrive together share the refresh.
            loop.call_soon(self._begin)
        return latest

    def _begin(self) -> None:
        """Start a refresh for all requests that wait."""
        self._served, self._waiting = self._waiting, []
        try:
            is_started = self._probe(self._probed, self.requests)
        except Exception as error:  # noqa: BLE001 - it is raised by the requests
            self._end(error)
            return
        except BaseException:
            self._cancel()
            raise
        if not is_started:
            self._start_task()

    def _probed(self, outcome: Found | Exception | None) -> None:
        if outcome is None:
            self._start_task()
        else:
            self._end(outcome)

    def _start_task(self) -> None:
        self._task = asyncio.get_running_loop().create_task(self._serve())

    async def _serve(self) -> None:
        try:
            outcome: Found | Exception = await self._refresh(self.requests)
        except Exception as error:  # noqa: BLE001 - it is raised by the requests
            outcome = error
        except BaseException:
            self._cancel()
            raise
        self._end(outcome)

    def _end(self, outcome: Found | Exception) -> None:
        """Answer the requests of a refresh, and start the next one if others wait."""
        served, self._served = self._served, []
        if isinstance(outcome, STORAGE_IS_DOWN):
            # Later requests share the failure: one refresh after another would multiply their delay.
            served += self._waiting
            self._waiting = []
        for request in served:
            if request.done():
                continue
            if isinstance(outcome, Exception):
                request.set_exception(outcome)
            else:
                request.set_result(outcome)
        self._runs = bool(self._waiting)
        if self._runs:
            # After the requests that were served: those that arrive until then share the next refresh too.
            asyncio.get_running_loop().call_soon(self._begin)

    def _cancel(self) -> None:
        for request in self._served + self._waiting:
            request.cancel()
        self._served, self._waiting, self._runs = [], [], False
