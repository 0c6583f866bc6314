"""The limits that figures of the gateway must keep, as data, and what a run found for each."""

from collections.abc import Sequence
from dataclasses import dataclass

from figures import Results, text
from logs import SMALL
from make_log import WRITERS
from scenarios import DEFAULT, HUNDRED_THOUSAND, LOCAL, MILLION, ON_DISK, SCENARIOS

TEN_MILLION = 10_000_000
MICRO, MILLI, MEGA = 1e-6, 1e-3, 1e6
REFERENCE_SECONDS = 0.4 * MICRO
"""CPU per file of the bare stream on the machine for which limits in seconds hold."""


@dataclass(frozen=True, slots=True)
class Bar:
    """A figure of the gateway and its limit in base units. `is_floor`: it must not be below the limit."""

    setting: str
    scenario: str
    files: int
    quantity: str
    limit: float
    is_floor: bool = False

    @property
    def unit(self) -> str:
        """The unit of the figure, as the table of scenarios has it."""
        return next(
            scenario.quantities[self.quantity]
            for scenario in SCENARIOS
            if (scenario.setting, scenario.name) == (self.setting, self.scenario)
            and self.quantity in scenario.quantities
        )

    @property
    def what(self) -> str:
        return f"{self.scenario}, {self.files:,} files: {self.quantity}"

    @property
    def limit_text(self) -> str:
        return f"{'at least' if self.is_floor else 'at most'} {text(self.limit, self.unit)}"

    def holds(self, figure: float) -> bool:
        """Return whether a figure keeps the limit."""
        return figure >= self.limit if self.is_floor else figure <= self.limit


@dataclass(frozen=True, slots=True)
class Row:
    """A bar and the figure of a run; None where the run did not measure it.

    `slowness`: how many times the CPU of the reference machine a bare stream took in the run, None where it
    was not measured.
    """

    bar: Bar
    figure: float | None
    slowness: float | None = None

    @property
    def verdict(self) -> str:
        """`holds`, `holds scaled` by the slowness of the machine, `MISSED` or `not measured`."""
        if self.figure is None:
            return "not measured"
        if self.bar.holds(self.figure):
            return "holds"
        return "holds scaled" if self.bar.holds(self.figure / self._scale) else "MISSED"

    @property
    def _scale(self) -> float:
        return (self.slowness or 1) if self.bar.unit == "s" else 1

    @property
    def figure_text(self) -> str:
        return text(self.figure, self.bar.unit)

    def __str__(self) -> str:
        name = f"{self.bar.setting}: {self.bar.what}"
        scaled = f"; scaled {text(self.bar.limit * self._scale, self.bar.unit)}" if self._scale != 1 else ""
        return f"{self.verdict:12} {name} {self.figure_text} ({self.bar.limit_text}{scaled})"


def rows(results: Results, bars: Sequence[Bar] | None = None) -> list[Row]:
    """Return all bars with the figures of a run."""
    bare = results.find(LOCAL, "hot answer beside a stream", MILLION, "CPU per file", "bare aiohttp")
    slowness = bare and bare / REFERENCE_SECONDS
    return [
        Row(bar, results.find(bar.setting, bar.scenario, bar.files, bar.quantity), slowness)
        for bar in (BARS if bars is None else bars)
    ]


OF_WRITERS = (
    ("full answer", "cold CPU per file", 1.2 * MICRO),
    ("full answer", "cold time", 0.9),
    ("full answer", "cold first byte", 50 * MILLI),
    ("full answer", "cold peak beyond kept", 80 * MEGA),
    ("limitHint 1, cold", "time", 40 * MILLI),
    ("one day, cold", "time", 0.3),
    ("bounds of a column, cold", "time", 0.6),
    ("first page of 10,000, cold", "time", 60 * MILLI),
)

