"""Plots show every value with a unit, use the colours of the page and are reproducible."""

import datetime as dt
import math
import re
import xml.etree.ElementTree as ET
from collections.abc import Sequence

import matplotlib as mpl
import pytest

from gateway.report.plots import MOST_BARS, BarPlot, LinePlot, Plot, StackPlot
from gateway.report.units import BYTES, CORES, COUNT, DAYS, SECONDS

HOSTILE = [
    "<script>alert(1)</script>",
    "x" * 255,
    "\u05e9\u05dc\u05d5\u05dd",
    "$a_b$ \\frac{",
    "]]>&\x00\ud800",
]


def texts(svg: str) -> list[str]:
    return [element.text or "" for element in ET.fromstring(svg).iter("text")]


def titles(svg: str) -> list[str]:
    return [element.text or "" for element in ET.fromstring(svg).iter("title")]


def test_bars_are_sorted_and_labelled_with_their_values() -> None:
    svg = BarPlot("Bytes", [("small", 5e6), ("large", 1e9), ("none", 0), ("unknown", math.nan)], BYTES).svg()
    labels = [text for text in texts(svg) if text in {"small", "large", "none", "unknown"}]
    assert labels == ["large", "small", "none"]
    assert {"1 GB", "5 MB", "0 B"} <= set(texts(svg))
    assert titles(svg) == ["large: 1 GB", "small: 5 MB", "none: 0 B"]


@pytest.mark.parametrize("value", [1, 1_234_567_890_123])
def test_a_long_name_leaves_room_for_the_value_of_its_bar(value: int) -> None:
    name, shown = texts(BarPlot("Files", [("n" * 255, value)], COUNT).svg())[-2:]
    assert shown == f"{value:,}"
    # An upper estimate of a character's width in the 440 units of a plot.
    assert (len(name) + len(shown)) * 7.4 < 440
    assert len(name) > 30


def test_the_longest_bar_belongs_to_the_largest_value() -> None:
    svg = BarPlot("Rows", [("small", 5), ("large", 10)], COUNT).svg()
    paths = [bar.find("path") for bar in ET.fromstring(svg).iter("g") if bar.find("title") is not None]
    widths = []
    for path in paths:
        assert path is not None
        xs = [float(x) for x in re.findall(r"[ML] ([\d.]+) ", path.get("d", ""))]
        widths.append(max(xs) - min(xs))
    assert widths[0] == pytest.approx(2 * widths[1])


def test_a_plot_of_many_bars_shows_the_largest_with_a_note() -> None:
    plot = BarPlot("Rows", [(f"table {index}", index) for index in range(3000)], COUNT)
    assert plot.note == f"The largest {MOST_BARS} of 3,000."
    assert len(titles(plot.svg())) == MOST_BARS


@pytest.mark.parametrize(
    "plot",
    [
        BarPlot("t", []),
        BarPlot("t", [("a", math.nan), ("b", math.inf)]),
        StackPlot("t", {}),
        StackPlot("t", {"a": {}}),
        LinePlot("t", {}),
        LinePlot("t", {"a": []}),
        LinePlot("t", {"a": [(1, math.nan), (math.nan, 1), (2, math.inf)]}),
        LinePlot("t", {"a": [(0, 1), (1, 0), (-1, 1)]}, logarithmic=True),
    ],
)
def test_a_plot_without_values_is_empty(plot: Plot) -> None:
    assert plot.svg() == ""


@pytest.mark.parametrize(
    "points",
    [
        [(0, 0)],
        [(5, 1e-9)],
        [(1, 1e12), (2, 1e12)],
        [(0, 0), (1, 0), (2, 0)],
        [(3, 3), (3, 4)],
        [(0, 1), (1, math.nan), (2, 3)],
        [(0, -5), (1, 5)],
        [(second / 2, second % 7) for second in range(7200)],
    ],
)
@pytest.mark.parametrize("logarithmic", [False, True])
def test_an_axis_has_ticks_that_differ(points: Sequence[tuple[float, float]], logarithmic: bool) -> None:
    svg = LinePlot("t", {"a": points}, CORES, SECONDS, logarithmic=logarithmic).svg()
    if svg:
        labels = texts(svg)
        y_labels = [label for label in labels if label.endswith(" cores")]
        assert y_labels
        assert len(set(y_labels)) == len(y_labels)


