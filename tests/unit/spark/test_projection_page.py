"""The page of a run of projections: failures first, with what to do; what is not known is no zero."""

import datetime as dt
from typing import Any

import html5lib
import pytest

from gateway.spark.project.page import Kept, html
from gateway.spark.project.published import Published
from gateway.spark.project.results import Outcome

RUN_AT = dt.datetime(2026, 1, 2, 3, 4, tzinfo=dt.UTC)
BEFORE = Published(6, 11, 90, 4, 5000, RUN_AT - dt.timedelta(days=2))
CHANGED: Kept = (
    Outcome(("s.d.fine", "t.d.fine"), "changed", 7, 12, 100, 8, 1.5),
    Published(7, 12, 100, 3, 2000, RUN_AT),
)
IDLE: Kept = (Outcome(("s.d.idle",), "unchanged", 6, 11, 90, 0, 0.5), BEFORE)
FAILED: Kept = (Outcome(("s.d.wrong",), error="column <a> is not there", failure="InvalidRule"), BEFORE)
ABSENT: Kept = (Outcome(("s.d.new",), error="PATH_NOT_FOUND", failure="AnalysisException"), None)
MISSING = "\N{EN DASH}"


def body(page: str) -> Any:
    return html5lib.HTMLParser(strict=True, namespaceHTMLElements=False).parse(page).find("body")


def text_of(page: str) -> str:
    return " ".join(" ".join(body(page).itertext()).split())


def lines_of(page: str) -> list[list[str]]:
    return [["".join(cell.itertext()) for cell in row] for row in body(page).iterfind(".//tbody/tr")]


def test_failures_come_first_with_the_action_and_what_recipients_read() -> None:
    page = html([CHANGED, FAILED, ABSENT], [], RUN_AT)
    text = text_of(page)
    assert "2 of 3 projections failed. Recipients read the versions that were published before." in text
    first = text.index("s.d.fine")
    for said in (
        "column <a> is not there",
        "--table 's.d.wrong' --check",
        "recipients read version 6 of 2025-12-31 03:04 UTC, which is version 11 of the source",
        "PATH_NOT_FOUND",
        "no published version can be read",
    ):
        assert text.index(said) < first
    assert lines_of(page) == [
        ["s.d.wrong", "failed", "11", "6", "90", MISSING, "4", "5 kB", "0 s", "2025-12-31 03:04 UTC"],
        ["s.d.new", "failed", *[MISSING] * 6, "0 s", MISSING],
        [
            "s.d.fine, t.d.fine", "changes written", "12", "7", "100", "8", "3", "2 kB", "1.5 s",
            "2026-01-02 03:04 UTC",
        ],
    ]  # fmt: skip


def test_those_that_are_left_for_the_next_run_are_no_failures() -> None:
    late: Kept = (Outcome(("s.d.late",), "postponed"), BEFORE)
    page = html([CHANGED, late], [], RUN_AT)
    assert "1 of 2 projections are up to date. 1 are left for the next run" in text_of(page)
    assert [
        "s.d.late", "left for the next run", "11", "6", "90", MISSING, "4", "5 kB", MISSING,
        "2025-12-31 03:04 UTC",
    ] in lines_of(page)  # fmt: skip


@pytest.mark.parametrize(
    ("failure", "option"),
    [
        ("InvalidRule", " --check"),
        ("NotProved", " --whole"),
        ("NotKept", ""),
        ("Locked", ""),
        ("CommitExists", ""),
        ("Unsafe", ""),
        ("Py4JJavaError", ""),
    ],
)
def test_each_kind_of_failure_has_a_command_of_project(failure: str, option: str) -> None:
    page = html([(Outcome(("s.d.wrong",), error="why", failure=failure), None)], [], RUN_AT)
    commands = ["".join(one.itertext()) for one in body(page).iterfind(".//code")]
    assert commands == [f"--table 's.d.wrong'{option}"]


def test_a_page_without_failures_says_what_was_done() -> None:
    text = text_of(html([CHANGED, IDLE], [], RUN_AT))
    assert "2 projections, 190 rows: all are up to date. 8 rows were changed." in text
    assert "Failures" not in text
    whole = Outcome(("s.d.fine",), "whole", 7, 12, 100, 100, 1.5, "rewritten: the source has another history")
    assert "the source has another history" in text_of(html([(whole, BEFORE)], [], RUN_AT))


def test_a_check_writes_nothing() -> None:
    checked = Outcome(("s.d.fine",), "checked", source_version=12, seconds=0.5)
    page = html([(checked, None)], [], RUN_AT)
    assert "The rules of 1 projections fit their sources. Nothing was written." in text_of(page)
    assert lines_of(page) == [["s.d.fine", "rule fits", "12", *[MISSING] * 5, "500 ms", MISSING]]


def test_directories_of_former_rules_are_named() -> None:
    text = text_of(html([IDLE], ["s3a://b/<x>/0123"], RUN_AT))
    assert text.index("Remove each when nobody reads it") < text.index("s3a://b/<x>/0123")


def test_names_are_only_text_and_no_projection_is_a_page() -> None:
    for name in ("<script>alert(1)</script>", "s.d." + "x" * 251, "s.d.\x00\ud800"):
        bad = Outcome((name,), error=name, failure="NotKept", remark=name)
        page = html([(bad, None)], [name], RUN_AT)
        page.encode()
        body(page)
        assert page.count("<script") == 1
    assert "0 projections, 0 rows" in text_of(html([], [], RUN_AT))
