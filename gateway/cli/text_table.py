"""Rows as a table: with borders on a terminal, with tabs for other programs."""

from __future__ import annotations

import sys
import unicodedata
from collections.abc import Iterable, Mapping, Sequence

from gateway.report.text import printable

MAX_CELL_LENGTH = 120


def write_table(rows: Sequence[Mapping[str, object]]) -> None:
    """Print a table of rows with the same keys."""
    sys.stdout.write(text_table(rows) if sys.stdout.isatty() else tabbed(rows))


def tabbed(rows: Sequence[Mapping[str, object]]) -> str:
    """Return a line for the header and for each row, with tabs between the cells, none of which is cut."""
    lines = [list(rows[0]), *([_text(value) for value in row.values()] for row in rows)]
    return "".join("\t".join(line) + "\n" for line in lines)


def text_table(rows: Sequence[Mapping[str, object]]) -> str:
    """Return a table of rows with the same keys, which are its header. None is shown as `null`."""
    header = list(rows[0])
    cells = [header, *([_cell(row[name]) for name in header] for row in rows)]
    widths = [max(map(_width, column)) for column in zip(*cells, strict=True)]
    first, *rest = (
        _line("│┆│", (_padded(*cell) for cell in zip(line, widths, strict=True))) for line in cells
    )
    top, middle, bottom = (
        _line(corners, (rule * (width + 2) for width in widths))
        for corners, rule in (("┌┬┐", "─"), ("╞╪╡", "═"), ("└┴┘", "─"))
    )
    return "".join(f"{line}\n" for line in [top, first, middle, *rest, bottom])


def _cell(value: object) -> str:
    """Return the text of a value on one line, cut where it is long."""
    text = _text(value)
    return text if len(text) <= MAX_CELL_LENGTH else f"{text[:MAX_CELL_LENGTH]}…"


def _text(value: object) -> str:
    # Tables and their writers are those of others: their texts must not command a terminal.
    return "null" if value is None else printable(" ".join(str(value).split()))


def _width(text: str) -> int:
    """Return the number of a terminal's columns: wide characters take two, and combining ones none."""
    return sum(
        0 if unicodedata.combining(char) else 1 + (unicodedata.east_asian_width(char) in {"F", "W"})
        for char in text
    )


def _padded(text: str, width: int) -> str:
    return f" {text}{' ' * (width - _width(text))} "


def _line(borders: str, parts: Iterable[str]) -> str:
    """Return the parts with borders: to the left, between them, and to the right."""
    return f"{borders[0]}{borders[1].join(parts)}{borders[2]}"
