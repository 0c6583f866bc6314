"""Finds time zones by their names in Spark and Java.

In: a name such as `Europe/Rome`, `+01:00`, `GMT-5` or `Z`. Out: a `tzinfo`. Tasks get the session's zone
from Spark with each query.
"""

import datetime as dt
import os
import re
from functools import cache
from pathlib import Path
from zoneinfo import ZoneInfo

from pyspark import TaskContext

_KEY = "spark.sql.session.timeZone"
_OFFSET = re.compile(r"(?:UTC|GMT|UT)?([+-])(\d{1,2})(?::?(\d{2}))?(?::?(\d{2}))?")


def session_zone() -> str:
    """Return the session's time zone in a task; else the machine's time zone, as in Java."""
    context = TaskContext.get()
    return (context.getLocalProperty(_KEY) if context is not None else None) or local_zone()


def local_zone() -> str:
    """Return the name of the machine's time zone; `UTC` if it has none."""
    named = os.environ.get("TZ", "").lstrip(":")
    if named:
        return named
    place = Path("/etc/localtime")
    _, _, name = str(place.resolve()).partition("zoneinfo/") if place.exists() else ("", "", "")
    return name.removeprefix("posix/") or "UTC"


@cache
def zone_of(name: str) -> dt.tzinfo:
    """Return a time zone by its name. Raises ValueError for an unknown name."""
    if name in {"Z", "UTC", "GMT", "UT"}:
        return dt.UTC
    match = _OFFSET.fullmatch(name)
    if match is None:
        try:
            return ZoneInfo(name)
        except (OSError, ValueError, LookupError) as error:
            raise ValueError(f"the time zone {name} is unknown") from error
    offset = dt.timedelta(hours=int(match[2]), minutes=int(match[3] or 0), seconds=int(match[4] or 0))
    return dt.timezone(-offset if match[1] == "-" else offset)
