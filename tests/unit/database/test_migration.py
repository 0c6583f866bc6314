"""A file of an earlier schema in its place and in memory, and rows that another database takes over."""

import json
import resource
import shutil
import sqlite3
from contextlib import closing

import pytest
from support.gateway_app import Clock

from gateway.__main__ import main
from gateway.catalog.grants import Grant
from gateway.config.database import DatabasePlace
from gateway.database import migration
from gateway.database.engine import Database
from gateway.database.errors import DatabaseError, DatabaseOutdated
from gateway.database.migration import migrate
from gateway.governance.credentials import NewClient
from gateway.governance.recipient_store import RecipientDatabase

NOW_MS = 1_800_000_000_000
NEXT = """
from alembic import op

revision, down_revision, branch_labels, depends_on = "0002", "0001", None, None


def upgrade():
    op.execute("UPDATE recipients SET comment = 'upgraded'")
    op.execute({last!r})
"""


@pytest.fixture
def path(tmp_path):
    """A file of this schema with a recipient."""
    path = tmp_path / "state" / "recipients.db"
    with RecipientDatabase(DatabasePlace(path), now_ms=Clock(NOW_MS)) as database:
        database.add("alice", shares=["sales"])
    return path


@pytest.fixture
def release(monkeypatch, tmp_path):
    """Makes this program one of the next schema, with a statement in its step."""

    def release(last="SELECT 1"):
        steps = shutil.copytree(migration.MIGRATIONS, tmp_path / "migrations")
        (steps / "versions" / "v0002_next.py").write_text(NEXT.format(last=last))
        monkeypatch.setattr(migration, "MIGRATIONS", steps)
        monkeypatch.setattr(migration, "HEAD", "0002")

    return release


def content(path):
    """All statements that make a file; its header counts how often it was written."""
    with closing(sqlite3.connect(path)) as connection:
        return list(connection.iterdump())


def comments(path, **options):
    with RecipientDatabase(DatabasePlace(path), now_ms=Clock(NOW_MS), **options) as database:
        return [record.comment for record in database.list()]


def beside(path):
    return sorted(one.name for one in path.parent.iterdir())


def test_a_file_of_an_earlier_schema_is_upgraded_in_its_place_and_kept_as_a_copy(path, release):
    before = content(path)
    release()
    assert comments(path, create=False) == ["upgraded"]
    copy = path.with_name("recipients.db.before-0002")
    assert content(copy) == before
    assert copy.stat().st_mode & 0o777 == 0o600
    assert beside(path) == ["recipients.db", "recipients.db.before-0002"]
    # The copy in its place is another file of the earlier schema.
    shutil.copy(copy, path)
    assert comments(path, create=False) == ["upgraded"]
    assert content(path.with_name("recipients.db.before-0002-2")) == before


def test_a_file_of_an_earlier_schema_is_looked_at_without_a_change(path, release):
    before = path.read_bytes()
    release()
    assert comments(path, read_only=True) == ["upgraded"]
    assert path.read_bytes() == before
    assert beside(path) == ["recipients.db"]


def test_an_upgrade_that_fails_leaves_the_file_as_it_was(path, release):
    before = content(path)
    release("no statement")
    with closing(Database(DatabasePlace(path))) as database, pytest.raises(DatabaseError, match="syntax"):
        migrate(database)
    assert content(path) == content(path.with_name("recipients.db.before-0002")) == before


def test_a_disk_without_room_for_the_copy_stops_the_upgrade(path, release, monkeypatch):
    before = path.read_bytes()
    release()

    def full(*_arguments, **_options):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("tempfile.NamedTemporaryFile", full)
    with pytest.raises(OSError, match="No space"):
        RecipientDatabase(DatabasePlace(path), now_ms=Clock(NOW_MS), create=False)
    assert path.read_bytes() == before


@pytest.mark.parametrize("read_only", [False, True])
def test_recipients_without_a_version_of_their_schema_are_refused_and_stay(tmp_path, read_only):
    path = tmp_path / "another.db"
    with closing(sqlite3.connect(path)) as connection:
        connection.executescript("CREATE TABLE recipients (name TEXT); INSERT INTO recipients VALUES ('a')")
    before = path.read_bytes()
    with pytest.raises(DatabaseOutdated, match="of no release"):
        RecipientDatabase(DatabasePlace(path), now_ms=Clock(NOW_MS), read_only=read_only)
    assert path.read_bytes() == before


