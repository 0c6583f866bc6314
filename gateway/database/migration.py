"""Creates the tables of a database, or brings them up to date, by Alembic.

In: a connection. Out: the tables of `schema`, made in one transaction. A SQLite file with an earlier schema
is first copied beside itself, such as `recipients.db.before-0002`. A new database takes over the rows of
another SQLite file, once: an empty file beside it says so. Alembic is imported only where there is something
to do.
"""

from __future__ import annotations

import logging
import os
import secrets
import sqlite3
import tempfile
from contextlib import closing
from itertools import count
from pathlib import Path

from sqlalchemy import Connection, func, inspect, select, text

from gateway.config.database import DatabasePlace
from gateway.database.engine import Database
from gateway.database.errors import (
    DatabaseEarlier,
    DatabaseError,
    DatabaseMissing,
    DatabaseOutdated,
    DatabaseUnusable,
)
from gateway.database.migrations import triggers
from gateway.database.schema import CHANGES, GRANTS, HEAD, HISTORY, METADATA, RECIPIENTS, REPLICAS
from gateway.paths import exists

log = logging.getLogger("gateway.recipients")

VERSION_TABLE = "alembic_version"
"""The table of Alembic with the revision of the schema."""
MIGRATIONS = Path(__file__).with_name("migrations")
BATCH_ROWS = 1000
NOT_TAKEN_OVER = (CHANGES, REPLICAS)
"""They are about a database and its servers, and no content of it."""
_RIGHTS = text(
    "SELECT pg_is_in_recovery(), current_schema(), has_schema_privilege(current_schema(), 'CREATE')"
)
TAKEN_OVER = ".taken-over"
"""The end of the name of an empty file beside one whose rows were taken over."""
OUTDATED = "its schema is that of an earlier release: the next start of a server, or change, updates it"


def check_schema(database: Database, connection: Connection) -> None:
    """Check that the schema is the present one. Raises DatabaseMissing and DatabaseOutdated."""
    revision = _revision(connection)
    if revision is None:
        raise _without_tables(database)
    if revision != HEAD:
        raise DatabaseEarlier(OUTDATED)
    if not database.is_sqlite and not triggers.READ_TABLES.keys() <= _tables_with_triggers(connection):
        # pg_restore creates them after the rows: before, a part of the rows may be there.
        raise DatabaseUnusable("its triggers are missing: it is being restored, or was restored in part")


def migrate(database: Database, *, create: bool = False, source: Path | None = None) -> None:
    """Bring the schema up to date. Raises DatabaseError, DatabaseMissing where there are no tables.

    `create`: creates the tables where there are none, with the rows of the SQLite file `source`, if any.
    """
    # Reading the revision waits for no change.
    with database.reading() as connection:
        if _revision(connection) == HEAD:
            return
    with database.changing() as connection:
        revision = _revision(connection)
        if revision == HEAD:
            return
        if revision is None and not create:
            raise _without_tables(database)
        if revision is None:
            _check_creatable(database, connection)
        taken_over = source if revision is None else None
        if taken_over is not None:
            check_not_taken_over(taken_over)
        if revision is not None and database.path is not None:
            _back_up(database.path)
        with database.long_statements():
            (_create if revision is None else _upgrade)(connection)
            if taken_over is not None:
                _take_over(taken_over, connection)
    if taken_over is not None:
        _note_taken_over(taken_over)


def check_creatable(place: DatabasePlace) -> None:
    """Check that the first start can make the tables of a database, and make none. Raises DatabaseError."""
    if place.path is not None:
        directory = next(parent for parent in place.path.absolute().parents if os.path.lexists(parent))
        if place.path.is_symlink():
            # The start makes the file that it leads to, and no directory of it.
            directory = place.path.resolve().parent
        if not os.access(directory, os.W_OK | os.X_OK):
            raise DatabaseUnusable(f"{place.path} does not exist, and {directory} cannot be written")
        return
    with closing(Database(place)) as database, database.reading() as connection:
        _check_creatable(database, connection)


