"""The page of a verification: tables that differ first, with advice, then all tables and plots.

In: the `TableResult` of each table. Out: HTML text.
"""

import datetime as dt
from collections import Counter
from collections.abc import Iterator, Sequence

from gateway.report.page import Page
from gateway.report.parts import Cell, Column, Finding, Findings, Plots, Section, Table, Verdict
from gateway.report.plots import BarPlot, LinePlot
from gateway.report.units import BYTES, COUNT, DAYS, SECONDS, days
from gateway.spark.verify.history import NOT_COMPARED, Run
from gateway.spark.verify.report import not_compared
from gateway.spark.verify.results import TableResult

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


def html(results: Sequence[TableResult], run_at: dt.datetime, runs: Sequence[Run] = ()) -> str:
    """Render the page. `runs`: this run and earlier ones, the oldest first."""
    wrong = [result for result in results if result.is_wrong]
    summary = _summary(results, len(wrong))
    sections = [
        *_section("Differences", [Findings([finding for result in wrong for finding in _findings(result)])]),
        Section("Tables", [Table(_COLUMNS, [_line(result) for result in results])]),
        *([Section("Nights", [Plots(_nights(runs))])] if len(runs) > 1 else []),
        *_section("Not compared", [_not_compared(results)]),
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


def _summary(results: Sequence[TableResult], wrong: int) -> str:
    rows = sum(result.rows for result in results)
    counts = Counter(result.outcome for result in results)
    texts = {
        "unproved": "equal as far as the server lets them be compared",
        "unchanged": "unchanged since their proof",
        "postponed": "left for the next run",
    }
    counted = "".join(f" {counts[name]:,} {text}." for name, text in texts.items() if counts[name])
    if wrong:
        return f"{wrong:,} of {len(results):,} tables differ or could not be read.{counted}"
    compared = len(results) - sum(counts[name] for name in texts)
    return f"{compared:,} tables, {rows:,} rows: all equal.{counted}"


def _nights(runs: Sequence[Run]) -> list[LinePlot]:
    def points(name: str) -> list[tuple[float, float]]:
        return [(days(run.run_at), getattr(run, name)) for run in runs]

    outcomes = {"equal": "equal", "wrong": "different or failed"}
    outcomes |= {name: name for name in NOT_COMPARED}
    shown = {text: points(name) for name, text in outcomes.items() if any(y for _, y in points(name))}
    return [
        LinePlot("Tables by outcome", shown, COUNT, DAYS),
        LinePlot("Rows compared", {"rows": points("rows")}, COUNT, DAYS),
        LinePlot("Time of all tables together", {"time": points("seconds")}, SECONDS, DAYS),
    ]


def _section(title: str, parts: Sequence[Findings | Table]) -> list[Section]:
    """Render a section, unless it is empty."""
    filled = [part for part in parts if (part.rows if isinstance(part, Table) else part.findings)]
    return [Section(title, filled)] if filled else []


def _line(result: TableResult) -> list[Cell]:
    is_known = result.version is not None
    passed = sum(check.passed for check in result.checks)
    return [
        result.table,
        None if result.version is None else str(result.version),
        result.outcome if result.outcome in NOT_COMPARED else Verdict(result.outcome, result.equal),
        result.rows if _has_rows(result) else None,
        result.bytes if is_known else None,
        result.files if is_known else None,
        None if result.postponed else result.seconds,
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


def _not_compared(results: Sequence[TableResult]) -> Table:
    checks = _said(results, "skipped", "reason")
    tables = [
        [result.table, "table", not_compared(result)] for result in results if result.outcome in NOT_COMPARED
    ]
    return Table(checks.columns, [*tables, *checks.rows])


def _said(results: Sequence[TableResult], field: str, column: str) -> Table:
    rows = [
        [result.table, check.name, getattr(check, field)]
        for result in results
        for check in result.checks
        if getattr(check, field) is not None
    ]
    return Table([Column("table"), Column("check"), Column(column)], rows)
