"""The results of a run as one HTML page: what was measured, on what, and plots drawn as SVG."""

from __future__ import annotations

import html
import json
from collections.abc import Mapping
from typing import Any

from bars import Row, rows
from plots import Point, bars, lines, stacks

STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; color: #222 }
table { border-collapse: collapse; margin: 1rem 0 } td, th { padding: .25rem .8rem; text-align: left;
border-bottom: 1px solid #ddd } td.number { text-align: right; font-variant-numeric: tabular-nums }
svg text { font: 12px system-ui, sans-serif } h2 { margin-top: 2.2rem }
"""
STAGES = "CPU per file by stage, µs"


def write_report(results: dict[str, Any]) -> str:
    """The page."""
    measured = results["results"]
    large = results.get("large", {"results": {}})
    per_file = {name: value["us_per_file"] for name, value in measured.items() if "us_per_file" in value}
    memory = {
        f"{name}, {results['adds']:,} adds": value["peak_above_idle_mb"]
        for name, value in measured.items()
        if "peak_above_idle_mb" in value
    }
    for name, value in large["results"].items():
        per_file[f"{name}, {large['adds']:,} adds"] = value["us_per_file"]
        memory[f"{name}, {large['adds']:,} adds"] = value["peak_above_idle_mb"]
    ratios = {name: value for name, value in measured.items() if "ratio" in value}
    parts = [
        f"<h1>Benches of the gateway, {results['adds']:,} adds</h1>",
        _table([(name, str(value)) for name, value in results["machine"].items()]),
        "<p>Every figure is of an answer whose files were checked against the log's live paths: ",
        f"<code>{html.escape(json.dumps(measured.get('answers', {})))}</code></p>",
        f"<p>By <code>{html.escape(results.get('command', ''))}</code>.</p>",
        "<h2>Bars</h2>",
        _verdicts(rows(results)),
        "<h2>CPU of the server per file, µs</h2>",
        bars(per_file),
        "<h2>The same by stage</h2>",
        stacks(measured.get(STAGES, {})),
        "<h2>Seconds of a full answer over its files</h2>",
        lines(_over_files(results, "seconds"), "s"),
        "<h2>Peak memory above idle over files</h2>",
        lines(_over_files(results, "peak_above_idle_mb"), "MB"),
        bars(memory),
        "<h2>Against peers, medians of interleaved pairs</h2>",
        bars({name: value["ratio"] for name, value in ratios.items()}),
        _ratios(ratios),
        "<h2>All results</h2>",
        _table([(name, json.dumps(value)) for name, value in (measured | large["results"]).items()]),
    ]
    return f"<!doctype html><meta charset=utf-8><title>Benches</title><style>{STYLE}</style>{''.join(parts)}"


def _table(rows: list[tuple[str, str]]) -> str:
    cells = (f"<tr><th>{html.escape(name)}</th><td>{html.escape(value)}</td></tr>" for name, value in rows)
    return f"<table>{''.join(cells)}</table>"


def _verdicts(found: list[Row]) -> str:
    lines = "".join(
        f"<tr><th>{html.escape(row.bar.what)}</th>"
        f'<td class="number">{"" if row.figure is None else f"{row.figure:,.3g}"}</td>'
        f"<td>{'over' if row.bar.is_floor else 'under'} {row.bar.limit:,.3g} {row.bar.unit}</td>"
        f"<td>{row.verdict}</td></tr>"
        for row in found
    )
    return f"<table><tr><th></th><th>figure</th><th>bar</th><th></th></tr>{lines}</table>"


def _over_files(results: Mapping[str, Any], field: str) -> dict[str, list[Point]]:
    """A curve for cold and for hot answers."""
    sizes = [*results.get("sizes", []), results, *([results["large"]] if "large" in results else [])]
    curves: dict[str, list[Point]] = {}
    for size in sizes:
        for name in ("cold parquet", "hot parquet"):
            if name in size["results"]:
                curves.setdefault(name, []).append((size["adds"], size["results"][name][field]))
    return curves


def _ratios(ratios: dict[str, dict[str, float]]) -> str:
    rows = "".join(
        f"<tr><th>{html.escape(name)}</th>"
        + "".join(
            f'<td class="number">{value.get(key, float("nan")):,.3f}</td>'
            for key in ("first", "second", "ratio")
        )
        + f'<td class="number">{value["pairs"]}</td></tr>'
        for name, value in ratios.items()
    )
    head = "<tr><th></th><th>ours / first</th><th>peer / second</th><th>ratio</th><th>pairs</th></tr>"
    return f"<table>{head}{rows}</table>"
