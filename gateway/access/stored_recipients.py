"""What the server knows of the recipients' database: every recipient with its tokens, read in small steps.

In: the path of the database. Out: `StoredRecipients`, a new one only when anything differs. The database is
read whole at each change, so that nothing escapes, whoever changed it and however; but SQLite makes one text
of each range of names, without the interpreter, and only ranges whose text differs are parsed. The file is
known by its device and inode, too: one that is put in its place (a restore) is opened. Never creates or
changes a file.
"""

from __future__ import annotations

import hashlib
import sqlite3
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import orjson

from gateway.access.authentication import Credential
from gateway.access.catalog import Recipient
from gateway.access.recipient_store import SCHEMA_VERSION, RecipientError
from gateway.config.networks import parse_networks

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

RANGE_RECIPIENTS = 500
BUSY_SECONDS = 5.0

_BOUNDS = """
SELECT name FROM (SELECT name, row_number() OVER (ORDER BY name) AS number FROM recipients)
WHERE number % ?1 = 0 ORDER BY name
"""
_RANGE = """
SELECT json_array(
    (SELECT json_group_array(name) FROM (
        SELECT name FROM recipients WHERE name > ?1 AND name <= ?2 ORDER BY name)),
    (SELECT json_group_array(json_array(recipient, sha256, expires_ms)) FROM (
        SELECT * FROM tokens WHERE recipient > ?1 AND recipient <= ?2 ORDER BY recipient, sha256)),
    (SELECT json_group_array(json_array(recipient, share)) FROM (
        SELECT * FROM grants WHERE recipient > ?1 AND recipient <= ?2 ORDER BY recipient, share)),
    (SELECT json_group_array(json_array(recipient, network)) FROM (
        SELECT * FROM networks WHERE recipient > ?1 AND recipient <= ?2 ORDER BY recipient, network)))
"""
_FIRST, _BEHIND_ALL = "", b""
"""Bounds before and behind all names: SQLite sorts every blob behind every text."""


@dataclass(frozen=True, slots=True)
class NameRange:
    """The recipients up to a name, from that of the range before; None: to the end."""

    last: str | None
    digest: bytes
    recipients: tuple[tuple[Recipient, tuple[Credential, ...]], ...]
    """Tokens that have expired are there as well: time decides at each request."""


@dataclass(frozen=True, slots=True)
class StoredRecipients:
    """All recipients of a database, as they were at one moment."""

    ranges: tuple[NameRange, ...] = ()

    def __iter__(self) -> Iterator[tuple[Recipient, tuple[Credential, ...]]]:
        for part in self.ranges:
            yield from part.recipients


class RecipientReader:
    """Reads a database whenever it has changed. For one thread alone."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._connection: sqlite3.Connection | None = None
        self._file: tuple[int, int] | None = None
        self._data_version: int | None = None
        self._found = StoredRecipients()

    def read(self) -> StoredRecipients:
        """What is in the database: the value that was given before, where nothing has changed.

        Raises sqlite3.Error, OSError, RecipientError and ValueError for what cannot be read.
        """
        try:
            return self._read()
        except BaseException:
            # Whatever is wrong with the file or the connection: the next look begins with a new one.
            self.close()
            raise

    def close(self) -> None:
        """Close the connection."""
        if self._connection is not None:
            with suppress(sqlite3.Error):
                self._connection.close()
        self._connection = self._data_version = None

    def _read(self) -> StoredRecipients:
        connection = self._current()
        (data_version,) = connection.execute("PRAGMA data_version").fetchone()
        if data_version != self._data_version:
            connection.execute("BEGIN")
            try:
                self._check_schema(connection)
                ranges = tuple(self._ranges(connection))
            finally:
                connection.execute("COMMIT")
            if ranges != self._found.ranges:
                self._found = StoredRecipients(ranges)
            self._data_version = data_version
        return self._found

    def _current(self) -> sqlite3.Connection:
        """A connection to the file that has the name at present. Raises OSError where there is none."""
        status = self._path.stat()
        file = (status.st_dev, status.st_ino)
        if self._connection is None or file != self._file:
            self.close()
            self._file = file
            # Journals of writers that have crashed are rolled back, for which a reader must be able to write.
            uri = f"file:{quote(str(self._path.absolute()))}?mode=rw"
            self._connection = sqlite3.connect(uri, uri=True, isolation_level=None, timeout=BUSY_SECONDS)
            status = self._path.stat()
            if file != (status.st_dev, status.st_ino):
                raise OSError("the recipients' database was replaced while it was opened")
        return self._connection

    @staticmethod
    def _check_schema(connection: sqlite3.Connection) -> None:
        (version,) = connection.execute("PRAGMA user_version").fetchone()
        if version > SCHEMA_VERSION:
            raise RecipientError(f"the recipients' database has version {version}, of a newer gateway")
        if version == 0:
            raise RecipientError("the recipients' database is empty: it holds not even its tables")

    def _ranges(self, connection: sqlite3.Connection) -> Iterator[NameRange]:
        known = self._found.ranges or [
            NameRange(last, b"", ())
            for last in (*(name for (name,) in connection.execute(_BOUNDS, (RANGE_RECIPIENTS,))), None)
        ]
        after = _FIRST
        for before in known:
            last = _BEHIND_ALL if before.last is None else before.last
            (text,) = connection.execute(_RANGE, (after, last)).fetchone()
            digest = hashlib.sha256(text.encode()).digest()
            if digest == before.digest:
                yield before
            else:
                yield from _parsed(text, digest, before.last)
            after = before.last or _FIRST


def _parsed(text: str, digest: bytes, last: str | None) -> Iterator[NameRange]:
    """The ranges of a text: one, or several where recipients were added to it."""
    names, tokens, grants, networks = orjson.loads(text)
    shares_of, networks_of, tokens_of = _by_name(grants), _by_name(networks), _by_name(tokens)
    found = []
    for name in names:
        key = _key(name)
        shares = frozenset(share.casefold() for (share,) in shares_of.get(key, ()))
        allowed = parse_networks([network for (network,) in networks_of.get(key, ())])
        recipient = Recipient(name, shares, allowed)
        credentials = tuple(
            Credential(bytes.fromhex(sha256), recipient, expires_ms)
            for sha256, expires_ms in tokens_of.get(key, ())
        )
        found.append((recipient, credentials))
    if len(found) <= 2 * RANGE_RECIPIENTS:
        yield NameRange(last, digest, tuple(found))
        return
    # Their own texts are not known yet: without digests they are parsed once more at the next change.
    for begin in range(0, len(found), RANGE_RECIPIENTS):
        part = found[begin : begin + RANGE_RECIPIENTS]
        is_last = begin + RANGE_RECIPIENTS >= len(found)
        yield NameRange(last if is_last else part[-1][0].name, b"", tuple(part))


def _by_name(rows: Sequence[Sequence[Any]]) -> dict[bytes, list[Sequence[Any]]]:
    """Rows by their first value, a recipient's name."""
    groups: dict[bytes, list[Sequence[Any]]] = {}
    for name, *values in rows:
        groups.setdefault(_key(name), []).append(values)
    return groups


def _key(name: str) -> bytes:
    """The name as SQLite compares it: without the case of ASCII letters, and of no others."""
    return name.encode().lower()
