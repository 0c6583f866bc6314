"""Versions, heads and files of one table, page by page.

In: a profile, a table's name, a query. Out: heads and data files, page by page. An answer that is cut, or
that ends in an errorMessage, is requested again or raises an error. It never counts as complete.
"""

import hashlib
import json
import re
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import chain
from typing import Any, TypeVar
from urllib.parse import urlencode

from gateway.client.actions import (
    READER_FEATURES,
    DataFile,
    TableHead,
    UnsupportedTable,
    check_protocol,
    parse_file,
    parse_head,
)
from gateway.client.profile import Profile
from gateway.client.server import Server, check_new
from gateway.client.table_name import TableName
from gateway.client.transport import MALFORMED, HttpError, Response, Transport, body_of, lines_of

_BOTH_FORMATS = f"responseformat=delta,parquet;readerfeatures={','.join(READER_FEATURES).lower()}"
_END = ";includeendstreamaction=true"
_HEAD_LINES = 2
_NO_LINE = "the answer has a line that does not follow Delta Sharing"
_LATER = re.compile(rb'\s*\{\s*"(?:protocol|metaData)"')
IDENTITY = re.compile(rb'"(?:id|deletionVectorFileId|offset|sizeInBytes|cardinality)":\s*("[^"]*"|\d+)')
_SIZE = re.compile(rb'"size":\s*(\d+)')
_STATISTICS, _END_OF_STATISTICS = b'"stats":"{', b'}"'
"""Within statistics, which are JSON in a text, each quote follows a backslash."""


@dataclass(frozen=True)
class Query:
    """A query of a table: a snapshot (`/query`) or, with `changes`, its change data (`/changes`).

    `parameters` are the protocol's own names: version, timestamp, startingVersion, jsonPredicateHints and
    so on. `has_stats`: files have their statistics. `is_parquet`: the delta format is not accepted.
    """

    parameters: Mapping[str, Any] = field(default_factory=dict)
    changes: bool = False
    max_files: int | None = None
    has_stats: bool = False
    is_parquet: bool = False

    @property
    def is_range(self) -> bool:
        """Return whether the files are of a range of versions."""
        return self.changes or "startingVersion" in self.parameters

    def key(self, file: DataFile) -> Any:
        """Return the key of a file, equal in every answer to the same query."""
        vector = file.deletion_vector
        name = (file.id, vector.identity if vector else None)
        # A snapshot's file has a version only in some answers: where a version was requested.
        return (file.kind, file.version, *name) if self.is_range else name


@dataclass(frozen=True)
class Page:
    """One page of an answer: the head, its files, and the token of the next page."""

    head: TableHead
    files: tuple[DataFile, ...]
    version: int | None
    next_page_token: str | None = None
    refresh_token: str | None = None
    later_heads: tuple[TableHead, ...] = ()
    """Heads of later versions in a range, if the server sends them."""


@dataclass(frozen=True)
class Outline:
    """A page without its files: the token that requests the page again, and the expected content.

    `files`: number of their lines. `mark`: of their ids and deletion vectors, in order.
    """

    head: TableHead
    version: int | None
    page_token: str
    files: int
    bytes: int
    mark: str
    next_page_token: str | None = None
    refresh_token: str | None = None


@dataclass(frozen=True)
class RawPage(Page):
    """A page with lines, as the server sent them, in place of `files`."""

    lines: list[bytes] = field(default_factory=list)

    @cached_property
    def _text(self) -> bytes:
        return b"\n".join(chain.from_iterable(map(without_statistics, self.lines)))

    @property
    def mark(self) -> str:
        """Return what tells the files of a page from others."""
        return hashlib.sha256(b"\n".join(IDENTITY.findall(self._text))).hexdigest()

    def sizes(self) -> list[int]:
        sizes = _SIZE.findall(self._text)
        if len(sizes) == len(self.lines):
            return [int(size) for size in sizes]
        return [file.size_bytes for file in self.parsed()]

    def parsed(self, first: int = 0, last: int | None = None) -> list[DataFile]:
        """Return the files of some lines. Raises HttpError for one that cannot be read."""
        try:
            actions = [parse_file(json.loads(line)) for line in self.lines[first:last]]
        except (AttributeError, KeyError, TypeError, ValueError):
            raise HttpError(_NO_LINE, MALFORMED) from None
        return [file for file in actions if file is not None]


