"""The results of a run as one HTML page: missed bars first, then what was measured, on what, and plots."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from bars import Row, rows

from gateway.report.page import Page
from gateway.report.parts import (
    Cell,
    Column,
    Facts,
    Finding,
    Findings,
    Paragraph,
    Plots,
    Quantity,
    Section,
    Table,
    Verdict,
)
from gateway.report.plots import BarPlot, LinePlot, Point, StackPlot
from gateway.report.units import BYTES, COUNT, NUMBER, PER_SECOND, PERCENT, RATIO, SECONDS, Unit

STAGES = "CPU per file by stage, µs"
MICROSECOND, MILLISECOND, MEGABYTE = 1e-6, 1e-3, 1e6

UNITS: Mapping[str, tuple[Unit, float]] = {
    "µs": (SECONDS, MICROSECOND),
    "ms": (SECONDS, MILLISECOND),
    "MB": (BYTES, MEGABYTE),
    "x": (RATIO, 1),
    "of its bytes": (PERCENT, 100),
}
"""The units of bars, and what one of them is in the unit of the page."""

FIELDS: Mapping[str, tuple[Unit, float]] = {
    "us_per_file": (SECONDS, MICROSECOND),
    "us_per_url": (SECONDS, MICROSECOND),
    "seconds": (SECONDS, 1),
    "ms": (SECONDS, MILLISECOND),
    "mb": (BYTES, MEGABYTE),
    "bytes": (BYTES, 1),
    "ratio": (RATIO, 1),
    "share": (PERCENT, 100),
}
"""The units of results by the end of their names."""

MISSED = (
    "To do: run the bench again on an idle machine with more pairs (--pairs 21). If a bar is missed again, "
    "compare the JSON (--json) with that of an earlier run."
)


def write_report(results: dict[str, Any]) -> str:
    """The page."""
    found = rows(results)
    missed = [row for row in found if row.verdict == "MISSED"]
    unmeasured = sum(row.figure is None for row in found)
    summary = f"{len(missed)} of {len(found)} bars missed, {unmeasured} not measured."
    sections = [
        *([Section("Missed", [Paragraph(MISSED), _findings(missed)])] if missed else []),
        Section("Bars", [_bars(found)]),
        Section("Plots", [Plots(_plots(results))]),
        Section("Against peers, medians of interleaved pairs", [_ratios(results["results"])]),
        Section("All results", [_all_results(results)]),
        Section("Machine and command", [Facts(_facts(results)), Paragraph(CHECKED)]),
    ]
    return Page(f"Benches of the gateway, {results['adds']:,} files", summary, not missed, sections).html()


CHECKED = "Every figure is of an answer whose files were compared with the live paths of the log."


def _findings(missed: list[Row]) -> Findings:
    return Findings(
        [Finding(row.bar.what, f"{_figure(row.figure, row)}; the bar is {_limit(row)}.") for row in missed]
    )


def _bars(found: list[Row]) -> Table:
    columns = [Column("bar"), Column("verdict"), Column("figure"), Column("limit")]
    lines: list[list[Cell]] = [
        [row.bar.what, _verdict(row), _quantity(row.figure, *UNITS[row.bar.unit]), _limit(row)]
        for row in sorted(found, key=lambda row: row.figure is None)
    ]
    return Table(columns, lines)


def _verdict(row: Row) -> Cell:
    return row.verdict if row.figure is None else Verdict(row.verdict, good=row.verdict == "holds")


def _limit(row: Row) -> str:
    return f"{'over' if row.bar.is_floor else 'under'} {_figure(row.bar.limit, row)}"


def _figure(figure: float | None, row: Row) -> str:
    quantity = _quantity(figure, *UNITS[row.bar.unit])
    return quantity.unit.text(quantity.value)


def _quantity(value: float | None, unit: Unit, factor: float) -> Quantity:
    return Quantity(None if value is None else value * factor, unit)


def _plots(results: Mapping[str, Any]) -> list[BarPlot | StackPlot | LinePlot]:
    measured = results["results"]
    large = results.get("large", {"results": {}})
    answers = {name: value for name, value in measured.items() if "us_per_file" in value}
    for name, value in large["results"].items():
        answers[f"{name}, {large['adds']:,} files"] = value
    ratios = {name: value["ratio"] for name, value in measured.items() if "ratio" in value}
    stages = {
        name: {part: value * MICROSECOND for part, value in parts.items()}
        for name, parts in measured.get(STAGES, {}).items()
    }
    cpu = [(name, value["us_per_file"] * MICROSECOND) for name, value in answers.items()]
    memory = [(name, value["peak_above_idle_mb"] * MEGABYTE) for name, value in answers.items()]
    return [
        BarPlot("CPU of the server per file", cpu, SECONDS),
        StackPlot("CPU per file by stage", stages, SECONDS),
        _over_files("Time of a full answer over files", results, "seconds", SECONDS, 1),
        _over_files("Peak memory above idle over files", results, "peak_above_idle_mb", BYTES, MEGABYTE),
        BarPlot("Peak memory above idle", memory, BYTES),
        BarPlot("Ratio of the gateway to its peers", list(ratios.items()), RATIO),
    ]


def _over_files(title: str, results: Mapping[str, Any], field: str, unit: Unit, factor: float) -> LinePlot:
    """A curve for cold and one for hot answers."""
    sizes = [*results.get("sizes", []), results, *([results["large"]] if "large" in results else [])]
    curves: dict[str, list[Point]] = {}
    for size in sorted(sizes, key=lambda size: size["adds"]):
        for name in ("cold parquet", "hot parquet"):
            if name in size["results"]:
                point = (size["adds"], size["results"][name][field] * factor)
                curves.setdefault(name, []).append(point)
    return LinePlot(title, curves, unit, COUNT, logarithmic=True)


def _ratios(measured: Mapping[str, Any]) -> Table:
    columns = [Column("comparison"), Column("gateway"), Column("peer"), Column("ratio", RATIO)]
    lines: list[list[Cell]] = []
    for name, value in measured.items():
        if "ratio" in value:
            unit = _unit_of_pair(name)
            first, second = (Quantity(value.get(key), unit) for key in ("first", "second"))
            lines.append([name, first, second, value["ratio"], value["pairs"]])
    return Table([*columns, Column("pairs", COUNT)], lines)


def _unit_of_pair(name: str) -> Unit:
    return PER_SECOND if name.endswith("requests/s") else SECONDS


def _all_results(results: Mapping[str, Any]) -> Table:
    large = results.get("large", {"results": {}})
    named = list(results["results"].items())
    named += [(f"{name}, {large['adds']:,} files", value) for name, value in large["results"].items()]
    lines: list[list[Cell]] = [
        [name, field, cell] for name, value in named for field, cell in _fields(name, value)
    ]
    return Table([Column("result"), Column("field"), Column("value")], lines)


def _fields(name: str, values: Mapping[str, Any]) -> Iterator[tuple[str, Cell]]:
    for field, value in values.items():
        if isinstance(value, Mapping):
            yield from ((f"{field}: {part}", cell) for part, cell in _fields(name, value))
        else:
            yield field, _cell(name, field, value)


def _cell(name: str, field: str, value: Any) -> Cell:
    if not isinstance(value, int | float):
        return str(value)
    if field in ("first", "second"):
        return Quantity(value, _unit_of_pair(name))
    unit = FIELDS.get(field) or FIELDS.get(field.rpartition("_")[2])
    if unit is None and not isinstance(value, int):
        # The name of the result holds the unit of all its fields, such as `.. listings, ms`.
        unit = UNITS.get(name.rpartition(", ")[2], (NUMBER, 1))
    return _quantity(value, *(unit or (COUNT, 1)))


def _facts(results: Mapping[str, Any]) -> dict[str, Cell]:
    return {**results["machine"], "command": results.get("command")}
