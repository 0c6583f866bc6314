"""The options of a read, checked before anything is read.

In: the options that Spark passes to a data source. Out: `ReadOptions`, or a ValueError that names the
option. An option without effect is an error, too.
"""

import datetime as dt
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any

from gateway.client.pages import ShareClient
from gateway.client.profile import Profile
from gateway.client.table_name import TableName
from gateway.spark.read.zones import zone_of

_ONE_NAME = r"\s*(?:`(?:[^`]|``)+`|[^`,\s](?:[^`,]*[^`,\s])?)\s*"
_NAME = re.compile(_ONE_NAME)
_LISTED = re.compile(f"{_ONE_NAME}(?:,{_ONE_NAME})*")
_OF_DAY = r"(\d{1,2}):(\d{1,2})(?::(\d{1,2})(?:\.(\d{0,9}))?)?\s*([A-Za-z+-].*)?"
_TIME = re.compile(rf"(\d{{4}})(?:-(\d{{1,2}})(?:-(\d{{1,2}})(?:[T ]+{_OF_DAY})?)?)?")
_STREAM_ONLY = ("skipChangeCommits", "ignoreDeletes", "maxFilesPerTrigger", "maxVersionsPerTrigger")
_SNAPSHOT_ONLY = ("versionAsOf", "timestampAsOf", "expectedVersion", "predicateHints", "limitHint")
_OF_OTHERS = {"ignorechanges": "skipChangeCommits", "ignorefilechanges": "skipChangeCommits"}
"""Options of Delta in lower case that are no option here, and what is meant."""
_ENDS = ("startingVersion", "startingTimestamp", "endingVersion", "endingTimestamp")
_TIMES = ("timestampAsOf", "startingTimestamp", "endingTimestamp")


@dataclass(frozen=True)
class ReadOptions:
    """The options of a read, which the page `spark` of the documentation describes. Times are in UTC."""

    profile: Profile
    table: TableName
    version_as_of: int | None = None
    timestamp_as_of: str | None = None
    columns: tuple[str, ...] | None = None
    predicate_hints: str | None = None
    limit_hint: int | None = None
    read_change_feed: bool = False
    starting_version: int | None = None
    starting_timestamp: str | None = None
    ending_version: int | None = None
    ending_timestamp: str | None = None
    allow_no_versions: bool = False
    skip_change_commits: bool = False
    ignore_deletes: bool = False
    max_files_per_trigger: int | None = None
    max_versions_per_trigger: int | None = None
    max_files_per_page: int = 20_000
    partition_bytes: int | None = None
    expected_version: int | None = None
    with_file_name: bool = False
    given: frozenset[str] = frozenset()

    @classmethod
    def parse(cls, options: Mapping[str, str]) -> "ReadOptions":
        """Check the options of Spark (names in any case). Raises ValueError that names the option."""
        given: dict[str, str] = {}
        for name, text in options.items():
            if name.lower() not in _BY_LOWER_NAME:
                raise ValueError(_unknown(name.lower()))
            given[_BY_LOWER_NAME[name.lower()]] = text
        before, _, table = given.get("path", "").rpartition("#")
        if before and given.get("profile", before) != before:
            raise ValueError("profile is given twice: as an option and before the # of the path")
        profile = before or given.get("profile", "")
        if not profile or not table:
            raise ValueError('say .option("profile", path) and .load("share.schema.table")')
        zone = _text("timeZone", given["timeZone"]) if "timeZone" in given else None
        values = {name: parse(name, given[name]) for name, parse in _PARSERS.items() if name in given}
        values |= {name: _utc_time(name, _text(name, given[name]), zone) for name in _TIMES if name in given}
        parsed = cls(
            Profile.load(profile),
            TableName.parse(table),
            given=frozenset(given),
            **{_field(name): value for name, value in values.items()},
        )
        parsed._check()
        return parsed

    def _check(self) -> None:
        for name, other in (
            ("versionAsOf", "timestampAsOf"),
            ("startingVersion", "startingTimestamp"),
            ("endingVersion", "endingTimestamp"),
            # The server counts the rows of files, and not those for which the condition is true.
            ("predicateHints", "limitHint"),
        ):
            if {name, other} <= self.given:
                raise ValueError(f"{name} and {other} exclude each other")
        first, last = self.starting_version, self.ending_version
        if first is not None and last is not None and last < first:
            raise ValueError(f"endingVersion {last} is before startingVersion {first}")
        if self.read_change_feed:
            self._refuse(
                (*_SNAPSHOT_ONLY, "skipChangeCommits", "ignoreDeletes"), "has no effect on change data"
            )

    def check_batch(self) -> None:
        """Raise ValueError for options that have no effect on a batch read."""
        self._refuse(_STREAM_ONLY, "is of streams only")
        if not self.read_change_feed:
            self._refuse((*_ENDS, "allowNoVersions"), "needs readChangeFeed")
        elif not {"startingVersion", "startingTimestamp"} & self.given:
            raise ValueError("readChangeFeed needs startingVersion or startingTimestamp")

    def check_stream(self) -> None:
        """Raise ValueError for options that have no effect on a stream."""
        self._refuse(_SNAPSHOT_ONLY, "is of batch reads only: a stream has startingVersion")
        self._refuse(("allowNoVersions",), "is of batch reads only: a stream waits for versions")
        self._refuse(("endingTimestamp",), "is of batch reads only: a stream has endingVersion")

    def _refuse(self, names: tuple[str, ...], reason: str) -> None:
        for name in names:
            if name in self.given:
                raise ValueError(f"{name} {reason}")

    def client(self) -> ShareClient:
        return ShareClient(self.profile, self.table)

    def at(self) -> dict[str, Any]:
        """Return the protocol's parameters for the requested version."""
        words = {"version": self.version_as_of, "timestamp": self.timestamp_as_of}
        return {name: value for name, value in words.items() if value is not None}

    def changes(self) -> dict[str, Any]:
        """Return the protocol's parameters for the range of change data."""
        values = ((name, getattr(self, _field(name))) for name in _ENDS)
        return {name: value for name, value in values if value is not None}

    def hints(self) -> dict[str, Any]:
        """Return the protocol's parameters for the condition and the limit."""
        hint = self.predicate_hints
        hints: dict[str, Any] = {} if self.limit_hint is None else {"limitHint": self.limit_hint}
        if hint is not None:
            hints |= {"jsonPredicateHints": hint} if hint.startswith("{") else {"predicateHints": [hint]}
        return hints


