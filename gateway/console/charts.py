"""Plots of the last hour or day: points in a box for the SVG of a page, and the rows of the table behind.

In: slots of `telemetry.rings`. Out: charts, whose colours are the variables of the style sheet. A slot
without requests is 0 for counts, and has no point for times.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from aiohttp import web

from gateway.console.site import SITE
from gateway.report.units import BYTES, COUNT, SECONDS, Unit, ticks
from gateway.telemetry import rings
from gateway.telemetry.rings import Slots

WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM = 480, 190, 62, 10, 10, 24
X_TICKS = 4
P50, P95 = 0.5, 0.95


@dataclass(frozen=True, slots=True)
class Series:
    """A line or, for times, points. `points`: pairs of x and y in the box."""

    name: str
    points: Sequence[tuple[float, float]]
    is_line: bool


@dataclass(frozen=True, slots=True)
class Chart:
    """A plot. `y_ticks` and `x_ticks`: places in the box with their texts; `rows`: a time and a text each."""

    title: str
    series: Sequence[Series]
    y_ticks: Sequence[tuple[float, str]]
    x_ticks: Sequence[tuple[float, str]]
    rows: Sequence[tuple[str, Sequence[str]]]


@dataclass(frozen=True, slots=True)
class Plots:
    """The charts of a span, and its name."""

    span: str
    charts: Sequence[Chart]


async def plots_of(request: web.Request, kind: str = "", name: str = "") -> Plots:
    """Return the plots of all requests, or of a recipient, table or storage, for the span in the query."""
    site = request.app[SITE]
    span = next((known for known in rings.SPANS if known == request.query.get("span")), "hour")
    slots = await site.slots(kind, name, span)
    return Plots(span, charts_of(slots, span, site.now_ms(), has_streams=kind in {"", "storage"}))


def charts_of(slots: Slots, span: str, now_ms: int, *, has_streams: bool) -> list[Chart]:
    """Return the charts of a span. `has_streams`: the slots have the streams of the processes."""
    starts = rings.SPANS[span].starts(now_ms)
    numbers = {start: tuple(slots.get(start, rings.EMPTY)) for start in starts}

    def counts(place: int) -> list[float | None]:
        return [numbers[start][place] for start in starts]

    def quantiles(share: float) -> list[float | None]:
        return [rings.quantile(numbers[start], share) for start in starts]

    outcomes = {"answered": rings.ANSWERED, "refused": rings.REFUSED, "failed": rings.FAILED}
    charts = [
        _chart("Requests", COUNT, starts, {name: counts(place) for name, place in outcomes.items()}),
        _chart("Files", COUNT, starts, {"returned": counts(rings.FILES)}),
        _chart("Bytes of answers", BYTES, starts, {"sent": counts(rings.BYTES)}),
        _chart(
            "Time to the first byte, at most", SECONDS, starts, {"p50": quantiles(P50), "p95": quantiles(P95)}
        ),
    ]
    if has_streams:
        charts.append(_chart("Streams at once, at most", COUNT, starts, {"streams": counts(rings.STREAMS)}))
    return charts


def _chart(title: str, unit: Unit, starts: range, values: dict[str, list[float | None]]) -> Chart:
    largest = max((value for line in values.values() for value in line if value is not None), default=0.0)
    steps = ticks(0.0, largest or 1.0, most=5, whole=unit is not SECONDS)
    top, is_line = max(steps), unit is not SECONDS

    def x(place: int) -> float:
        return round(LEFT + (WIDTH - LEFT - RIGHT) * place / (len(starts) - 1), 1)

    def y(value: float) -> float:
        return round(HEIGHT - BOTTOM - (HEIGHT - BOTTOM - TOP) * value / top, 1)

    series = [
        Series(name, [(x(place), y(value)) for place, value in enumerate(line) if value is not None], is_line)
        for name, line in values.items()
    ]
    step = len(starts) // X_TICKS
    rows = [
        (_clock(start), [unit.text(line[place]) for line in values.values()])
        for place, start in enumerate(starts)
        if any(line[place] for line in values.values())
    ]
    return Chart(
        title,
        series,
        [(y(value), text) for value, text in zip(steps, unit.tick_texts(steps), strict=True)],
        [(x(place), _clock(starts[place])) for place in range(0, len(starts), step)],
        rows,
    )


def _clock(at_ms: int) -> str:
    return datetime.fromtimestamp(at_ms / 1000, UTC).strftime("%H:%M")
