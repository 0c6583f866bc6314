"""Timestamps and integers of requests."""

import contextlib
from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.errors import InvalidParameter
from gateway.protocol.parsing import parse_timestamp
from gateway.protocol.queries import TimeTravel


@pytest.mark.parametrize(
    ("text", "same_as"),
    [
        ("2022-01-01T00:00:00Z", "2022-01-01T00:00:00+00:00"),
        ("2022-01-01T00:00:00.5Z", "2022-01-01T00:00:00.500+00:00"),
        ("2022-01-01T00:00:00.123999Z", "2022-01-01T00:00:00.123+00:00"),
        ("2022-01-01T02:30:00+02:30", "2022-01-01T00:00:00+00:00"),
        ("2022-01-01T00:00:00-0100", "2022-01-01T01:00:00+00:00"),
        ("2022-01-01 00:00:00", "2022-01-01T00:00:00+00:00"),
        ("2022-1-1 00:00:00.25", "2022-01-01T00:00:00.250+00:00"),
        ("1969-12-31T23:59:59.999Z", "1969-12-31T23:59:59.999+00:00"),
        ("2024-01-02T00:00Z", "2024-01-02T00:00:00+00:00"),
        ("2024-01-02T23:59", "2024-01-02T23:59:00+00:00"),
        ("2024-01-02 07:30+01", "2024-01-02T06:30:00+00:00"),
        ("2024-01-02", "2024-01-02T00:00:00+00:00"),
        ("20240102", "2024-01-02T00:00:00+00:00"),
        ("20240102T000000Z", "2024-01-02T00:00:00+00:00"),
        ("20240102T0130Z", "2024-01-02T01:30:00+00:00"),
        ("20240102T000000.25+0230", "2024-01-01T21:30:00.250+00:00"),
        ("2024-01-02t00:00:00z", "2024-01-02T00:00:00+00:00"),
        ("2024-01-02T00:00:00+18:00", "2024-01-01T06:00:00+00:00"),
    ],
)
def test_timestamps_are_read_as_utc(text: str, same_as: str) -> None:
    assert parse_timestamp(text) == round(datetime.fromisoformat(same_as).timestamp() * 1000)


@pytest.mark.parametrize(
    "text",
    [
        "\u0662\u0660\u0662\u0664-01-02T00:00:00Z",
        "\uff12\uff10\uff12\uff14\uff10\uff11\uff10\uff12",
        "2024-01-02T00:00:00+99:99",
        "2024-01-02T00:00:00+18:01",
        "2024-01-02T00:00:00-19:00",
        "2024-01-02T00:00:00+01:60",
        "2024-01-02T24:00:00Z",
        "2024-01-02T00:60Z",
        "2024-02-30",
        "2024-01-02Z",
        "2024-01-02T",
        "2024-01-02T00Z",
        "20240102 000000",
        "2024-0102T00:00:00Z",
        "0001-01-01T00:00:00+00:01",
        "1704153600",
    ],
)
def test_an_invalid_timestamp_is_refused(text: str) -> None:
    with pytest.raises((ValueError, OverflowError)):
        parse_timestamp(text)
    with pytest.raises(InvalidParameter, match="timestamp is a time in ISO 8601"):
        TimeTravel.parse({"timestamp": text})


@pytest.mark.parametrize("offset", ["01:00", "0100", "01"])
def test_a_blank_before_an_offset_is_the_plus_of_a_query_string(offset: str) -> None:
    expected = TimeTravel(None, parse_timestamp("2024-01-02T00:00:00+01:00"))
    assert TimeTravel.parse({"timestamp": f"2024-01-02T00:00:00 {offset}"}) == expected
    with pytest.raises(ValueError, match="2024"):
        parse_timestamp(f"2024-01-02T00:00:00 {offset}")


@given(
    st.datetimes(min_value=datetime(1900, 1, 1), max_value=datetime(2200, 1, 1)),  # noqa: DTZ001 - zone added below
    st.integers(-14 * 60, 14 * 60),
)
def test_timestamps_agree_with_datetime(moment: datetime, offset_minutes: int) -> None:
    zoned = moment.replace(tzinfo=timezone(timedelta(minutes=offset_minutes)))
    expected = (zoned - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(milliseconds=1)
    assert parse_timestamp(zoned.isoformat()) == expected


@given(st.text())
def test_a_text_is_a_timestamp_or_a_value_error(text: str) -> None:
    with contextlib.suppress(ValueError, OverflowError):
        assert isinstance(parse_timestamp(text), int)
