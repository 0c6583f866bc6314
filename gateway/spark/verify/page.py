"""The page of a verification: tables that differ first, with advice, then all tables and plots.

In: the `TableResult` of each table. Out: HTML text.
"""

import datetime as dt
from collections.abc import Iterator, Sequence

from gateway.report.page import Page
from gateway.report.parts import Cell, Column, Finding, Findings, Plots, Section, Table, Verdict
from gateway.report.plots import BarPlot
from gateway.report.units import BYTES, COUNT, SECONDS
from gateway.spark.verify.tables import TableResult

_FAILED = (
    "check that the recipient may read the table and that this process reaches its storage. Then run verify "
    "for this table alone, with"
)
_OTHER_SCHEMA = (
    "check that the share has the table at the location that it was compared with. Then run verify for this "
    "table alone, with"
)
_DIFFERENT = (
    "compare the files and rows below in the table and in the share. For more rows run verify for this table "
    "alone, with"
)
_COLUMNS = [
    Column("table"),
    Column("version"),
    Column("outcome"),
    Column("rows", COUNT),
    Column("bytes", BYTES),
    Column("files", COUNT),
    Column("time", SECONDS),
    Column("checks passed"),
]


def html(results: Sequence[TableResult], run_at: dt.datetime) -> str:
    """Render the page."""
    wrong = [result for result in results if not result.equal]
    rows = sum(result.rows for result in results)
    summary = (
        f"{len(results):,} tables, {rows:,} rows: all equal."
        if not wrong
        else f"{len(wrong):,} of {len(results):,} tables differ or could not be read."
    )
    sections = [
        *_section("Differences", [Findings([finding for result in wrong for finding in _findings(result)])]),
        Section("Tables", [Table(_COLUMNS, [_line(result) for result in results])]),
        *_section("Not compared", [_said(results, "skipped", "reason")]),
        *_section("Remarks", [_said(results, "remark", "remark")]),
        Section(
            "Sizes and times",
            [
                Plots(
                    [
                        BarPlot(
                            "Rows",
                            [(result.table, result.rows) for result in results if _has_rows(result)],
                            COUNT,
                        ),
                        BarPlot("Bytes", [(result.table, result.bytes) for result in results], BYTES),
                        BarPlot("Time", [(result.table, result.seconds) for result in results], SECONDS),
                    ]
                )
            ],
        ),
    ]
    return Page("Shares against their tables", summary, not wrong, sections, run_at).html()


def _section(title: str, parts: Sequence[Findings | Table]) -> list[Section]:
    """Render a section, unless it is empty."""
    filled = [part for part in parts if (part.rows if isinstance(part, Table) else part.findings)]
    return [Section(title, filled)] if filled else []


def _line(result: TableResult) -> list[Cell]:
    verdict = "failed" if result.error else "equal" if result.equal else "different"
    passed = sum(check.passed for check in result.checks)
    return [
        result.table,
        None if result.version is None else str(result.version),
        Verdict(verdict, result.equal),
        result.rows if _has_rows(result) else None,
        result.bytes,
        result.files,
        result.seconds,
        f"{passed} of {len(result.checks)}" if result.checks else None,
    ]


def _has_rows(result: TableResult) -> bool:
    """Return whether the rows were read: not after an error or a difference of schemas."""
    return any(check.name == "rows" for check in result.checks)


def _findings(result: TableResult) -> Iterator[Finding]:
    options = f"--table '{result.table}'"
    if result.error is not None:
        yield Finding(result.table, "cannot be read", _FAILED, [result.error], options)
    for check in result.checks:
        if check.differences:
            if check.name == "schema":
                action, command = _OTHER_SCHEMA, options
            else:
                action, command = _DIFFERENT, f"{options} --shown-rows 100"
            yield Finding(result.table, f"{check.name}: different", action, check.differences, command)


def _said(results: Sequence[TableResult], field: str, column: str) -> Table:
    """Return the checks whose field has a text."""
    rows = [
        [result.table, check.name, getattr(check, field)]
        for result in results
        for check in result.checks
        if getattr(check, field) is not None
    ]
    return Table([Column("table"), Column("check"), Column(column)], rows)