def check_writable(place: DatabasePlace) -> None:
    """Check that a server may open a SQLite file, which it does for changes. Raises DatabaseError."""
    if place.path is not None and exists(place.path) and not os.access(place.path, os.W_OK):
        raise DatabaseUnusable(f"{place.path} cannot be written")


def change_problem(place: DatabasePlace) -> str | None:
    """Return why a SQLite file takes no changes though it can be written; None if it takes them."""
    # Not by `exists`, which raises for a file that may not be looked at.
    if place.path is None or not os.access(place.path, os.W_OK):
        return None
    directory = place.path.resolve().parent
    if os.access(directory, os.W_OK | os.X_OK):
        return None
    return (
        f"{place.path} takes no changes, such as revocations: SQLite writes a journal beside it, and "
        f"{directory} cannot be written"
    )


def _check_creatable(database: Database, connection: Connection) -> None:
    if database.is_sqlite:
        return
    recovers, schema, may_create = connection.execute(_RIGHTS).one()
    if recovers:
        raise DatabaseUnusable("it has no tables, and is a standby, which takes no changes")
    if schema is None:
        raise DatabaseUnusable("it has no tables, and no schema of the role's search_path exists")
    if not may_create:
        raise DatabaseUnusable(
            f"it has no tables, and the role may not make them: GRANT CREATE ON SCHEMA {schema} to it"
        )


def opened(
    place: DatabasePlace, *, create: bool = False, read_only: bool = False, source: Path | None = None
) -> Database:
    """Connect to a database with the present schema. Raises as `Database` and `migrate`.

    `read_only`: the database is not changed. A SQLite file with an earlier schema is then copied to memory.
    """
    database = Database(place, create=create and not read_only, read_only=read_only)
    try:
        if not read_only:
            migrate(database, create=create, source=source)
        is_readable = not read_only or _is_present(database)
    except BaseException:
        database.close()
        raise
    if is_readable or place.path is None:
        return database
    database.close()
    return _upgraded_copy(place.path)


def _is_present(database: Database) -> bool:
    """Return whether the schema is the present one, not an earlier one of a file. Raises DatabaseError."""
    with database.reading() as connection:
        try:
            check_schema(database, connection)
        except DatabaseEarlier:
            if database.path is None:
                raise
            return False
    return True


def _upgraded_copy(path: Path) -> Database:
    copy = Database.copied(path)
    try:
        migrate(copy)
    except BaseException:
        copy.close()
        raise
    return copy


def _without_tables(database: Database) -> DatabaseError:
    # An empty file in the place of a database is no new database, which would refuse every recipient.
    return DatabaseUnusable("it is empty: it has no tables") if database.is_sqlite else DatabaseMissing()


def _revision(connection: Connection) -> str | None:
    """Return the revision; None without tables. Raises DatabaseOutdated for one of another gateway."""
    inspector, row = inspect(connection), None
    if inspector.has_table(VERSION_TABLE):
        row = connection.exec_driver_sql(f"SELECT version_num FROM {VERSION_TABLE}").first()  # noqa: S608
    if row is None:
        if inspector.has_table(RECIPIENTS.name):
            raise DatabaseOutdated("it has recipients without a version of their schema, of no release")
        return None
    if row[0] > HEAD:
        raise DatabaseOutdated(f"it has version {row[0]}, of a newer gateway")
    return str(row[0])


def _tables_with_triggers(connection: Connection) -> set[str]:
    """Return the tables of PostgreSQL whose changes are recorded."""
    return set(
        connection.scalars(
            text(
                "SELECT relname FROM pg_trigger JOIN pg_class ON pg_class.oid = tgrelid"
                " JOIN pg_proc ON pg_proc.oid = tgfoid"
                " WHERE proname = :function AND pg_table_is_visible(pg_class.oid)"
            ),
            {"function": triggers.FUNCTION},
        )
    )


