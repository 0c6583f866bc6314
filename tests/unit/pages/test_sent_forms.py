"""The page of a form that is sent twice is that of the first request."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from gateway.pages.sent_forms import KEPT_SECONDS, MAX_KEPT, SentForms


class Work:
    """Makes pages, each another one, as late as `go` says."""

    def __init__(self) -> None:
        self.made, self.go = 0, asyncio.Event()

    async def page(self) -> str:
        self.made += 1
        number = self.made
        await self.go.wait()
        return f"page {number}"

    async def failing(self) -> str:
        self.made += 1
        raise ValueError("refused")


async def test_two_requests_at_once_get_one_page_also_if_the_first_client_leaves() -> None:
    work, forms = Work(), SentForms[str](lambda: 0.0)
    first, second = (asyncio.ensure_future(forms.page(b"form", work.page)) for _ in range(2))
    await asyncio.sleep(0)
    first.cancel()
    work.go.set()
    assert await second == "page 1"
    assert await forms.page(b"form", work.page) == "page 1"
    assert await forms.page(b"other", work.page) == "page 2"


async def test_a_page_is_forgotten_after_a_minute_and_few_are_kept() -> None:
    seconds = 0.0
    work, forms = Work(), SentForms[str](lambda: seconds)
    work.go.set()
    await forms.page(b"form", work.page)
    seconds = KEPT_SECONDS
    assert forms.has(b"form")
    seconds += 1
    assert not forms.has(b"form")
    for number in range(MAX_KEPT + 1):
        await forms.page(b"%d" % number, work.page)
    assert [forms.has(b"%d" % number) for number in (0, 1, MAX_KEPT)] == [False, True, True]


async def test_the_error_of_the_first_request_is_that_of_the_second() -> None:
    work, forms = Work(), SentForms[str](lambda: 0.0)
    pages: list[Callable[[], Awaitable[str]]] = [work.failing, work.page]
    for page in pages:
        with pytest.raises(ValueError, match="refused"):
            await forms.page(b"form", page)
    assert work.made == 1
