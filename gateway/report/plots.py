"""Plots as SVG: horizontal bars, bars of stacked parts, and lines over time or size.

In: names and numbers in base units. Out: SVG text without fixed colours, ids or dates. Colours are CSS
variables of the page, so that a plot follows its light and dark forms. A plot is 440 units wide and stays
legible on a phone: the name of a bar is above the bar and is shortened to the width.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

from gateway.report import svg
from gateway.report.text import shortened
from gateway.report.units import DAYS, NUMBER, SECONDS, Unit, day_ticks, log_ticks, ticks

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MOST_BARS = 20
WIDTH = 440
_FONT = 12.0
# Width of one character, an upper estimate: the browser chooses the font.
_CHARACTER = 7.4
_BAR_ROW = 36
_BAR_MIDDLE, _BAR_THICKNESS = 0.68, 0.3
_LINES_HEIGHT = 260
_TOP, _BOTTOM = 12, 26
_LABEL_CHARACTERS = 46
# Of the name and the value of a bar, with the space between them.
_ROW_CHARACTERS = 56
_MOST_MARKERS = 40
# Valid in CSS and in matplotlib.
_DASHES = ("solid", "dashed", "dotted")

Point = tuple[float, float]
_Part = tuple[int, str, float]
"""A part of a bar: the number of its series, its name and its value."""
_Row = tuple[str, Sequence[_Part]]


@dataclass(frozen=True)
class LegendEntry:
    """The name of a series and the style and colour of its line in CSS."""

    name: str
    stroke: str


@dataclass(frozen=True)
class BarPlot:
    """A horizontal bar for each value, the largest first; at most `MOST_BARS`."""

    title: str
    values: Sequence[tuple[str, float]]
    unit: Unit = NUMBER
    legend: Sequence[LegendEntry] = field(default=(), init=False)

    @cached_property
    def shown(self) -> list[tuple[str, float]]:
        """The values that the plot shows, the largest first."""
        return sorted(_finite(self.values), key=lambda named: -named[1])[:MOST_BARS]

    @property
    def note(self) -> str:
        """Return a note on the values that the plot leaves out."""
        hidden = len(_finite(self.values)) - len(self.shown)
        return f"The largest {len(self.shown)} of {len(self.shown) + hidden:,}." if hidden else ""

    def svg(self, salt: str = "") -> str:
        """The drawing; empty without values. Two plots of a page need different salts."""
        return _bars(self.title, [(name, [(0, "", value)]) for name, value in self.shown], self.unit, salt)


@dataclass(frozen=True)
class StackPlot:
    """A horizontal bar for each stack of named parts, in the order given. Negative parts count as zero."""

    title: str
    stacks: Mapping[str, Mapping[str, float]]
    unit: Unit = NUMBER
    note: str = field(default="", init=False)

    @property
    def legend(self) -> list[LegendEntry]:
        """The parts of all stacks in the order of their first appearance."""
        return [
            LegendEntry(name, f"solid {svg.series_variable(index)}") for index, name in enumerate(self._parts)
        ]

    def svg(self, salt: str = "") -> str:
        """The drawing; empty without values. Two plots of a page need different salts."""
        numbers = {name: index for index, name in enumerate(self._parts)}
        rows = [
            (name, [(numbers[part], part, max(value, 0.0)) for part, value in _finite(parts.items())])
            for name, parts in self.stacks.items()
        ]
        return _bars(self.title, rows, self.unit, salt)

    @property
    def _parts(self) -> list[str]:
        return list(dict.fromkeys(part for parts in self.stacks.values() for part in parts))


@dataclass(frozen=True)
class LinePlot:
    """A line for each series of points; a gap where a value is not a number.

    `logarithmic`: both axes, for values over several orders of magnitude; only positive points are drawn.
    `limit`: a value of the y axis that is drawn as a dashed line, such as the largest figure allowed.
    """

    title: str
    series: Mapping[str, Sequence[Point]]
    y_unit: Unit = NUMBER
    x_unit: Unit = SECONDS
    logarithmic: bool = False
    limit: float | None = None
    note: str = field(default="", init=False)

    @property
    def legend(self) -> list[LegendEntry]:
        """The series, where there are several; empty for a single one."""
        entries = [
            LegendEntry(name, f"{_dash(index)} {svg.series_variable(index)}")
            for index, name in enumerate(self.series)
        ]
        return entries if len(entries) > 1 else []

    def svg(self, salt: str = "") -> str:
        """The drawing; empty without points. Two plots of a page need different salts."""
        series = [self._drawn(points) for points in self.series.values()]
        points = [point for line in series for point in line if math.isfinite(point[1])]
        if not points:
            return ""
        xs, ys = (list(axis) for axis in zip(*points, strict=True))
        if self.limit is not None:
            ys.append(self.limit)
        x_ticks, y_ticks = self._ticks(xs, self.x_unit), self._ticks(ys, self.y_unit)
        if not self.logarithmic and len(x_ticks) > 1 and max(xs) > x_ticks[1]:
            # The plot ends at the last point, which may be between two ticks.
            x_ticks = [tick for tick in x_ticks if tick <= max(xs)]
        return self._figure(series, x_ticks, y_ticks, salt)

    def _drawn(self, points: Sequence[Point]) -> list[Point]:
        if self.logarithmic:
            return [
                point
                for point in points
                if all(math.isfinite(coordinate) and coordinate > 0 for coordinate in point)
            ]
        return [point for point in points if math.isfinite(point[0]) and not math.isinf(point[1])]

    def _ticks(self, values: list[float], unit: Unit) -> list[float]:
        if self.logarithmic:
            return log_ticks(min(values), max(values))
        if unit is DAYS:
            return day_ticks(min(values), max(values))
        return ticks(min(0.0, *values), max(values), sexagesimal=unit is SECONDS, whole=unit.is_exact)

    def _texts(self, marks: list[float], unit: Unit) -> list[str]:
        return [unit.tick_texts([mark])[0] for mark in marks] if self.logarithmic else unit.tick_texts(marks)

    def _figure(
        self, series: list[list[Point]], x_ticks: list[float], y_ticks: list[float], salt: str
    ) -> str:
        x_texts, y_texts = self._texts(x_ticks, self.x_unit), self._texts(y_ticks, self.y_unit)
        left = 10 + _CHARACTER * max(*map(len, y_texts), len(x_texts[0]) / 2)
        with svg.drawing(WIDTH, _LINES_HEIGHT, salt) as figure:
            axes = _axes(figure, left, x_texts[-1], _LINES_HEIGHT)
            if self.logarithmic:
                axes.set_xscale("log")
                axes.set_yscale("log")
                axes.minorticks_off()
            axes.set_xticks(x_ticks, x_texts)
            axes.set_yticks(y_ticks, y_texts)
            axes.set_xlim(x_ticks[0], max(x_ticks[-1], *(x for line in series for x, _ in line)))
            axes.set_ylim(y_ticks[0], y_ticks[-1])
            axes.grid(visible=True, color=svg.GRID, linewidth=1, clip_on=False)
            if self.limit is not None:
                axes.axhline(self.limit, color=svg.BAD, linewidth=1.5, linestyle=(0, (4, 3)), clip_on=False)
            for number, line in enumerate(series):
                _line(axes, line, number)
            return svg.finished(figure, self.title)


Plot = BarPlot | StackPlot | LinePlot


def _finite(values: Any) -> list[tuple[str, float]]:
    return [(name, value) for name, value in values if value is not None and math.isfinite(value)]


def _dash(number: int) -> str:
    return _DASHES[number % len(_DASHES)]


def _line(axes: "Axes", points: list[Point], number: int) -> None:
    if not points:
        return
    xs, ys = zip(*points, strict=True)
    marker = "o" if len(points) <= _MOST_MARKERS else ""
    colour = svg.series_colour(number)
    axes.plot(
        xs, ys, color=colour, linewidth=2, linestyle=_dash(number), marker=marker, markersize=5, clip_on=False
    )


def _bars(title: str, rows: Sequence[_Row], unit: Unit, salt: str) -> str:
    """Bars of parts, with the name and the sum above each bar."""
    sums = [sum(value for _, _, value in parts) for _, parts in rows]
    if not rows or not any(parts for _, parts in rows):
        return ""
    height = _BAR_ROW * len(rows) + _BOTTOM + _TOP
    marks = ticks(min(0.0, *sums), max(0.0, *sums), whole=unit.is_exact)
    texts = unit.tick_texts(marks)
    with svg.drawing(WIDTH, height, salt) as figure:
        axes = _axes(figure, 8, texts[-1], height)
        axes.set_yticks([])
        axes.set_xticks(marks, texts)
        axes.set_xlim(marks[0], marks[-1])
        axes.set_ylim(len(rows), 0)
        axes.grid(visible=True, axis="x", color=svg.GRID, linewidth=1, clip_on=False)
        for row, ((name, parts), total) in enumerate(zip(rows, sums, strict=True)):
            _bar(axes, row, name, parts, unit)
            value = unit.text(total)
            _label(axes, row, shortened(name, min(_LABEL_CHARACTERS, _ROW_CHARACTERS - len(value))), "left")
            _label(axes, row, value, "right")
        return svg.finished(figure, title)


def _bar(axes: "Axes", row: int, name: str, parts: Sequence[_Part], unit: Unit) -> None:
    left = 0.0
    for number, part, value in parts:
        (bar,) = axes.barh(
            row + 0.62, value, _BAR_THICKNESS, left=left, color=svg.series_colour(number), clip_on=False
        )
        named = f"{name}, {part}" if part else name
        svg.set_tooltip(bar, f"{named}: {unit.text(value)}")
        left += value


def _label(axes: "Axes", row: int, text: str, side: str) -> None:
    place = 0.0 if side == "left" else 1.0
    label = axes.text(
        place,
        row + 0.38,
        text,
        transform=axes.get_yaxis_transform(),
        horizontalalignment=side,
        verticalalignment="baseline",
        color=svg.TEXT,
        fontsize=_FONT,
    )
    # matplotlib reads text after a dollar sign as a formula, and names may contain one.
    label.set_parse_math(False)


def _axes(figure: "Figure", left: float, last_label: str, height: float) -> "Axes":
    """Axes at a fixed place, with space for half of the last label of the x axis.

    Nothing depends on the fonts of the machine that draws.
    """
    right = 6 + _CHARACTER * len(last_label) / 2
    across, up = WIDTH - left - right, height - _BOTTOM - _TOP
    axes = figure.add_axes((left / WIDTH, _BOTTOM / height, across / WIDTH, up / height))
    axes.set_axisbelow(True)
    axes.spines[:].set_visible(False)
    axes.patch.set_visible(False)
    axes.tick_params(left=False, bottom=False, labelsize=_FONT, labelcolor=svg.MUTED, pad=5)
    return axes