def _create(connection: Connection) -> None:
    """Make the tables as `schema` has them: only a database of an earlier schema needs the steps."""
    # Slow to import, and needed once for a release, as below.
    from alembic.runtime.migration import MigrationContext  # noqa: PLC0415
    from alembic.script import ScriptDirectory  # noqa: PLC0415

    METADATA.create_all(connection, checkfirst=False)
    triggers.create(connection)
    # Identifies the database from its first moment.
    connection.execute(CHANGES.insert(), {"stamp": secrets.token_hex(16), "kind": "all", "key": ""})
    MigrationContext.configure(connection).stamp(ScriptDirectory(str(MIGRATIONS)), HEAD)


def _upgrade(connection: Connection) -> None:
    from alembic.config import Config  # noqa: PLC0415
    from alembic.runtime.environment import EnvironmentContext  # noqa: PLC0415
    from alembic.script import ScriptDirectory  # noqa: PLC0415

    script = ScriptDirectory(str(MIGRATIONS))
    with EnvironmentContext(
        Config(),
        script,
        fn=lambda present, _context: script._upgrade_revs(HEAD, present),  # noqa: SLF001 - as alembic.command
        destination_rev=HEAD,
    ) as environment:
        environment.configure(connection=connection, version_table=VERSION_TABLE)
        environment.run_migrations()


def _back_up(path: Path) -> None:
    """Copy a file whose schema is about to change. No other program changes it meanwhile."""
    names = (f"{path.name}.before-{HEAD}{'' if number == 1 else f'-{number}'}" for number in count(1))
    copy = next(name for name in map(path.with_name, names) if not exists(name))
    with tempfile.NamedTemporaryFile(prefix=f".{path.name}-", dir=path.parent, delete=False) as file:
        unfinished = Path(file.name)
    try:
        uri = f"{path.absolute().as_uri()}?mode=ro"
        with (
            closing(sqlite3.connect(uri, uri=True)) as source,
            closing(sqlite3.connect(unfinished)) as target,
        ):
            source.backup(target)
        unfinished.rename(copy)
    except sqlite3.Error as error:
        raise DatabaseUnusable(f"{path} cannot be copied before its schema is changed: {error}") from None
    finally:
        unfinished.unlink(missing_ok=True)


def _note(source: Path) -> Path:
    return source.with_name(source.name + TAKEN_OVER)


def check_not_taken_over(source: Path) -> None:
    """Raise DatabaseUnusable where a file was taken over before: it has what was revoked since.

    Raises it for a link to an absent file, too.
    """
    note = _note(source)
    if exists(note):
        raise DatabaseUnusable(
            f"the database has no tables, and {source} was taken over before: restore the database from its "
            f"backup; to take over again what the file had then, remove {note}; to start without it, remove "
            f"{source}"
        )
    if not exists(source):
        raise DatabaseUnusable(
            f"the database has no tables, and {source}, whose rows it would take over, is a link to an "
            f"absent file: put the file back; to start without it, remove {source}"
        )


def _note_taken_over(source: Path) -> None:
    note = _note(source)
    try:
        note.touch(mode=0o600)
    except OSError as error:
        log.warning(
            "%s cannot be written (%s): remove %s, which new tables would take over again",
            note,
            error.strerror,
            source,
        )


def _take_over(source: Path, connection: Connection) -> None:
    """Insert all rows of another SQLite file, of this or an earlier schema; the file stays as it is."""
    with closing(opened(DatabasePlace(source), read_only=True)) as earlier, earlier.reading() as rows:
        for table in METADATA.sorted_tables:
            if table not in NOT_TAKEN_OVER:
                for batch in rows.execute(select(table)).mappings().partitions(BATCH_ROWS):
                    connection.execute(table.insert(), [dict(row) for row in batch])
    if connection.dialect.name == "postgresql":
        # Rows with their own numbers do not advance the sequence of a column.
        for column in (HISTORY.c.id, GRANTS.c.id):
            sequence = func.pg_get_serial_sequence(column.table.name, column.name)
            last = select(func.coalesce(func.max(column), 0)).scalar_subquery()
            connection.execute(select(func.setval(sequence, last + 1, False)))
