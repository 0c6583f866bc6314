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
    """The session's time zone in a task; without one that is set this machine's, as in Java."""
    context = TaskContext.get()
    return (context.getLocalProperty(_KEY) if context is not None else None) or local_zone()


def local_zone() -> str:
    """The name of this machine's time zone; `UTC` where it has none."""
    named = os.environ.get("TZ", "").lstrip(":")
    if named:
        return named
    place = Path("/etc/localtime")
    _, _, name = str(place.resolve()).partition("zoneinfo/") if place.exists() else ("", "", "")
    return name.removeprefix("posix/") or "UTC"


@cache
def zone_of(name: str) -> dt.tzinfo:
    """A time zone by its name. Raises ValueError for a name that is none."""
    if name in {"Z", "UTC", "GMT", "UT"}:
        return dt.UTC
    match = _OFFSET.fullmatch(name)
    if match is None:
        try:
            return ZoneInfo(name)
        except (OSError, ValueError, LookupError) as error:
            raise ValueError(f"the time zone {name} is not known here") from error
    offset = dt.timedelta(hours=int(match[2]), minutes=int(match[3] or 0), seconds=int(match[4] or 0))
    return dt.timezone(-offset if match[1] == "-" else offset)
