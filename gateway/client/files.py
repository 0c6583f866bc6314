"""Fetches listed files, with URLs that stay fresh.

In: listed files and the query that listed them. Out: bytes of files, and the rows of deletion vectors. A URL
is replaced shortly before it expires, and once when the store refuses it: the files are listed again, by the
refresh token, by the version, or by the same query, and the same file is found in the new answer.
"""

import threading
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from gateway.client.actions import DataFile, DeletionVector
from gateway.client.native import native_module
from gateway.client.pages import Query, RawPage, ShareClient, next_page
from gateway.client.profile import Profile
from gateway.client.table_name import TableName
from gateway.client.transport import HttpError, Transport

Answer = TypeVar("Answer")

# Stores answer an expired or altered URL with one of these statuses; their bodies differ too much.
_REFUSED = frozenset({400, 401, 403, 410})
_EARLY_MS = 60_000
# A vector's bytes are framed by their length (4) and a checksum (4).
_VECTOR_FRAME_BYTES = 8


@dataclass(frozen=True)
class Origin:
    """The query that listed files, with everything that is needed to list them again."""

    profile: Profile
    table: TableName
    query: Query
    version: int | None
    refresh_token: str | None = None
    page_token: str | None = None
    """The token of the page that has the files, if the listing has pages."""

    def refresh_queries(self) -> tuple[Query, ...]:
        """Return the queries that list the same files with new URLs, in the order to try them.

        A DataFrame is used for longer than its refresh token lives: the version it was listed at comes next,
        which servers refuse where no history is shared, then the query itself.
        """
        if self.query.is_range:
            return (self.query,)
        parameters = {
            name: value for name, value in self.query.parameters.items() if name != "includeRefreshToken"
        }
        choices = [parameters]
        if self.version is not None and "version" not in parameters:
            hints = {name: value for name, value in parameters.items() if name != "timestamp"}
            choices.insert(0, {**hints, "version": self.version})
        if self.refresh_token is not None:
            choices.insert(0, {**parameters, "refreshToken": self.refresh_token})
        if self.page_token is not None:
            choices.insert(0, {**parameters, "pageToken": self.page_token})
        return tuple(replace(self.query, parameters=chosen) for chosen in choices)


class StaleListing(Exception):
    """Raised when a file's URL cannot be renewed because the server no longer lists the file."""


def page_again(origin: Origin, number: int, mark: str) -> RawPage:
    """Return a page of a listing by the origin's token, or by its number in a new listing.

    Raises StaleListing if that has other files.
    """
    client = ShareClient(origin.profile, origin.table)
    page = None
    for query in origin.refresh_queries():
        try:
            page = client.raw_page(query)
            for _ in range(0 if "pageToken" in query.parameters else number):
                if page.next_page_token is None:
                    break
                page = client.raw_page(next_page(query, page.next_page_token))
        except HttpError as error:
            if not error.is_refusal:
                raise
            continue
        break
    if page is None or page.version != origin.version or page.mark != mark:
        raise StaleListing(
            "the server no longer lists the files of a part of this read: load the table again, read a "
            "pinned version (versionAsOf), or share the table with history"
        )
    return page


