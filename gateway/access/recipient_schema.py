"""Opens the SQLite file of the recipients' database, and creates or checks its schema."""

from __future__ import annotations

import os
import sqlite3
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING
from urllib.parse import quote

from gateway.access.recipient_records import DatabaseMissing, RecipientError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

SCHEMA_VERSION = 3
BUSY_SECONDS = 5.0
"""Maximum time that a change waits for the lock of another program."""

_SCHEMA = """
CREATE TABLE recipients (
    name TEXT PRIMARY KEY COLLATE NOCASE, comment TEXT NOT NULL, created_ms INTEGER NOT NULL) WITHOUT ROWID;
CREATE TABLE tokens (
    sha256 TEXT PRIMARY KEY, recipient TEXT NOT NULL COLLATE NOCASE REFERENCES recipients(name),
    created_ms INTEGER NOT NULL, expires_ms INTEGER) WITHOUT ROWID;
CREATE INDEX tokens_of ON tokens(recipient);
CREATE TABLE grants (
    recipient TEXT NOT NULL COLLATE NOCASE REFERENCES recipients(name), share TEXT NOT NULL COLLATE NOCASE,
    PRIMARY KEY (recipient, share)) WITHOUT ROWID;
CREATE TABLE networks (
    recipient TEXT NOT NULL COLLATE NOCASE REFERENCES recipients(name), network TEXT NOT NULL,
    PRIMARY KEY (recipient, network)) WITHOUT ROWID;
CREATE TABLE history (
    at_ms INTEGER NOT NULL, actor TEXT NOT NULL, action TEXT NOT NULL, recipient TEXT NOT NULL COLLATE NOCASE,
    detail TEXT NOT NULL);
CREATE INDEX history_of ON history(recipient);
"""
_POLICIES = """
CREATE TABLE policies (
    recipient TEXT NOT NULL COLLATE NOCASE REFERENCES recipients(name), name TEXT NOT NULL,
    issuer TEXT NOT NULL, subject_claim TEXT NOT NULL, subject TEXT NOT NULL, audiences TEXT NOT NULL,
    claims TEXT NOT NULL, created_ms INTEGER NOT NULL, PRIMARY KEY (recipient, name)) WITHOUT ROWID
"""
_CLIENTS = """
CREATE TABLE clients (
    id TEXT PRIMARY KEY, recipient TEXT NOT NULL COLLATE NOCASE REFERENCES recipients(name),
    created_ms INTEGER NOT NULL) WITHOUT ROWID;
CREATE INDEX clients_of ON clients(recipient);
CREATE TABLE client_secrets (
    sha256 TEXT PRIMARY KEY, recipient TEXT NOT NULL COLLATE NOCASE REFERENCES recipients(name),
    client TEXT NOT NULL REFERENCES clients(id), created_ms INTEGER NOT NULL,
    expires_ms INTEGER) WITHOUT ROWID;
CREATE INDEX client_secrets_of ON client_secrets(recipient);
CREATE TABLE bearer_tokens_forbidden (
    recipient TEXT PRIMARY KEY COLLATE NOCASE REFERENCES recipients(name)) WITHOUT ROWID
"""
_STEPS = (_SCHEMA, _POLICIES, _CLIENTS)
"""The statements that lead from each version of the schema to the next one."""


def open_file(path: Path, *, create: bool, read_only: bool) -> sqlite3.Connection:
    """Return a connection to the file. Raises DatabaseMissing if it does not exist and may not be created.

    A new file is readable by its owner only. `read_only`: the file is neither created nor changed, not even
    to a newer schema.
    """
    if (read_only or not create) and not path.exists():
        raise DatabaseMissing
    if not read_only:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
    connection = connect(path, "ro" if read_only else "rw")
    try:
        # Shares are compared as in the catalog; SQLite's NOCASE folds ASCII letters only.
        connection.create_function("casefold", 1, str.casefold, deterministic=True)
        if read_only:
            check_schema(connection)
        else:
            _leave_write_ahead_log(connection)
            connection.execute("PRAGMA foreign_keys=ON")
            _migrate(connection)
    except BaseException:
        connection.close()
        raise
    return connection


def connect(path: Path, mode: str) -> sqlite3.Connection:
    """Return a connection to an existing file; `mode` is `ro` or `rw`."""
    uri = f"file:{quote(str(path.absolute()))}?mode={mode}"
    return sqlite3.connect(uri, uri=True, isolation_level=None, timeout=BUSY_SECONDS)


def check_schema(connection: sqlite3.Connection) -> None:
    """Check that the file has a schema that can be read. Raises RecipientError."""
    check_newer(connection)
    if _version(connection) == 0:
        raise RecipientError("the recipients' database is empty: it has no tables")


def check_newer(connection: sqlite3.Connection) -> None:
    """Check that no newer gateway has changed the schema. Raises RecipientError."""
    version = _version(connection)
    if version > SCHEMA_VERSION:
        raise RecipientError(f"the recipients' database has version {version}, of a newer gateway")


def has_policies(connection: sqlite3.Connection) -> bool:
    """Return whether the schema has policies: that of an earlier gateway has none until it is changed."""
    return _version(connection) > 1


def has_clients(connection: sqlite3.Connection) -> bool:
    """Return whether the schema has OAuth clients, and recipients that may not use bearer tokens."""
    return _version(connection) > 2  # noqa: PLR2004 - the version that added them


@contextmanager
def transaction(connection: sqlite3.Connection, begin: str) -> Iterator[None]:
    """Commit at the end of the context, or roll back after an exception."""
    connection.execute(begin)
    try:
        yield
        connection.execute("COMMIT")
    except BaseException:
        # SQLite itself rolls back on a full disk, and an interruption may follow the commit.
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise


def _leave_write_ahead_log(connection: sqlite3.Connection) -> None:
    """End the use of a write-ahead log, which would be applied to a file that replaces this one."""
    (mode,) = connection.execute("PRAGMA journal_mode").fetchone()
    if mode != "wal":
        # Setting the mode needs a lock, which another program may hold.
        return
    # While a server of an earlier version runs, the mode stays, without waiting for that server.
    connection.execute("PRAGMA busy_timeout=0")
    with suppress(sqlite3.OperationalError):
        connection.execute("PRAGMA journal_mode=DELETE")
    connection.execute(f"PRAGMA busy_timeout={int(BUSY_SECONDS * 1000)}")


def _migrate(connection: sqlite3.Connection) -> None:
    # Reading the version waits for no change.
    if _version(connection) == SCHEMA_VERSION:
        return
    with transaction(connection, "BEGIN IMMEDIATE"):
        for step in _STEPS[_version(connection) :]:
            for statement in step.split(";"):
                connection.execute(statement)
        check_newer(connection)
        connection.execute(f"PRAGMA user_version = {SCHEMA_VERSION}")


def _version(connection: sqlite3.Connection) -> int:
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    return int(version)
