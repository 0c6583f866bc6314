"""Plots as SVG: bars, curves over files, and bars of stacked parts."""

from __future__ import annotations

import html
import math
from collections.abc import Mapping

BAR_HEIGHT = 22
LABEL_WIDTH = 320
PLOT_WIDTH = 480
PLOT_HEIGHT = 220
COLOURS = ("#3b6ea5", "#b5653b", "#5b8c5a")

Point = tuple[float, float]


def bars(values: Mapping[str, float]) -> str:
    """A bar for each value."""
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


def lines(curves: Mapping[str, list[Point]], unit: str) -> str:
    """Curves over files, both axes logarithmic: what grows with the table is a straight line up."""
    points = [point for curve in curves.values() for point in curve if point[1] > 0]
    if not points:
        return "<p>Not measured.</p>"
    left, bottom = (math.floor(math.log10(min(axis))) for axis in zip(*points, strict=True))
    right, top = (math.ceil(math.log10(max(axis))) for axis in zip(*points, strict=True))

    def place(point: Point) -> Point:
        across = (math.log10(point[0]) - left) / max(right - left, 1)
        up = (math.log10(point[1]) - bottom) / max(top - bottom, 1)
        return LABEL_WIDTH + across * PLOT_WIDTH, 10 + (1 - up) * PLOT_HEIGHT

    drawn = []
    for power in range(bottom, top + 1):
        x, y = place((10**left, 10**power))
        drawn.append(f'<line x1="{x}" x2="{x + PLOT_WIDTH}" y1="{y}" y2="{y}" stroke="#ddd"/>')
        drawn.append(f'<text x="{x - 8}" y="{y + 4}" text-anchor="end">{10.0**power:g} {unit}</text>')
    for power in range(left, right + 1):
        x, y = place((10**power, 10**bottom))
        drawn.append(f'<text x="{x}" y="{y + 18}" text-anchor="middle">{10**power:,}</text>')
    for number, (name, curve) in enumerate(curves.items()):
        colour = COLOURS[number % len(COLOURS)]
        places = [place(point) for point in curve if point[1] > 0]
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y in places)
        drawn.append(f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2"/>')
        drawn += [f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3" fill="{colour}"/>' for x, y in places]
        drawn.append(f'<text x="8" y="{24 + 18 * number}" fill="{colour}">{html.escape(name)}</text>')
    return f'<svg width="{LABEL_WIDTH + PLOT_WIDTH + 90}" height="{PLOT_HEIGHT + 40}">{"".join(drawn)}</svg>'


def stacks(stacks: Mapping[str, Mapping[str, float]]) -> str:
    """A bar for each stack, its parts side by side, and what they are."""
    if not stacks:
        return "<p>Not measured.</p>"
    parts = list(dict.fromkeys(part for stack in stacks.values() for part in stack))
    scale = PLOT_WIDTH / max(*(sum(stack.values()) for stack in stacks.values()), 1e-9)
    drawn = []
    for number, (name, stack) in enumerate(stacks.items()):
        top, left = number * BAR_HEIGHT, float(LABEL_WIDTH)
        drawn.append(
            f'<text x="{LABEL_WIDTH - 8}" y="{top + 15}" text-anchor="end">{html.escape(name)}</text>'
        )
        for part, value in stack.items():
            colour, width = COLOURS[parts.index(part) % len(COLOURS)], max(value, 0.0) * scale
            drawn.append(
                f'<rect x="{left:.1f}" y="{top + 3}" width="{width:.1f}" height="{BAR_HEIGHT - 6}" '
                f'fill="{colour}">'
                f"<title>{html.escape(part)}: {value:.2f}</title></rect>"
            )
            left += width
        drawn.append(f'<text x="{left + 6:.1f}" y="{top + 15}">{sum(stack.values()):.2f}</text>')
    for number, part in enumerate(parts):
        y = (len(stacks) + number) * BAR_HEIGHT + 15
        colour = COLOURS[number % len(COLOURS)]
        drawn.append(f'<text x="{LABEL_WIDTH}" y="{y}" fill="{colour}">{html.escape(part)}</text>')
    height = BAR_HEIGHT * (len(stacks) + len(parts))
    return f'<svg width="{LABEL_WIDTH + PLOT_WIDTH + 90}" height="{height}">{"".join(drawn)}</svg>'