BARS = (
    Bar(DEFAULT, "small query", SMALL, "repeated, rate against bare aiohttp", 0.45, is_floor=True),
    Bar(DEFAULT, "small query", SMALL, "different bodies, rate against bare aiohttp", 0.3, is_floor=True),
    Bar(DEFAULT, "table metadata", HUNDRED_THOUSAND, "GET /version, kept connection, CPU", 0.25 * MILLI),
    Bar(DEFAULT, "table metadata", HUNDRED_THOUSAND, "GET /metadata, kept connection, CPU", 0.25 * MILLI),
    Bar(DEFAULT, "full answer", MILLION, "hot CPU per file", 0.5 * MICRO),
    Bar(DEFAULT, "full answer", HUNDRED_THOUSAND, "hot CPU per file", 0.55 * MICRO),
    Bar(DEFAULT, "full answer", MILLION, "cold CPU per file", 1.3 * MICRO),
    Bar(DEFAULT, "full answer", MILLION, "cold time", 0.9),
    Bar(DEFAULT, "full answer", MILLION, "cold first byte", 0.12),
    Bar(DEFAULT, "full answer", HUNDRED_THOUSAND, "cold CPU", 0.18),
    Bar(DEFAULT, "full answer", HUNDRED_THOUSAND, "cold time", 0.15),
    Bar(DEFAULT, "full answer", TEN_MILLION, "cold first byte", 0.2),
    Bar(DEFAULT, "full answer", TEN_MILLION, "cold peak beyond kept", 80 * MEGA),
    Bar(DEFAULT, "full answer", TEN_MILLION, "hot peak beyond kept", 80 * MEGA),
    Bar(DEFAULT, "limitHint 1, cold", MILLION, "time", 0.06),
    Bar(DEFAULT, "limitHint 1, cold", TEN_MILLION, "time", 0.1),
    Bar(DEFAULT, "one day, cold", MILLION, "time", 0.4),
    Bar(DEFAULT, "one day, cold", TEN_MILLION, "time", 2.5),
    Bar(DEFAULT, "one day, cold", MILLION, "time again", 0.02),
    Bar(DEFAULT, "one day, cold", TEN_MILLION, "time again", 0.15),
    *(
        Bar(DEFAULT, f"{scenario}, {writer}", MILLION, quantity, limit)
        for writer in WRITERS
        for scenario, quantity, limit in OF_WRITERS
    ),
    Bar(ON_DISK, "first answer after a restart", MILLION, "first byte", 0.03),
    Bar(ON_DISK, "first answer after a restart", MILLION, "CPU against hot", 1.1),
    Bar(ON_DISK, "second worker", MILLION, "first byte", 0.03),
    Bar(ON_DISK, "second worker", MILLION, "CPU against hot", 1.1),
    Bar(ON_DISK, "second worker", MILLION, "memory of two against one", 1.15),
    Bar(LOCAL, "full answer", MILLION, "cold CPU per file", 1.0 * MICRO),
    Bar(LOCAL, "full answer", MILLION, "cold time", 0.6),
    Bar(LOCAL, "full answer", MILLION, "cold first byte", 0.05),
    Bar(LOCAL, "full answer", MILLION, "cold peak above idle", 80 * MEGA),
    Bar(LOCAL, "full answer", TEN_MILLION, "cold peak above idle", 80 * MEGA),
    Bar(LOCAL, "full answer", MILLION, "hot CPU per file, portable", 1.0 * MICRO),
    Bar(LOCAL, "full answer", MILLION, "hot peak against text and 64 bytes a file", 1.3),
    Bar(LOCAL, "threads", MILLION, "time with one thread against two", 1.8, is_floor=True),
    Bar(LOCAL, "decoding and replay", MILLION, "CPU per file against delta_kernel", 0.5),
    Bar(LOCAL, "cold answer beside a list", MILLION, "time against deltalake", 1 / 3),
    Bar(LOCAL, "cold answer beside a list", MILLION, "peak memory against deltalake", 0.1),
    Bar(LOCAL, "hot answer beside a stream", MILLION, "CPU per file against bare aiohttp", 1.6),
    Bar(LOCAL, "one day of an ordered checkpoint", MILLION, "share of the checkpoint that is read", 20),
    Bar(LOCAL, "pages", MILLION, "cold, last page against first", 1.5),
    Bar(LOCAL, "pages", MILLION, "hot, last page against first", 1.5),
    Bar(LOCAL, "beside four full listings", MILLION, "GET /shares, p99", 20 * MILLI),
    Bar(LOCAL, "beside four full listings", MILLION, "small query, p99", 20 * MILLI),
    Bar(LOCAL, "50 slow readers", MILLION, "memory above idle", 64 * MEGA),
    Bar(LOCAL, "50 slow readers", MILLION, "socket buffers", 32 * MEGA),
)
