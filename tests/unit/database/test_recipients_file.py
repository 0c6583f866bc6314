"""Files of release 0.1 are taken over: in their place, in memory to be looked at, into another database."""

from __future__ import annotations

import shutil
import sqlite3
from contextlib import closing

import pytest
from run import ROOT
from support.gateway_app import Clock

from gateway.access.federation import FederationPolicy
from gateway.access.grants import Grant
from gateway.access.recipient_store import RecipientDatabase
from gateway.access.stored_recipients import RecipientReader
from gateway.config.database import DatabasePlace
from gateway.database.engine import Database
from gateway.database.errors import DatabaseError
from gateway.database.migration import migrate

RELEASED = ROOT / "tests/integration/compatibility/0.1.0/recipients.db"
NOW_MS = 1_800_000_000_000
A, B, C, D = (letter * 64 for letter in "abcd")
OWNER = "TEXT NOT NULL COLLATE NOCASE REFERENCES recipients(name)"
# The statements by which release 0.1 made each version of its file, and rows that it wrote.
VERSIONS = (
    f"""
CREATE TABLE recipients (
    name TEXT PRIMARY KEY COLLATE NOCASE, comment TEXT NOT NULL, created_ms INTEGER NOT NULL) WITHOUT ROWID;
CREATE TABLE tokens (
    sha256 TEXT PRIMARY KEY, recipient {OWNER}, created_ms INTEGER NOT NULL,
    expires_ms INTEGER) WITHOUT ROWID;
CREATE INDEX tokens_of ON tokens(recipient);
CREATE TABLE grants (
    recipient {OWNER}, share TEXT NOT NULL COLLATE NOCASE, PRIMARY KEY (recipient, share)) WITHOUT ROWID;
CREATE TABLE networks (
    recipient {OWNER}, network TEXT NOT NULL, PRIMARY KEY (recipient, network)) WITHOUT ROWID;
CREATE TABLE history (
    at_ms INTEGER NOT NULL, actor TEXT NOT NULL, action TEXT NOT NULL, recipient TEXT NOT NULL COLLATE NOCASE,
    detail TEXT NOT NULL);
CREATE INDEX history_of ON history(recipient);
INSERT INTO recipients VALUES ('Alice', 'a comment', 5), ('bob', '', 6), ('\u00c9mile', '', 7);
INSERT INTO tokens VALUES
    ('{A}', 'alice', 5, NULL), ('{B}', 'Alice', 6, 1900000000000), ('{C}', 'BOB', 7, 8);
INSERT INTO grants VALUES ('alice', 'sales'), ('alice', 'STRASSE'), ('ALICE', 'stra\u00dfe'), ('bob', '*');
INSERT INTO networks VALUES ('alice', '192.0.2.0/24'), ('alice', '2001:db8::/32');
INSERT INTO history VALUES (5, 'cli:root', 'createRecipient', 'Alice', 'shares=sales "a b"
networks=');
INSERT INTO history VALUES (6, 'cli:root', 'purgeRecipients', '', '');
INSERT INTO history VALUES (7, 'x', 'deleteRecipient', 'carol', 'a=b=c');
""",
    f"""
CREATE TABLE policies (
    recipient {OWNER}, name TEXT NOT NULL,
    issuer TEXT NOT NULL, subject_claim TEXT NOT NULL, subject TEXT NOT NULL, audiences TEXT NOT NULL,
    claims TEXT NOT NULL, created_ms INTEGER NOT NULL, PRIMARY KEY (recipient, name)) WITHOUT ROWID;
INSERT INTO policies VALUES ('ALICE', 'default', 'https://i', 'sub', 's', '["a", "b"]', '{{"tid": "t"}}', 9);
""",
    f"""
CREATE TABLE clients (
    id TEXT PRIMARY KEY, recipient {OWNER}, created_ms INTEGER NOT NULL) WITHOUT ROWID;
CREATE INDEX clients_of ON clients(recipient);
CREATE TABLE client_secrets (
    sha256 TEXT PRIMARY KEY, recipient {OWNER}, client TEXT NOT NULL REFERENCES clients(id),
    created_ms INTEGER NOT NULL, expires_ms INTEGER) WITHOUT ROWID;
CREATE INDEX client_secrets_of ON client_secrets(recipient);
CREATE TABLE bearer_tokens_forbidden (
    recipient TEXT PRIMARY KEY COLLATE NOCASE REFERENCES recipients(name)) WITHOUT ROWID;
INSERT INTO clients VALUES ('c1', 'alice', 10);
INSERT INTO client_secrets VALUES ('{D}', 'alice', 'c1', 10, NULL);
INSERT INTO bearer_tokens_forbidden VALUES ('BOB');
""",
)


