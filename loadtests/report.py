"""The report of a load test: one HTML page, failures first, with plots over time."""

from collections.abc import Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any

from gateway.report.page import Page
from gateway.report.parts import (
    Cell,
    Column,
    Finding,
    Findings,
    Paragraph,
    Plots,
    Quantity,
    Section,
    Table,
    Verdict,
)
from gateway.report.plots import LinePlot
from gateway.report.units import BYTES, CORES, COUNT, PER_SECOND, PERCENT, SECONDS, Unit

BARS = {"failures": 0, "discovery_p99_ms": 100, "memory_after_percent": 110}
SOAK_SECONDS = 900
SOAK_BARS = BARS | {"memory_slope_percent_per_hour": 20}
"""In a shorter run the slope depends on the last few samples."""

MILLISECOND = 1e-3
FIGURES: dict[str, tuple[str, Unit, float]] = {
    "failures": ("wrong answers and errors", COUNT, 1),
    "discovery_p99_ms": ("99th percentile of discovery", SECONDS, MILLISECOND),
    "memory_after_percent": ("memory at rest, after the load against before", PERCENT, 1),
    "memory_slope_percent_per_hour": ("growth of memory per hour", PERCENT, 1),
}
"""The name of a figure, its unit on the page, and the factor to that unit."""

ACTIONS = {
    "failures": "Read the failures in locust's own pages and the errors in gateway.log, both named below.",
    "discovery_p99_ms": "Repeat on an idle machine. If it remains, the plots show the load that causes it.",
    "memory_after_percent": "Repeat with --shape soak --seconds 3600 and see whether memory still grows.",
    "memory_slope_percent_per_hour": "Compare the plot of memory with that of an earlier version.",
}


def write_report(directory: Path, summary: dict[str, Any]) -> None:
    """Write the page of a summary to `index.html`."""
    (directory / "index.html").write_text(page(summary, links(directory)), encoding="utf-8")


def links(directory: Path) -> list[tuple[str, str]]:
    """Return the other files of the report."""
    pages = [(page.stem, page.name) for page in sorted(directory.glob("locust-*.html"))]
    return [("all figures", "summary.json"), ("gateway.log", "gateway.log"), *pages]


def page(summary: dict[str, Any], beside: list[tuple[str, str]]) -> str:
    judged = bars(summary)
    missed = [row for row in judged if not row["kept"]]
    failures = summary["failures"]
    words = f"{failures:,} wrong or failed" if failures else "Every answer was right"
    sections = [
        *([Section("What failed", [Findings([_finding(row) for row in missed])])] if missed else []),
        Section("Bars", [_bars(judged)]),
        Section("Requests", [_kinds(summary["kinds"])]),
        Section("Over time", [Plots(_plots(summary))]),
        Section("At rest", [_facts(_at_rest(summary))]),
        Section("Ceiling", [_ceiling(summary["ceiling"])]),
        Section("Options and machine", [_facts(summary["options"]), _facts(_machine(summary["machine"]))]),
        Section("Files", [Table([Column("what"), Column("beside this page")], beside)]),
    ]
    return Page(
        "Load test", f"{words}; {len(missed)} of {len(judged)} bars missed.", not missed, sections
    ).html()


