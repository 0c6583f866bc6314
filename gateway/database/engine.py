"""One connection to the database, and its transactions.

In: the place of the database. Out: `Database`, whose `reading` and `changing` are transactions. Errors of
the drivers are raised as `DatabaseError`.

A reading is of one moment. A change sees what earlier ones have committed, and no other change is made until
it ends: by the lock of the file in SQLite, by an advisory lock in PostgreSQL.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any
from urllib.parse import quote

import sqlalchemy.exc
from sqlalchemy import BigInteger, Connection, NullPool, cast, create_engine, event, func, select, text

from gateway.config.database import DatabasePlace
from gateway.database.changes import LOCK
from gateway.database.errors import DatabaseBusy, DatabaseError, DatabaseMissing, DatabaseUnusable
from gateway.paths import exists

BUSY_SECONDS = 5.0
"""Maximum time that a change waits for the lock of another program."""

EXTRA_MISSING = (
    "PostgreSQL needs the extra `postgresql`, which is not installed: "
    "pip install 'delta-sharing-gateway[postgresql]'"
)

STANDBY = (
    "its server is a standby: name the one that takes changes, or all and target_session_attrs=read-write"
)

NOW_MS = cast(func.extract("epoch", func.clock_timestamp()) * 1000, BigInteger)
"""The time of PostgreSQL's server, also within a transaction."""

_TAKES_CHANGES = text("SELECT NOT pg_is_in_recovery() AND current_setting('transaction_read_only') = 'off'")
_SQLITE_BUSY = frozenset({sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED})
_POSTGRESQL_BUSY = frozenset({"55P03", "40P01"})
"""`lock_not_available` and `deadlock_detected`."""


class Database:
    """A connection. Not thread-safe; make one for each thread."""

    def __init__(self, place: DatabasePlace, *, create: bool = False, read_only: bool = False) -> None:
        """Connect. Raises DatabaseError.

        `create`: create a SQLite file where there is none, readable by its owner only. `read_only`: the
        database is not changed.
        """
        self.path = place.path
        self.is_sqlite = place.path is not None
        with _translated():
            if place.path is not None:
                self.connection = _sqlite(place.path, create=create, read_only=read_only)
            else:
                self.connection = _postgresql(place)

    @staticmethod
    def copied(path: Path) -> Database:
        """Copy the committed content of a SQLite file to memory. Raises DatabaseError."""
        copy = Database.__new__(Database)
        copy.path, copy.is_sqlite = None, True
        with _translated(), closing(_sqlite(path, create=False, read_only=True)) as source:
            copy.connection = _connected("sqlite+pysqlite://", creator=lambda: _loaded(source))
        return copy

    @property
    def driver(self) -> Any:
        """Return the connection of `sqlite3` or `psycopg`."""
        return self.connection.connection.driver_connection

    def server_now_ms(self) -> int | None:
        """Return the time of PostgreSQL's server; None for a file. Raises DatabaseError."""
        if self.is_sqlite:
            return None
        with self.statement() as connection:
            return connection.execute(select(NOW_MS)).scalar_one()

    def takes_changes(self) -> bool:
        """Return whether the server takes changes, which a standby does not. Raises DatabaseError."""
        if self.is_sqlite:
            return True
        with self.statement() as connection:
            return bool(connection.execute(_TAKES_CHANGES).scalar_one())

    def close(self) -> None:
        with suppress(sqlalchemy.exc.SQLAlchemyError):
            self.connection.close()

    @contextmanager
    def statement(self) -> Iterator[Connection]:
        """Return the connection for single statements outside of a transaction. Raises DatabaseError."""
        with _translated():
            yield self.connection

    @contextmanager
    def reading(self) -> Iterator[Connection]:
        """Return the connection within a transaction that sees one moment. Raises DatabaseError."""
        begin = "BEGIN" if self.is_sqlite else "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY"
        with self._transaction(begin) as connection:
            yield connection

    @contextmanager
    def changing(self) -> Iterator[Connection]:
        """Return the connection within a transaction that no other change runs beside.

        Commits at the end of the context, or rolls back after an exception. Raises DatabaseError.
        """
        # By the default of a role or a URL it may see one moment, from before it waits for the lock.
        begin = "BEGIN IMMEDIATE" if self.is_sqlite else "BEGIN ISOLATION LEVEL READ COMMITTED"
        with self._transaction(begin) as connection:
            if not self.is_sqlite:
                connection.exec_driver_sql(f"SET LOCAL lock_timeout = '{BUSY_SECONDS}s'")
                connection.exec_driver_sql(f"SELECT pg_advisory_xact_lock({LOCK})")
            yield connection

    @contextmanager
    def long_statements(self) -> Iterator[None]:
        """Let statements of the present transaction take any time within the context, as migrations do."""
        if self.is_sqlite:
            yield
            return
        driver = self.driver
        seconds, driver.answer_seconds = driver.answer_seconds, None
        try:
            self.connection.exec_driver_sql("SET LOCAL statement_timeout = 0")
            yield
        finally:
            driver.answer_seconds = seconds

    def listen(self, channel: str) -> None:
        """Receive notifications, except where a pooler is between: another client would receive them.

        Raises DatabaseError, also for a standby, whose state may be older.
        """
        if self.is_sqlite:
            return
        with self.statement() as connection:
            if connection.exec_driver_sql("SELECT pg_is_in_recovery()").scalar_one():
                raise DatabaseUnusable(STANDBY)
            if not self.driver.is_pooled:
                connection.exec_driver_sql(f"LISTEN {channel}")

    @contextmanager
    def _transaction(self, begin: str) -> Iterator[Connection]:
        with _translated():
            self.connection.exec_driver_sql(begin)
            try:
                if not self.is_sqlite and self.driver.is_pooled:
                    self.driver.limit_statements(is_local=True)
                yield self.connection
                self.connection.exec_driver_sql("COMMIT")
            except BaseException:
                # SQLite itself rolls back on a full disk, and an interruption may follow the commit.
                with suppress(sqlalchemy.exc.SQLAlchemyError):
                    self.connection.exec_driver_sql("ROLLBACK")
                raise


