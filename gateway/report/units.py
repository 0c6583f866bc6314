"""Formats numbers for people: three significant figures, a unit with a prefix, ticks for an axis.

In: numbers in the base unit (bytes, seconds, cores). Out: text such as `1.25 GB` or `320 µs`. A missing
value (None, NaN, infinity) is a dash.
"""

import datetime as dt
import math
from collections.abc import Sequence
from dataclasses import dataclass

FIGURES = 3
MISSING = "\N{EN DASH}"
_SMALLEST_SPAN = 1e-290
_SMALLEST_PLAIN, _LARGEST_EXACT = 1e-6, 1e15
_STEPS = (1.0, 2.0, 5.0, 10.0)
_SEXAGESIMAL_STEPS = (1.0, 2.0, 5.0, 10.0, 15.0, 20.0, 30.0, 60.0)


@dataclass(frozen=True)
class Scale:
    """A multiple of the base unit and the text after its numbers.

    `least`: the smallest value in this scale, in the base unit; None means `factor`.
    """

    factor: float
    suffix: str
    least: float | None = None

    def holds(self, value: float) -> bool:
        """Return whether the rounded value is large enough for this scale."""
        least = self.factor if self.least is None else self.least
        return rounded(abs(value)) >= least * (1 - 1e-9)


@dataclass(frozen=True)
class Unit:
    """The format of the numbers of a column or an axis. `scales` ascend; the first also holds zero.

    `is_exact`: whole numbers keep all digits in text; only an axis shortens them.
    """

    name: str
    scales: tuple[Scale, ...]
    is_exact: bool = False

    def text(self, value: float | None) -> str:
        """A number with three significant figures, in the largest scale that it reaches."""
        if value is None or not math.isfinite(value):
            return MISSING
        if self.is_exact and float(value).is_integer() and abs(value) < _LARGEST_EXACT:
            return f"{int(value):,}{self.scales[0].suffix}"
        scale = self._scale(value)
        return f"{significant(value / scale.factor)}{scale.suffix}"

    def tick_texts(self, ticks: Sequence[float]) -> list[str]:
        """The labels of an axis: all in one scale, with the fewest decimals that represent every tick."""
        if not ticks:
            return []
        scale = self._scale(max(abs(tick) for tick in ticks))
        texts = _distinct([tick / scale.factor for tick in ticks])
        return [text if text == "0" else f"{text}{scale.suffix}" for text in texts]

    def _scale(self, value: float) -> Scale:
        """The largest scale that the rounded number reaches; the base unit for zero."""
        if value == 0:
            return next((scale for scale in self.scales if scale.factor == 1), self.scales[0])
        reached = [scale for scale in self.scales if scale.holds(value)]
        return reached[-1] if reached else self.scales[0]


@dataclass(frozen=True)
class DayUnit(Unit):
    """Days as numbers of `datetime.date.toordinal`."""

    def text(self, value: float | None) -> str:
        if value is None or not math.isfinite(value):
            return MISSING
        return dt.date.fromordinal(min(max(int(value), 1), dt.date.max.toordinal())).isoformat()

    def tick_texts(self, ticks: Sequence[float]) -> list[str]:
        """The dates of an axis."""
        return [self.text(tick) for tick in ticks]


def days(at: dt.datetime) -> float:
    """A time as the number of its day, with the part of the day that has passed, for axes in `DAYS`."""
    return at.toordinal() + (at.hour * 3600 + at.minute * 60 + at.second) / 86_400


def rounded(value: float) -> float:
    """A number rounded to three significant figures; 0, NaN and infinity are unchanged."""
    return float(f"{value:.{FIGURES - 1}e}")


def significant(value: float) -> str:
    """A rounded number without trailing zeros; with an exponent from 1e15 and below 1e-6."""
    short = rounded(value)
    if short == 0:
        return "0"
    if not _SMALLEST_PLAIN <= abs(short) < _LARGEST_EXACT:
        return f"{value:.{FIGURES - 1}e}"
    decimals = max(FIGURES - 1 - math.floor(math.log10(abs(short))), 0)
    text = f"{short:,.{decimals}f}"
    return text.rstrip("0").rstrip(".") if decimals else text