@pytest.fixture(params=[1, 2, 3])
def earlier(request, tmp_path):
    """A file of each version."""
    path = tmp_path / "earlier.db"
    with closing(sqlite3.connect(path)) as connection:
        for statements in VERSIONS[: request.param]:
            connection.executescript(statements)
        connection.execute(f"PRAGMA user_version = {request.param}")
    return request.param, path


def content(path):
    """The version and all statements that make a file; the header counts how often it was written."""
    with closing(sqlite3.connect(path)) as connection:
        return connection.execute("PRAGMA user_version").fetchone(), list(connection.iterdump())


def check(version, database):
    alice, bob, emile = database.list()
    assert [record.name for record in (alice, bob, emile)] == ["Alice", "bob", "\u00c9mile"]
    assert (alice.comment, alice.created_ms, alice.shares) == ("a comment", 5, ("sales", "strasse"))
    assert [(token.sha256, token.created_ms, token.expires_ms) for token in alice.tokens] == [
        (A, 5, None),
        (B, 6, 1_900_000_000_000),
    ]
    assert alice.networks == ("192.0.2.0/24", "2001:db8::/32")
    assert (alice.grants, alice.properties) == ((), ())
    assert (bob.shares, [token.sha256 for token in bob.tokens]) == (("*",), [C])
    policy = FederationPolicy("https://i", "sub", "s", frozenset({"a", "b"}), (("tid", "t"),))
    assert [(one.name, one.policy, one.created_ms) for one in alice.policies] == (
        [("default", policy, 9)] if version > 1 else []
    )
    assert [(one.id, [secret.sha256 for secret in one.secrets]) for one in alice.clients] == (
        [("c1", [D])] if version > 2 else []
    )
    assert bob.forbids_bearer_tokens is (version > 2)
    changes = database.history(None)
    assert [(one.at_ms, one.action, one.recipient, dict(one.detail)) for one in changes] == [
        (5, "createRecipient", "Alice", {"shares": 'sales "a b"', "networks": ""}),
        (6, "purgeRecipients", "", {}),
        (7, "deleteRecipient", "carol", {"a": "b=c"}),
    ]
    assert len(database.history("ALICE")) == 1


def test_a_file_of_each_version_is_brought_up_to_date_and_kept_as_a_copy(earlier):
    version, path = earlier
    before = content(path)
    with RecipientDatabase(DatabasePlace(path), now_ms=Clock(NOW_MS), create=False) as database:
        check(version, database)
        database.grant("alice", ["logs"])
        assert database.show("alice").shares == ("logs", "sales", "strasse")
    copy = path.with_name("earlier.db.before-0001")
    assert content(copy) == before
    assert copy.stat().st_mode & 0o777 == 0o600
    assert sorted(one.name for one in path.parent.iterdir()) == ["earlier.db", "earlier.db.before-0001"]
    # The copy in its place is another file of an earlier release.
    shutil.copy(copy, path)
    with RecipientDatabase(DatabasePlace(path), now_ms=Clock(NOW_MS), create=False) as database:
        check(version, database)
    assert content(path.with_name("earlier.db.before-0001-2")) == before


def test_a_file_of_each_version_is_looked_at_without_a_change(earlier):
    version, path = earlier
    before = path.read_bytes()
    with RecipientDatabase(DatabasePlace(path), now_ms=Clock(NOW_MS), read_only=True) as database:
        check(version, database)
    assert path.read_bytes() == before
    assert [one.name for one in path.parent.iterdir()] == ["earlier.db"]


