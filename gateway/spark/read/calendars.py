"""Converts dates and times of old Parquet files from the hybrid to the proleptic Gregorian calendar.

In: a file's footer and Arrow arrays. Out: the same values as Spark reads them. Spark before 3.0, and later
versions in legacy mode, write days before 1582-10-15 by the Julian calendar, and times before 1900 by the
time zone rules of old Java; the footer marks such files. The rules per zone are Spark's own table
(`julian-gregorian-rebase-micros.json`), kept in `julian_zones.json` without the values that are equal for
all zones: each entry holds the zone's offset, the difference of its times before 1900, later changes of
this difference, and the zone's names.
"""

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

import pyarrow as pa
import pyarrow.compute as pc

_VERSION = b"org.apache.spark.version"
_ZONE = b"org.apache.spark.timeZone"
_LEGACY_DATETIME = b"org.apache.spark.legacyDateTime"
_LEGACY_INT96 = b"org.apache.spark.legacyINT96"

# Where the two calendars begin to differ by another number of days: day since 1970, days to add.
_DAY_SWITCHES = (
    (-719164, 2),
    (-682945, 1),
    (-646420, 0),
    (-609895, -1),
    (-536845, -2),
    (-500320, -3),
    (-463795, -4),
    (-390745, -5),
    (-354220, -6),
    (-317695, -7),
    (-244645, -8),
    (-208120, -9),
    (-171595, -10),
    (-141427, 0),
)
_DAY_SECONDS = 86_400
_MICROS = 1_000_000
# A zone of Java that is no region: GMT with an offset. Java reads every other unknown name as GMT.
_OFFSET_ZONE = re.compile(r"GMT([+-])(\d{1,2})(?::?(\d\d))?")


@dataclass(frozen=True)
class FileCalendar:
    """The values of a file in the hybrid calendar: for each kind the writer's time zone, else None."""

    datetime_zone: str | None = None
    int96_zone: str | None = None

    @classmethod
    def of(cls, footer: Mapping[bytes, bytes] | None, default_zone: str) -> "FileCalendar":
        """Read a footer's key-value metadata as Spark does. `default_zone` is for writers that name none."""
        footer = footer or {}
        version = footer.get(_VERSION)
        if version is None:
            return cls()
        zone = footer.get(_ZONE, default_zone.encode()).decode()
        # Spark compares versions as text, too.
        return cls(
            zone if version < b"3.0.0" or _LEGACY_DATETIME in footer else None,
            zone if version < b"3.1.0" or _LEGACY_INT96 in footer else None,
        )

    def dates(self, array: pa.Array) -> pa.Array:
        """Rebase a date32 array."""
        if self.datetime_zone is None:
            return array
        return _rebased(array, pa.int32(), _DAY_SWITCHES, _ancient_day)

    def times(self, array: pa.Array) -> pa.Array:
        """Rebase a timestamp array in microseconds. One without a zone is of the type INT96."""
        zone = self.int96_zone if array.type.tz is None else self.datetime_zone
        if zone is None:
            return array
        rules = _zone_rules(zone)
        return _rebased(array, pa.int64(), rules.switches, rules.ancient)


@dataclass(frozen=True)
class _ZoneRules:
    """`switches`: from this microsecond of the file on, so many microseconds are added."""

    switches: tuple[tuple[int, int], ...]
    offset_seconds: int
    difference_seconds: int

    def ancient(self, micros: int) -> int:
        """Rebase one time before the year 1."""
        day = (micros + self.offset_seconds * _MICROS) // (_DAY_SECONDS * _MICROS)
        days = _ancient_day(day) - day
        return micros + (days * _DAY_SECONDS + self.difference_seconds) * _MICROS


@cache
def _zone_rules(zone: str) -> _ZoneRules:
    offset, difference, later = _zones().get(zone) or (_offset_seconds(zone), 0, ())
    common = ((day * _DAY_SECONDS - offset, days * _DAY_SECONDS + difference) for day, days in _DAY_SWITCHES)
    switches = tuple((at * _MICROS, add * _MICROS) for at, add in (*common, *later))
    return _ZoneRules(switches, offset, difference)


@cache
def _zones() -> Mapping[str, tuple[int, int, Sequence[tuple[int, int]]]]:
    text = files("gateway.spark.read").joinpath("julian_zones.json").read_text(encoding="utf-8")
    return {
        name: (offset, difference, later)
        for offset, difference, later, names in json.loads(text)
        for name in names
    }


def _offset_seconds(zone: str) -> int:
    match = _OFFSET_ZONE.fullmatch(zone)
    if match is None:
        return 0
    seconds = int(match[2]) * 3600 + int(match[3] or 0) * 60
    return -seconds if match[1] == "-" else seconds


def _rebased(
    array: pa.Array, integer: pa.DataType, switches: Sequence[tuple[int, int]], ancient: Callable[[int], int]
) -> pa.Array:
    numbers = array.cast(integer)
    least = pc.min(numbers).as_py()
    if least is None or least >= switches[-1][0]:
        return array
    if least < switches[0][0]:
        rebased = [
            number if number is None else _rebased_one(number, switches, ancient)
            for number in numbers.to_pylist()
        ]
        return pa.array(rebased, integer).cast(array.type)
    difference = pa.scalar(switches[0][1], integer)
    for start, add in switches[1:]:
        difference = pc.if_else(
            pc.greater_equal(numbers, pa.scalar(start, integer)), pa.scalar(add, integer), difference
        )
    return pc.add(numbers, difference).cast(array.type)


def _rebased_one(number: int, switches: Sequence[tuple[int, int]], ancient: Callable[[int], int]) -> int:
    if number < switches[0][0]:
        return ancient(number)
    return number + next(add for start, add in reversed(switches) if number >= start)


def _ancient_day(day: int) -> int:
    """A day by the Julian calendar as the day of the same name by the Gregorian one."""
    shifted = day + 2_440_588 + 32_082
    fours = (4 * shifted + 3) // 1461
    in_year = shifted - 1461 * fours // 4
    month = (5 * in_year + 2) // 153
    day_of_month = in_year - (153 * month + 2) // 5 + 1
    return days_of(fours - 4800 + month // 10, month + 3 - 12 * (month // 10), day_of_month)


def days_of(year: int, month: int, day: int) -> int:
    """Days since 1970-01-01 of a date of the proleptic Gregorian calendar, of any year."""
    shifted_year = year - (month <= 2)  # noqa: PLR2004 - years begin in March, so that leap days end them
    era, year_of_era = divmod(shifted_year, 400)
    day_of_year = (153 * ((month + 9) % 12) + 2) // 5 + day - 1
    return era * 146_097 + year_of_era * 365 + year_of_era // 4 - year_of_era // 100 + day_of_year - 719_468
