"""The figures of a run as one HTML page: missed bars, each setting with plots over files, and the machine."""

from collections.abc import Sequence

from bars import Row, rows
from figures import GATEWAY, UNITS, Figure, Results, unique
from scenarios import SETTINGS, STAGES

from gateway.report.page import Page
from gateway.report.parts import (
    Cell,
    Column,
    Finding,
    Findings,
    Paragraph,
    Part,
    Plots,
    Quantity,
    Section,
    Table,
    Verdict,
)
from gateway.report.plots import BarPlot, LinePlot, Plot, Point, StackPlot
from gateway.report.units import COUNT

ACTION = (
    "Run the bench again on an idle machine with more rounds (--rounds 9). If the bar is missed again, "
    "compare the figures (--json) with those of an earlier run."
)
CHECKED = (
    "Every timed answer has the expected files by the digest of their ids. Of delta_kernel the number of "
    "files is compared. Memory is what a process has allocated; mapped files are counted apart."
)
OVER_FILES = (
    ("CPU per file", "full answer", ("cold CPU per file", "hot CPU per file")),
    ("Time of a full answer", "full answer", ("cold time", "hot time")),
    ("First byte of a full answer", "full answer", ("cold first byte", "hot first byte")),
    (
        "Memory above idle",
        "full answer",
        ("cold peak above idle", "kept above idle", "hot peak above idle", "after above idle"),
    ),
    ("Answer to one day", "one day, cold", ("time", "time again", "time later")),
)
"""The plots over files: title, scenario and quantities."""

BARS_OF = (
    ("Rate of a query of 20 files", "small query", ("repeated, rate", "different bodies, rate")),
    (
        "CPU of a small request",
        "table metadata",
        ("GET /version, kept connection, CPU", "GET /metadata, kept connection, CPU"),
    ),
    ("CPU per file beside delta_kernel", "decoding and replay", ("CPU per file",)),
    ("Time beside deltalake", "cold answer beside a list", ("time",)),
)
"""The plots of the gateway beside others: title, scenario and quantities."""


def write_report(results: Results) -> str:
    found = rows(results)
    missed = [row for row in found if row.verdict == "MISSED"]
    unmeasured = sum(row.figure is None for row in found)
    summary = f"{len(missed)} of {len(found)} bars missed, {unmeasured} not measured."
    sections = [
        *([Section("Missed", [_findings(missed)])] if missed else []),
        *(_setting(results, found, setting) for setting in SETTINGS if list(results.of(setting))),
        Section("Bars without a figure", [_bars([row for row in found if row.figure is None])]),
        Section("Machine and command", [_facts(results), Paragraph(CHECKED)]),
    ]
    return Page("Benches of the gateway", summary, not missed, sections).html()


def _findings(missed: Sequence[Row]) -> Findings:
    return Findings(
        [
            Finding(
                f"{row.bar.setting}: {row.bar.what}",
                f"{row.figure_text}; the bar is {row.bar.limit_text}.",
                ACTION,
            )
            for row in missed
        ]
    )


def _setting(results: Results, found: Sequence[Row], setting: str) -> Section:
    figures = list(results.of(setting))
    judged = [row for row in found if row.bar.setting == setting and row.figure is not None]
    plots = [plot for plot in _plots(figures) if _has_values(plot)]
    parts: list[Part] = [
        *([Plots(plots)] if plots else []),
        *([_bars(judged)] if judged else []),
        _figures(figures),
    ]
    return Section(f"{setting[0].upper()}{setting[1:]}", parts)


def _plots(figures: Sequence[Figure]) -> list[Plot]:
    return [
        *(_over_files(figures, *plot) for plot in OVER_FILES),
        *(_beside_others(figures, *plot) for plot in BARS_OF),
        *_stages(figures),
    ]


def _over_files(figures: Sequence[Figure], title: str, scenario: str, quantities: Sequence[str]) -> LinePlot:
    """A line for each quantity and subject over the number of files."""
    lines: dict[str, list[Point]] = {}
    unit = "s"
    for quantity in quantities:
        for figure in sorted(figures, key=lambda figure: figure.files):
            # A file's share of the fixed cost of a small query is no figure of a file.
            is_small = figure.files < 1000 and "per file" in quantity
            if (figure.scenario, figure.quantity) == (scenario, quantity) and not is_small:
                unit = figure.unit
                name = quantity if figure.subject == GATEWAY else f"{quantity}, {figure.subject}"
                lines.setdefault(name, []).append((figure.files, figure.value))
    return LinePlot(title, lines, UNITS[unit], COUNT, logarithmic=True)


def _beside_others(
    figures: Sequence[Figure], title: str, scenario: str, quantities: Sequence[str]
) -> BarPlot:
    """A bar for each quantity and subject."""
    shown = [figure for figure in figures if figure.scenario == scenario and figure.quantity in quantities]
    named = [(f"{figure.subject}: {figure.quantity}", figure.value) for figure in shown]
    return BarPlot(title, named, UNITS[shown[0].unit] if shown else COUNT)


def _stages(figures: Sequence[Figure]) -> list[Plot]:
    stages = {figure.quantity: figure.value for figure in figures if figure.scenario == "stages"}
    if not stages:
        return []
    hot = {name: value for name, value in stages.items() if name != STAGES[0]}
    return [StackPlot("CPU per file by stage", {"cold": stages, "hot": hot}, UNITS["s"])]


def _has_values(plot: Plot) -> bool:
    values = (
        plot.series
        if isinstance(plot, LinePlot)
        else plot.values
        if isinstance(plot, BarPlot)
        else plot.stacks
    )
    return bool(values)


def _bars(found: Sequence[Row]) -> Table:
    columns = [Column("bar"), Column("verdict"), Column("figure"), Column("limit")]
    lines: list[list[Cell]] = [
        [row.bar.what, _verdict(row), Quantity(row.figure, UNITS[row.bar.unit]), row.bar.limit_text]
        for row in found
    ]
    return Table(columns, lines)


def _verdict(row: Row) -> Cell:
    return row.verdict if row.figure is None else Verdict(row.verdict, good=row.verdict != "MISSED")


def _figures(figures: Sequence[Figure]) -> Table:
    """All figures of a setting: a column for each subject."""
    subjects = unique([figure.subject for figure in figures])
    values: dict[tuple[str, int, str], dict[str, Figure]] = {}
    for figure in figures:
        row = values.setdefault((figure.scenario, figure.files, figure.quantity), {})
        row[figure.subject] = figure
    lines: list[list[Cell]] = [
        [scenario, files, quantity, *(_cell(row.get(subject)) for subject in subjects)]
        for (scenario, files, quantity), row in values.items()
    ]
    names = ["scenario", "files", "quantity", *subjects]
    return Table([Column(name) for name in names], lines)


def _cell(figure: Figure | None) -> Cell:
    return None if figure is None else Quantity(figure.value, UNITS[figure.unit])


def _facts(results: Results) -> Table:
    facts = {**results.machine, "date": results.date, "command": results.command}
    return Table([Column("name"), Column("value")], [*facts.items()])
