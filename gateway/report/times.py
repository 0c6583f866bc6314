"""Times in words, as pages show them."""

from __future__ import annotations

import datetime as dt

from gateway.times import DAY_SECONDS, HOUR_SECONDS, MILLISECONDS, MINUTE_SECONDS

MONTH_SECONDS, YEAR_SECONDS = 2_629_746, 31_556_952
SOON_SECONDS = 14 * DAY_SECONDS
"""Credentials that end within this time are shown in red."""
NEVER = "never"
UNITS = (
    (YEAR_SECONDS, 1, "year"),
    # 90 days are the life of a token: the page shows them as days.
    (MONTH_SECONDS, 4, "month"),
    (DAY_SECONDS, 1, "day"),
    (HOUR_SECONDS, 1, "hour"),
    (MINUTE_SECONDS, 1, "minute"),
)
"""Each with the least number of it that is shown."""
ROUNDED = 0.98
"""Of a unit: a token that ends in a day ends a second later in 1 day, and not in 24 hours."""


def moment(time_ms: int | None) -> str:
    """Return a time to the second, in UTC."""
    if time_ms is None:
        return NEVER
    try:
        at = dt.datetime.fromtimestamp(time_ms / MILLISECONDS, dt.UTC)
    except (ValueError, OverflowError, OSError):
        return "beyond the calendar"
    return f"{at:%Y-%m-%d %H:%M:%S} UTC"


def ago(time_ms: int | None, now_ms: int) -> str:
    """Return how long ago a time was."""
    if time_ms is None:
        return NEVER
    return f"{span(max(0.0, (now_ms - time_ms) / MILLISECONDS))} ago"


def left(time_ms: int | None, now_ms: int) -> str:
    """Return the time that is left until an end."""
    if time_ms is None:
        return NEVER
    seconds = (time_ms - now_ms) / MILLISECONDS
    return f"in {span(seconds)}" if seconds > 0 else "ended"


def is_soon(time_ms: int | None, now_ms: int) -> bool:
    """Return whether an end is near or has passed."""
    return time_ms is not None and time_ms - now_ms < SOON_SECONDS * MILLISECONDS


def span(seconds: float) -> str:
    """Return a duration in its largest unit, rounded."""
    for length, least, name in UNITS:
        if seconds >= least * length * ROUNDED:
            number = round(seconds / length)
            return f"{number} {name}{'s' if number != 1 else ''}"
    return f"{int(seconds)} s"
