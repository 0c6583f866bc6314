"""The pages of the Spark commands in a real browser: phone, tablet and desk, light and dark."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from support.browser import DESK, PHONE, TABLET, Visitor, chromium, visitor
from support.nightly import at_night, some_at_night

from gateway.spark.operations.fleet import TableHealth
from gateway.spark.operations.fleet_history import Survey
from gateway.spark.operations.fleet_page import html as fleet_page
from gateway.spark.operations.usage_page import _BARS, Rows, UsageSums
from gateway.spark.operations.usage_page import html as usage_page
from gateway.spark.project.page import html as projections_page
from gateway.spark.project.published import Published
from gateway.spark.project.results import Outcome
from gateway.spark.verify.history import Run
from gateway.spark.verify.page import html as verify_page
from gateway.spark.verify.results import Check, TableResult

if TYPE_CHECKING:
    from playwright.sync_api import Browser

RUN_AT = dt.datetime(2026, 1, 2, 3, 4, tzinfo=dt.UTC)
LONG = "a_long_share_name.emea_and_north_america.customer_orders_enriched_and_deduplicated"
UNBROKEN = "s.d." + "x" * 251
NAMES = ("sales.public.orders", LONG, UNBROKEN, "s.d.\u05e9\u05dc\u05d5\u05dd")
SIZES = (7, 1_234_567_890, 40_000, 250)
# In the order of their values, missing ones last.
SORTED_SIZES = ["7 B", "250 B", "40 kB", "1.23 GB", "\N{EN DASH}"]


def verified() -> str:
    passed = [Check("schema", 0.1), Check("rows", 1.0), Check("uses", 0.5)]
    results = [
        TableResult(name, 7, size * 3, size, 3, 1.5, passed) for name, size in zip(NAMES, SIZES, strict=True)
    ]
    lines = ("digest 1:ab shared, 2:cd in the table", f'row {{"note":"{"y" * 500}"}}')
    results.append(TableResult("s.d.wrong", 8, 2, 7, 1, 2.0, [Check("rows", 1.0, lines)]))
    results.append(TableResult("s.d.broken", error="java.io.FileNotFoundException: " + "/deep" * 60))
    results.append(TableResult("s.d.late", postponed=True))
    night = dt.timedelta(days=1)
    runs = [Run(RUN_AT - n * night, 4, 1, 0, 1, 10**9, 4000.0) for n in range(30, -1, -1)]
    return verify_page(results, RUN_AT, runs)


def surveyed() -> str:
    features = ("deletionVectors", "columnMapping", "timestampNtz")
    tables = [
        TableHealth(
            name, version=40_000, files=90_000, bytes=size, small_files=12, files_without_stats=5,
            tombstones=120_000, checkpoint="12 parts", commits_since_checkpoint=40, reader_features=features,
            needs_delta_format=True, listing_seconds=1.5,
        )
        for name, size in zip(NAMES, SIZES, strict=True)
    ]  # fmt: skip
    tables.append(TableHealth("s.d.gone", error="NotFound: " + "/deep" * 60))
    night = dt.timedelta(days=1)
    surveys = [Survey(RUN_AT - n * night, 5, 1, 10**6, 10**12, 10, 10, 0.5) for n in range(30, -1, -1)]
    return fleet_page(tables, RUN_AT, surveys)


def used() -> str:
    day = RUN_AT.date()
    errors = Rows(
        ("day", "recipient", "table", "status", "error_code", "requests", "last_at"),
        [(day, name, name, 401, "UNAUTHENTICATED", 1234, RUN_AT) for name in NAMES],
        900,
    )
    slow = Rows(
        ("day", "at", "recipient", "table", "request_id", "returned", "durationMs"),
        [(day, RUN_AT, name, name, "0" * 32, size, 9000) for name, size in zip(NAMES, SIZES, strict=True)],
        4,
    )
    daily = Rows(
        ("day", "recipient", "table", "requests", "queries", "errors", "files", "addressed_bytes",
         "pruned_files", "longest_ms"),
        [(day, name, name, 9, 8, 1, 10**6, size, 3, 9000) for name, size in zip(NAMES, SIZES, strict=True)],
        4,
    )  # fmt: skip
    by_day = {day - dt.timedelta(days=n): n % 5 for n in range(40)}
    bars = {title: [(name, size) for name, size in zip(NAMES, SIZES, strict=True)] for title in _BARS}
    sums = UsageSums(36, 4, 4, 10**6, 10**12, 2, by_day, bars, errors, slow, daily)
    return usage_page(sums, RUN_AT)


def projected() -> str:
    sizes = {name: Published(3, 4, 10**9, 12, size, RUN_AT) for name, size in zip(NAMES, SIZES, strict=True)}
    kept: list[tuple[Outcome, Published | None]] = [
        (
            Outcome((name, *NAMES[:1]), "changed", 3, 4, 10**9, 12_345, 6.5, "rewritten: " + "why " * 40),
            size,
        )
        for name, size in sizes.items()
    ]
    kept.append((Outcome(("s.d.gone",), seconds=0.5, error="x" * 300, failure="InvalidRule"), None))
    return projections_page(kept, [f"s3a://{'b' * 60}/{name}/{'0' * 32}" for name in NAMES], RUN_AT)


PAGES = {"verify": verified, "fleet": surveyed, "usage": used, "project": projected}


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as opened:
        yield opened


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("pages")
    for name, made in PAGES.items():
        (folder / f"{name}.html").write_text(made(), encoding="utf-8")
    return Path(folder).as_uri()


@pytest.mark.parametrize("dark", [False, *at_night(True)], ids=["light", "dark"])
@pytest.mark.parametrize("width", [PHONE, *at_night(TABLET, DESK)])
def test_no_page_and_no_table_scrolls_sideways(browser: Browser, base: str, width: int, dark: bool) -> None:
    with visitor(browser, base, width=width, dark=dark) as visit:
        for name in PAGES:
            visit.open(f"/{name}.html")
            assert visit.has_no_horizontal_scrolling(), name
            assert too_wide(visit, ".scrolled, pre, code, figure") == [], name
            background = visit.page.evaluate("getComputedStyle(document.body).backgroundColor")
            assert (sum(map(int, background[4:-1].split(", "))) < 3 * 128) == dark


def too_wide(visit: Visitor, selector: str) -> list[str]:
    """The elements that have more than they show."""
    script = (
        "selector => [...document.querySelectorAll(selector)]"
        ".filter(one => one.scrollWidth > one.clientWidth && getComputedStyle(one).display !== 'inline')"
        ".map(one => one.textContent.slice(0, 80))"
    )
    return visit.page.evaluate(script, selector)


@pytest.mark.parametrize("width", [DESK, *at_night(PHONE)])
@pytest.mark.parametrize("name", some_at_night(PAGES))
def test_a_click_on_a_heading_sorts_by_value(browser: Browser, base: str, name: str, width: int) -> None:
    with visitor(browser, base, width=width) as visit:
        visit.open(f"/{name}.html")
        table = visit.page.locator("table").filter(has=visit.page.get_by_role("button", name="bytes")).last
        column = table.locator("th").all_text_contents().index("bytes")
        heading = table.locator("th").nth(column)

        def cells() -> list[Any]:
            return list(dict.fromkeys(table.locator(f"tbody td:nth-child({column + 1})").all_text_contents()))

        def state() -> str | None:
            return heading.get_attribute("aria-sort")

        expected = [size for size in SORTED_SIZES if size in cells()]
        assert len(expected) >= len(SIZES)
        assert cells() != expected
        heading.locator("button").click()
        assert (cells(), state()) == (expected, "ascending")
        missing = [size for size in expected if size == SORTED_SIZES[-1]]
        heading.locator("button").press("Enter")
        assert (cells(), state()) == ([*expected[: len(SIZES)][::-1], *missing], "descending")
        visit.check()


@pytest.mark.parametrize("name", PAGES)
def test_failures_with_what_to_do_come_before_everything_else(browser: Browser, base: str, name: str) -> None:
    with visitor(browser, base, width=DESK) as visit:
        visit.open(f"/{name}.html")
        first = visit.page.locator("section").first
        assert first.get_by_text("to do").or_(first.get_by_text("To do:")).count() > 0
        plots = visit.page.locator("figure")
        assert plots.count() > 3
        for index in range(plots.count()):
            assert plots.nth(index).locator("figcaption").inner_text()
            # The numbers of both axes, or of one axis and of the bars.
            assert plots.nth(index).locator("svg text").count() >= 3
