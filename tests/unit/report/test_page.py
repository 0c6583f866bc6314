"""A page is valid HTML, fetches nothing, escapes untrusted text and begins with failures."""

import datetime as dt
import re
import subprocess
import sys
import xml.etree.ElementTree as ET
from collections.abc import Sequence

import html5lib
import pytest

from gateway.report import page as page_module
from gateway.report.page import Page, ReportUnavailable, check_libraries
from gateway.report.palette import DARK, LIGHT
from gateway.report.parts import (
    Cell,
    Column,
    Finding,
    Findings,
    Paragraph,
    Part,
    Plots,
    Quantity,
    Section,
    Table,
    Verdict,
)
from gateway.report.plots import BarPlot, LinePlot, StackPlot
from gateway.report.units import BYTES, SECONDS

HOSTILE = [
    "<script>alert(1)</script>",
    "x" * 255,
    "\u05e9\u05dc\u05d5\u05dd",
    "a\u202egpj.exe",
    "nul\x00 \x1b[31m \ud800",
    '"><img src=http://example.com/x onerror=alert(1)>',
    "{{ 7 * 7 }} {% raw %} ${x}",
    "--></style></title></script>",
]
RUN_AT = dt.datetime(2026, 1, 2, 3, 4, tzinfo=dt.UTC)


def render(*parts: Part, title: str = "Title") -> str:
    return Page(title, "Summary.", None, [Section("Section", parts)], RUN_AT).html()


def parsed(html: str) -> ET.Element:
    """The tree of a page. Raises for any parse error of the HTML standard."""
    return html5lib.HTMLParser(strict=True, namespaceHTMLElements=False).parse(html)


def rows_of(html: str) -> list[list[str]]:
    body = html[html.index("<tbody>") : html.index("</tbody>")]
    return [re.findall(r"<bdi>(.*?)</bdi>", row) for row in body.split("<tr>")[1:]]


def everything(name: str) -> list[Part]:
    return [
        Findings([Finding(name, name, name, [name, name])]),
        Table([Column(name), Column("bytes", BYTES)], [[name, 1], [Verdict(name, good=False), None]]),
        Table(
            [Column("name"), Column(name)], [[name, Quantity(1e9, BYTES)], ["missing", None], ["flag", True]]
        ),
        Paragraph(name),
        Plots(
            [BarPlot(name, [(name, 1)]), StackPlot(name, {name: {name: 1}}), LinePlot(name, {name: [(1, 1)]})]
        ),
    ]


@pytest.mark.parametrize("name", HOSTILE)
def test_untrusted_text_stays_text_in_every_part(name: str) -> None:
    html = render(*everything(name), title=name)
    document = parsed(html)
    assert len([*document.iter("script")]) == 1
    assert not [*document.iter("img")]
    assert not document.findall(".//*[@onerror]")
    assert "\x00" not in html
    html.encode()


def test_a_page_fetches_nothing() -> None:
    html = render(*everything("table"))
    fetched = re.findall(
        r"""(?:src|srcset|data|action)=|@import|url\(|<link|<iframe|fetch\(|import\(""", html
    )
    assert fetched == []
    assert all(element.get("href").startswith("#") for element in parsed(html).findall(".//*[@href]"))


def test_rendering_a_page_again_gives_the_same_text() -> None:
    assert render(*everything("table")) == render(*everything("table"))


def test_light_and_dark_have_every_colour_that_a_page_uses() -> None:
    used = {*re.findall(r"var\(--([\w-]+)\)", render(*everything("table")))}
    assert used
    assert used <= LIGHT.keys() == DARK.keys()


def test_ids_are_unique_within_a_page() -> None:
    plot = LinePlot("t", {"a": [(0, 1), (1, 2)]})
    html = render(Plots([plot, plot]), Plots([plot]))
    ids = re.findall(r' id="([^"]+)"', html)
    assert ids
    assert len(ids) == len(set(ids))


@pytest.mark.parametrize(
    "part",
    [
        Table([Column("a"), Column("b", BYTES)], []),
        Findings([]),
        Plots([]),
        Plots([BarPlot("t", [])]),
    ],
)
def test_a_part_without_rows_is_valid(part: Part) -> None:
    parsed(render(part))