def ticks(
    low: float, high: float, *, most: int = 6, sexagesimal: bool = False, whole: bool = False
) -> list[float]:
    """About `most` round numbers that cover a range; at least two, also for an empty range.

    `sexagesimal`: steps of 15 and 30 seconds are round too, and beyond a minute steps of minutes.
    `whole`: only whole numbers, for counts.
    """
    if not math.isfinite(high - low):
        return [0.0, 1.0]
    low, high = min(low, high), max(low, high)
    if high - low <= max(1e-9 * max(abs(low), abs(high)), _SMALLEST_SPAN):
        # One point or equal values: the axis includes zero, or spans one unit where all are zero.
        low, high = min(low, 0.0), max(high, 0.0)
        high = high if high - low > _SMALLEST_SPAN else low + 1.0
    step = max(_step((high - low) / max(most - 2, 1), sexagesimal=sexagesimal), float(whole))
    first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    # Rounded by way of text: three steps of 0.1 are 0.3 and not 0.30000000000000004.
    return [float(f"{index * step:.12g}") for index in range(first, last + 1)]


def day_ticks(first: float, last: float) -> list[float]:
    """Two to five days as numbers of `datetime.date.toordinal`, beginning with the first one."""
    step = max(math.ceil((last - first) / 3), 1)
    steps = max(math.ceil((last - first) / step), 1)
    return [first + index * step for index in range(steps + 1)]


def log_ticks(low: float, high: float) -> list[float]:
    """Powers of ten that cover a positive range, with 2 and 5 between them for at most two decades."""
    first, last = math.floor(math.log10(low) + 1e-9), math.ceil(math.log10(high) - 1e-9)
    last = max(last, first + 1)
    parts = (1.0, 2.0, 5.0) if last - first <= 2 else (1.0,)  # noqa: PLR2004 - decades
    every = max(math.ceil((last - first) / 6), 1)
    ticks = [part * 10.0**power for power in range(first, last, every) for part in parts]
    return [*ticks, 10.0**last]


def _step(least: float, *, sexagesimal: bool) -> float:
    if sexagesimal and 1 < least <= 3600:  # noqa: PLR2004 - an hour
        base = 60.0 if least > 60 else 1.0  # noqa: PLR2004 - a minute
        return base * next(step for step in _SEXAGESIMAL_STEPS if base * step >= least)
    power = 10.0 ** math.floor(math.log10(least))
    return next((step * power for step in _STEPS if step * power >= least * (1 - 1e-9)), 10 * power)


def _distinct(values: Sequence[float]) -> list[str]:
    """Texts with the fewest decimals that represent every value."""
    tolerance = 1e-9 * max(map(abs, values))
    for decimals in range(13):
        texts = [f"{value:.{decimals}f}" for value in values]
        if all(abs(float(text) - value) <= tolerance for text, value in zip(texts, values, strict=True)):
            return ["0" if value == 0 else f"{value:,.{decimals}f}" for value in values]
    return [f"{value:.12g}" for value in values]


def _prefixes(unit: str, *prefixes: tuple[float, str]) -> tuple[Scale, ...]:
    return tuple(Scale(factor, f" {prefix}{unit}") for factor, prefix in prefixes)


_PARTS_OF_ONE = ((1e-9, "n"), (1e-6, "µ"), (1e-3, "m"), (1.0, ""))

COUNT = Unit(
    "count",
    (Scale(1, ""), Scale(1e3, " k", least=1e4), Scale(1e6, " M"), Scale(1e9, " G"), Scale(1e12, " T")),
    is_exact=True,
)
BYTES = Unit("bytes", _prefixes("B", (1, ""), (1e3, "k"), (1e6, "M"), (1e9, "G"), (1e12, "T"), (1e15, "P")))
SECONDS = Unit(
    "seconds",
    (
        *_prefixes("s", *_PARTS_OF_ONE),
        # Minutes begin at 300 s: 90 s is easier to compare with 30 s than 1.5 min is.
        Scale(60, " min", least=300),
        Scale(3600, " h", least=7200),
        Scale(86_400, " d", least=172_800),
    ),
)
CORES = Unit("cores", (Scale(1, " cores"),))
PERCENT = Unit("percent", (Scale(1, "%"),))
RATIO = Unit("ratio", (Scale(1, "\N{MULTIPLICATION SIGN}"),))
PER_SECOND = Unit("per second", (Scale(1, "/s"), Scale(1e6, " M/s")))
NUMBER = Unit("number", (Scale(1, ""),))
DAYS = DayUnit("days", (Scale(1, ""),))
