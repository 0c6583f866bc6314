"""Old calendars against Spark's table of rules."""

import datetime as dt
import json
import zipfile
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyspark
import pytest

from gateway.spark.read.calendars import _DAY_SWITCHES, FileCalendar, days_of
from gateway.spark.read.calendars import _ancient_day as ancient_day
from gateway.spark.read.calendars import _zone_rules as zone_rules

SPARK_3 = {b"org.apache.spark.version": b"3.5.1"}
SPARK_2 = {b"org.apache.spark.version": b"2.4.8"}
DATETIME = {b"org.apache.spark.legacyDateTime": b""}
INT96 = {b"org.apache.spark.legacyINT96": b""}
ZONE = {b"org.apache.spark.timeZone": b"Europe/Rome"}


def sparks_rules() -> list[Any]:
    jars = Path(pyspark.__file__).parent / "jars"
    (jar,) = jars.glob("spark-sql-api_*.jar")
    with zipfile.ZipFile(jar) as archive:
        return json.loads(archive.read("julian-gregorian-rebase-micros.json"))  # type: ignore[no-any-return]


def test_the_rules_of_every_zone_are_those_of_spark() -> None:
    rules = sparks_rules()
    assert len(rules) > 500
    for one in rules:
        ours = zone_rules(one["tz"]).switches
        assert [at // 1_000_000 for at, _ in ours] == one["switches"], one["tz"]
        assert [add // 1_000_000 for _, add in ours] == one["diffs"], one["tz"]


def test_days_are_counted_as_python_counts_them() -> None:
    for day in (dt.date(1, 1, 1), dt.date(4, 2, 29), dt.date(1900, 3, 1), dt.date(2000, 2, 29), dt.date.max):
        assert days_of(day.year, day.month, day.day) == (day - dt.date(1970, 1, 1)).days
    assert days_of(10_000, 1, 1) == days_of(9999, 12, 31) + 1
    assert days_of(0, 12, 31) == days_of(1, 1, 1) - 1


def test_the_arithmetic_of_ancient_days_agrees_with_the_table() -> None:
    for day, difference in _DAY_SWITCHES[:-1]:
        assert ancient_day(day) == day + difference


@pytest.mark.parametrize(
    ("footer", "datetime_zone", "int96_zone"),
    [
        ({}, None, None),
        ({**DATETIME, **INT96}, None, None),
        (SPARK_3, None, None),
        ({**SPARK_3, **DATETIME}, "Asia/Tokyo", None),
        ({**SPARK_3, **INT96, **ZONE}, None, "Europe/Rome"),
        ({b"org.apache.spark.version": b"3.0.3"}, None, "Asia/Tokyo"),
        ({**SPARK_2, **ZONE}, "Europe/Rome", "Europe/Rome"),
        (SPARK_2, "Asia/Tokyo", "Asia/Tokyo"),
    ],
)
def test_the_footer_names_the_old_calendar(
    footer: Any, datetime_zone: str | None, int96_zone: str | None
) -> None:
    assert FileCalendar.of(footer, "Asia/Tokyo") == FileCalendar(datetime_zone, int96_zone)


def test_days_and_times_are_moved_to_the_calendar_of_today() -> None:
    # 1582-10-04 by the Julian calendar is the day before 1582-10-15; Python takes that for 1582-10-14.
    days = pa.array([dt.date(1582, 10, 14), None, dt.date(1582, 10, 15), dt.date(2024, 2, 29)])
    assert FileCalendar("UTC").dates(days).to_pylist() == [
        dt.date(1582, 10, 4),
        None,
        dt.date(1582, 10, 15),
        dt.date(2024, 2, 29),
    ]
    assert FileCalendar().dates(days) is days
    before_1900 = pa.array([dt.datetime(1850, 1, 1, 8, tzinfo=dt.UTC)], pa.timestamp("us", tz="UTC"))
    # Old Java knows one offset of Los Angeles before 1883, -8 hours; it was 7 minutes and 2 seconds less.
    moved = FileCalendar("America/Los_Angeles").times(before_1900).to_pylist()
    assert moved == [dt.datetime(1850, 1, 1, 7, 52, 58, tzinfo=dt.UTC)]
    naive = before_1900.cast(pa.timestamp("us"))
    assert FileCalendar("America/Los_Angeles", None).times(naive) is naive
    assert FileCalendar(None, "America/Los_Angeles").times(naive) != naive


@pytest.mark.parametrize("zone", ["UTC", "America/Los_Angeles", "GMT+05:30", "+01:00"])
def test_years_before_the_first_are_moved_too(zone: str) -> None:
    far = days_of(-300, 6, 1)
    array = pa.array([far * 86_400_000_000, -1, None], pa.int64()).cast(pa.timestamp("us", tz="UTC"))
    moved = FileCalendar(zone).times(array).cast(pa.int64()).to_pylist()
    assert moved[1:] == [-1, None]
    assert round(moved[0] / 86_400_000_000 - far) == 4