def test_empty_tables_and_plots_have_a_note() -> None:
    html = render(Table([Column("a")], []), Plots([BarPlot("t", [])]))
    assert ">None.</p>" in html
    assert ">No values.</p>" in html


def test_thousands_of_rows_are_all_in_the_page() -> None:
    rows: list[list[Cell]] = [[f"table {index}", index, index / 7] for index in range(3000)]
    html = render(Table([Column("name"), Column("files"), Column("time", SECONDS)], rows))
    parsed(html)
    assert len(rows_of(html)) == 3000
    assert rows_of(html)[2999] == ["table 2999", "2,999", "7.14 min"]


def test_a_table_of_the_first_rows_names_the_number_of_all_rows() -> None:
    assert "The first 2 of 1,000 rows." in render(Table([Column("a")], [["x"], ["y"]], total_rows=1000))
    assert "The first" not in render(Table([Column("a")], [["x"], ["y"]], total_rows=2))


def test_failures_come_first_and_other_rows_keep_their_order() -> None:
    rows: list[list[Cell]] = [
        ["b", Verdict("equal", good=True)],
        ["c", Verdict("failed", good=False)],
        ["a", Verdict("equal", good=True)],
        ["d", Verdict("different", good=False)],
    ]
    html = render(Table([Column("table"), Column("outcome")], rows))
    assert [row[0] for row in rows_of(html)] == ["c", "d", "b", "a"]


def test_numbers_are_rounded_but_sort_by_their_value() -> None:
    html = render(Table([Column("bytes", BYTES)], [[123456789.125], [None], [float("nan")]]))
    assert rows_of(html) == [["123 MB"], ["\N{EN DASH}"], ["\N{EN DASH}"]]
    cells = [*parsed(html).iter("td")]
    assert [cell.get("data-key") for cell in cells] == ["123456789.125", "", ""]
    assert {cell.get("class") for cell in cells} == {"number"}


@pytest.mark.parametrize(
    ("cells", "numeric"),
    [
        ([1, 2.5], True),
        ([1, None, Verdict("3", good=False)], True),
        ([Quantity(1, BYTES), 2], True),
        ([1, "text"], False),
        ([None], False),
        ([True], False),
        ([], False),
    ],
)
def test_a_column_of_numbers_is_aligned_to_the_right(cells: Sequence[Cell], numeric: bool) -> None:
    assert (Table([Column("a")], [[cell] for cell in cells]).heads[0].css_class == "number") == numeric


def test_a_verdict_in_a_column_of_numbers_is_aligned_with_them() -> None:
    html = render(Table([Column("failures")], [[0], [Verdict("3", good=False)]]))
    assert [cell.get("class") for cell in parsed(html).iter("td")] == ["number bad", "number"]


def test_a_page_begins_with_the_summary_and_the_time_of_the_run() -> None:
    bad = Page("Title", "1 failed.", good=False, run_at=RUN_AT).html()
    assert '<p class="summary bad">1 failed.</p>' in bad
    assert "Run at 2026-01-02 03:04 UTC." in bad
    assert '<p class="summary good">All well.</p>' in Page("Title", "All well.", good=True).html()


def test_a_missing_library_is_reported_before_any_work(monkeypatch: pytest.MonkeyPatch) -> None:
    check_libraries()
    found = page_module.importlib.util.find_spec
    monkeypatch.setattr(
        page_module.importlib.util, "find_spec", lambda name: None if name == "matplotlib" else found(name)
    )
    with pytest.raises(
        ReportUnavailable, match=r"needs matplotlib: pip install 'delta-sharing-gateway\[spark\]'"
    ):
        check_libraries()


@pytest.mark.processes
def test_the_package_imports_neither_jinja_nor_matplotlib_until_a_page_is_rendered() -> None:
    code = (
        "import sys, gateway.report.page, gateway.report.parts;"
        "print(*{'jinja2', 'matplotlib', 'numpy'} & {*sys.modules});"
        "gateway.report.page.Page('t', 's', None).html();"
        "print(*{'matplotlib.pyplot'} & {*sys.modules})"
    )
    command = [sys.executable, "-P", "-c", code]
    run = subprocess.run(command, capture_output=True, text=True, check=True)
    assert run.stdout.split() == []
