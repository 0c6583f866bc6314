"""The bars that the gateway is held against, and where their figures stand in the results of a run.

In: the results of `run.py`, as it keeps them as JSON. Out: a row for each bar: what, the figure, the bar,
whether it holds; None where the run did not measure it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

HOT_BYTES_PER_FILE = 64
"""What hot columns may hold of a file beside its path and statistics."""
HOT_MEMORY_RATIO = 1.3

Results = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Bar:
    """A figure that has to stay below a limit, or above it."""

    what: str
    figure: Callable[[Results], float]
    limit: float
    unit: str
    is_floor: bool = False

    def holds(self, figure: float) -> bool:
        """Whether a figure is on the right side."""
        return figure > self.limit if self.is_floor else figure < self.limit


@dataclass(frozen=True, slots=True)
class Row:
    """A bar as a run found it."""

    bar: Bar
    figure: float | None

    @property
    def verdict(self) -> str:
        """In a word."""
        if self.figure is None:
            return "not measured"
        return "holds" if self.bar.holds(self.figure) else "MISSED"

    def __str__(self) -> str:
        figure = "-" if self.figure is None else f"{self.figure:.3g}"
        side = "over" if self.bar.is_floor else "under"
        return f"{self.verdict:12} {self.bar.what}: {figure} (bar: {side} {self.bar.limit:g} {self.bar.unit})"


def rows(results: Results) -> list[Row]:
    """All bars."""
    return [Row(bar, _figure(bar, results)) for bar in BARS]


def _figure(bar: Bar, results: Results) -> float | None:
    try:
        return float(bar.figure(results))
    except KeyError:
        return None


def _of(name: str, field: str) -> Callable[[Results], float]:
    return lambda results: results["results"][name][field]


def _ratio(name: str) -> Callable[[Results], float]:
    return _of(name, "ratio")


def _worst(names: list[str], field: str) -> Callable[[Results], float]:
    return lambda results: max(results["results"][name][field] for name in names)


def _large(field: str) -> Callable[[Results], float]:
    return lambda results: results["large"]["results"]["cold parquet"][field]


def _against_large(field: str) -> Callable[[Results], float]:
    """How much more ten times as many files take, of which the smaller table is the measure."""
    return lambda results: _large(field)(results) / results["results"]["cold parquet"][field]


def _hot_memory(results: Results) -> float:
    kept = results["results"]["answers"]["text_bytes"] + HOT_BYTES_PER_FILE * results["adds"]
    return _worst(["hot parquet", "hot delta"], "peak_above_idle_mb")(results) * 1e6 / kept


COLD, HOT = ["cold parquet", "cold delta"], ["hot parquet", "hot delta"]
PORTABLE = ["hot portable parquet", "hot portable delta"]
BESIDE = "p99 beside four full listings, ms"
SLOW = "50 slow readers"

BARS = [
    Bar("hot, portable signer, CPU per file", _worst(PORTABLE, "us_per_file"), 1.0, "µs"),
    Bar("hot, widest lanes, CPU per file", _worst(HOT, "us_per_file"), 0.7, "µs"),
    Bar(
        "hot against a bare aiohttp stream, CPU",
        _ratio("hot against a bare aiohttp stream, CPU"),
        3.5,
        "x",
    ),
    Bar("cold, CPU per file", _worst(COLD, "us_per_file"), 2.0, "µs"),
    Bar(
        "cold, one of 365 days of a clustered checkpoint, share that is read",
        _of("cold, one of 365 days of a clustered checkpoint", "share"),
        0.2,
        "of its bytes",
    ),
    Bar("decode against delta_kernel, CPU", _ratio("decode against delta_kernel, CPU"), 0.5, "x"),
    Bar("cold answer against deltalake, time", _ratio("cold answer against deltalake, time"), 1 / 3, "x"),
    Bar(
        "cold answer against deltalake, memory",
        _of("cold answer against deltalake, time", "memory_ratio"),
        0.1,
        "x",
    ),
    Bar("first byte, hot", _worst(HOT, "first_byte_ms"), 10, "ms"),
    Bar("first byte, cold", _worst(COLD, "first_byte_ms"), 150, "ms"),
    Bar("first byte of a process, cold", _worst(COLD, "very_first_byte_ms"), 150, "ms"),
    Bar("peak memory above idle, cold", _worst(COLD, "peak_above_idle_mb"), 80, "MB"),
    Bar("the same, large table", _large("peak_above_idle_mb"), 80, "MB"),
    Bar("large table against the other, memory", _against_large("peak_above_idle_mb"), 1.2, "x"),
    Bar("memory above idle, hot, of paths + stats + 64 a file", _hot_memory, HOT_MEMORY_RATIO, "x"),
    Bar("large table against the other, CPU per file", _against_large("us_per_file"), 1.15, "x"),
    Bar("one thread against two, time", _ratio("one thread against two, time"), 1.8, "x", is_floor=True),
    Bar("last page against first, cold", _ratio("last page against first, cold"), 1.5, "x"),
    Bar("last page against first, hot", _ratio("last page against first, hot"), 1.5, "x"),
    Bar("p99 of GET /shares beside four full listings", _of(BESIDE, "shares"), 20, "ms"),
    Bar("p99 of a small query beside four full listings", _of(BESIDE, "small query"), 20, "ms"),
    Bar("50 slow readers, memory above idle", _of(SLOW, "above_idle_mb"), 64, "MB"),
    Bar("50 slow readers, socket buffers", _of(SLOW, "kernel_mb"), 32, "MB"),
    Bar(
        "requests/s of a small query against a bare handler",
        _ratio("small queries against a bare handler, requests/s"),
        0.45,
        "x",
        is_floor=True,
    ),
]
