"""The usage of shares as a page.

Comes in: `UsageTables`. Goes out: HTML text; only sums reach the driver.
"""

import datetime as dt

from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from gateway.spark.operations.usage import UsageTables
from gateway.spark.report import bars, heading, human, page, paragraph, table

_MOST_LINES = 100


def html(tables: UsageTables, run_at: dt.datetime) -> str:
    """The page."""
    totals = tables.daily.agg(
        f.coalesce(f.sum("requests"), f.lit(0)),
        f.coalesce(f.sum("errors"), f.lit(0)),
        f.count_distinct("recipient"),
        f.coalesce(f.sum("files"), f.lit(0)),
        f.coalesce(f.sum("addressed_bytes"), f.lit(0)),
    ).collect()[0]
    summary = (
        f"{totals[0]:,} requests of {totals[2]:,} recipients, {totals[3]:,} files addressed "
        f"({human(totals[4])}B), {totals[1]:,} errors."
    )
    parts = [
        paragraph(summary, good=totals[1] == 0),
        paragraph(
            f"Run at {run_at:%Y-%m-%d %H:%M} UTC. Lines that are no audit records: {tables.unreadable}."
        ),
        _plot("Requests by recipient", tables.daily, "recipient", "requests"),
        _plot("Files by table", tables.daily, "table", "files"),
        _plot("Bytes of these files, by table", tables.daily, "table", "addressed_bytes", "B"),
        _plot("Files that pruning left out, by table", tables.daily, "table", "pruned_files"),
        _plot("Requests by day", tables.daily, "day", "requests"),
        _section("Per day", tables.daily),
        _section("Errors", tables.errors),
        _section("Slow queries", tables.slow),
    ]
    return page("Usage of shares", *parts)


def _plot(title: str, frame: DataFrame, by: str, value: str, unit: str = "") -> str:
    summed = frame.groupBy(by).agg(f.sum(value).alias("sum")).orderBy(f.desc("sum")).limit(_MOST_LINES)
    values = [(str(row[by]), float(row["sum"])) for row in summed.collect() if row["sum"]]
    return bars(title, values, unit)


def _section(title: str, frame: DataFrame) -> str:
    rows = frame.limit(_MOST_LINES).collect()
    if not rows:
        return ""
    cells = [[one if isinstance(one, int) else str(one or "") for one in row] for row in rows]
    return heading(title) + table(frame.columns, cells)
