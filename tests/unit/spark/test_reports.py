"""Reports say what was found, in forms that others read. No Spark session is needed."""

import datetime as dt
import xml.etree.ElementTree as ET
from html.parser import HTMLParser
from typing import Any

from gateway.spark import report
from gateway.spark.verify.report import html, junit, result_rows
from gateway.spark.verify.tables import Check, TableResult

RUN_AT = dt.datetime(2026, 1, 2, 3, 4, tzinfo=dt.UTC)

EQUAL = TableResult("s.d.fine", 7, 100, 2000, 3, 1.5, [Check("schema", 0.1), Check("rows", 1.0)])
DIFFERENT = TableResult(
    "s.d.wrong",
    8,
    50,
    10,
    1,
    2.0,
    [
        Check("rows", 1.0, ("file part-0: 1 rows shared, 2 in the table", 'row {"a":"<b>\x01&"}')),
        Check("changes", 0.0, skipped="not shared with history"),
    ],
)
FAILED = TableResult("s.d.broken", error="the table <is> not there")
RESULTS = [EQUAL, DIFFERENT, FAILED]


class Balanced(HTMLParser):
    """Collects text; every opened element must be closed."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.text: list[str] = []

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        if tag != "meta":
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text.append(data)


def read_page(page: str) -> str:
    parser = Balanced()
    parser.feed(page)
    assert not parser.open
    return " ".join(parser.text)


def test_the_page_tells_every_difference_and_escapes_it() -> None:
    text = read_page(html(RESULTS, RUN_AT))
    assert "2 of 3 tables differ" in text
    assert '{"a":"<b>\x01&"}' in text
    assert "the table <is> not there" in text
    assert "not shared with history" in text
    assert "2026-01-02 03:04 UTC" in text


def test_the_page_of_equal_tables_says_so() -> None:
    assert "1 tables, 100 rows: all equal." in read_page(html([EQUAL], RUN_AT))


def test_junit_has_a_case_per_check() -> None:
    suites = ET.fromstring(junit(RESULTS))
    counts = {
        suite.get("name"): tuple(suite.get(key) for key in ("tests", "failures", "errors", "skipped"))
        for suite in suites
    }
    assert counts == {
        "s.d.fine": ("2", "0", "0", "0"),
        "s.d.wrong": ("2", "1", "0", "1"),
        "s.d.broken": ("1", "0", "1", "0"),
    }
    failure = suites.find(".//failure")
    assert failure is not None
    assert "part-0" in (failure.text or "")


def test_result_rows_name_every_outcome() -> None:
    rows = result_rows(RESULTS, RUN_AT)
    assert [(row[1], row[3], row[4]) for row in rows] == [
        ("s.d.fine", "schema", "equal"),
        ("s.d.fine", "rows", "equal"),
        ("s.d.wrong", "rows", "different"),
        ("s.d.wrong", "changes", "skipped"),
        ("s.d.broken", "read", "failed"),
    ]


def test_plots_are_scaled_to_the_largest() -> None:
    plot = report.bars("Rows", [("small", 5.0), ("large", 10.0), ("none", 0.0)])
    read_page(plot)
    assert plot.index("large") < plot.index("small")
    assert report.bars("Rows", []) == ""


def test_numbers_for_people() -> None:
    assert [report.human(n) for n in (0, 999, 1234567, 5e12)] == ["0", "999", "1.23 M", "5 T"]
