"""The page of a form that is sent twice is that of the first request."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from gateway.console.sent_forms import KEPT_SECONDS, MAX_FORMS, MAX_NUMBER_LENGTH, SentForms


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
    work, forms = Work(), SentForms(lambda: 0.0)
    first, second = (asyncio.ensure_future(forms.page("form", "/a", work.page)) for _ in range(2))
    await asyncio.sleep(0)
    first.cancel()
    work.go.set()
    assert await second == "page 1"
    assert await forms.page("form", "/a", work.page) == "page 1"
    assert await forms.page("other", "/a", work.page) == "page 2"
    assert await forms.page("form", "/b", work.page) is None, "the form of another page"


async def test_a_form_is_sent_once_its_page_is_kept_for_a_minute_and_few_are_remembered() -> None:
    times = iter([0.0, KEPT_SECONDS, *[KEPT_SECONDS + 1] * (MAX_FORMS + 2)])
    work, forms = Work(), SentForms(lambda: next(times))
    work.go.set()
    for page in ("page 1", "page 1", None):
        assert await forms.page("form", "/a", work.page) == page
    for number in range(MAX_FORMS):
        assert await forms.page(str(number), "/a", work.page) == f"page {number + 2}"
    assert len(forms._sent) == MAX_FORMS
    assert "form" not in forms._sent
    too_long = "x" * (MAX_NUMBER_LENGTH + 1)
    assert await forms.page(too_long, "/a", work.page) is None, "no form of a page has so long a number"


async def test_the_error_of_the_first_request_is_that_of_the_second() -> None:
    work, forms = Work(), SentForms(lambda: 0.0)
    pages: list[Callable[[], Awaitable[str]]] = [work.failing, work.page]
    for page in pages:
        with pytest.raises(ValueError, match="refused"):
            await forms.page("form", "/a", page)
    assert work.made == 1
