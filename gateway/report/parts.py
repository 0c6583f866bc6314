"""The parts of a page as values: sections of tables, plots, findings and sentences."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from gateway.report.plots import Plot
from gateway.report.units import COUNT, MISSING, NUMBER, Unit

_LONG = 24
"""The cells of a column with a text of more characters are wrapped."""


@dataclass(frozen=True)
class Verdict:
    """A cell that reports success or failure. Rows with a failure come first in their table."""

    text: str
    good: bool


@dataclass(frozen=True)
class Quantity:
    """A number with its own unit, for columns whose rows have different units."""

    value: float | None
    unit: Unit


Cell = str | int | float | Verdict | Quantity | None


@dataclass(frozen=True)
class Column:
    """A column of a table. `unit` formats its numbers; without a unit whole numbers are counts."""

    name: str
    unit: Unit | None = None


@dataclass(frozen=True)
class CellText:
    """The text of a cell. `sort_key`: the number or text that sorts it; empty for a missing value."""

    text: str
    sort_key: str
    css_class: str = ""


@dataclass(frozen=True)
class Table:
    """Rows of cells: failures first, otherwise in the order given. A click on a heading sorts by its column.

    `total_rows`: the number of all rows, where the table has only the first of them.
    """

    columns: Sequence[Column]
    rows: Sequence[Sequence[Cell]]
    total_rows: int | None = None
    kind: str = field(default="table", init=False)

    @property
    def is_cut(self) -> bool:
        """Return whether rows are left out."""
        return self.total_rows is not None and self.total_rows > len(self.rows)

    @property
    def heads(self) -> list[CellText]:
        """The headings. Class `number` aligns a column to the right, `long` wraps its texts."""
        return [
            CellText(column.name, "", _column_class(column, [row[index] for row in self.rows]))
            for index, column in enumerate(self.columns)
        ]

    @property
    def texts(self) -> list[list[CellText]]:
        """The rows as text, failures first."""
        kinds = [(column.unit, head.css_class) for column, head in zip(self.columns, self.heads, strict=True)]
        ordered = sorted(self.rows, key=lambda row: not is_failure(row))
        return [[cell_text(cell, *kind) for cell, kind in zip(row, kinds, strict=True)] for row in ordered]


@dataclass(frozen=True)
class Finding:
    """A failure: its subject, the problem and the action that resolves it. `details` are shown verbatim.

    `command`: a command or its options for the end of the action, which is not broken across lines.
    """

    subject: str
    problem: str
    action: str = ""
    details: Sequence[str] = ()
    command: str = ""


@dataclass(frozen=True)
class Findings:
    """A list of failures."""

    findings: Sequence[Finding]
    kind: str = field(default="findings", init=False)


@dataclass(frozen=True)
class Paragraph:
    """A paragraph of text."""

    text: str
    kind: str = field(default="paragraph", init=False)


@dataclass(frozen=True)
class Plots:
    """Plots side by side, as many in a row as fit the width."""

    plots: Sequence[Plot]
    kind: str = field(default="plots", init=False)


Part = Table | Findings | Paragraph | Plots


@dataclass(frozen=True)
class Section:
    """A title and its parts."""

    title: str
    parts: Sequence[Part]


def is_failure(row: Sequence[Cell]) -> bool:
    """Return whether a row has a bad verdict."""
    return any(isinstance(cell, Verdict) and not cell.good for cell in row)


def cell_text(cell: Cell, unit: Unit | None = None, css_class: str = "") -> CellText:
    """The text and the sort key of a cell. `css_class` is the class of its column."""
    if isinstance(cell, Verdict):
        verdict = "good" if cell.good else "bad"
        return CellText(cell.text, cell.text, f"{css_class} {verdict}".strip())
    if isinstance(cell, Quantity):
        return _number(cell.value, cell.unit, css_class)
    if cell is None:
        return CellText(MISSING, "", css_class)
    if isinstance(cell, bool):
        return CellText("yes" if cell else "no", str(int(cell)), css_class)
    if isinstance(cell, int | float):
        return _number(cell, unit or (COUNT if isinstance(cell, int) else NUMBER), css_class)
    return CellText(cell, cell, css_class)


def _number(value: float | None, unit: Unit, css_class: str) -> CellText:
    text = unit.text(value)
    return CellText(text, "" if text == MISSING else repr(value), css_class)


def _column_class(column: Column, cells: Sequence[Cell]) -> str:
    if column.unit is not None or _is_numeric(cells):
        return "number"
    return "long" if any(isinstance(cell, str) and len(cell) > _LONG for cell in cells) else ""


def _is_numeric(cells: Sequence[Cell]) -> bool:
    """Return whether the column has numbers, and besides them only missing values and verdicts."""
    numbers = [isinstance(cell, int | float | Quantity) and not isinstance(cell, bool) for cell in cells]
    texts = [cell for cell, is_number in zip(cells, numbers, strict=True) if not is_number]
    return any(numbers) and all(cell is None or isinstance(cell, Verdict) for cell in texts)