def test_the_axis_of_a_small_load_has_labels_other_than_zero() -> None:
    svg = LinePlot("CPU", {"cpu": [(0, 0.01), (1, 0.012)]}, CORES).svg()
    assert texts(svg)[-4:] == ["0", "0.005 cores", "0.010 cores", "0.015 cores"]


@pytest.mark.parametrize("days", [1, 2, 400])
def test_the_ticks_of_days_are_dates(days: int) -> None:
    first = dt.date(2026, 1, 30).toordinal()
    svg = LinePlot("t", {"a": [(first + day, day) for day in range(days)]}, COUNT, DAYS).svg()
    assert "2026-01-30" in texts(svg)


def test_a_stack_shows_its_parts_and_their_sum() -> None:
    plot = StackPlot("CPU", {"hot": {"lines": 2, "HTTP": 1}, "cold": {"decode": 4, "HTTP": -1}}, SECONDS)
    svg = plot.svg()
    assert titles(svg) == ["hot, lines: 2 s", "hot, HTTP: 1 s", "cold, decode: 4 s", "cold, HTTP: 0 s"]
    assert {"3 s", "4 s"} <= set(texts(svg))
    assert [entry.name for entry in plot.legend] == ["lines", "HTTP", "decode"]


def test_series_differ_in_colour_and_dash_and_have_a_legend() -> None:
    plot = LinePlot("t", {"cold": [(1, 1), (2, 2)], "hot": [(1, 2), (2, 4)]})
    assert [(entry.name, entry.stroke) for entry in plot.legend] == [
        ("cold", "solid var(--series-0)"),
        ("hot", "dashed var(--series-1)"),
    ]
    assert "stroke-dasharray" in plot.svg()
    assert LinePlot("t", {"only": [(1, 1)]}).legend == []


def test_the_axis_includes_the_limit() -> None:
    svg = LinePlot("t", {"a": [(0, 0.01), (1, 0.02)]}, SECONDS, limit=0.1).svg()
    assert "var(--bad)" in svg
    assert "100 ms" in texts(svg)


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_name_is_only_text(name: str) -> None:
    for plot in (
        BarPlot(name, [(name, 1)]),
        StackPlot(name, {name: {name: 1}}),
        LinePlot(name, {name: [(1, 1)]}),
    ):
        svg = plot.svg()
        root = ET.fromstring(svg)
        assert root.get("role") == "img"
        assert "<script" not in svg
        svg.encode()
        assert max(map(len, texts(svg))) < 60


def test_a_plot_does_not_depend_on_settings_of_the_machine() -> None:
    plots = [
        BarPlot("Rows", [("a", 1), ("b", 2)], COUNT),
        LinePlot("t", {"a": [(0, 1), (1, 2)], "b": [(0, 2)]}, BYTES),
    ]
    before = [plot.svg("1") for plot in plots]
    with mpl.rc_context(
        {"font.size": 40, "axes.facecolor": "red", "svg.hashsalt": None, "lines.color": "red"}
    ):
        after = [plot.svg("1") for plot in plots]
        assert mpl.rcParams["font.size"] == 40
    assert before == after


def test_a_plot_has_no_colours_fonts_dates_or_addresses() -> None:
    svg = LinePlot("t", {"a": [(0, 1), (1, 2)]}, BYTES, limit=3).svg()
    assert not re.search(r"#[0-9a-f]{6}|font-family|http|20\d\d-|<metadata", svg)


def test_the_ids_of_two_plots_of_a_page_differ() -> None:
    plot = LinePlot("t", {"a": [(0, 1), (1, 2)]})
    ids = [re.findall(r' id="([^"]+)"', plot.svg(salt)) for salt in ("1", "2")]
    assert ids[0]
    assert not {*ids[0]} & {*ids[1]}
