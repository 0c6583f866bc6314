"""Figures as flat rows, each with its setting, scenario, number of files, subject, quantity and unit.

Values are in base units (seconds, bytes). A run keeps them as JSON; bars, the report and the table of the
performance page look them up.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from gateway.report.units import BYTES, COUNT, PER_SECOND, PERCENT, RATIO, SECONDS, Unit

GATEWAY = "gateway"

UNITS: Mapping[str, Unit] = {
    "s": SECONDS,
    "B": BYTES,
    "x": RATIO,
    "%": PERCENT,
    "/s": PER_SECOND,
    "": COUNT,
}

Measured = Mapping[str, Mapping[str, float]]
"""The values of a scenario: subject, then quantity."""


@dataclass(frozen=True, slots=True)
class Figure:
    """One measured value."""

    setting: str
    scenario: str
    files: int
    subject: str
    quantity: str
    value: float
    unit: str

    @property
    def text(self) -> str:
        """The value with its unit, such as `1.25 µs`."""
        return text(self.value, self.unit)

    def __str__(self) -> str:
        where = f"{self.setting}: {self.scenario}, {self.files:,} files, {self.subject}"
        return f"{where}: {self.quantity} {self.text}"


@dataclass
class Results:
    """All figures of a run, and where and how they were measured."""

    command: str
    date: str
    machine: Mapping[str, Any]
    figures: list[Figure] = field(default_factory=list)

    def find(
        self, setting: str, scenario: str, files: int, quantity: str, subject: str = GATEWAY
    ) -> float | None:
        """Return one value; None where it was not measured."""
        wanted = (setting, scenario, files, subject, quantity)
        for figure in self.figures:
            if (figure.setting, figure.scenario, figure.files, figure.subject, figure.quantity) == wanted:
                return figure.value
        return None

    def of(self, setting: str, scenario: str | None = None) -> Iterator[Figure]:
        """The figures of a setting, or of one of its scenarios."""
        return (
            figure
            for figure in self.figures
            if figure.setting == setting and scenario in (None, figure.scenario)
        )

    def save(self, path: Path) -> None:
        """Write all figures as JSON."""
        path.write_text(json.dumps(asdict(self), indent=1) + "\n")


def text(value: float | None, unit: str) -> str:
    """Return a value with its unit; a dash for a missing one."""
    return UNITS[unit].text(value)


def unique(values: Sequence[Any]) -> list[Any]:
    """Return the values without repetitions, in order."""
    return list(dict.fromkeys(values))
