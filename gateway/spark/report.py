"""Pages to read, in one style: a title, tables, plots. One self-contained HTML file without scripts.

Comes in: titles, cells and numbers. Goes out: HTML text with inline SVG. All text is escaped: rows of
tables and names of recipients are other people's words.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

_STYLE = """
body { font: 15px/1.45 system-ui, sans-serif; margin: 2rem auto; max-width: 70rem; padding: 0 1rem; color:
#222 } h1 { font-size: 1.5rem } h2 { font-size: 1.15rem; margin-top: 2rem } table { border-collapse:
collapse; margin: .5rem 0 1rem; width: 100% } th, td { border-bottom: 1px solid #ddd; padding: .25rem
.6rem; text-align: left; vertical-align: top } td.number, th.number { text-align: right;
font-variant-numeric: tabular-nums } td { overflow-wrap: anywhere } .good { color: #17692f } .bad { color:
#b3261e; font-weight: 600 } pre { background: #f6f6f6; padding: .5rem; white-space: pre-wrap;
overflow-wrap: anywhere } svg text { font: 12px system-ui, sans-serif; fill: #333 } .summary { font-size:
1.1rem } @media (prefers-color-scheme: dark) { body { background: #181818; color: #ddd } pre { background:
#262626 } th, td { border-color: #444 } svg text { fill: #ccc } .good { color: #6dd58c } .bad { color:
#ff8a80 } }
"""
_BAR_COLOUR = "#3b73b9"
_ROW_HEIGHT = 22
_LABEL_WIDTH = 280
_PLOT_WIDTH = 560
_VALUE_WIDTH = 110
_MOST_BARS = 40


@dataclass(frozen=True)
class Verdict:
    """A cell that is good or bad news."""

    text: str
    good: bool


Cell = str | int | float | Verdict | None


def page(title: str, *parts: str) -> str:
    """A whole document."""
    head = f'<meta charset="utf-8"><title>{escape(title)}</title><style>{_STYLE}</style>'
    body = "\n".join([f"<h1>{escape(title)}</h1>", *parts])
    return f'<!DOCTYPE html>\n<html lang="en"><head>{head}</head><body>\n{body}\n</body></html>\n'


def heading(text: str) -> str:
    """A section's title."""
    return f"<h2>{escape(text)}</h2>"


def paragraph(text: str, *, good: bool | None = None) -> str:
    """A sentence; with `good`, it is the summary of the page."""
    mark = "" if good is None else f' class="summary {"good" if good else "bad"}"'
    return f"<p{mark}>{escape(text)}</p>"


def preformatted(lines: Sequence[str]) -> str:
    """Lines as they are."""
    return f"<pre>{escape(chr(10).join(lines))}</pre>"


def table(columns: Sequence[str], rows: Sequence[Sequence[Cell]]) -> str:
    """A table; numbers stand to the right."""
    places = range(len(columns))
    numeric = [bool(rows) and all(isinstance(row[i], int | float) for row in rows) for i in places]
    head = "".join(f"<th{_number(numeric[i])}>{escape(name)}</th>" for i, name in enumerate(columns))
    lines = ["".join(_cell(cell, numeric[i]) for i, cell in enumerate(row)) for row in rows]
    body = "\n".join(f"<tr>{line}</tr>" for line in lines)
    return f"<table><thead><tr>{head}</tr></thead><tbody>\n{body}\n</tbody></table>"


def bars(title: str, values: Sequence[tuple[str, float]], unit: str = "") -> str:
    """A plot: one horizontal bar for each of the largest values."""
    shown = sorted(values, key=lambda one: -one[1])[:_MOST_BARS]
    if not shown:
        return ""
    largest = max((value for _, value in shown), default=0) or 1
    height = _ROW_HEIGHT * len(shown)
    width = _LABEL_WIDTH + _PLOT_WIDTH + _VALUE_WIDTH
    lines = [_bar(index, label, value, value / largest, unit) for index, (label, value) in enumerate(shown)]
    return (
        f"{heading(title)}<svg viewBox='0 0 {width} {height}' width='100%' role='img' "
        f"aria-label='{escape(title, quote=True)}'>{''.join(lines)}</svg>"
    )


def human(number: float) -> str:
    """1234567 as 1.2 M."""
    value = float(number)
    for unit in ("", " k", " M", " G", " T"):
        if abs(value) < 1000:  # noqa: PLR2004 - a step of the units
            return f"{value:.3g}{unit}"
        value /= 1000
    return f"{value:.3g} P"


def _bar(index: int, label: str, value: float, share: float, unit: str) -> str:
    top = index * _ROW_HEIGHT
    width = max(share * _PLOT_WIDTH, 1)
    text = f"{human(value)}{' ' + unit if unit else ''}"
    return (
        f"<text x='{_LABEL_WIDTH - 8}' y='{top + 15}' text-anchor='end'>{escape(label[-42:])}</text>"
        f"<rect x='{_LABEL_WIDTH}' y='{top + 3}' width='{width:.1f}' height='{_ROW_HEIGHT - 6}' "
        f"fill='{_BAR_COLOUR}'><title>{escape(label)}: {text}</title></rect>"
        f"<text x='{_LABEL_WIDTH + width + 6:.1f}' y='{top + 15}'>{text}</text>"
    )


def _cell(cell: Cell, numeric: bool) -> str:
    if isinstance(cell, Verdict):
        return f'<td class="{"good" if cell.good else "bad"}">{escape(cell.text)}</td>'
    if isinstance(cell, float):
        return f"<td{_number(numeric)}>{cell:,.2f}</td>"
    if isinstance(cell, int):
        return f"<td{_number(numeric)}>{cell:,}</td>"
    return f"<td>{escape(cell or '')}</td>"


def _number(numeric: bool) -> str:
    return ' class="number"' if numeric else ""
