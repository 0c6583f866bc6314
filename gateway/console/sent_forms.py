"""Forms are carried out once: the second request of a form, as by a double click, gets the first one's page.

The page of the first request may show a secret once, and a browser shows the answer to the second. After a
minute a form that is sent again is refused.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from gateway.background import forget_error

KEPT_SECONDS = 60.0
MAX_FORMS, MAX_NUMBER_LENGTH = 64, 64
"""Of a session. A form older than that cannot be sent a second time by accident."""


@dataclass(slots=True)
class _Form:
    path: str
    seconds: float
    page: asyncio.Future[Any] | None


class SentForms:
    """The forms that a user has sent, by their numbers, with the pages of the last minute."""

    def __init__(self, now_seconds: Callable[[], float]) -> None:
        """`now_seconds` returns the time of a monotonic clock."""
        self._now_seconds = now_seconds
        self._sent: OrderedDict[str, _Form] = OrderedDict()

    async def page(self, number: str, path: str, answer: Callable[[], Awaitable[Any]]) -> Any:
        """Return the page that `answer` returns for the first request. Raises as `answer`.

        It is made also if the client of the first request leaves. None: the form was sent before, or has a
        number that no page gave.
        """
        now_seconds = self._now_seconds()
        for form in self._sent.values():
            if form.seconds < now_seconds - KEPT_SECONDS:
                form.page = None
        sent = self._sent.get(number)
        if sent is None and len(number) <= MAX_NUMBER_LENGTH:
            made = asyncio.ensure_future(answer())
            made.add_done_callback(forget_error)
            sent = self._sent[number] = _Form(path, now_seconds, made)
            if len(self._sent) > MAX_FORMS:
                self._sent.popitem(last=False)
        if sent is None or sent.page is None or sent.path != path:
            return None
        return await asyncio.shield(sent.page)
