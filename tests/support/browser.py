"""A headless Chromium, driven by Playwright, which fails a test for what a page must not do."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pytest

from support.skips import BROWSER_ABSENT, BROWSERS

if TYPE_CHECKING:
    from playwright.sync_api import Browser, BrowserContext, Locator, Page

# The sandbox needs user namespaces, which containers often lack.
OPTIONS = ("--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage")
PHONE, TABLET, DESK = 360, 800, 1280
# Reports of violated policies are events of the page, which has no script of its own.
LISTEN = """
window.violations = [];
document.addEventListener('securitypolicyviolation', event => window.violations.push(
    event.violatedDirective + ' ' + event.blockedURI));
"""


@dataclass
class Visitor:
    """A browser's window with its own cookies."""

    context: BrowserContext
    page: Page
    base: str
    problems: list[str] = field(default_factory=list)
    """Messages of the console and requests to other hosts."""

    def open(self, path: str) -> Any:
        """Opens a page and returns its response; the page must not violate its policy."""
        response = self.page.goto(self.base + path)
        self.check()
        return response

    def shown(self, selector: str) -> Locator:
        """Elements of the whole page: a click or a key returns when the next page begins."""
        self.page.wait_for_load_state()
        return self.page.locator(selector)

    def check(self) -> None:
        """Fails for a violated policy, an error of the page, or a request to another host."""
        assert self.page.evaluate("window.violations") == []
        assert self.problems == []

    def has_no_horizontal_scrolling(self) -> bool:
        """Whether everything is as wide as the window."""
        return self.page.evaluate(
            "document.documentElement.scrollWidth <= document.documentElement.clientWidth"
        )

    def sign_in(self, token: str, path: str = "/console/") -> None:
        """Signs in, from the page that leads on to a path."""
        self.open(path)
        self.page.fill("#secret", token)
        self.page.press("#secret", "Enter")
        self.page.wait_for_load_state()


@contextmanager
def chromium() -> Iterator[Browser]:
    """Runs the browser of this machine; skips without one."""
    program = next(filter(None, map(shutil.which, BROWSERS)), None)
    if program is None:
        pytest.skip(BROWSER_ABSENT)
    from playwright.sync_api import sync_playwright  # noqa: PLC0415 - of the development group

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, args=[*OPTIONS])
        yield browser
        browser.close()


@contextmanager
def visitor(browser: Browser, base: str, *, width: int = DESK, dark: bool = False) -> Iterator[Visitor]:
    """A window without cookies. Statuses of answers are no problems of a page."""
    page = _window(browser)
    _USED.add(page)
    page.set_viewport_size({"width": width, "height": 900})
    page.emulate_media(color_scheme="dark" if dark else "light")
    opened = Visitor(page.context, page, base)

    def message(console: Any) -> None:
        if console.type in {"error", "warning"} and "status of" not in console.text:
            opened.problems.append(console.text)

    def error(raised: Any) -> None:
        opened.problems.append(str(raised))

    def request(sent: Any) -> None:
        if not sent.url.startswith((base, "data:")):
            opened.problems.append(sent.url)

    heard = {"console": message, "pageerror": error, "request": request}
    for event, listener in heard.items():
        page.on(event, listener)
    try:
        yield opened
    except BaseException:
        # What a test leaves that fails is nothing for the next one.
        page.context.close()
        raise
    finally:
        _USED.discard(page)
    for event, listener in heard.items():
        page.remove_listener(event, listener)
    page.goto("about:blank")
    page.context.unroute_all()
    page.context.clear_cookies()


_USED: set[Page] = set()
"""Windows of visitors; two at a time are those of two browsers, with their own cookies."""


def _window(browser: Browser) -> Page:
    """A window that no visitor has any more: a new one takes another half of a second of CPU."""
    for context in browser.contexts:
        if (page := context.pages[0]) not in _USED:
            return page
    context = browser.new_context()
    context.set_default_timeout(20_000)
    # Of the driver, which no policy of a page restricts.
    context.add_init_script(LISTEN)
    return context.new_page()