def _loaded(source: Connection) -> sqlite3.Connection:
    copy = sqlite3.connect(":memory:", isolation_level=None)
    driver: Any = source.connection.driver_connection
    driver.backup(copy)
    return copy


def _sqlite(path: Path, *, create: bool, read_only: bool) -> Connection:
    if not create and not exists(path):
        raise DatabaseMissing
    # As a container's mount makes it where its file is absent.
    if path.is_dir():
        raise DatabaseUnusable(f"{path} is a directory")
    if not create and not os.access(path, os.R_OK):
        raise DatabaseUnusable(f"{path} cannot be read")
    if create:
        try:
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
        except OSError as error:
            raise DatabaseUnusable(f"{path} cannot be written: {error.strerror}") from None
    uri = f"file:{quote(str(path.absolute()))}?mode={'ro' if read_only else 'rw'}"

    def connect() -> sqlite3.Connection:
        return sqlite3.connect(uri, uri=True, isolation_level=None, timeout=BUSY_SECONDS)

    connection = _connected("sqlite+pysqlite://", creator=connect)
    try:
        if not read_only:
            _leave_write_ahead_log(connection)
            connection.exec_driver_sql("PRAGMA foreign_keys=ON")
    except BaseException:
        # Left open, it would be closed by another thread, which SQLite refuses.
        connection.close()
        raise
    return connection


def _postgresql(place: DatabasePlace) -> Connection:
    # Needs the extra.
    from gateway.database.postgresql import connector  # noqa: PLC0415

    url = "" if place.url is None else place.url.reveal()
    password = None if place.password is None else place.password.reveal()
    return _connected("postgresql+psycopg://", connect=connector(url, password))


def _connected(url: str, *, connect: Callable[..., Any] | None = None, **options: Any) -> Connection:
    # Each transaction begins and ends by its own statements, which say how it locks.
    engine = create_engine(
        url, poolclass=NullPool, isolation_level="AUTOCOMMIT", hide_parameters=True, **options
    )
    if connect is not None:
        event.listen(engine, "do_connect", connect)
    return engine.connect()


def _leave_write_ahead_log(connection: Connection) -> None:
    """End the use of a write-ahead log, which would be applied to a file that replaces this one."""
    (mode,) = connection.exec_driver_sql("PRAGMA journal_mode").one()
    if mode != "wal":
        # Setting the mode needs a lock, which another program may hold.
        return
    # While a server of an earlier version runs, the mode stays, without waiting for that server.
    connection.exec_driver_sql("PRAGMA busy_timeout=0")
    with suppress(sqlalchemy.exc.OperationalError):
        connection.exec_driver_sql("PRAGMA journal_mode=DELETE")
    connection.exec_driver_sql(f"PRAGMA busy_timeout={int(BUSY_SECONDS * 1000)}")


@contextmanager
def _translated() -> Iterator[None]:
    """Raise errors of the drivers as DatabaseError."""
    try:
        yield
    except sqlalchemy.exc.DBAPIError as error:
        raise _described(error.orig) from None
    except ModuleNotFoundError:
        raise DatabaseUnusable(EXTRA_MISSING) from None
    except sqlalchemy.exc.SQLAlchemyError as error:
        raise DatabaseUnusable(f"it cannot be used: {type(error).__name__}") from None


def _described(error: BaseException | None) -> DatabaseError:
    code = getattr(error, "sqlite_errorcode", None)
    # The low byte is the kind of an extended code.
    is_busy = code is not None and code & 0xFF in _SQLITE_BUSY
    if is_busy or getattr(error, "sqlstate", None) in _POSTGRESQL_BUSY:
        return DatabaseBusy()
    # Further lines may have values of rows.
    lines = str(error).splitlines()
    return DatabaseUnusable(lines[0] if lines else type(error).__name__)
