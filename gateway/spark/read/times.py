"""Times of options as Spark reads them, for the protocol.

In: a year, a date or a time, with a zone or without one, and the zone of times without one. Out: the time in
UTC, in ISO 8601.
"""

import datetime as dt
import re

from gateway.spark.read.zones import zone_of

_OF_DAY = r"(\d{1,2}):(\d{1,2})(?::(\d{1,2})(?:\.(\d{0,9}))?)?\s*([A-Za-z+-].*)?"
_TIME = re.compile(rf"(\d{{4}})(?:-(\d{{1,2}})(?:-(\d{{1,2}})(?:[T ]+{_OF_DAY})?)?)?")


def utc_time(name: str, text: str, zone: str | None) -> str:
    """Return a time of the option `name` in UTC. Raises ValueError for another text, or without a zone."""
    match = _TIME.fullmatch(text.strip())
    if match is None:
        raise ValueError(f"{name} is no time: {text!r}; accepted: 2024-01-31, 2024-01-31T12:30:00Z")
    named = match[8] or zone
    if named is None:
        raise ValueError(
            f"{name} has no time zone: write {text.strip()!r} with Z or an offset, or give the option "
            "timeZone, such as the session's, which a data source does not know"
        )
    year, month, day, hour, minute, second = (int(part) if part else None for part in match.groups()[:6])
    micros = int((match[7] or "").ljust(6, "0")[:6])
    try:
        local = dt.datetime(
            year or 0, month or 1, day or 1, hour or 0, minute or 0, second or 0, micros, zone_of(named)
        )
    except ValueError as error:
        raise ValueError(f"{name} is no time: {error}") from None
    return local.astimezone(dt.UTC).isoformat().replace("+00:00", "Z")