def without_statistics(line: bytes) -> tuple[bytes, ...]:
    """Return a file's line without its statistics, as its parts around them: they are most of it."""
    begin = line.find(_STATISTICS)
    end = line.find(_END_OF_STATISTICS, begin) if begin >= 0 else -1
    return (line,) if end < 0 else (line[:begin], line[end:])


Seen = TypeVar("Seen", Page, Outline, RawPage)


class ShareClient:
    """One table of one server. Not thread-safe."""

    def __init__(self, profile: Profile, name: TableName, transport: Transport | None = None) -> None:
        self._server = Server(profile, transport)
        self._name = name
        self._retries = self._server.transport.retries

    def version(self, starting_timestamp: str | None = None) -> int:
        """Return the latest version, or the earliest at or after a timestamp."""
        query = f"?{urlencode({'startingTimestamp': starting_timestamp})}" if starting_timestamp else ""

        def attempt() -> int:
            response = self._server.open("GET", f"{self._name.path}/version{query}")
            body_of(response)
            return _version_of(response)

        return self._retries.run(attempt)

    def head(self, parameters: Mapping[str, Any] | None = None) -> TableHead:
        """Return the table's metadata; `parameters` are version or timestamp."""
        query = f"?{urlencode(parameters)}" if parameters else ""

        def attempt() -> TableHead:
            lines, response = self._lines("GET", f"/metadata{query}", _BOTH_FORMATS)
            return _page(_parsed_lines(lines), response).head

        return self._retries.run(attempt)

    def temporary_credentials(self) -> dict[str, Any]:
        """Return credentials for the table's directory, in the form of the answer. They are secret."""

        def attempt() -> dict[str, Any]:
            response = self._server.open("POST", f"{self._name.path}/temporary-table-credentials", body=b"{}")
            try:
                return {**json.loads(body_of(response))["credentials"]}
            except (ValueError, KeyError, TypeError):
                raise HttpError("the answer has no credentials") from None

        return self._retries.run(attempt)

    def pages(self, query: Query) -> Iterator[Page]:
        """Return all pages of an answer, each with the version and head of the first one."""
        return _all_pages(query, self._page)

    def raw_pages(self, query: Query) -> Iterator[RawPage]:
        """Return all pages of an answer as `pages` does, with their lines."""
        return _all_pages(query, self.raw_page)

    def outlines(self, query: Query, after: Page) -> Iterator[Outline]:
        """Yield the pages of a snapshot after one, and keep no file in memory.

        The server makes the next page while one is looked at.
        """
        with ThreadPoolExecutor(1) as other:
            coming: deque[Future[RawPage]] = deque()

            def ask(token: str | None) -> None:
                if token:
                    coming.append(other.submit(self.raw_page, next_page(query, token)))

            def outline(token: str) -> Outline:
                raw = coming.popleft().result()
                ask(raw.next_page_token)
                return Outline(
                    raw.head,
                    raw.version,
                    token,
                    len(raw.lines),
                    sum(raw.sizes()),
                    raw.mark,
                    raw.next_page_token,
                    raw.refresh_token,
                )

            ask(after.next_page_token)
            yield from _following(after, outline)

    def raw_page(self, query: Query) -> RawPage:
        """Return the page that a query asks for, which may have a `pageToken`."""

        def attempt() -> RawPage:
            lines, response = self._request(query)
            head, files = lines[:_HEAD_LINES], lines[_HEAD_LINES:]
            # Another line that is last is a file, unless the server has announced an end.
            is_end = any("endStreamAction" in line for line in _parsed_lines(files[-1:]))
            end = [files.pop()] if is_end else []
            later = [line for line in files if _LATER.match(line)]
            page = _page(_parsed_lines([*head, *later, *end]), response)
            if later:
                files = [line for line in files if not _LATER.match(line)]
            return RawPage(**vars(page), lines=files)

        return self._retries.run(attempt)

    def _page(self, query: Query) -> Page:
        def attempt() -> Page:
            lines, response = self._request(query)
            return _page(_parsed_lines(lines), response, has_stats=query.has_stats)

        return self._retries.run(attempt)

    def _request(self, query: Query) -> tuple[list[bytes], Response]:
        parameters = {name: value for name, value in query.parameters.items() if value is not None}
        if query.max_files is not None:
            parameters["maxFiles"] = query.max_files
        capabilities = ("responseformat=parquet" if query.is_parquet else _BOTH_FORMATS) + _END
        if query.changes:
            text = urlencode({name: _query_text(value) for name, value in parameters.items()})
            return self._lines("GET", f"/changes?{text}", capabilities)
        return self._lines("POST", "/query", capabilities, json.dumps(parameters).encode())

    def _lines(
        self, method: str, path: str, capabilities: str, body: bytes | None = None
    ) -> tuple[list[bytes], Response]:
        headers = {"delta-sharing-capabilities": capabilities, "Accept-Encoding": "gzip"}
        response = self._server.open(method, f"{self._name.path}{path}", headers, body)
        return lines_of(response), response


