"""Draws the plots of the performance page from its tables.

    python bench/page_plots.py

In: docs/performance.md. Out: docs/images/profile.svg, a file that follows the reader's light or dark scheme.
A test compares the file with the page.
"""

import re
from collections import defaultdict
from pathlib import Path

from gateway.report.palette import DARK, LIGHT, declarations
from gateway.report.plots import WIDTH, StackPlot
from gateway.report.units import SECONDS

DOCS = Path(__file__).resolve().parents[1] / "docs"
LEGEND_HEIGHT = 28
MARGIN = 14
SWATCH = 11
CHARACTER = 6.8
NANOSECONDS = 1e-9


def profile(page: str) -> dict[str, dict[str, float]]:
    """Add up the table of stages: the seconds of each part of a hot and of a cold line."""
    rows = re.findall(r"^\| ([a-z ]+) \| [^|]+ \|([ \d]*)\|([ \d]*)\|$", page, re.MULTILINE)
    stacks: dict[str, dict[str, float]] = {"hot": defaultdict(float), "cold": defaultdict(float)}
    for part, hot, cold in rows:
        for name, cell in (("hot", hot), ("cold", cold)):
            stacks[name][part] += int(cell.strip() or 0) * NANOSECONDS
    return stacks


def profile_svg(page: str) -> str:
    """Draw the profile of a line."""
    return standalone(StackPlot("CPU of a file's line by part", profile(page), SECONDS))


def standalone(plot: StackPlot) -> str:
    """Return a plot with its legend and colours as a whole SVG file."""
    drawn = plot.svg()
    _, _, _, height = (float(number) for number in re.findall(r'viewBox="([^"]*)"', drawn)[0].split())
    inner = drawn.replace("<svg ", f'<svg y="{LEGEND_HEIGHT}" width="{WIDTH}" height="{height:g}" ', 1)
    whole = f"{-MARGIN} {-MARGIN} {WIDTH + 2 * MARGIN} {height + LEGEND_HEIGHT + 2 * MARGIN:g}"
    left, top, width, full_height = whole.split()
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="{whole}" width="{width}" height="{full_height}" '
        f'role="img" aria-label="{plot.title}">\n'
        f"<style>\nsvg {{ {declarations(LIGHT)} }}\n"
        f"@media (prefers-color-scheme: dark) {{ svg {{ {declarations(DARK)} }} }}\n"
        "text { font-family: system-ui, sans-serif; fill: var(--text); }\n</style>\n"
        f'<rect x="{left}" y="{top}" width="{width}" height="{full_height}" rx="10" fill="var(--page)"/>\n'
        f"{legend(plot)}{inner}\n</svg>\n"
    )


def legend(plot: StackPlot) -> str:
    """Draw a swatch and a name for each part, in one line."""
    parts, left = [], 0.0
    for entry in plot.legend:
        colour = entry.stroke.rpartition(" ")[2]
        parts.append(
            f'<rect x="{left:g}" y="0" width="{SWATCH}" height="{SWATCH}" rx="2" fill="{colour}"/>'
            f'<text x="{left + SWATCH + 5:g}" y="{SWATCH - 1}" font-size="12">{entry.name}</text>\n'
        )
        left += SWATCH + 5 + CHARACTER * len(entry.name) + 16
    return "".join(parts)


if __name__ == "__main__":
    text = (DOCS / "performance.md").read_text(encoding="utf-8")
    (DOCS / "images/profile.svg").write_text(profile_svg(text), encoding="utf-8")
