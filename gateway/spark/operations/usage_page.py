"""The page of a usage report: errors first, with advice, then plots and days.

In: `UsageTables`. Out: HTML text. Only sums and the first rows reach the driver.
"""

import datetime as dt
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from gateway.report.page import Page
from gateway.report.parts import Cell, Column, Plots, Quantity, Section, Table
from gateway.report.plots import BarPlot, LinePlot
from gateway.report.units import BYTES, COUNT, DAYS, SECONDS, Unit
from gateway.spark.operations.usage import UsageTables

_MOST_ROWS = 200
_MOST_DAYS = 3660

_ACTIONS: Mapping[int, str] = {
    400: "see the message in the client: the request is not one of the protocol",
    401: "check the recipient's token: it is unknown, expired or revoked",
    403: "check the recipient's grants and networks, and the gateway's access to the storage",
    404: "compare the name that the client asks for with the recipient's shares",
    429: "raise the recipient's limits, or slow its clients down",
    499: "compare the client's time-out with the longest queries: it left before the answer",
    503: "check the storage, and the gateway's limits of time and memory",
}
_SERVER_ERROR = 500
_OF_SERVER = "search the gateway's log for the error code at this time"
_CUT = "search the gateway's log for the reason at this time: the answer ended early"

_COLUMNS: Mapping[str, tuple[str, Unit | None, float]] = {
    "requests": ("requests", COUNT, 1),
    "queries": ("queries", COUNT, 1),
    "errors": ("errors", COUNT, 1),
    "files": ("files", COUNT, 1),
    "returned": ("files", COUNT, 1),
    "addressed_bytes": ("bytes", BYTES, 1),
    "pruned_files": ("files left out", COUNT, 1),
    "longest_ms": ("longest", SECONDS, 1e-3),
    "durationMs": ("time", SECONDS, 1e-3),
    "request_id": ("request", None, 1),
    "last_at": ("last", None, 1),
    "error_code": ("error", None, 1),
}
"""The name of a field on the page, its unit, and the factor to that unit."""


@dataclass(frozen=True)
class Rows:
    """The first rows of a table, with the names of their fields. `total`: how many there are."""

    names: Sequence[str]
    rows: Sequence[Sequence[Any]]
    total: int


@dataclass(frozen=True)
class UsageSums:
    """What the page shows of `UsageTables`: sums and first rows."""

    requests: int
    errors: int
    recipients: int
    files: int
    addressed_bytes: int
    unreadable: int
    requests_by_day: Mapping[dt.date, int]
    bars: Mapping[str, Sequence[tuple[str, int]]]
    """The sums of each plot of `_BARS`, the largest first."""
    error_rows: Rows
    slow_rows: Rows
    daily_rows: Rows


_SUMMED = ("requests", "errors", "files", "addressed_bytes")
# The plots by title: the field that is a bar each, the field that is summed, and its unit.
_BARS: Mapping[str, tuple[str, str, Unit]] = {
    "Requests by recipient": ("recipient", "requests", COUNT),
    "Files by table": ("table", "files", COUNT),
    "Bytes of these files, by table": ("table", "addressed_bytes", BYTES),
    "Files that pruning left out, by table": ("table", "pruned_files", COUNT),
}


def collect(tables: UsageTables) -> UsageSums:
    daily = tables.daily.cache()
    try:
        totals = daily.agg(
            *(f.coalesce(f.sum(name), f.lit(0)).alias(name) for name in _SUMMED),
            f.count_distinct("recipient").alias("recipients"),
        ).collect()[0]
        return UsageSums(
            requests=totals["requests"],
            errors=totals["errors"],
            recipients=totals["recipients"],
            files=totals["files"],
            addressed_bytes=totals["addressed_bytes"],
            unreadable=tables.unreadable,
            requests_by_day=_by_day(daily),
            bars={title: _largest(daily, by, value) for title, (by, value, _) in _BARS.items()},
            error_rows=_first(tables.errors),
            slow_rows=_first(tables.slow),
            daily_rows=_first(daily),
        )
    finally:
        daily.unpersist()


def html(sums: UsageSums, run_at: dt.datetime) -> str:
    summary = (
        f"{sums.requests:,} requests of {sums.recipients:,} recipients, {sums.files:,} files addressed "
        f"({BYTES.text(sums.addressed_bytes)}), {sums.errors:,} errors. "
        f"Lines that are no audit records: {sums.unreadable:,}."
    )
    bars = [BarPlot(title, sums.bars[title], unit) for title, (_, _, unit) in _BARS.items()]
    sections = [
        Section("Errors, the most frequent first", [_errors(sums.error_rows)]),
        Section("Slow queries", [_table(sums.slow_rows)]),
        Section("Plots", [Plots([_days(sums.requests_by_day), *bars])]),
        Section("Per day", [_table(sums.daily_rows)]),
    ]
    return Page("Usage of shares", summary, sums.errors == 0, sections, run_at).html()


def _by_day(daily: DataFrame) -> dict[dt.date, int]:
    summed = daily.groupBy("day").agg(f.sum("requests").alias("requests")).orderBy(f.desc("day"))
    return {row["day"]: row["requests"] for row in summed.limit(_MOST_DAYS).collect()}


def _days(requests: Mapping[dt.date, int]) -> LinePlot:
    """Return the requests of each day, with 0 for days without requests."""
    counts = {day.toordinal(): count for day, count in requests.items()}
    days = range(min(counts), max(counts) + 1) if counts else range(0)
    # A wrong clock makes days far apart, so only the last of them are drawn.
    points = [(day, counts.get(day, 0)) for day in days[-_MOST_DAYS:]]
    return LinePlot("Requests by day", {"requests": points}, COUNT, DAYS)


def _largest(daily: DataFrame, by: str, value: str) -> list[tuple[str, int]]:
    summed = daily.groupBy(by).agg(f.sum(value).alias("sum")).orderBy(f.desc("sum")).limit(_MOST_ROWS)
    return [(str(row[by]), row["sum"]) for row in summed.collect() if row["sum"]]


def _first(frame: DataFrame) -> Rows:
    rows = frame.limit(_MOST_ROWS).collect()
    return Rows(frame.columns, rows, len(rows) if len(rows) < _MOST_ROWS else frame.count())


def _errors(errors: Rows) -> Table:
    table = _table(errors)
    place = errors.names.index("status")
    with_actions = [[*cells, _action(row[place])] for cells, row in zip(table.rows, errors.rows, strict=True)]
    return Table([*table.columns, Column("to do")], with_actions, table.total_rows)


def _action(status: int | None) -> str:
    """Return the advice to an operator for a kind of error."""
    if status is None or status < min(_ACTIONS):
        return _CUT
    return _ACTIONS.get(status, _OF_SERVER if status >= _SERVER_ERROR else _ACTIONS[400])


def _table(rows: Rows) -> Table:
    named = [_COLUMNS.get(name, (name, None, 1)) for name in rows.names]
    cells = [
        [_cell(value, unit, factor) for value, (_, unit, factor) in zip(row, named, strict=True)]
        for row in rows.rows
    ]
    return Table([Column(name, unit) for name, unit, _ in named], cells, rows.total)


def _cell(value: object, unit: Unit | None, factor: float) -> Cell:
    if unit is not None:
        return Quantity(value * factor if isinstance(value, int | float) else None, unit)
    if isinstance(value, dt.datetime):
        # PySpark returns times without a zone, in the local one.
        return f"{value.astimezone(dt.UTC):%Y-%m-%d %H:%M:%S} UTC"
    return None if value is None or value == "" else str(value)