def test_a_file_of_each_version_is_taken_over_once_and_stays_as_it_was(earlier, place):
    version, path = earlier
    before = path.read_bytes()
    options = {"now_ms": Clock(NOW_MS), "source": path}
    with RecipientDatabase(place, **options) as database:
        check(version, database)
        # Rows that are added have numbers behind those that were taken over.
        database.grant("alice", ["logs"])
        assert database.history("alice")[-1].action == "updateSharePermissions"
        database.delete("bob")
    assert path.read_bytes() == before
    with RecipientDatabase(place, **options) as database:
        assert [record.name for record in database.list()] == ["Alice", "\u00c9mile"]
    beside = sorted(path.parent.glob("earlier.db*"))
    assert beside == [path, path.with_name("earlier.db.taken-over")]
    assert beside[1].read_bytes() == b""


def test_a_database_of_this_release_moves_to_another_place_with_all_of_its_rows(tmp_path, place):
    clock, old = Clock(NOW_MS), DatabasePlace(tmp_path / "old.db")
    with RecipientDatabase(old, now_ms=clock) as database:
        database.add("alice", shares=["sales"], networks=["192.0.2.1"])
        database.add_with_client("bob")
        with database.database.changing() as connection:
            connection.exec_driver_sql(
                "INSERT INTO grants (recipient, share, schema, condition) VALUES ('bob', 's', 'x', 'a = 1')"
            )
        before = database.list(), database.history(None)
    with RecipientDatabase(place, now_ms=clock, source=old.path) as database:
        assert (database.list(), database.history(None)) == before
        assert database.show("bob").grants == (Grant("s", "x", condition="a = 1"),)
        database.grant("bob", ["sales", "logs"])


def test_the_file_of_the_release_is_read_with_its_tokens(tmp_path):
    path = shutil.copy(RELEASED, tmp_path / "recipients.db")
    with closing(RecipientReader(lambda: DatabasePlace(path))) as reader:
        by_name = {stored.recipient.name: stored for stored in reader.read()}
    assert by_name["alice"].recipient.shares == {"*"}
    assert by_name["bob"].recipient.shares == {"sales"}
    with closing(sqlite3.connect(RELEASED)) as released:
        hashes = {bytes.fromhex(sha256) for (sha256,) in released.execute("SELECT sha256 FROM tokens")}
    assert {one.sha256 for stored in by_name.values() for one in stored.credentials} == hashes


def test_an_upgrade_that_fails_leaves_the_file_as_it_was(earlier, monkeypatch):
    _, path = earlier
    before = content(path)

    def fail(_connection):
        raise sqlite3.OperationalError("disk I/O error")

    monkeypatch.setattr("gateway.database.migrations.triggers.create", fail)
    with closing(Database(DatabasePlace(path))) as database, pytest.raises(sqlite3.OperationalError):
        migrate(database)
    assert content(path) == content(path.with_name("earlier.db.before-0001")) == before


def test_a_disk_without_room_for_the_copy_stops_the_upgrade(earlier, monkeypatch):
    _, path = earlier
    before = path.read_bytes()

    def full(*_arguments, **_options):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("tempfile.NamedTemporaryFile", full)
    with pytest.raises(OSError, match="No space"):
        RecipientDatabase(DatabasePlace(path), now_ms=Clock(NOW_MS), create=False)
    assert path.read_bytes() == before


def test_what_takes_over_fails_as_a_whole_with_its_source(tmp_path, place):
    broken = tmp_path / "broken.db"
    broken.write_bytes(b"no database " * 1000)
    for _ in range(2):
        with pytest.raises(DatabaseError, match="file is not a database"):
            RecipientDatabase(place, now_ms=Clock(NOW_MS), source=broken)
    with RecipientDatabase(place, now_ms=Clock(NOW_MS)) as database:
        assert database.list() == ()
