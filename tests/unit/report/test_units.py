"""Numbers have three significant figures and a unit; the ticks of an axis have different labels."""

import datetime as dt
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.report.units import (
    BYTES,
    CORES,
    COUNT,
    DAYS,
    NUMBER,
    PER_SECOND,
    PERCENT,
    RATIO,
    SECONDS,
    Unit,
    day_ticks,
    log_ticks,
    rounded,
    significant,
    ticks,
)

UNITS = [BYTES, CORES, COUNT, NUMBER, PERCENT, PER_SECOND, RATIO, SECONDS]
FINITE = st.floats(allow_nan=False, allow_infinity=False)


@pytest.mark.parametrize(
    ("unit", "value", "text"),
    [
        (BYTES, 0, "0 B"),
        (BYTES, 1, "1 B"),
        (BYTES, 999, "999 B"),
        (BYTES, 999.9, "1 kB"),
        (BYTES, 999_999, "1 MB"),
        (BYTES, 1234567, "1.23 MB"),
        (BYTES, 1e12, "1 TB"),
        (BYTES, 5e18, "5,000 PB"),
        (BYTES, -2_500_000, "-2.5 MB"),
        (SECONDS, 0, "0 s"),
        (SECONDS, 1e-9, "1 ns"),
        (SECONDS, 1e-12, "0.001 ns"),
        (SECONDS, 0.00032, "320 µs"),
        (SECONDS, 0.9999, "1 s"),
        (SECONDS, 90, "90 s"),
        (SECONDS, 300, "5 min"),
        (SECONDS, 7200, "2 h"),
        (SECONDS, 1e12, "11,600,000 d"),
        (COUNT, 0, "0"),
        (COUNT, 1234567, "1,234,567"),
        (COUNT, 1e12, "1,000,000,000,000"),
        (COUNT, 2.5, "2.5"),
        (COUNT, 123456.7, "123 k"),
        (PERCENT, 104.04, "104%"),
        (RATIO, 1 / 3, "0.333\N{MULTIPLICATION SIGN}"),
        (CORES, 0.0123456, "0.0123 cores"),
        (PER_SECOND, 5122.123456789012, "5,120/s"),
        (NUMBER, 0.1 + 0.2, "0.3"),
        (NUMBER, 1e-9, "1.00e-09"),
        (NUMBER, 1e300, "1.00e+300"),
    ],
)
def test_a_number_has_three_significant_figures_and_a_fitting_prefix(
    unit: Unit, value: float, text: str
) -> None:
    assert unit.text(value) == text


@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.name)
@pytest.mark.parametrize("value", [None, math.nan, math.inf, -math.inf])
def test_a_missing_number_is_a_dash(unit: Unit, value: float | None) -> None:
    assert unit.text(value) == "\N{EN DASH}"


@pytest.mark.parametrize(
    ("value", "expected"),
    [(0.0, 0.0), (1234.5, 1230.0), (0.0012345, 0.00123), (-9.996, -10.0), (1e-9, 1e-9)],
)
def test_rounding_keeps_significant_figures(value: float, expected: float) -> None:
    assert rounded(value) == expected


@given(FINITE)
def test_a_rounded_number_is_within_half_a_percent(value: float) -> None:
    text = significant(value)
    # Only a number that rounds to more than the largest float has a text that cannot be read back.
    assert math.isclose(float(text.replace(",", "")), value, rel_tol=0.0051) or abs(value) > 1e308


@given(st.sampled_from(UNITS), FINITE)
def test_every_finite_number_has_a_short_text(unit: Unit, value: float) -> None:
    assert 0 < len(unit.text(value)) <= 30


@pytest.mark.parametrize(
    ("low", "high", "expected"),
    [
        (0, 0.12, [0, 0.05, 0.1, 0.15]),
        (0, 100, [0, 50, 100]),
        (0, 1e-9, [0, 5e-10, 1e-9]),
        (0, 1e12, [0, 5e11, 1e12]),
        (-3, 8, [-5, 0, 5, 10]),
        (5, 5, [0, 2, 4, 6]),
        (0, 0, [0, 0.5, 1]),
        (math.nan, 1, [0, 1]),
        (0, math.inf, [0, 1]),
        (8, -3, [-5, 0, 5, 10]),
    ],
)
def test_ticks_are_round_and_cover_the_range(low: float, high: float, expected: list[float]) -> None:
    assert ticks(low, high) == expected