def _unknown(name: str) -> str:
    near = get_close_matches(name, _BY_LOWER_NAME, n=1)
    meant = _OF_OTHERS.get(name) or (_BY_LOWER_NAME[near[0]] if near else "")
    return f"there is no option {name}" + (f": is {meant} meant?" if meant else "")


def _field(name: str) -> str:
    return re.sub("[A-Z]", lambda letter: f"_{letter[0].lower()}", name)


def _columns(_name: str, text: str) -> tuple[str, ...]:
    if _LISTED.fullmatch(text) is None:
        raise ValueError("columns is a list of names with commas between them, such as a, `b,c`")
    parts = (part.strip() for part in _NAME.findall(text))
    return tuple(part[1:-1].replace("``", "`") if part.startswith("`") else part for part in parts)


def _text(name: str, text: str) -> str:
    if not text.strip():
        raise ValueError(f"{name} is empty")
    return text.strip()


def _utc_time(name: str, text: str, zone: str | None) -> str:
    """Return a time of the option `name` in UTC. Raises ValueError for another text, or without a zone."""
    match = _TIME.fullmatch(text)
    if match is None:
        raise ValueError(f"{name} is no time: {text!r}; accepted: 2024-01-31, 2024-01-31T12:30:00Z")
    named = match[8] or zone
    if named is None:
        raise ValueError(
            f"{name} has no time zone: write {text!r} with Z or an offset, or give the option "
            "timeZone, such as the session's, which a data source does not know"
        )
    year, month, day, hour, minute, second = (int(part) if part else None for part in match.groups()[:6])
    micros = int((match[7] or "").ljust(6, "0")[:6])
    try:
        local = dt.datetime(
            year or 0, month or 1, day or 1, hour or 0, minute or 0, second or 0, micros, zone_of(named)
        )
        return local.astimezone(dt.UTC).isoformat().replace("+00:00", "Z")
    except (ValueError, OverflowError) as error:
        raise ValueError(f"{name} is no time: {error}") from None


def _whole(name: str, text: str) -> int:
    if not (text.strip().isascii() and text.strip().isdecimal()):
        raise ValueError(f"{name} is a whole number, not {text!r}")
    return int(text)


def _positive(name: str, text: str) -> int:
    number = _whole(name, text)
    if number == 0:
        raise ValueError(f"{name} is at least 1")
    return number


def _flag(name: str, text: str) -> bool:
    if text.strip().lower() not in {"true", "false"}:
        raise ValueError(f"{name} is true or false, not {text!r}")
    return text.strip().lower() == "true"


_PARSERS: dict[str, Callable[[str, str], Any]] = {
    "versionAsOf": _whole,
    "columns": _columns,
    "predicateHints": _text,
    "limitHint": _positive,
    "readChangeFeed": _flag,
    "startingVersion": _whole,
    "endingVersion": _whole,
    "allowNoVersions": _flag,
    "skipChangeCommits": _flag,
    "ignoreDeletes": _flag,
    "maxFilesPerTrigger": _positive,
    "maxVersionsPerTrigger": _positive,
    "maxFilesPerPage": _positive,
    "partitionBytes": _positive,
    "expectedVersion": _whole,
    "withFileName": _flag,
}
NAMES = ("profile", "path", "timeZone", *_TIMES, *_PARSERS)
_BY_LOWER_NAME = {name.lower(): name for name in NAMES}
