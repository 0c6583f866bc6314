"""The survey of a fleet as a page: advice first, then every table, then plots.

Comes in: `TableHealth`s. Goes out: HTML text.
"""

import datetime as dt
from collections.abc import Sequence

from gateway.spark.operations.fleet import Advice, TableHealth, advise
from gateway.spark.report import Cell, Verdict, bars, heading, page, paragraph, table


def html(tables: Sequence[TableHealth], run_at: dt.datetime) -> str:
    """The page."""
    broken = [one for one in tables if one.error is not None]
    sound = [one for one in tables if one.error is None]
    advice = advise(tables)
    summary = (
        f"{len(tables)} tables, {sum(one.files for one in sound):,} files: {len(advice)} pieces of advice, "
        f"{len(broken)} tables that cannot be read."
    )
    parts = [
        paragraph(summary, good=not broken),
        paragraph(f"Run at {run_at:%Y-%m-%d %H:%M} UTC."),
        heading("Advice, the most useful first"),
        table(["table", "what", "why"], [_advice(one) for one in advice]),
        heading("Tables"),
        table(_COLUMNS, [_line(one) for one in tables]),
        bars("Files", [(one.table, one.files) for one in sound]),
        bars("Small files", [(one.table, one.small_files) for one in sound if one.small_files]),
        bars("Seconds to list", [(one.table, one.listing_seconds) for one in sound], "s"),
        bars("Memory of a client's plan", [(one.table, one.client_memory_bytes) for one in sound], "B"),
    ]
    return page("The fleet of shared tables", *parts)


_COLUMNS = [
    "table",
    "version",
    "files",
    "bytes",
    "small",
    "no statistics",
    "vectors",
    "tombstones",
    "checkpoint",
    "commits since",
    "days since commit",
    "listing, s",
    "features",
]


def _advice(advice: Advice) -> list[Cell]:
    return [advice.table, advice.action, advice.reason]


def _line(one: TableHealth) -> list[Cell]:
    if one.error is not None:
        return [one.table, Verdict(one.error, good=False), *([""] * (len(_COLUMNS) - 2))]
    return [
        one.table,
        one.version,
        one.files,
        one.bytes,
        one.small_files,
        one.files_without_stats,
        one.files_with_vectors,
        one.tombstones,
        one.checkpoint,
        one.commits_since_checkpoint,
        "unknown" if one.days_since_commit is None else round(one.days_since_commit, 1),
        round(one.listing_seconds, 3),
        ", ".join(one.reader_features),
    ]
