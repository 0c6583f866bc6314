"""The options of a read, checked before anything is read.

In: the options that Spark passes to a data source. Out: `ReadOptions`, or a ValueError that names the
option. An option without effect is an error, too.
"""

import datetime as dt
import re
from collections.abc import Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any

from gateway.client.pages import ShareClient
from gateway.client.profile import Profile
from gateway.client.table_name import TableName
from gateway.spark.read.zones import zone_of

_NAMES = (
    "profile",
    "path",
    "versionAsOf",
    "timestampAsOf",
    "columns",
    "predicateHints",
    "limitHint",
    "readChangeFeed",
    "startingVersion",
    "startingTimestamp",
    "endingVersion",
    "endingTimestamp",
    "allowNoVersions",
    "skipChangeCommits",
    "ignoreDeletes",
    "maxFilesPerTrigger",
    "maxVersionsPerTrigger",
    "maxFilesPerPage",
    "partitionBytes",
    "expectedVersion",
    "withFileName",
    "timeZone",
)
_BY_LOWER_NAME = {name.lower(): name for name in _NAMES}
_ONE_NAME = r"\s*(?:`(?:[^`]|``)+`|[^`,\s](?:[^`,]*[^`,\s])?)\s*"
_NAME = re.compile(_ONE_NAME)
_LISTED = re.compile(f"{_ONE_NAME}(?:,{_ONE_NAME})*")
_OF_DAY = r"(\d{1,2}):(\d{1,2})(?::(\d{1,2})(?:\.(\d{0,9}))?)?\s*([A-Za-z+-].*)?"
_TIME = re.compile(rf"(\d{{4}})(?:-(\d{{1,2}})(?:-(\d{{1,2}})(?:[T ]+{_OF_DAY})?)?)?")
_STREAM_ONLY = ("skipChangeCommits", "ignoreDeletes", "maxFilesPerTrigger", "maxVersionsPerTrigger")
_SNAPSHOT_ONLY = ("versionAsOf", "timestampAsOf", "expectedVersion", "predicateHints", "limitHint")
_OF_OTHERS = {"ignorechanges": "skipChangeCommits", "ignorefilechanges": "skipChangeCommits"}
"""Options of Delta in lower case that are no option here, and what is meant."""
_RANGE = ("startingVersion", "startingTimestamp", "endingVersion", "endingTimestamp", "allowNoVersions")


