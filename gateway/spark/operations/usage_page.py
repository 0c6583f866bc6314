"""The page of a usage report: errors first, with advice, then plots and days.

In: `UsageTables`. Out: HTML text. Only sums and the first rows reach the driver.
"""

import datetime as dt
from collections.abc import Mapping

from pyspark.sql import DataFrame, Row
from pyspark.sql import functions as f

from gateway.report.page import Page
from gateway.report.parts import Cell, Column, Plots, Quantity, Section, Table
from gateway.report.plots import BarPlot, LinePlot, Plot
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


def html(tables: UsageTables, run_at: dt.datetime) -> str:
    """Render the page."""
    daily = tables.daily.cache()
    try:
        return _page(daily, tables, run_at)
    finally:
        daily.unpersist()


def _page(daily: DataFrame, tables: UsageTables, run_at: dt.datetime) -> str:
    totals = daily.agg(
        f.coalesce(f.sum("requests"), f.lit(0)),
        f.coalesce(f.sum("errors"), f.lit(0)),
        f.count_distinct("recipient"),
        f.coalesce(f.sum("files"), f.lit(0)),
        f.coalesce(f.sum("addressed_bytes"), f.lit(0)),
    ).collect()[0]
    summary = (
        f"{totals[0]:,} requests of {totals[2]:,} recipients, {totals[3]:,} files addressed "
        f"({BYTES.text(totals[4])}), {totals[1]:,} errors. "
        f"Lines that are no audit records: {tables.unreadable:,}."
    )
    plots: list[Plot] = [
        _by_day(daily),
        _bars("Requests by recipient", daily, "recipient", "requests", COUNT),
        _bars("Files by table", daily, "table", "files", COUNT),
        _bars("Bytes of these files, by table", daily, "table", "addressed_bytes", BYTES),
        _bars("Files that pruning left out, by table", daily, "table", "pruned_files", COUNT),
    ]
    sections = [
        Section("Errors, the most frequent first", [_errors(tables.errors)]),
        Section("Slow queries", [_first(tables.slow)]),
        Section("Plots", [Plots(plots)]),
        Section("Per day", [_first(daily)]),
    ]
    return Page("Usage of shares", summary, totals[1] == 0, sections, run_at).html()


def _by_day(daily: DataFrame) -> LinePlot:
    """Return the requests of each day, with 0 for days without requests."""
    summed = daily.groupBy("day").agg(f.sum("requests").alias("requests")).orderBy(f.desc("day"))
    found = {row["day"].toordinal(): row["requests"] for row in summed.limit(_MOST_DAYS).collect()}
    days = range(min(found), max(found) + 1) if found else range(0)
    # A wrong clock makes days far apart, so only the last of them are drawn.
    points = [(day, found.get(day, 0)) for day in days[-_MOST_DAYS:]]
    return LinePlot("Requests by day", {"requests": points}, COUNT, DAYS)


def _bars(title: str, daily: DataFrame, by: str, value: str, unit: Unit) -> BarPlot:
    summed = daily.groupBy(by).agg(f.sum(value).alias("sum")).orderBy(f.desc("sum")).limit(_MOST_ROWS)
    return BarPlot(title, [(str(row[by]), row["sum"]) for row in summed.collect() if row["sum"]], unit)


def _errors(errors: DataFrame) -> Table:
    rows = errors.limit(_MOST_ROWS).collect()
    table = _table(errors, rows)
    with_actions = [[*cells, _action(row)] for cells, row in zip(table.rows, rows, strict=True)]
    return Table([*table.columns, Column("to do")], with_actions, table.total_rows)


def _action(error: Row) -> str:
    """Return the advice to an operator for a kind of error."""
    status = error["status"]
    if status is None or status < min(_ACTIONS):
        return _CUT
    return _ACTIONS.get(status, _OF_SERVER if status >= _SERVER_ERROR else _ACTIONS[400])


def _first(frame: DataFrame) -> Table:
    return _table(frame, frame.limit(_MOST_ROWS).collect())


def _table(frame: DataFrame, rows: list[Row]) -> Table:
    """Return the first rows of a DataFrame."""
    named = [_COLUMNS.get(name, (name, None, 1)) for name in frame.columns]
    cells = [
        [_cell(value, unit, factor) for value, (_, unit, factor) in zip(row, named, strict=True)]
        for row in rows
    ]
    total = len(rows) if len(rows) < _MOST_ROWS else frame.count()
    return Table([Column(name, unit) for name, unit, _ in named], cells, total)


def _cell(value: object, unit: Unit | None, factor: float) -> Cell:
    if unit is not None:
        return Quantity(value * factor if isinstance(value, int | float) else None, unit)
    if isinstance(value, dt.datetime):
        return value.isoformat(" ", "seconds")
    return None if value is None or value == "" else str(value)
