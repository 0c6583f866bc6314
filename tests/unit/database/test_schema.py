"""The tables of both databases: their version, and what triggers record."""

import hashlib
from contextlib import closing

import pytest
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import delete, func, insert, select, update

from gateway.config.database import DatabasePlace
from gateway.database.changes import KEPT_CHANGES, Position, changed_since, forget_old
from gateway.database.engine import Database
from gateway.database.errors import DatabaseError, DatabaseMissing, DatabaseOutdated, DatabaseUnusable
from gateway.database.migration import MIGRATIONS, check_schema, migrate
from gateway.database.schema import (
    CHANGES,
    GRANTS,
    HEAD,
    RECIPIENTS,
    SCHEMAS,
    SHARES,
    TABLES,
    TOKENS,
    recipient_key,
)

ALICE = {
    "key": "alice",
    "name": "Alice",
    "comment": "",
    "created_ms": 1,
    "properties": "{}",
    "forbids_bearer_tokens": False,
}
TOKEN = {"sha256": "00", "recipient": "alice", "created_ms": 1, "expires_ms": None}

DIGESTS = {"0001": "99b708216e8fc870a467e6b3d9dea62f01b9d7c2404ed8d8f58c2f023bcd455e"}
"""By version: the SHA-256 of the rows of `PARTS` for new tables."""
PARTS = (
    "pragma_table_info(m.name) p",
    "pragma_foreign_key_list(m.name) p",
    "pragma_index_list(m.name) i, pragma_index_xinfo(i.name) p",
    "sqlite_master p ON p.rowid = m.rowid AND m.type = 'trigger'",
)
"""Of a SQLite file, each for a row `m` of its `sqlite_master`."""


@pytest.fixture
def database(place):
    with closing(Database(place, create=True)) as database:
        migrate(database, create=True)
        yield database


def read(database, since):
    with database.reading() as connection:
        return changed_since(connection, since)


def test_the_head_of_the_migrations_is_that_of_the_schema():
    assert ScriptDirectory(str(MIGRATIONS)).get_heads() == [HEAD]


def test_new_tables_have_the_version_of_the_schema(database):
    with database.reading() as connection:
        check_schema(database, connection)
        assert MigrationContext.configure(connection).get_current_heads() == (HEAD,)


def test_a_changed_schema_has_a_version_and_a_step_of_its_own(tmp_path):
    with closing(Database(DatabasePlace(tmp_path / "new.db"), create=True)) as database:
        migrate(database, create=True)
        with database.reading() as connection:
            query = "SELECT m.name, p.* FROM sqlite_master m JOIN "
            rows = [sorted(map(repr, connection.exec_driver_sql(query + part))) for part in PARTS]
    assert all(rows)
    digest = hashlib.sha256(repr(rows).encode()).hexdigest()
    # New tables are made of `schema`: databases that already have this version would not get the change.
    assert DIGESTS.get(HEAD) == digest


def test_a_place_has_one_grant_also_where_schema_and_table_are_null(database):
    with database.changing() as connection:
        connection.execute(insert(RECIPIENTS), ALICE)
        connection.execute(insert(GRANTS), {"recipient": "alice", "share": "sales"})
        connection.execute(insert(GRANTS), {"recipient": "alice", "share": "sales", "schema": "a"})
    with pytest.raises(DatabaseError), database.changing() as connection:
        connection.execute(insert(GRANTS), {"recipient": "alice", "share": "sales", "condition": "a = 1"})
    with pytest.raises(DatabaseError), database.changing() as connection:
        connection.execute(insert(GRANTS), {"recipient": "alice", "share": "sales", "schema": "a"})
    with database.reading() as connection:
        assert connection.execute(select(func.count()).select_from(GRANTS)).scalar() == 2


