"""The page of a fleet survey: unreadable tables first, then advice, all tables and plots.

In: the `TableHealth` of each table. Out: HTML text.
"""

import datetime as dt
from collections.abc import Sequence

from gateway.report.page import Page
from gateway.report.parts import Cell, Column, Finding, Findings, Plots, Quantity, Section, Table, Verdict
from gateway.report.plots import BarPlot, LinePlot
from gateway.report.units import BYTES, COUNT, DAYS, SECONDS, days
from gateway.spark.operations.fleet import Advice, TableHealth, advise
from gateway.spark.operations.fleet_history import Survey

_DAY_SECONDS = 86_400
_UNREADABLE = "check the table's location in the configuration and this process's access to its storage."
_COLUMNS = [
    Column("table"),
    Column("version"),
    Column("files", COUNT),
    Column("bytes", BYTES),
    Column("small files", COUNT),
    Column("no statistics", COUNT),
    Column("with vectors", COUNT),
    Column("tombstones", COUNT),
    Column("checkpoint"),
    Column("commits after", COUNT),
    Column("last commit", SECONDS),
    Column("listing", SECONDS),
    Column("reader features"),
]


def html(tables: Sequence[TableHealth], run_at: dt.datetime, surveys: Sequence[Survey] = ()) -> str:
    """Render the page. `surveys`: this survey and earlier ones, the oldest first."""
    broken = [table for table in tables if table.error is not None]
    sound = [table for table in tables if table.error is None]
    advice = advise(tables)
    files = sum(table.files for table in sound)
    summary = (
        f"{len(tables):,} tables, {files:,} files: {len(advice):,} pieces of advice, "
        f"{len(broken):,} tables that cannot be read."
    )
    unreadable = [
        Finding(table.table, "cannot be read", _UNREADABLE, [table.error or ""]) for table in broken
    ]
    sections = [
        *([Section("Tables that cannot be read", [Findings(unreadable)])] if broken else []),
        Section("Advice, the most useful first", [_advice(advice)]),
        Section("Tables", [Table(_COLUMNS, [_line(table) for table in tables])]),
        *([Section("Nights", [Plots(_nights(surveys))])] if len(surveys) > 1 else []),
        Section("Sizes", [Plots(_plots(sound))]),
    ]
    return Page("The fleet of shared tables", summary, not broken, sections, run_at).html()


def _advice(advice: Sequence[Advice]) -> Table:
    columns = [Column("table"), Column("action"), Column("reason")]
    return Table(columns, [[advised.table, advised.action, advised.reason] for advised in advice])


def _plots(sound: Sequence[TableHealth]) -> list[BarPlot]:
    small = [(table.table, table.small_files) for table in sound if table.small_files]
    return [
        BarPlot("Files", [(table.table, table.files) for table in sound], COUNT),
        BarPlot("Small files", small, COUNT),
        BarPlot("Time to list", [(table.table, table.listing_seconds) for table in sound], SECONDS),
        BarPlot(
            "Memory of a client's plan", [(table.table, table.client_memory_bytes) for table in sound], BYTES
        ),
    ]


def _nights(surveys: Sequence[Survey]) -> list[LinePlot]:
    def points(name: str) -> list[tuple[float, float]]:
        return [(days(survey.run_at), getattr(survey, name)) for survey in surveys]

    files = {"files": points("files"), "small files": points("small_files")}
    return [
        LinePlot("Files of all tables", files, COUNT, DAYS),
        LinePlot("Bytes of all tables", {"bytes": points("bytes")}, BYTES, DAYS),
        LinePlot("Tombstones of all tables", {"tombstones": points("tombstones")}, COUNT, DAYS),
        LinePlot("Longest listing", {"listing": points("longest_listing_seconds")}, SECONDS, DAYS),
    ]


def _line(table: TableHealth) -> list[Cell]:
    if table.error is not None:
        return [table.table, Verdict("cannot be read", good=False), *([None] * (len(_COLUMNS) - 2))]
    days = table.days_since_commit
    return [
        table.table,
        str(table.version),
        table.files,
        table.bytes,
        table.small_files,
        table.files_without_stats,
        table.files_with_vectors,
        table.tombstones,
        table.checkpoint,
        table.commits_since_checkpoint,
        Quantity(None if days is None else days * _DAY_SECONDS, SECONDS),
        table.listing_seconds,
        ", ".join(table.reader_features),
    ]