def test_a_database_moves_to_another_place_once_with_all_of_its_rows(tmp_path, place):
    clock, old = Clock(NOW_MS), DatabasePlace(tmp_path / "old" / "old.db")
    with RecipientDatabase(old, now_ms=clock) as database:
        database.add("alice", shares=["sales"], networks=["192.0.2.1"])
        database.add("bob", NewClient())
        with database.database.changing() as connection:
            connection.exec_driver_sql(
                "INSERT INTO grants (recipient, share, schema, condition) VALUES ('bob', 's', 'x', 'a = 1')"
            )
        before = database.list(), database.history(None)
    rows = old.path.read_bytes()
    options = {"now_ms": clock, "source": old.path}
    with RecipientDatabase(place, **options) as database:
        assert (database.list(), database.history(None)) == before
        assert database.show("bob").grants == (Grant("s", "x", condition="a = 1"),)
        # Rows that are added have numbers behind those that were taken over.
        database.grant("bob", ["sales", "logs"])
        assert database.history("bob")[-1].action == "updateSharePermissions"
        database.delete("alice")
    with RecipientDatabase(place, **options) as database:
        assert [record.name for record in database.list()] == ["bob"]
    assert old.path.read_bytes() == rows
    assert beside(old.path) == ["old.db", "old.db.taken-over"]
    assert old.path.with_name("old.db.taken-over").read_bytes() == b""


def test_what_takes_over_fails_as_a_whole_with_its_source(tmp_path, place):
    broken = tmp_path / "broken.db"
    broken.write_bytes(b"no database " * 1000)
    for _ in range(2):
        with pytest.raises(DatabaseError, match="file is not a database"):
            RecipientDatabase(place, now_ms=Clock(NOW_MS), source=broken)
    with RecipientDatabase(place, now_ms=Clock(NOW_MS)) as database:
        assert database.list() == ()


def test_a_file_that_cannot_be_copied_is_not_upgraded(path, release):
    before = content(path)
    release()
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (64 * 1024, limits[1]))
    try:
        with pytest.raises(DatabaseError, match="cannot be copied before its schema is changed"):
            comments(path, create=False)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert content(path) == before
    assert beside(path) == ["recipients.db"]


def test_check_takes_an_earlier_schema_of_a_server_for_one_that_the_start_updates(
    postgresql, release, tmp_path, capsys
):
    place = postgresql.place(postgresql.new_database())
    with RecipientDatabase(place, now_ms=Clock(NOW_MS)) as database:
        database.add("alice", shares=["sales"])
    file, url = tmp_path / "share.yaml", json.dumps(place.url.reveal())
    file.write_text(f"version: 1\ngateway: {{anonymous: true, database: {url}}}\n")
    release()
    assert main(["check", "-c", str(file)]) == 0
    assert "shares and recipients of the database are not checked" in capsys.readouterr().out
    with RecipientDatabase(place, now_ms=Clock(NOW_MS), create=False) as database:
        assert [record.comment for record in database.list()] == ["upgraded"]
    assert main(["check", "-c", str(file)]) == 0
    assert "not checked" not in capsys.readouterr().out


def test_the_shares_that_a_new_database_of_a_server_takes_over_are_checked(postgresql, tmp_path, capsys):
    file, url = tmp_path / "share.yaml", json.dumps(postgresql.place(postgresql.new_database()).url.reveal())
    file.write_text("version: 1\ngateway: {anonymous: true}\n")
    assert main(["share", "add", "kept", "-c", str(file)]) == 0
    assert main(["table", "add", "kept.d.t", "/none", "-c", str(file)]) == 0
    file.write_text(f"version: 1\ngateway: {{anonymous: true, database: {url}}}\n")
    assert main(["check", "-c", str(file)]) == 1
    assert "kept.d.t cannot be read" in capsys.readouterr().out