def _all_pages(query: Query, read: Callable[[Query], Seen]) -> Iterator[Seen]:
    first = read(query)
    yield first
    yield from _following(first, lambda token: read(next_page(query, token)))


def _following(after: Seen | Page, read: Callable[[str], Seen]) -> Iterator[Seen]:
    """Yield the pages after one, each of the same version of the same table."""
    page: Seen | Page = after
    seen = set[str]()
    while page.next_page_token:
        check_new(page.next_page_token, seen)
        following = read(page.next_page_token)
        if following.version != after.version or following.head != after.head:
            raise UnsupportedTable("the server answered pages of different versions")
        yield following
        page = following


def _parsed_lines(lines: Sequence[bytes]) -> list[Any]:
    try:
        return [json.loads(line) for line in lines]
    except ValueError as error:
        raise HttpError("the answer has a line that is not JSON") from error


def next_page(query: Query, page_token: str) -> Query:
    """Return the query for a page by its token."""
    first_only, given = {"refreshToken", "includeRefreshToken"}, query.parameters.items()
    parameters = {name: value for name, value in given if name not in first_only}
    return replace(query, parameters={**parameters, "pageToken": page_token})


def _query_text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _page(lines: list[Any], response: Response, *, has_stats: bool = False) -> Page:
    """Read one answer. Raises HttpError when it is incomplete, UnsupportedTable when it cannot be read."""
    try:
        return _parsed(lines, response, has_stats=has_stats)
    except (AttributeError, KeyError, TypeError, ValueError):
        raise HttpError(_NO_LINE, MALFORMED) from None


def _parsed(lines: list[Any], response: Response, *, has_stats: bool) -> Page:
    end = _end_of(lines, response)
    if [name for line in lines[:2] for name in line] != ["protocol", "metaData"]:
        if lines and "queryStatus" in lines[0]:
            raise UnsupportedTable(
                "the server answers queries later (asynchronously), which is not supported"
            )
        # One of fewer lines may be cut.
        status = MALFORMED if len(lines) > 1 else None
        raise HttpError("the answer does not begin with protocol and metaData", status)
    version = response.headers.get("Delta-Table-Version")
    head = parse_head(lines[0]["protocol"], lines[1]["metaData"], int(version) if version else None)
    for line in lines[2:]:
        if "protocol" in line:
            check_protocol(line["protocol"])
    protocol = lines[0]["protocol"]
    later = (line["metaData"] for line in lines[2:] if "metaData" in line)
    parsed = (parse_file(line, has_stats=has_stats) for line in lines[2:])
    files = tuple(file for file in parsed if file is not None)
    return Page(
        head=head,
        files=files,
        version=head.version,
        next_page_token=_token(end, "nextPageToken"),
        refresh_token=_token(end, "refreshToken"),
        later_heads=tuple(parse_head(protocol, metadata, metadata.get("version")) for metadata in later),
    )


def _token(end: Mapping[str, Any], name: str) -> str | None:
    token = end.get(name) or None
    if token is not None and not isinstance(token, str):
        raise TypeError(name)
    return token


def _end_of(lines: list[Any], response: Response) -> Mapping[str, Any]:
    """Remove the endStreamAction from the lines; a server that announced one must send it."""
    announced = (
        "includeendstreamaction=true" in response.headers.get("delta-sharing-capabilities", "").lower()
    )
    end: Mapping[str, Any] | None = None
    if lines and "endStreamAction" in lines[-1]:
        end = lines.pop()["endStreamAction"] or {}
    elif announced:
        raise HttpError("the answer was cut: its last line is not the endStreamAction that was announced")
    if end and end.get("errorMessage"):
        status = end.get("httpStatusErrorCode")
        raise HttpError(
            f"the server failed in its answer: {end['errorMessage']}",
            status if isinstance(status, int) else None,
        )
    return end or {}


def _version_of(response: Response) -> int:
    text = response.headers.get("Delta-Table-Version")
    if text is None:
        raise HttpError("the answer has no Delta-Table-Version", response.status)
    try:
        return int(text)
    except ValueError:
        raise HttpError("the answer has a Delta-Table-Version that is not a number", MALFORMED) from None
