"""The clock of this machine against the `Date` header of answers."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

from gateway.doctor.findings import Owner, Problem
from gateway.storage.refusals import seconds_ahead

if TYPE_CHECKING:
    # The command reads profiles' names before it loads the HTTP client.
    from gateway.doctor.transport import Answer

TOLERATED_SECONDS = 60
REFRESH_MARGIN_SECONDS = 15 * 60
"""Spark clients replace URLs that end within this time. A clock that is further ahead finds no valid one."""


def skew_seconds(answer: Answer) -> float | None:
    """Return the seconds that this machine is ahead of the `Date` of an answer; None without one."""
    return seconds_ahead(answer.headers.get("date", ""), answer.received_seconds)


def clock_problem(answer: Answer, service: str) -> Problem | None:
    """Return the problem of a clock that differs from the clock of a service."""
    skew = skew_seconds(answer)
    if skew is None or abs(skew) <= TOLERATED_SECONDS:
        return None
    amount = f"{abs(skew):.0f} seconds" if abs(skew) < 2 * 60 else f"{abs(skew) / 60:.0f} minutes"
    return Problem(
        f"the clock of this machine is {amount} {'ahead of' if skew > 0 else 'behind'} that of {service}",
        Owner.RECIPIENT,
        "set the clock of this machine by NTP; tokens and URLs end by it",
    )


def utc_text(seconds: float) -> str:
    """Return a time in seconds since 1970 as text."""
    try:
        return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M UTC")
    except (OverflowError, OSError, ValueError):
        return "a time that is out of range"
