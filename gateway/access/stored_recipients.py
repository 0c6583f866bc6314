"""Reads the recipients' database of a running server, with little work per change.

In: the path of the database. Out: `StoredRecipients`, a new value only when anything differs. The whole
database is read at each change, by any process; but SQLite renders each range of names as one text, and
only ranges whose text differs are parsed. The file is identified by device and inode, so a restored file is
opened. The reader never creates or changes a file.
"""

from __future__ import annotations

import hashlib
import sqlite3
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import orjson

from gateway.access.authentication import Credential
from gateway.access.catalog import Recipient
from gateway.access.federation import FederationPolicy, stored_policy
from gateway.access.oauth_clients import ClientSecret, OAuthClient
from gateway.access.recipient_schema import check_schema, connect, has_clients, has_policies
from gateway.config.networks import parse_networks

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

RANGE_RECIPIENTS = 500

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
        SELECT * FROM networks WHERE recipient > ?1 AND recipient <= ?2 ORDER BY recipient, network)),
    {policies},
    {clients})
"""
_POLICIES = """
    (SELECT json_group_array(json_array(recipient, issuer, subject_claim, subject, audiences, claims)) FROM (
        SELECT * FROM policies WHERE recipient > ?1 AND recipient <= ?2 ORDER BY recipient, name))
"""
_CLIENTS = """
    (SELECT json_group_array(json_array(recipient, id)) FROM (
        SELECT * FROM clients WHERE recipient > ?1 AND recipient <= ?2 ORDER BY recipient, id)),
    (SELECT json_group_array(json_array(recipient, client, sha256, expires_ms)) FROM (
        SELECT * FROM client_secrets WHERE recipient > ?1 AND recipient <= ?2 ORDER BY recipient, sha256)),
    (SELECT json_group_array(recipient) FROM (
        SELECT * FROM bearer_tokens_forbidden WHERE recipient > ?1 AND recipient <= ?2 ORDER BY recipient))
"""
_NO_POLICIES = "json('[]')"
_NO_CLIENTS = "json('[]'), json('[]'), json('[]')"
_FIRST, _AFTER_ALL = "", b""
"""Bounds before and after all names: SQLite sorts every blob after every text."""


@dataclass(frozen=True, slots=True)
class StoredRecipient:
    """A recipient with its policies, tokens and clients.

    It has expired tokens and secrets, too: each request compares the time.
    """

    recipient: Recipient
    credentials: tuple[Credential, ...]
    policies: tuple[FederationPolicy, ...]
    clients: tuple[OAuthClient, ...] = ()


@dataclass(frozen=True, slots=True)
class NameRange:
    """The recipients from the end of the previous range up to a name; None: to the end."""

    last: str | None
    digest: bytes
    recipients: tuple[StoredRecipient, ...]


@dataclass(frozen=True, slots=True)
class StoredRecipients:
    """All recipients of a database at one moment."""

    ranges: tuple[NameRange, ...] = ()

    def __iter__(self) -> Iterator[StoredRecipient]:
        for part in self.ranges:
            yield from part.recipients


class RecipientReader:
    """Reads a database whenever it has changed. Not thread-safe."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._connection: sqlite3.Connection | None = None
        self._file: tuple[int, int] | None = None
        self._data_version: int | None = None
        self._stored = StoredRecipients()

    def read(self) -> StoredRecipients:
        """Return the recipients; the same value as before where nothing has changed.

        Raises sqlite3.Error, OSError, RecipientError and ValueError for a database that cannot be read.
        """
        try:
            return self._read()
        except BaseException:
            # The next read opens a new connection.
            self.close()
            raise

    def close(self) -> None:
        """Close the connection."""
        if self._connection is not None:
            with suppress(sqlite3.Error):
                self._connection.close()
        self._connection = self._data_version = None

    def _read(self) -> StoredRecipients:
        connection = self._open()
        (data_version,) = connection.execute("PRAGMA data_version").fetchone()
        if data_version != self._data_version:
            connection.execute("BEGIN")
            try:
                check_schema(connection)
                ranges = tuple(self._ranges(connection))
            finally:
                connection.execute("COMMIT")
            if ranges != self._stored.ranges:
                self._stored = StoredRecipients(ranges)
            self._data_version = data_version
        return self._stored

    def _open(self) -> sqlite3.Connection:
        """Return a connection to the current file of the path. Raises OSError where there is none."""
        status = self._path.stat()
        file = (status.st_dev, status.st_ino)
        if self._connection is None or file != self._file:
            self.close()
            self._file = file
            # A reader rolls back the journal of a crashed writer, which needs write access.
            self._connection = connect(self._path, "rw")
            status = self._path.stat()
            if file != (status.st_dev, status.st_ino):
                raise OSError("the recipients' database was replaced while it was opened")
        return self._connection

    def _ranges(self, connection: sqlite3.Connection) -> Iterator[NameRange]:
        known = self._stored.ranges or [
            NameRange(last, b"", ())
            for last in (*(name for (name,) in connection.execute(_BOUNDS, (RANGE_RECIPIENTS,))), None)
        ]
        query = _RANGE.format(
            policies=_POLICIES if has_policies(connection) else _NO_POLICIES,
            clients=_CLIENTS if has_clients(connection) else _NO_CLIENTS,
        )
        after = _FIRST
        for previous in known:
            last = _AFTER_ALL if previous.last is None else previous.last
            (text,) = connection.execute(query, (after, last)).fetchone()
            digest = hashlib.sha256(text.encode()).digest()
            if digest == previous.digest:
                yield previous
            else:
                yield from _parsed(text, digest, previous.last)
            after = previous.last or _FIRST