@dataclass(frozen=True)
class ReadOptions:
    """Options of a read, by the names they have in Spark.

    profile               path of the profile file, or its JSON text
    path                  `share.schema.table` (what `load` takes), or `profile#share.schema.table`
    versionAsOf           a version            timestampAsOf    as Delta takes it
    timeZone              the zone of times without one, such as the session's
    columns               comma-separated; the rest is neither fetched nor decoded. A name with a comma is in
                          backticks
    predicateHints        a condition, in SQL or as the protocol's JSON: files and row groups without matching
                          rows are left out. Rows are not filtered: `where` with the same condition does that
    limitHint             how many rows are wanted: the server may leave out the files of the others. Rows are
                          not cut: `limit` with the same number does that. Not with predicateHints
    readChangeFeed        true: rows with _change_type, _commit_version, _commit_timestamp, from
                          startingVersion or startingTimestamp to endingVersion or endingTimestamp
    allowNoVersions       true: change data from a version on that is not there yet has no rows
    skipChangeCommits     streaming: leave out versions that remove or rewrite rows
    ignoreDeletes         streaming: leave out versions that only remove rows
    maxFilesPerTrigger    streaming: at most so many files in a batch (a version's change data stay together)
    maxVersionsPerTrigger  streaming: at most so many versions in a batch; the snapshot of a start is one
    maxFilesPerPage       how many files to ask for at once
    partitionBytes        about how many bytes of files make a Spark partition
    expectedVersion       fail when the server answers another version (for tables without history)
    withFileName          true: a column `_file_name`, the name of the data file a row is in
    """

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
        given = {name.lower(): value for name, value in options.items()}
        for name in given:
            if name not in _BY_LOWER_NAME:
                raise ValueError(_unknown(name))
        before, _, table = given.get("path", "").rpartition("#")
        if before and given.get("profile", before) != before:
            raise ValueError("profile is given twice: as an option and before the # of the path")
        profile = before or given.get("profile", "")
        zone = _text(given, "timeZone")
        if not profile or not table:
            raise ValueError('say .option("profile", path) and .load("share.schema.table")')
        parsed = cls(
            profile=Profile.load(profile),
            table=TableName.parse(table),
            version_as_of=_whole(given, "versionAsOf"),
            timestamp_as_of=_time(given, "timestampAsOf", zone),
            columns=_columns(given.get("columns")),
            predicate_hints=_text(given, "predicateHints"),
            limit_hint=_positive(given, "limitHint"),
            read_change_feed=_flag(given, "readChangeFeed"),
            starting_version=_whole(given, "startingVersion"),
            starting_timestamp=_time(given, "startingTimestamp", zone),
            ending_version=_whole(given, "endingVersion"),
            ending_timestamp=_time(given, "endingTimestamp", zone),
            allow_no_versions=_flag(given, "allowNoVersions"),
            skip_change_commits=_flag(given, "skipChangeCommits"),
            ignore_deletes=_flag(given, "ignoreDeletes"),
            max_files_per_trigger=_positive(given, "maxFilesPerTrigger"),
            max_versions_per_trigger=_positive(given, "maxVersionsPerTrigger"),
            max_files_per_page=_positive(given, "maxFilesPerPage") or cls.max_files_per_page,
            partition_bytes=_positive(given, "partitionBytes"),
            expected_version=_whole(given, "expectedVersion"),
            with_file_name=_flag(given, "withFileName"),
            given=frozenset(_BY_LOWER_NAME[name] for name in given),
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
            self._refuse(_RANGE, "needs readChangeFeed")
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
        """Return a client of the table."""
        return ShareClient(self.profile, self.table)

    def at(self) -> dict[str, Any]:
        """Return the protocol's parameters for the requested version."""
        words = {"version": self.version_as_of, "timestamp": self.timestamp_as_of}
        return {name: value for name, value in words.items() if value is not None}

    def changes(self) -> dict[str, Any]:
        """Return the protocol's parameters for the range of change data."""
        words = {
            "startingVersion": self.starting_version,
            "startingTimestamp": self.starting_timestamp,
            "endingVersion": self.ending_version,
            "endingTimestamp": self.ending_timestamp,
        }
        return {name: value for name, value in words.items() if value is not None}

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


def _columns(text: str | None) -> tuple[str, ...] | None:
    if text is None:
        return None
    listed = _LISTED.fullmatch(text)
    if listed is None:
        raise ValueError("columns is a list of names with commas between them, such as a, `b,c`")
    parts = (part.strip() for part in _NAME.findall(text))
    return tuple(part[1:-1].replace("``", "`") if part.startswith("`") else part for part in parts)


def _text(given: Mapping[str, str], name: str) -> str | None:
    text = given.get(name.lower())
    if text is None:
        return None
    if not text.strip():
        raise ValueError(f"{name} is empty")
    return text.strip()


def _time(given: Mapping[str, str], name: str, zone: str | None) -> str | None:
    text = _text(given, name)
    return None if text is None else _utc_time(name, text, zone)


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


def _whole(given: Mapping[str, str], name: str) -> int | None:
    text = given.get(name.lower())
    if text is None:
        return None
    if not (text.strip().isascii() and text.strip().isdecimal()):
        raise ValueError(f"{name} is a whole number, not {text!r}")
    return int(text)


def _positive(given: Mapping[str, str], name: str) -> int | None:
    number = _whole(given, name)
    if number == 0:
        raise ValueError(f"{name} is at least 1")
    return number


def _flag(given: Mapping[str, str], name: str) -> bool:
    text = given.get(name.lower(), "false").strip().lower()
    if text not in {"true", "false"}:
        raise ValueError(f"{name} is true or false, not {text!r}")
    return text == "true"
