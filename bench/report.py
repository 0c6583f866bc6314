"""The results of a run as one HTML page: what was measured, on what, and plots drawn as SVG."""

from __future__ import annotations

import html
import json
from typing import Any

from bars import Row, rows

STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; color: #222 }
table { border-collapse: collapse; margin: 1rem 0 } td, th { padding: .25rem .8rem; text-align: left;
border-bottom: 1px solid #ddd } td.number { text-align: right; font-variant-numeric: tabular-nums }
svg text { font: 12px system-ui, sans-serif } h2 { margin-top: 2.2rem }
"""
BAR_HEIGHT = 22
LABEL_WIDTH = 320
PLOT_WIDTH = 480
COLOURS = ("#3b6ea5", "#b5653b")


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
        _bars(per_file),
        "<h2>Peak memory above idle, MB</h2>",
        _bars(memory),
        "<h2>Against peers, medians of interleaved pairs</h2>",
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


def _bars(values: dict[str, float]) -> str:
    if not values:
        return "<p>Not measured.</p>"
    scale = PLOT_WIDTH / max(*values.values(), 1e-9)
    rows = []
    for number, (name, value) in enumerate(values.items()):
        top = number * BAR_HEIGHT
        rows.append(
            f'<text x="{LABEL_WIDTH - 8}" y="{top + 15}" text-anchor="end">{html.escape(name)}</text>'
            f'<rect x="{LABEL_WIDTH}" y="{top + 3}" width="{value * scale:.1f}" height="{BAR_HEIGHT - 6}" '
            f'fill="{COLOURS[number % 2]}"/>'
            f'<text x="{LABEL_WIDTH + value * scale + 6:.1f}" y="{top + 15}">{value:,.2f}</text>'
        )
    height = BAR_HEIGHT * len(values)
    return f'<svg width="{LABEL_WIDTH + PLOT_WIDTH + 90}" height="{height}">{"".join(rows)}</svg>'


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