def bars(summary: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the bars of a full run on an idle machine, with the figures of this run."""
    options = summary["options"]
    is_soak = options["shape"] == "soak" and int(options["seconds"]) >= SOAK_SECONDS
    return [
        {"figure": name, "seen": summary[name], "bar": f"at most {bar}", "kept": summary[name] <= bar}
        for name, bar in (SOAK_BARS if is_soak else BARS).items()
    ]


def _finding(row: dict[str, Any]) -> Finding:
    name, seen, limit = _judged(row)
    return Finding(name, f"{seen.unit.text(seen.value)}; the bar is {limit}.", ACTIONS[row["figure"]])


def _bars(judged: list[dict[str, Any]]) -> Table:
    lines: list[list[Cell]] = []
    for row in judged:
        name, seen, limit = _judged(row)
        lines.append([name, Verdict("holds" if row["kept"] else "MISSED", good=row["kept"]), seen, limit])
    return Table([Column("bar"), Column("verdict"), Column("figure"), Column("limit")], lines)


def _judged(row: dict[str, Any]) -> tuple[str, Quantity, str]:
    """Return the name, figure and limit of a bar as the page shows them."""
    name, unit, factor = FIGURES[row["figure"]]
    limit = unit.text(SOAK_BARS[row["figure"]] * factor)
    return name, Quantity(row["seen"] * factor, unit), f"at most {limit}"


def _kinds(kinds: list[dict[str, Any]]) -> Table:
    times = ["p50_ms", "p99_ms", "max_ms"]
    columns = [Column("request"), Column("requests", COUNT), Column("failures"), Column("rate", PER_SECOND)]
    columns += [Column(name, SECONDS) for name in ("median", "99th percentile", "longest")]
    lines: list[list[Cell]] = [
        [
            kind["name"],
            kind["requests"],
            Verdict(f"{kind['failures']:,}", good=False) if kind["failures"] else 0,
            kind["per_second"],
            *(_seconds(kind[time]) for time in times),
        ]
        for kind in kinds
    ]
    return Table(columns, lines)


def _seconds(milliseconds: str) -> float | None:
    """Parse a time of locust's table; None for a missing one."""
    try:
        return float(milliseconds) * MILLISECOND
    except ValueError:
        return None


def _plots(summary: dict[str, Any]) -> list[LinePlot]:
    samples, history = summary["samples"], summary["history"]
    seconds = [sample["second"] for sample in samples]
    start = history[0]["second"] if history else 0.0
    steps = [row["second"] - start for row in history]

    def sampled(field: str) -> list[tuple[float, float]]:
        return [(second, sample[field]) for second, sample in zip(seconds, samples, strict=True)]

    def observed(field: str, factor: float = 1) -> list[tuple[float, float]]:
        return [(step, row[field] * factor) for step, row in zip(steps, history, strict=True)]

    return [
        LinePlot("Memory of the gateway", {"memory": sampled("resident_bytes")}, BYTES),
        LinePlot("CPU of the gateway", {"CPU": _cores(samples)}, CORES),
        LinePlot("Open descriptors", {"descriptors": sampled("descriptors")}, COUNT),
        LinePlot("Users", {"users": observed("users")}, COUNT),
        LinePlot("Requests per second", {"requests": observed("requests")}, PER_SECOND),
        LinePlot(
            "99th percentile of discovery so far",
            {"discovery": observed("p99_ms", MILLISECOND)},
            SECONDS,
            limit=BARS["discovery_p99_ms"] * MILLISECOND,
        ),
    ]


def _cores(samples: list[dict[str, Any]]) -> list[tuple[float, float]]:
    return [
        (
            after["second"],
            (after["cpu_seconds"] - before["cpu_seconds"]) / max(1e-6, after["second"] - before["second"]),
        )
        for before, after in pairwise(samples)
    ]


def _at_rest(summary: dict[str, Any]) -> dict[str, Cell]:
    memory, descriptors = summary["memory"], summary["descriptors"]
    return {
        "memory before": Quantity(memory["before_bytes"], BYTES),
        "memory after": Quantity(memory["after_bytes"], BYTES),
        "descriptors before": descriptors["before"],
        "descriptors after": descriptors["after"],
    }


def _ceiling(ceiling: dict[str, str] | None) -> Table | Paragraph:
    return _facts(ceiling) if ceiling else Paragraph("Not measured: the short form, or no hey and no Go.")


def _facts(values: Mapping[str, Cell]) -> Table:
    return Table([Column("name"), Column("value")], [*values.items()])


def _machine(machine: dict[str, Any]) -> dict[str, Cell]:
    return {
        "CPUs": machine["cpus"],
        "memory": Quantity(machine["memory_bytes"], BYTES),
        "system": machine["system"],
        "Python": machine["python"],
    }
