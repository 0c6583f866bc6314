"""The words of Delta Sharing: what a request asks for, as frozen values; the small bodies of answers.

In: headers, query parameters and JSON bodies. Out: `Capabilities`, `TableQuery`, `ChangesQuery`,
`ListQuery`, or an error that names the parameter and what is accepted. Nothing here knows a table: what a
table's history or features allow is decided where the table is read. Unknown fields and capabilities are
ignored.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import Any, Literal

import orjson

from gateway.errors import InvalidParameter, MalformedRequest, UnsupportedOperation

ResponseFormat = Literal["parquet", "delta"]

FORMATS: tuple[ResponseFormat, ...] = ("parquet", "delta")
MAX_INT32 = 2**31 - 1
MAX_INT64 = 2**63 - 1
MAX_JSON_DEPTH = 100
MAX_LIST_RESULTS = 500
# Clients say the same again and again, and reading it costs more than signing their files.
REMEMBERED = 256
REMEMBERED_BODY_BYTES = 1024

CAPABILITIES_HEADER = "delta-sharing-capabilities"
FILE_ID_HEADER = "fileidhash"
VERSION_HEADER = "Delta-Table-Version"
HINT_STATUS_HEADER = "delta-sharing-hint-status"
NDJSON_CONTENT_TYPE = "application/x-ndjson; charset=utf-8"

_OFFSET = r"(Z|z|[+-]\d{2}(?::?\d{2})?)?"
_TIMESTAMPS = (
    re.compile(
        r"(\d{4})-(\d{1,2})-(\d{1,2})"
        rf"(?:[Tt ](\d{{1,2}}):(\d{{2}})(?::(\d{{2}})(?:[.,](\d{{1,9}}))?)?{_OFFSET})?",
        re.ASCII,
    ),
    re.compile(
        r"(\d{4})(\d{2})(\d{2})" rf"(?:[Tt](\d{{2}})(\d{{2}})(?:(\d{{2}})(?:[.,](\d{{1,9}}))?)?{_OFFSET})?",
        re.ASCII,
    ),
)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_INTEGER = re.compile(r"[+-]?\d{1,19}", re.ASCII)
_LARGEST_OFFSET = timedelta(hours=18)
_MINUTES = 60


@dataclass(frozen=True, slots=True)
class Capabilities:
    """What a client says it can read.

    `formats` is empty when it did not say; `reader_features` are in lower case.
    """

    formats: tuple[ResponseFormat, ...] = ()
    reader_features: frozenset[str] = frozenset()
    include_end_stream_action: bool = False

    @staticmethod
    @lru_cache(REMEMBERED)
    def parse(header: str | None) -> Capabilities:
        """Read the capabilities header. Unknown keys and unknown formats beside a known one are ignored."""
        words: dict[str, list[str]] = {}
        for part in (header or "").lower().split(";"):
            key, _, values = part.partition("=")
            words.setdefault(key.strip(), []).extend(v.strip() for v in values.split(",") if v.strip())
        asked = words.get("responseformat", [])
        formats = tuple(word for word in FORMATS if word in asked)
        if asked and not formats:
            raise InvalidParameter(f"{CAPABILITIES_HEADER}: responseformat is one of {', '.join(FORMATS)}")
        return Capabilities(
            formats=formats,
            reader_features=frozenset(words.get("readerfeatures", [])),
            include_end_stream_action=words.get("includeendstreamaction") == ["true"],
        )

    def negotiate(self, *, needs_delta_format: bool, client_reader_features: Sequence[str]) -> ResponseFormat:
        """Choose the response format for a table. Raises UnsupportedOperation, which says what to send."""
        formats = self.formats or ("parquet",)
        if not needs_delta_format:
            return formats[0]
        features = ",".join(feature.lower() for feature in client_reader_features)
        if "delta" not in formats:
            also = f";readerfeatures={features}" if features else ""
            raise UnsupportedOperation(
                "the table can only be read in the delta response format; send the header "
                f"{CAPABILITIES_HEADER}: responseformat=delta{also}"
            )
        missing = [f for f in client_reader_features if f.lower() not in self.reader_features]
        if missing:
            raise UnsupportedOperation(
                f"the table needs reader features that were not announced: {', '.join(missing)}; send the "
                f"header {CAPABILITIES_HEADER}: responseformat=delta;readerfeatures={features}"
            )
        return "delta"


def file_id_scheme(header: str | None) -> ResponseFormat | None:
    """Read the `fileidhash` header."""
    if header is None:
        return None
    scheme = header.strip().lower()
    for known in FORMATS:
        if scheme == known:
            return known
    raise InvalidParameter(f"{FILE_ID_HEADER} is one of {', '.join(FORMATS)}")


@dataclass(frozen=True, slots=True)
class ListQuery:
    """A page of a listing."""

    max_results: int
    page_token: str | None

    @staticmethod
    def parse(parameters: Mapping[str, str]) -> ListQuery:
        """Read the query parameters of a listing."""
        asked = _parameter(parameters, "maxResults", maximum=MAX_INT32)
        return ListQuery(
            MAX_LIST_RESULTS if asked is None else min(asked, MAX_LIST_RESULTS),
            parameters.get("pageToken") or None,
        )


@dataclass(frozen=True, slots=True)
class TimeTravel:
    """At most one of a version and a timestamp in milliseconds."""

    version: int | None = None
    timestamp_ms: int | None = None

    def __bool__(self) -> bool:
        return self.version is not None or self.timestamp_ms is not None

    @staticmethod
    def parse(parameters: Mapping[str, str]) -> TimeTravel:
        """Read `version` or `timestamp` of /metadata."""
        version = _parameter(parameters, "version")
        timestamp_ms = _timestamp(parameters.get("timestamp"), "timestamp")
        if version is not None and timestamp_ms is not None:
            raise InvalidParameter("version and timestamp exclude each other; give one of them")
        return TimeTravel(version, timestamp_ms)


@dataclass(frozen=True, slots=True)
class Hints:
    """What may prune files and never fails a request."""

    predicates: tuple[str, ...] = ()
    json_predicate: str | None = None
    limit: int | None = None


@dataclass(frozen=True, slots=True)
class Paging:
    """Which page of an answer, and how long it may be."""

    max_files: int | None = None
    page_token: str | None = None

    def __bool__(self) -> bool:
        return self.max_files is not None or self.page_token is not None


@dataclass(frozen=True, slots=True)
class TableQuery:
    """The body of POST .../query."""

    at: TimeTravel
    starting_version: int | None
    ending_version: int | None
    hints: Hints
    paging: Paging
    include_refresh_token: bool
    refresh_token: str | None
    include_historical_protocol: bool

    @staticmethod
    def parse(body: bytes) -> TableQuery:
        """Read and check a body; an empty one asks for everything."""
        return _table_query(body) if len(body) <= REMEMBERED_BODY_BYTES else TableQuery._parse(body)

    @staticmethod
    def _parse(body: bytes) -> TableQuery:
        fields = _json_object(body)
        starting_version = _integer(fields, "startingVersion")
        timestamp = _string(fields, "timestamp")
        query = TableQuery(
            at=TimeTravel(_integer(fields, "version"), _timestamp(timestamp, "timestamp")),
            starting_version=starting_version,
            ending_version=_integer(fields, "endingVersion"),
            hints=Hints(
                predicates=_predicates(fields),
                json_predicate=_json_predicate(fields),
                # Some clients send 0 with every query and mean no limit.
                limit=_integer(fields, "limitHint") or None,
            ),
            paging=Paging(_integer(fields, "maxFiles", minimum=1), _string(fields, "pageToken") or None),
            include_refresh_token=_boolean(fields, "includeRefreshToken"),
            refresh_token=_string(fields, "refreshToken") or None,
            include_historical_protocol=_boolean(fields, "includeHistoricalProtocol"),
        )
        query._check()
        return query

    @property
    def refreshes(self) -> bool:
        """Whether a refresh token comes in or goes out."""
        return self.include_refresh_token or self.refresh_token is not None

    def wants_end_stream_action(self, capabilities: Capabilities) -> bool:
        """Whether the answer ends in an endStreamAction."""
        return bool(self.paging) or self.refreshes or capabilities.include_end_stream_action

    def parameters(self) -> list[Any]:
        """What a page token binds: everything that chooses files, but not how many stand on a page."""
        return [
            "query",
            self.at.version,
            self.at.timestamp_ms,
            self.starting_version,
            self.ending_version,
            self.hints.predicates,
            self.hints.json_predicate,
            self.hints.limit,
            self.include_historical_protocol,
        ]

    def _check(self) -> None:
        starts = {
            "version": self.at.version,
            "timestamp": self.at.timestamp_ms,
            "startingVersion": self.starting_version,
        }
        given = [name for name, value in starts.items() if value is not None]
        if len(given) > 1:
            raise InvalidParameter(f"{' and '.join(given)} exclude each other; give one of them")
        if self.refreshes and (given or self.paging.page_token):
            other = given[0] if given else "pageToken"
            raise InvalidParameter(f"refreshToken and includeRefreshToken cannot go with {other}")
        _check_range(self.starting_version, self.ending_version)


_table_query = lru_cache(REMEMBERED)(TableQuery._parse)  # noqa: SLF001 - the other half of `parse`


@dataclass(frozen=True, slots=True)
class ChangesQuery:
    """The parameters of GET .../changes: one start, at most one end."""

    starting_version: int | None
    starting_timestamp_ms: int | None
    ending_version: int | None
    ending_timestamp_ms: int | None
    include_historical_metadata: bool
    include_historical_protocol: bool
    paging: Paging

    @staticmethod
    def parse(parameters: Mapping[str, str]) -> ChangesQuery:
        """Read and check the query parameters."""
        query = ChangesQuery(
            starting_version=_parameter(parameters, "startingVersion"),
            starting_timestamp_ms=timestamp_parameter(parameters, "startingTimestamp", round_up=True),
            ending_version=_parameter(parameters, "endingVersion"),
            ending_timestamp_ms=_timestamp(parameters.get("endingTimestamp"), "endingTimestamp"),
            include_historical_metadata=_flag(parameters, "includeHistoricalMetadata"),
            include_historical_protocol=_flag(parameters, "includeHistoricalProtocol"),
            paging=Paging(
                _parameter(parameters, "maxFiles", minimum=1, maximum=MAX_INT32),
                parameters.get("pageToken") or None,
            ),
        )
        query._check()
        return query

    def wants_end_stream_action(self, capabilities: Capabilities) -> bool:
        """Whether the answer ends in an endStreamAction."""
        return bool(self.paging) or capabilities.include_end_stream_action

    def parameters(self) -> list[Any]:
        """What a page token binds."""
        return [
            "changes",
            self.starting_version,
            self.starting_timestamp_ms,
            self.ending_version,
            self.ending_timestamp_ms,
            self.include_historical_metadata,
            self.include_historical_protocol,
        ]

    def _check(self) -> None:
        if (self.starting_version is None) == (self.starting_timestamp_ms is None):
            raise InvalidParameter("give exactly one of startingVersion and startingTimestamp")
        if self.ending_version is not None and self.ending_timestamp_ms is not None:
            raise InvalidParameter("endingVersion and endingTimestamp exclude each other; give one of them")
        _check_range(self.starting_version, self.ending_version)


def parse_timestamp(text: str, *, round_up: bool = False) -> int:
    """Read a timestamp as milliseconds since the epoch, rounded down or up.

    Accepts ISO-8601 (`2022-01-01T00:00:00Z`, with fraction or offset; seconds or the time may be absent;
    the basic form `20220101T000000Z`) and the older `yyyy-[m]m-[d]d hh:mm:ss[.f...]`. Without an offset
    each is UTC. Raises ValueError.
    """
    match = next((found for form in _TIMESTAMPS if (found := form.fullmatch(text.strip()))), None)
    if match is None:
        raise ValueError(text)
    *numbers, fraction, offset = match.groups()
    year, month, day, hour, minute, second = (int(number or 0) for number in numbers)
    moment = datetime(year, month, day, hour, minute, second, tzinfo=UTC) - _offset(offset)
    nanoseconds = int((fraction or "").ljust(9, "0"))
    milliseconds, finer = divmod(nanoseconds, 1_000_000)
    return (moment - _EPOCH) // timedelta(milliseconds=1) + milliseconds + (round_up and finer > 0)


def timestamp_parameter(parameters: Mapping[str, str], name: str, *, round_up: bool = False) -> int | None:
    """Read a query parameter that holds a timestamp."""
    return _timestamp(parameters.get(name), name, round_up=round_up)


def end_stream_action(fields: Mapping[str, Any]) -> bytes:
    """The last line of an answer, with the fields that have a value."""
    given = {name: value for name, value in fields.items() if value is not None}
    return orjson.dumps({"endStreamAction": given}) + b"\n"


def capabilities_header(response_format: ResponseFormat, *, end_stream_action: bool) -> str:
    """The capabilities header of an answer: one format, and whether the last line is an endStreamAction."""
    also = ";includeendstreamaction=true" if end_stream_action else ""
    return f"responseformat={response_format}{also}"


def _check_range(starting_version: int | None, ending_version: int | None) -> None:
    if starting_version is not None and ending_version is not None and starting_version > ending_version:
        raise InvalidParameter("startingVersion is greater than endingVersion")


def _offset(text: str | None) -> timedelta:
    if text is None or text in "Zz":
        return timedelta()
    hours, minutes = int(text[1:3]), int(text[3:].removeprefix(":") or 0)
    offset = timedelta(hours=hours, minutes=minutes)
    if minutes >= _MINUTES or offset > _LARGEST_OFFSET:
        raise ValueError(text)
    return -offset if text[0] == "-" else offset


def _timestamp(text: str | None, name: str, *, round_up: bool = False) -> int | None:
    if text is None:
        return None
    try:
        return parse_timestamp(text, round_up=round_up)
    except (ValueError, OverflowError):
        raise InvalidParameter(f"{name} is a timestamp in UTC such as 2022-01-01T00:00:00Z") from None


def _parameter(
    parameters: Mapping[str, str], name: str, *, minimum: int = 0, maximum: int = MAX_INT64
) -> int | None:
    text = parameters.get(name)
    if text is None:
        return None
    value = int(text) if _INTEGER.fullmatch(text.strip()) else None
    return _within(value, name, minimum, maximum)


def _within(value: int | None, name: str, minimum: int, maximum: int) -> int:
    if value is None or not minimum <= value <= maximum:
        raise InvalidParameter(f"{name} is an integer of {minimum} or more, up to {maximum}")
    return value


def _flag(parameters: Mapping[str, str], name: str) -> bool:
    return parameters.get(name, "").strip().lower() == "true"


def _json_object(body: bytes) -> dict[str, Any]:
    if not body.strip():
        return {}
    if _is_too_deep(body):
        raise MalformedRequest(f"the body is nested deeper than {MAX_JSON_DEPTH}")
    try:
        value = orjson.loads(body)
    except orjson.JSONDecodeError:
        raise MalformedRequest("the body is not JSON") from None
    if not isinstance(value, dict):
        raise MalformedRequest("the body is not a JSON object")
    return value


def _is_too_deep(body: bytes) -> bool:
    """Whether brackets nest deeper than `MAX_JSON_DEPTH`, those inside of strings apart."""
    if body.count(b"{") + body.count(b"[") <= MAX_JSON_DEPTH:
        return False
    # One pass each: a pattern that backtracks over quotes and escapes would take an hour for a hostile body.
    unescaped = body.replace(rb"\\", b"").replace(rb"\"", b"")
    depth = 0
    for bracket in _STRING.sub(b"", unescaped).translate(None, _NO_BRACKETS):
        if bracket in b"{[":
            depth += 1
            if depth > MAX_JSON_DEPTH:
                return True
        else:
            depth -= 1
    return False


_STRING = re.compile(rb'"[^"]*"?')
_NO_BRACKETS = bytes(set(range(256)) - set(b"[]{}"))


def _integer(fields: Mapping[str, Any], name: str, *, minimum: int = 0) -> int | None:
    value = fields.get(name)
    if value is None:
        return None
    if not isinstance(value, int) or isinstance(value, bool):
        raise MalformedRequest(f"{name} is an integer")
    return _within(value, name, minimum, MAX_INT64)


def _string(fields: Mapping[str, Any], name: str) -> str | None:
    value = fields.get(name)
    if value is not None and not isinstance(value, str):
        raise MalformedRequest(f"{name} is a string")
    return value


def _boolean(fields: Mapping[str, Any], name: str) -> bool:
    value = fields.get(name)
    if value is not None and not isinstance(value, bool):
        raise MalformedRequest(f"{name} is true or false")
    return bool(value)


def _predicates(fields: Mapping[str, Any]) -> tuple[str, ...]:
    value = fields.get("predicateHints")
    if value is None:
        return ()
    if not isinstance(value, list) or not all(isinstance(hint, str) for hint in value):
        raise MalformedRequest("predicateHints is a list of strings")
    return tuple(value)


def _json_predicate(fields: Mapping[str, Any]) -> str | None:
    """Clients send a string with JSON in it; the tree itself says the same."""
    value = fields.get("jsonPredicateHints")
    if isinstance(value, dict):
        return orjson.dumps(value).decode()
    return _string(fields, "jsonPredicateHints") or None