class FileFetcher:
    """Fetches files of one answer. Its methods may be called by several threads."""

    def __init__(
        self,
        origin: Origin,
        files: Iterable[DataFile],
        *,
        transport: Transport | None = None,
        now_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000,
    ) -> None:
        self._origin = origin
        self._queries = origin.refresh_queries()
        self._files = {origin.query.key(file): file for file in files}
        self._transports = _Transports(transport or Transport(), threading.get_ident())
        self._listing = threading.Lock()
        self._now_ms = now_ms
        self._renewed_ms: dict[Any, int] = {}

    def whole(self, file: DataFile) -> bytes:
        """Return all bytes of a file. Raises HttpError if their number differs from the listing."""
        data = self._with_fresh_url(file, lambda new: self._transports.mine.fetch(new.url, file.size_bytes))
        if len(data) != file.size_bytes:
            raise HttpError(f"{len(data)} bytes received of a file of {file.size_bytes}", 0)
        return data

    def range(self, file: DataFile, start: int, length: int) -> bytes:
        """Return `length` bytes of a file."""
        return self._with_fresh_url(
            file, lambda fresh: self._transports.mine.fetch_range(fresh.url, start, length)
        )

    def vector_rows(self, owner: DataFile) -> Sequence[int]:
        """Return the ascending row indexes in a file's deletion vector."""
        vector = owner.deletion_vector
        if vector is None:
            return []
        native = native_module("tables with deletion vectors")
        if vector.inline is not None:
            rows = native.inline_deletion_vector_rows(vector.inline)
        else:
            mine, length = self._transports.mine, vector.size_bytes + _VECTOR_FRAME_BYTES
            data = self._with_fresh_url(
                owner, lambda fresh: mine.fetch_range(_vector_url(fresh, vector), vector.offset, length)
            )
            # Only this vector was fetched, so the file's first byte, its version, is prepended.
            rows = native.deletion_vector_rows(b"\x01" + data, offset=1, size_in_bytes=vector.size_bytes)
        if len(rows) != vector.cardinality:
            raise HttpError(f"a deletion vector has {len(rows)} rows where {vector.cardinality} are said", 0)
        return sorted(rows)

    def _with_fresh_url(self, file: DataFile, read: Callable[[DataFile], Answer]) -> Answer:
        current = self._files[self._origin.query.key(file)]
        if self._ends_soon(current):
            current = self._renewed(file, current)
        try:
            return read(current)
        except HttpError as error:
            if error.status not in _REFUSED:
                raise
        return read(self._renewed(file, current))

    def _ends_soon(self, file: DataFile) -> bool:
        """Return whether to renew a URL first. One that was just renewed may live for seconds alone."""
        end, renewed_ms = file.expires_ms, self._renewed_ms.get(self._origin.query.key(file), 0)
        return end is not None and end - self._now_ms() < min(_EARLY_MS, (end - renewed_ms) / 2)

    def _renewed(self, file: DataFile, stale: DataFile) -> DataFile:
        """List again, unless another thread has, and renew every file in the new listing."""
        with self._listing:
            renewed = self._files[self._origin.query.key(file)]
            missing = self._list_again() if renewed is stale else set()
        if self._origin.query.key(file) in missing:
            raise StaleListing(
                "a file's URL expired and the server no longer lists that file: the table has moved on; load "
                "it again, read a pinned version (versionAsOf), or share the table with history"
            )
        return self._files[self._origin.query.key(file)]

    def _list_again(self) -> set[Any]:
        """List by the first query that is not refused. Returns the keys of the missing files."""
        while True:
            try:
                return self._list_by(self._queries[0])
            except HttpError as error:
                # A refused query stays refused.
                if not error.is_refusal or len(self._queries) == 1:
                    raise
                self._queries = self._queries[1:]

    def _list_by(self, query: Query) -> set[Any]:
        client = ShareClient(self._origin.profile, self._origin.table, self._transports.mine)
        missing, now_ms = set(self._files), self._now_ms()
        for page in client.pages(query):
            for listed in page.files:
                key = self._origin.query.key(listed)
                if key in missing:
                    missing.remove(key)
                    self._files[key], self._renewed_ms[key] = listed, now_ms
            if not missing:
                break
        return missing


class _Transports(threading.local):
    """A transport for each thread: the given one for the owner. Python calls `__init__` in each thread."""

    def __init__(self, given: Transport, owner: int) -> None:
        self.mine = given if threading.get_ident() == owner else given.another()


def _vector_url(file: DataFile, vector: DeletionVector) -> str:
    fresh = file.deletion_vector
    if fresh is None or fresh.url is None or fresh.identity != vector.identity:
        raise StaleListing("a deletion vector is no longer listed")
    return fresh.url
