"""Times as texts."""

import pytest

from gateway.times import LAST_TIME_MS, utc_text


@pytest.mark.parametrize(
    ("at_ms", "text"),
    [
        (0, "1970-01-01T00:00:00.000Z"),
        # As a float in seconds, the nearest one is below 227 milliseconds.
        (8_643_664_668_227, "2243-11-28T09:57:48.227Z"),
        (LAST_TIME_MS, "9999-12-31T23:59:59.999Z"),
        (LAST_TIME_MS + 1, "after the year 9999"),
        (-1, "before 1970"),
    ],
)
def test_a_time_is_exact_to_the_millisecond(at_ms: int, text: str) -> None:
    assert utc_text(at_ms, timespec="milliseconds") == text
