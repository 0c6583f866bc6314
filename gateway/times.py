"""The wall clock, units of time, and times as texts."""

import time
from datetime import UTC, datetime, timedelta
from typing import Literal

MILLISECONDS = 1000
"""Of a second."""
MINUTE_SECONDS, HOUR_SECONDS, DAY_SECONDS = 60, 3600, 86_400
LAST_TIME_MS = 253_402_300_799_999
"""The end of the year 9999."""


def epoch_ms() -> int:
    """Return the time in milliseconds since 1970."""
    return time.time_ns() // 1_000_000


def utc_text(at_ms: int, *, timespec: Literal["seconds", "milliseconds"] = "seconds") -> str:
    """Return a time in ISO 8601, from milliseconds since 1970."""
    if not 0 <= at_ms <= LAST_TIME_MS:
        return "after the year 9999" if at_ms > 0 else "before 1970"
    # A quotient with a fraction is a millisecond early for some times after 2128.
    at = datetime.fromtimestamp(at_ms // MILLISECONDS, UTC) + timedelta(milliseconds=at_ms % MILLISECONDS)
    return at.isoformat(timespec=timespec).replace("+00:00", "Z")
