"""Forms that are sent twice, as by a double click: the second request gets the page of the first one.

The page of the first request may show a secret once, and a browser shows the answer to the second.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from typing import Generic, TypeVar

from gateway.background import forget_error

KEPT_SECONDS = 60.0
MAX_KEPT = 64

Page = TypeVar("Page")


class SentForms(Generic[Page]):
    """The pages of forms that were sent within a minute, by the keys of the forms."""

    def __init__(self, now_seconds: Callable[[], float]) -> None:
        """`now_seconds` returns the time of a monotonic clock."""
        self._now_seconds = now_seconds
        self._kept: OrderedDict[bytes, tuple[float, asyncio.Future[Page]]] = OrderedDict()

    def has(self, key: bytes) -> bool:
        """Return whether a form was sent within a minute."""
        self._forget()
        return key in self._kept

    async def page(self, key: bytes, answer: Callable[[], Awaitable[Page]]) -> Page:
        """Return the page that `answer` returns for the first request with a key. Raises as `answer`.

        It is made also if the client of the first request leaves.
        """
        self._forget()
        if key not in self._kept:
            made = asyncio.ensure_future(answer())
            made.add_done_callback(forget_error)
            self._kept[key] = (self._now_seconds(), made)
            if len(self._kept) > MAX_KEPT:
                self._kept.popitem(last=False)
        return await asyncio.shield(self._kept[key][1])

    def _forget(self) -> None:
        oldest_seconds = self._now_seconds() - KEPT_SECONDS
        while self._kept and next(iter(self._kept.values()))[0] < oldest_seconds:
            self._kept.popitem(last=False)
