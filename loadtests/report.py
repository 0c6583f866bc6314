"""The report of a load test: one HTML page with plots, without anything from elsewhere."""

from __future__ import annotations

import html
from itertools import pairwise
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pathlib import Path

WIDTH, HEIGHT, MARGIN = 860, 220, 48
COLOURS = ("#1f6feb", "#d1242f", "#1a7f37")

BARS = {"failures": 0, "discovery_p99_ms": 100, "memory_after_percent": 110}
SOAK_SECONDS = 900
SOAK_BARS = BARS | {"memory_slope_percent_per_hour": 20}
"""In less time a line through the samples says how the last of them lie."""

STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; max-width: 920px; margin: 2em auto; padding: 0 1em; color:
#1f2328 } table { border-collapse: collapse; width: 100% } td, th { padding: .3em .6em; text-align: right }
td:first-child, th:first-child { text-align: left } tr { border-bottom: 1px solid #d1d9e0 } .bad { color:
#d1242f; font-weight: bold } svg { background: #f6f8fa }
"""


def write_report(directory: Path, summary: dict[str, Any]) -> None:
    """Write `index.html` of a summary."""
    failures = summary["failures"]
    verdict = (
        f'<p class="bad">{failures} wrong or failed</p>' if failures else "<p>Every answer was right.</p>"
    )
    pages = sorted(directory.glob("locust-*.html"))
    sections = [
        f"<h1>Load test</h1>{verdict}",
        f"<p>{_told(summary['options'])}</p><p>{_told(summary['machine'])}</p>",
        "<h2>Requests</h2>" + _table(summary["kinds"]),
        "<h2>Over time</h2>" + "".join(_plots(summary)),
        "<h2>Bars</h2>" + _table(bars(summary)),
        f"<h2>At rest</h2><p>{_told(summary['memory'])}; descriptors {_told(summary['descriptors'])}</p>",
        f"<h2>Ceiling</h2><p>{_told(summary['ceiling'] or {'hey': 'not installed'})}</p>",
        "<p>" + ", ".join(f'<a href="{page.name}">{page.stem}</a>' for page in pages) + "</p>",
        '<p><a href="summary.json">all figures</a></p>',
    ]
    page = f"<!doctype html><meta charset=utf-8><title>Load test</title><style>{STYLE}</style>" + "\n".join(
        sections
    )
    (directory / "index.html").write_text(page)


def bars(summary: dict[str, Any]) -> list[dict[str, Any]]:
    """What a run of the whole length on a machine of its own must keep to."""
    options = summary["options"]
    is_soak = options["shape"] == "soak" and int(options["seconds"]) >= SOAK_SECONDS
    return [
        {"figure": name, "seen": summary[name], "bar": f"at most {bar}", "kept": summary[name] <= bar}
        for name, bar in (SOAK_BARS if is_soak else BARS).items()
    ]


def _plots(summary: dict[str, Any]) -> list[str]:
    samples, history = summary["samples"], summary["history"]
    seconds = [sample["second"] for sample in samples]
    start = history[0]["second"] if history else 0.0
    steps = [row["second"] - start for row in history]
    return [
        plot("Memory of the gateway, MB", seconds, {"": [s["resident_bytes"] / 1e6 for s in samples]}),
        plot("CPU of the gateway, cores", seconds[1:], {"": _slopes(samples)}),
        plot("Open descriptors", seconds, {"": [s["descriptors"] for s in samples]}),
        plot(
            "Users and requests a second",
            steps,
            {"users": [row["users"] for row in history], "requests/s": [row["requests"] for row in history]},
        ),
        plot("99th percentile of discovery so far, ms", steps, {"": [row["p99_ms"] for row in history]}),
    ]


def _slopes(samples: list[dict[str, Any]]) -> list[float]:
    return [
        (after["cpu_seconds"] - before["cpu_seconds"]) / max(1e-6, after["second"] - before["second"])
        for before, after in pairwise(samples)
    ]


def plot(title: str, xs: list[float], series: dict[str, list[float]]) -> str:
    """Lines over seconds, as SVG."""
    if not xs:
        return ""
    top = max((max(values, default=0) for values in series.values()), default=0) or 1
    right = max(xs) or 1

    def point(x: float, y: float) -> str:
        across = MARGIN + x / right * (WIDTH - 2 * MARGIN)
        return f"{across:.1f},{HEIGHT - MARGIN - y / top * (HEIGHT - 2 * MARGIN):.1f}"

    lines = [
        f'<polyline fill="none" stroke="{colour}" stroke-width="1.5" points="'
        + " ".join(point(x, y) for x, y in zip(xs, values, strict=False))
        + f'"/><text x="{WIDTH - MARGIN}" y="{20 + 16 * row}" fill="{colour}" text-anchor="end">{name}</text>'
        for row, ((name, values), colour) in enumerate(zip(series.items(), COLOURS, strict=False))
    ]
    axes = (
        f'<text x="8" y="20">{html.escape(title)}</text><text x="8" y="{MARGIN}">{top:,.0f}</text>'
        f'<text x="8" y="{HEIGHT - MARGIN}">0</text>'
        f'<text x="{WIDTH - MARGIN}" y="{HEIGHT - 16}" text-anchor="end">{right:.0f} s</text>'
    )
    return f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" font-size="12">{axes}{"".join(lines)}</svg>'


def _table(rows: list[dict[str, Any]]) -> str:
    if not rows:
        return ""
    head = "".join(f"<th>{html.escape(key)}</th>" for key in rows[0])
    body = "".join(
        "<tr>" + "".join(f"<td>{html.escape(str(value))}</td>" for value in row.values()) + "</tr>"
        for row in rows
    )
    return f"<table><tr>{head}</tr>{body}</table>"


def _told(values: dict[str, Any]) -> str:
    return html.escape(", ".join(f"{key} {value}" for key, value in values.items()))