def _parsed(text: str, digest: bytes, last: str | None) -> Iterator[NameRange]:
    """Parse the text of a range into one range, or several where recipients were added."""
    names, tokens, grants, networks, policies, clients, secrets, forbidding = orjson.loads(text)
    policies_of, clients_of, secrets_of = _by_name(policies), _by_name(clients), _by_name(secrets)
    forbids = {_key(name) for name in forbidding}
    shares_of, networks_of, tokens_of = _by_name(grants), _by_name(networks), _by_name(tokens)
    found = []
    for name in names:
        key = _key(name)
        shares = frozenset(share.casefold() for (share,) in shares_of.get(key, ()))
        allowed = parse_networks([network for (network,) in networks_of.get(key, ())])
        recipient = Recipient(name, shares, allowed)
        credentials = tuple(
            Credential(bytes.fromhex(sha256), recipient, expires_ms, is_forbidden=key in forbids)
            for sha256, expires_ms in tokens_of.get(key, ())
        )
        own = tuple(stored_policy(*policy) for policy in policies_of.get(key, ()))
        own_clients = tuple(_clients(recipient, clients_of.get(key, ()), secrets_of.get(key, ())))
        found.append(StoredRecipient(recipient, credentials, own, own_clients))
    if len(found) <= 2 * RANGE_RECIPIENTS:
        yield NameRange(last, digest, tuple(found))
        return
    # The texts of the new ranges are not known: without digests they are parsed again at the next change.
    for begin in range(0, len(found), RANGE_RECIPIENTS):
        part = found[begin : begin + RANGE_RECIPIENTS]
        is_last = begin + RANGE_RECIPIENTS >= len(found)
        yield NameRange(last if is_last else part[-1].recipient.name, b"", tuple(part))


def _clients(
    recipient: Recipient, clients: Sequence[Sequence[Any]], secrets: Sequence[Sequence[Any]]
) -> Iterator[OAuthClient]:
    for (client_id,) in clients:
        own = (
            ClientSecret(bytes.fromhex(sha256), expires_ms)
            for client, sha256, expires_ms in secrets
            if client == client_id
        )
        yield OAuthClient(client_id, recipient, tuple(own))


def _by_name(rows: Sequence[Sequence[Any]]) -> dict[bytes, list[Sequence[Any]]]:
    """Group rows by their first value, the recipient's name."""
    groups: dict[bytes, list[Sequence[Any]]] = {}
    for name, *values in rows:
        groups.setdefault(_key(name), []).append(values)
    return groups


def _key(name: str) -> bytes:
    """Return a name as SQLite compares it: without the case of ASCII letters."""
    return name.encode().lower()
