"""Reads the bytes of listed files in a task, with URLs that stay fresh.

Comes in: listed files and the query that listed them. Goes out: Parquet sources and deletion vector rows.
A URL is replaced shortly before it expires, and once when the store refuses it: the query is asked again
(by refresh token where the server gave one) and the same file is found in the new answer. One
`FileFetcher` belongs to one task.
"""

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import pyarrow as pa

from gateway.spark.actions import DataFile, DeletionVector
from gateway.spark.client import Query, ShareClient, TableName
from gateway.spark.profile import Profile
from gateway.spark.transport import HttpError, RangedFile, Transport

Answer = TypeVar("Answer")

# Stores tell an expired or altered URL with one of these; the bodies differ too much to look at.
_REFUSED = frozenset({400, 401, 403, 410})
_EARLY_MS = 60_000
_WHOLE_FILE_BYTES = 16 << 20
# A vector's bytes are framed by their length (4) and a checksum (4).
_VECTOR_FRAME_BYTES = 8


@dataclass(frozen=True)
class Origin:
    """Where files were listed: enough to list them again."""

    profile: Profile
    table: TableName
    query: Query
    version: int | None
    refresh_token: str | None = None

    def refresh_query(self) -> Query:
        """The query that answers the same files with new URLs."""
        if self.refresh_token is None:
            return self.query
        kept = {name: value for name, value in self.query.parameters.items() if name != "includeRefreshToken"}
        return replace(self.query, parameters={**kept, "refreshToken": self.refresh_token})


class StaleListing(Exception):
    """A file's URL could not be renewed: the server no longer lists that file."""


class FileFetcher:
    """Bytes of the files of one task."""

    def __init__(
        self,
        origin: Origin,
        files: Iterable[DataFile],
        *,
        transport: Transport | None = None,
        now_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000,
    ) -> None:
        self._origin = origin
        self._files = {_key(file): file for file in files}
        self._transport = transport or Transport()
        self._now_ms = now_ms

    def source(self, file: DataFile) -> Any:
        """What a Parquet reader takes: the whole file in memory if it is small, else a ranged file."""
        if file.size_bytes <= _WHOLE_FILE_BYTES:
            data = self._with_fresh_url(file, lambda fresh: self._transport.fetch(fresh.url))
            if len(data) != file.size_bytes:
                raise HttpError(f"{len(data)} bytes came of a file of {file.size_bytes}", 0)
            return pa.BufferReader(data)

        def read_range(start: int, length: int) -> bytes:
            return self._with_fresh_url(
                file, lambda fresh: self._transport.fetch_range(fresh.url, start, length)
            )

        return pa.PythonFile(RangedFile(read_range, file.size_bytes), mode="r")

    def vector_rows(self, owner: DataFile) -> Sequence[int]:
        """The ascending row indexes in a file's deletion vector."""
        vector = owner.deletion_vector
        if vector is None:
            return []
        native = _native()
        if vector.inline is not None:
            rows = native.inline_deletion_vector_rows(vector.inline)
        else:
            length = vector.size_bytes + _VECTOR_FRAME_BYTES
            data = self._with_fresh_url(
                owner,
                lambda fresh: self._transport.fetch_range(_vector_url(fresh, vector), vector.offset, length),
            )
            # Only this vector was fetched; the file's first byte, its version, is put before it.
            rows = native.deletion_vector_rows(b"\x01" + data, offset=1, size_in_bytes=vector.size_bytes)
        if len(rows) != vector.cardinality:
            raise HttpError(f"a deletion vector has {len(rows)} rows where {vector.cardinality} are said", 0)
        return sorted(rows)

    def _with_fresh_url(self, file: DataFile, read: Callable[[DataFile], Answer]) -> Answer:
        current = self._files[_key(file)]
        if current.expires_ms is not None and current.expires_ms - _EARLY_MS < self._now_ms():
            current = self._renewed(file)
        try:
            return read(current)
        except HttpError as error:
            if error.status not in _REFUSED:
                raise
        return read(self._renewed(file))

    def _renewed(self, file: DataFile) -> DataFile:
        """List again and renew every file of this task that is found."""
        client = ShareClient(self._origin.profile, self._origin.table, self._transport)
        missing = set(self._files)
        for page in client.pages(self._origin.refresh_query()):
            for listed in page.files:
                key = _key(listed)
                if key in missing:
                    missing.remove(key)
                    self._files[key] = listed
            if not missing:
                break
        if _key(file) in missing:
            raise StaleListing(
                "a file's URL expired and the server lists that file no longer: the table moved on; read a "
                "pinned version (versionAsOf), or share the table with history"
            )
        return self._files[_key(file)]


def _key(file: DataFile) -> Any:
    vector = file.deletion_vector
    return (file.kind, file.id, file.version, vector.identity if vector else None)


def _vector_url(file: DataFile, vector: DeletionVector) -> str:
    fresh = file.deletion_vector
    if fresh is None or fresh.url is None or fresh.identity != vector.identity:
        raise StaleListing("a deletion vector is listed no longer")
    return fresh.url


def _native() -> Any:
    try:
        from gateway import _native  # noqa: PLC0415 - only tables with deletion vectors need it
    except ImportError as error:
        raise ImportError(
            "tables with deletion vectors need the gateway's native module in the executors: install the "
            "delta-sharing-gateway wheel there"
        ) from error
    return _native