@pytest.mark.parametrize(
    ("seconds", "expected"),
    [(50, [0, 15, 30, 45, 60]), (110, [0, 30, 60, 90, 120]), (3600, [0, 900, 1800, 2700, 3600])],
)
def test_ticks_of_time_are_parts_of_a_minute_or_an_hour(seconds: float, expected: list[float]) -> None:
    assert ticks(0, seconds, sexagesimal=True) == expected


@given(st.floats(-1e300, 1e300), st.floats(-1e300, 1e300), st.sampled_from(UNITS))
def test_ticks_are_few_and_their_labels_differ(one: float, other: float, unit: Unit) -> None:
    found = ticks(one, other, sexagesimal=unit is SECONDS)
    assert 2 <= len(found) <= 7
    assert found == sorted(set(found))
    slack = 1e-6 * (found[1] - found[0]) + 1e-290
    assert found[0] <= min(one, other) + slack
    assert found[-1] >= max(one, other) - slack
    assert len(set(unit.tick_texts(found))) == len(found)


def test_ticks_of_counts_are_whole_numbers() -> None:
    assert ticks(0, 1, whole=True) == [0, 1]
    assert ticks(0, 3, whole=True) == [0, 1, 2, 3]
    assert ticks(0, 0, whole=True) == [0, 1]
    assert ticks(0, 4000, whole=True) == [0, 1000, 2000, 3000, 4000]


def test_ticks_of_days_are_dates_and_at_least_two() -> None:
    first = dt.date(2026, 1, 30).toordinal()
    assert DAYS.tick_texts(day_ticks(first, first)) == ["2026-01-30", "2026-01-31"]
    assert DAYS.tick_texts(day_ticks(first, first + 9)) == [
        "2026-01-30", "2026-02-02", "2026-02-05", "2026-02-08",
    ]  # fmt: skip
    assert DAYS.text(None) == DAYS.text(math.nan) == "\N{EN DASH}"
    assert DAYS.text(1e12) == "9999-12-31"


@given(st.integers(1, 3_000_000), st.integers(0, 5000))
def test_ticks_of_days_cover_them(first: int, span: int) -> None:
    found = day_ticks(first, first + span)
    assert 2 <= len(found) <= 5
    assert found[0] == first
    assert found[-1] >= first + span


def test_the_labels_of_an_axis_have_one_scale() -> None:
    assert CORES.tick_texts([0, 0.05, 0.1]) == ["0", "0.05 cores", "0.10 cores"]
    assert BYTES.tick_texts([0, 5e8, 1e9]) == ["0", "0.5 GB", "1.0 GB"]
    assert COUNT.tick_texts([0, 10_000, 20_000]) == ["0", "10 k", "20 k"]
    assert SECONDS.tick_texts([]) == []


@pytest.mark.parametrize(
    ("low", "high", "expected"),
    [
        (20, 90, [10, 20, 50, 100]),
        (1e4, 1e7, [1e4, 1e5, 1e6, 1e7]),
        (5, 5, [1, 2, 5, 10]),
        (1, 1, [1, 2, 5, 10]),
    ],
)
def test_logarithmic_ticks_are_powers_of_ten(low: float, high: float, expected: list[float]) -> None:
    assert log_ticks(low, high) == pytest.approx(expected)


@given(st.floats(1e-300, 1e300), st.floats(1e-300, 1e300))
def test_logarithmic_ticks_cover_the_range(one: float, other: float) -> None:
    found = log_ticks(min(one, other), max(one, other))
    assert 2 <= len(found) <= 8
    assert found[0] <= min(one, other) * (1 + 1e-6)
    assert found[-1] >= max(one, other) * (1 - 1e-6)
