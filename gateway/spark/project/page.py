"""The page of a run of projections: those that failed first, with advice, then all of them and plots.

In: the `Outcome` of each projection and what is published of it. Out: HTML text, without a value of a row.
"""

import datetime as dt
from collections.abc import Mapping, Sequence

from gateway.report.page import Page
from gateway.report.parts import Cell, Column, Finding, Findings, Paragraph, Plots, Section, Table, Verdict
from gateway.report.plots import BarPlot
from gateway.report.units import BYTES, COUNT, SECONDS
from gateway.spark.project.published import Published
from gateway.spark.project.results import UP_TO_DATE, Outcome

Kept = tuple[Outcome, Published | None]

_AGAIN = "Then run only this projection, with"
_ACTIONS: Mapping[str, tuple[str, str]] = {
    "Locked": (f"wait for the running job, and start the command from only one timer. {_AGAIN}", ""),
    "InvalidRule": (
        "correct the rule in the configuration. Then check it against its source, with",
        "--check",
    ),
    "NotProved": (
        "ensure that only this command writes to the directory. Then prove all rows of this projection, with",
        "--whole",
    ),
    "NotKept": (f"change what the error names. {_AGAIN}", ""),
    "CommitExists": (f"start the command from only one timer. {_AGAIN}", ""),
    "Unsafe": (f"change what the error names. {_AGAIN}", ""),
}
_OTHERS = (
    "check the locations of the source and of the projection, and this process's access to them. Only the "
    f"kind of the error is shown, because its text may quote values of rows. {_AGAIN}"
)
"""The advice by the kind of a failure, and the options of its command."""

_WRITTEN = {
    "unchanged": "up to date",
    "changed": "changes written",
    "whole": "written whole",
    "checked": "rule fits",
    "postponed": "left for the next run",
}
_COLUMNS = [
    Column("projection"),
    Column("outcome"),
    Column("source version"),
    Column("version"),
    Column("rows", COUNT),
    Column("rows changed", COUNT),
    Column("files", COUNT),
    Column("bytes", BYTES),
    Column("time", SECONDS),
    Column("proved"),
]


def html(kept: Sequence[Kept], left_over: Sequence[str], run_at: dt.datetime) -> str:
    """Render the page. `left_over`: directories of rules that the configuration no longer has."""
    failed = [pair for pair in kept if pair[0].error is not None]
    remarks = [[_name(outcome), outcome.remark] for outcome, _ in kept if outcome.remark]
    sections = [
        *([Section("Failures", [Findings([_finding(*pair) for pair in failed])])] if failed else []),
        Section("Projections", [Table(_COLUMNS, [_line(*pair) for pair in kept])]),
        *(
            [Section("Remarks", [Table([Column("projection"), Column("remark")], remarks)])]
            if remarks
            else []
        ),
        *([_left_over(left_over)] if left_over else []),
        Section("Sizes and times", [Plots(_plots(kept))]),
    ]
    return Page("Projections", _summary(kept, len(failed)), not failed, sections, run_at).html()


def _summary(kept: Sequence[Kept], failed: int) -> str:
    if failed:
        return (
            f"{failed:,} of {len(kept):,} projections failed. Recipients read the versions that were "
            "published before."
        )
    if kept and all(outcome.how == "checked" for outcome, _ in kept):
        return f"The rules of {len(kept):,} projections fit their sources. Nothing was written."
    postponed = sum(outcome.how == "postponed" for outcome, _ in kept)
    if postponed:
        return (
            f"{len(kept) - postponed:,} of {len(kept):,} projections are up to date. {postponed:,} are left "
            "for the next run, and recipients read the versions that were published before."
        )
    rows, changed = (sum(getattr(outcome, name) for outcome, _ in kept) for name in ("rows", "changed_rows"))
    return f"{len(kept):,} projections, {rows:,} rows: all are up to date. {changed:,} rows were changed."


def _finding(outcome: Outcome, published: Published | None) -> Finding:
    action, option = _ACTIONS.get(outcome.failure, (_OTHERS, ""))
    details = [
        outcome.error or "",
        "no published version can be read"
        if published is None
        else f"recipients read version {published.version} of {_time(published.proved_at)}, which is version "
        f"{published.source_version} of the source",
    ]
    return Finding(
        _name(outcome), "failed", action, details, f"--table '{outcome.names[0]}' {option}".rstrip()
    )


def _line(outcome: Outcome, published: Published | None) -> list[Cell]:
    """Return the cells of a projection. Of one that failed they are about what was published before."""
    ended = outcome.error is None
    source_version = outcome.source_version if published is None else published.source_version
    return [
        _name(outcome),
        _WRITTEN[outcome.how] if ended else Verdict("failed", good=False),
        None if source_version < 0 else str(source_version),
        None if published is None else str(published.version),
        None if published is None else published.rows,
        outcome.changed_rows if outcome.outcome in UP_TO_DATE else None,
        None if published is None else published.files,
        None if published is None else published.bytes,
        None if outcome.how == "postponed" else outcome.seconds,
        None if published is None else _time(published.proved_at),
    ]


def _left_over(directories: Sequence[str]) -> Section:
    advice = Paragraph("Remove each when nobody reads it: nothing keeps or cleans it.")
    table = Table([Column("directory")], [[directory] for directory in directories])
    return Section("Directories of rules that the configuration no longer has", [advice, table])


def _plots(kept: Sequence[Kept]) -> list[BarPlot]:
    changed = [(_name(outcome), outcome.changed_rows) for outcome, _ in kept if outcome.changed_rows]
    known = [(_name(outcome), published) for outcome, published in kept if published is not None]
    return [
        BarPlot("Time", [(_name(outcome), outcome.seconds) for outcome, _ in kept], SECONDS),
        BarPlot("Rows changed", changed, COUNT),
        BarPlot("Rows", [(name, published.rows) for name, published in known], COUNT),
        BarPlot("Bytes", [(name, published.bytes) for name, published in known], BYTES),
    ]


def _name(outcome: Outcome) -> str:
    return ", ".join(outcome.names)


def _time(at: dt.datetime) -> str:
    return f"{at:%Y-%m-%d %H:%M} UTC"