def test_each_change_by_any_program_is_recorded_for_its_recipient_or_share(database):
    position = read(database, None).position
    assert position.number > 0
    assert read(database, position).keys == {}
    steps = [
        ([insert(RECIPIENTS).values(ALICE)], {"recipient": {"alice"}}),
        ([insert(TOKENS).values(TOKEN)], {"recipient": {"alice"}}),
        ([update(TOKENS).values(expires_ms=5)], {"recipient": {"alice"}}),
        ([update(TOKENS).where(TOKENS.c.sha256 == "absent").values(expires_ms=5)], {}),
        (
            [
                insert(SHARES).values(key="sales", name="Sales", options="{}", created_ms=1),
                insert(SCHEMAS).values(share="sales", key="a", name="A", options="{}", created_ms=1),
                insert(TABLES).values(
                    share="sales", schema="a", key="t", name="T", location="/t", options="{}", created_ms=1
                ),
                insert(RECIPIENTS).values(ALICE | {"key": "bob", "name": "bob"}),
            ],
            {"share": {"sales"}, "recipient": {"bob"}},
        ),
        ([update(TOKENS).values(recipient="bob")], {"recipient": {"alice", "bob"}}),
        # Rows of other tables are deleted with their share.
        ([delete(SHARES)], {"share": {"sales"}}),
        ([delete(RECIPIENTS)], {"recipient": {"alice", "bob"}}),
    ]
    for statements, keys in steps:
        with database.changing() as connection:
            for statement in statements:
                connection.execute(statement)
        changed = read(database, position)
        assert changed.keys == keys
        assert read(database, changed.position).keys == {}
        position = changed.position


def test_where_the_changes_have_a_gap_everything_may_have_changed(database):
    position = read(database, None).position
    with database.changing() as connection:
        connection.execute(insert(RECIPIENTS), ALICE)
    last = read(database, position).position
    for unknown in (
        Position(),
        Position(last.number, "another stamp"),
        Position(last.number + 1, last.stamp),
        None,
    ):
        changed = read(database, unknown)
        assert changed.keys is None
        assert changed.position == last


def test_old_changes_are_forgotten_and_whoever_has_not_read_them_reads_everything(database):
    position = read(database, None).position
    with database.changing() as connection:
        rows = [{"stamp": "x", "kind": "recipient", "key": str(number)} for number in range(KEPT_CHANGES + 5)]
        # With a column to return PostgreSQL gets a thousand rows a statement.
        connection.execute(insert(CHANGES).returning(CHANGES.c.key), rows)
    assert len(read(database, position).keys["recipient"]) == KEPT_CHANGES + 5
    with database.changing() as connection:
        forget_old(connection)
    with database.reading() as connection:
        assert connection.execute(select(func.count()).select_from(CHANGES)).scalar() == KEPT_CHANGES + 1
    assert read(database, position).keys is None


def test_a_truncated_table_of_postgresql_is_read_whole(postgresql):
    name = postgresql.new_database()
    with closing(Database(postgresql.place(name))) as database:
        migrate(database, create=True)
        position = read(database, None).position
        postgresql.execute("TRUNCATE tokens", name)
        assert read(database, position).keys is None


def test_a_database_without_tables_is_missing_and_one_of_a_newer_gateway_is_refused(place):
    with closing(Database(place, create=True)) as database:
        absent = DatabaseUnusable if database.is_sqlite else DatabaseMissing
        with pytest.raises(absent):
            migrate(database)
        with pytest.raises(absent), database.reading() as connection:
            check_schema(database, connection)
        migrate(database, create=True)
        migrate(database)
        with database.changing() as connection:
            connection.exec_driver_sql("UPDATE alembic_version SET version_num = '9999'")
        with pytest.raises(DatabaseOutdated, match="9999, of a newer gateway"):
            migrate(database)
        with pytest.raises(DatabaseOutdated, match="newer"), database.reading() as connection:
            check_schema(database, connection)


def test_a_change_that_fails_is_rolled_back_and_the_connection_can_be_used(database):
    with pytest.raises(ZeroDivisionError), database.changing() as connection:
        connection.execute(
            insert(RECIPIENTS), ALICE | {"created_ms": 1 // connection.execute(select(0)).scalar()}
        )
    with pytest.raises(DatabaseError, match=r"(?i)foreign key"), database.changing() as connection:
        connection.execute(insert(TOKENS), TOKEN)
    with database.changing() as connection:
        connection.execute(insert(RECIPIENTS), ALICE | {"comment": "\u00e9"})
    with database.reading() as connection:
        assert connection.execute(select(RECIPIENTS.c.comment)).scalars().all() == ["\u00e9"]


@pytest.mark.parametrize(
    ("name", "key"), [("Alice", "alice"), ("\u00c9MILE", "\u00c9mile"), ("\udcff", "\udcff")]
)
def test_the_key_of_a_recipient_has_no_case_of_ascii_letters(name, key):
    assert recipient_key(name) == key
