"""A running server follows the credentials of the database."""

import asyncio
import json
import sqlite3
import time
from contextlib import closing, contextmanager, suppress
from random import Random
from typing import ClassVar

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sqlalchemy import insert, literal_column
from support.gateway_app import Clock
from support.postgresql_server import running as postgresql_running
from support.waiting import until

from gateway.authentication.credential_table import token_hash
from gateway.authentication.oauth_clients import ClientRefused
from gateway.authentication.policies import TokenPolicy, TokenRefused
from gateway.catalog.grants import Grant
from gateway.config import ConfigError, loads
from gateway.config.database import DatabasePlace
from gateway.config.networks import parse_networks
from gateway.config.secret import Secret
from gateway.database.engine import Database
from gateway.database.errors import DatabaseUnusable
from gateway.database.postgresql import OPTIONS
from gateway.database.schema import GRANTS, NETWORKS, RECIPIENTS, SHARES, TOKENS
from gateway.governance.credential_store import CredentialStore
from gateway.governance.credentials import NewClient, NewLink, NewSecret, NewToken, Policies
from gateway.governance.reading_thread import elapsed_seconds
from gateway.governance.recipient_records import LinkInvalid, RecipientError
from gateway.governance.recipient_store import RecipientDatabase
from gateway.governance.stored_recipients import RESTORED, DatabaseReader
from gateway.telemetry.metrics import Metrics

BEGINNING = "version: 1\nshares: [{name: sales}]\ngateway: {anonymous: true"


def config_of(place, **keys):
    """A configuration with a database."""
    url = f"sqlite:///{place.path}" if place.url is None else place.url.reveal()
    section = json.dumps({"url": url} | keys)
    return loads(f"{BEGINNING}, database: {section}}}\n")


class FollowedStore:
    """The credentials of a database as a running server follows them."""

    made: ClassVar[list["FollowedStore"]] = []

    def __init__(self, place, clock, *, elapsed=elapsed_seconds, **keys):
        self.made.append(self)
        self.config = config_of(place, **keys)
        self.metrics = Metrics()
        self.clock = clock
        self.tables = []
        self.store = CredentialStore(self.config, self.tables.append, self.metrics, clock, elapsed=elapsed)
        self.tables.append(self.store.table(self.config))

    def knows(self, token):
        credential = self.tables[-1].find(token_hash(token), now_ms=self.clock())
        return credential and credential.recipient

    @property
    def readable(self):
        return self.metrics.registry.get_sample_value("delta_gateway_recipients_readable")

    @property
    def left_out(self):
        return self.metrics.registry.get_sample_value("delta_gateway_stored_recipients_left_out")

    def watching(self):
        return self.store.watching(lambda: self.config)


@pytest.fixture(autouse=True)
def _closed_stores():
    """Python 3.13 warns of a connection that is left open, in whatever test then runs."""
    yield
    while FollowedStore.made:
        # The thread of one that was watched has ended.
        with suppress(RuntimeError):
            FollowedStore.made.pop().store._thread.close()


@contextmanager
def by_hand(place):
    """A function that executes a statement without the gateway."""
    with closing(Database(place)) as database, database.statement() as connection:
        yield connection.exec_driver_sql


INVALID = {
    "a network": "UPDATE networks SET network = 'none'",
    "properties that are no JSON": "UPDATE recipients SET properties = '{' WHERE key = 'bob'",
    "properties that are no object": "UPDATE recipients SET properties = '[]' WHERE key = 'bob'",
    "a property that is no text": "UPDATE recipients SET properties = '{\"a\": 1}' WHERE key = 'bob'",
    "deep properties": f"UPDATE recipients SET properties = '{'[' * 100_000}' WHERE key = 'bob'",
    "a hash that is none": "UPDATE tokens SET sha256 = 'none' WHERE recipient = 'bob'",
    "a hash in capital digits": "UPDATE tokens SET sha256 = upper(sha256) WHERE recipient = 'bob'",
    "a short hash": "UPDATE tokens SET sha256 = substr(sha256, 3) WHERE recipient = 'bob'",
    "a name without its key": "UPDATE recipients SET name = 'Carol' WHERE key = 'bob'",
    "a grant for a table of no schema": "UPDATE grants SET \"table\" = 't' WHERE recipient = 'bob'",
    "audiences that are no JSON": "UPDATE policies SET audiences = 'a'",
    "audiences that are one text": "UPDATE policies SET audiences = '\"abc\"'",
    "claims that are no object": "UPDATE policies SET claims = '[1]'",
    "a client's secret": "UPDATE client_secrets SET sha256 = 'none'",
    "an empty client's secret": f"UPDATE client_secrets SET sha256 = '{token_hash('').hex()}'",
    "a client's secret in capital digits": "UPDATE client_secrets SET sha256 = upper(sha256)",
}
INVALID_IN_A_FILE = {
    "a text as a time": "UPDATE tokens SET expires_ms = 'soon' WHERE recipient = 'bob'",
    "no UTF-8": "UPDATE recipients SET comment = CAST(X'ff41' AS TEXT) WHERE key = 'bob'",
    "bytes as a share": "UPDATE grants SET share = X'00ff' WHERE recipient = 'bob'",
}


@pytest.mark.parametrize("statement", INVALID.values(), ids=INVALID)
async def test_a_recipient_with_an_invalid_row_is_refused_alone(database, clock, place, statement, caplog):
    await check_invalid_row(database, clock, place, statement, caplog)


@pytest.mark.parametrize("statement", INVALID_IN_A_FILE.values(), ids=INVALID_IN_A_FILE)
async def test_a_recipient_with_a_value_that_only_a_file_keeps_is_refused_alone(
    clock, tmp_path, statement, caplog
):
    place = DatabasePlace(tmp_path / "recipients.db")
    with RecipientDatabase(place, now_ms=clock) as database:
        await check_invalid_row(database, clock, place, statement, caplog)


@pytest.mark.parametrize("key", ["CAST(X'ff41' AS TEXT)", "X'ff41'"])
@pytest.mark.parametrize("table", ["recipients", "shares"])
async def test_a_key_that_is_no_text_hides_no_revocation(clock, tmp_path, table, key):
    place = DatabasePlace(tmp_path / "recipients.db")
    others = "'x', '', 1, '{}', 0" if table == "recipients" else "'x', '{}', 1"
    with RecipientDatabase(place, now_ms=clock) as database:
        lost, kept = (database.add(name, shares=["sales"]).token for name in ("alice", "carla"))
        store = FollowedStore(place, clock)
        async with store.watching():
            with by_hand(place) as execute:
                execute("BEGIN")
                execute(f"INSERT INTO {table} VALUES ({key}, {others})")
                execute("DELETE FROM tokens WHERE recipient = 'alice'")
                execute("COMMIT")
            await until(lambda: store.knows(lost) is None)
            assert store.knows(kept).name == "carla"
        started = FollowedStore(place, clock)
        assert (started.knows(lost), started.knows(kept).name) == (None, "carla")
        assert started.left_out == (1 if table == "recipients" else 0)
        page = database.page("", [], number=1, length=10)
        assert [name for name, _ in page.keys] == ["alice", "carla"]


async def check_invalid_row(database, clock, place, statement, caplog):
    """Before and after its first reading, with a revocation in the same reading, and until it is mended."""
    token = database.add("alice", shares=["sales"]).token
    kept = database.add("carla", shares=["sales"]).token
    lost = database.add("bob", shares=["sales"], networks=["192.0.2.7"]).token
    database.add_policy("bob", "p", policy())
    database.issue("bob", NewClient())
    store = FollowedStore(place, clock)
    assert store.knows(lost) is not None
    with by_hand(place) as execute:
        async with store.watching():
            # Some statements are no format of the driver.
            execute("DELETE FROM tokens WHERE recipient = 'alice'")
            execute(statement.replace("%", "%%"))
            await until(lambda: store.knows(lost) is None and store.knows(token) is None)
            assert store.knows(kept).name == "carla"
            await until(lambda: store.left_out == 1)
            assert store.readable == 1
            assert {*store.tables[-1].recipients} == {"anonymous", "carla"}
    assert [record.name for record in database.list()] == ["alice", "carla"]
    said = [record.getMessage() for record in caplog.records if "cannot be read" in record.message]
    assert "recipient 'bob' cannot be read and is refused: " in said[0]
    assert not any(part in said[0] for part in (token_hash(lost).hex(), "192.0.2.7", "none"))
    started = FollowedStore(place, clock)
    assert (started.knows(kept).name, started.knows(lost), started.left_out) == ("carla", None, 1)
    with pytest.raises(RecipientError, match="cannot be read"):
        database.grant("bob", ["logs"])
    with pytest.raises(RecipientError, match="exists already"):
        database.add("bob")
    assert database.delete("bob").name == "bob"
    async with started.watching():
        await until(lambda: started.left_out == 0)


def fail_first(store, times):
    """Let the first changes of tables fail; return the failures to come."""
    failures = [RuntimeError("can't start new thread")] * times

    def changed(table):
        if failures:
            raise failures.pop()
        store.tables.append(table)

    store.store._changed = changed
    return failures


async def test_a_change_that_fails_once_is_in_force_with_the_next_look(clock, tmp_path, caplog):
    place = DatabasePlace(tmp_path / "recipients.db")
    with RecipientDatabase(place, now_ms=clock) as database:
        token = database.add("alice", shares=["sales"]).token
        store = FollowedStore(place, clock)
        failures = fail_first(store, 2)
        async with store.watching():
            database.revoke("alice")
            await until(lambda: store.knows(token) is None)
            await until(lambda: store.readable == 1)
    assert failures == []
    assert "can't start new thread" in caplog.text


@pytest.mark.parametrize("ahead_ms", [-3_600_000, 3_600_000])
@pytest.mark.parametrize("ends", ["revoke", "rotate", "activate"])
def test_what_ends_at_once_ends_by_every_clock(database, clock, place, ends, ahead_ms):
    """Of tokens, client secrets and links, on a replica that is an hour behind or ahead."""
    tokens = [database.add("alice", shares=["sales"]).token]
    secret = database.issue("alice", NewClient())
    link = database.issue("alice", NewLink(link_expires_in_seconds=7200))
    clock.now_ms += 1000
    if ends == "activate":
        tokens.append(database.issue("alice", NewToken(old_expires_in_seconds=7200)).token)
        database.activate(link.code)
        ended = tokens[:1]
    elif ends == "rotate":
        database.issue("alice", NewToken())
        database.issue("alice", NewSecret())
        ended = tokens
    else:
        database.revoke("alice")
        ended = tokens
    store = FollowedStore(place, Clock(clock.now_ms + ahead_ms))
    assert [store.knows(token) for token in ended] == [None] * len(ended)
    if ends != "activate":
        with pytest.raises(ClientRefused):
            store.tables[-1].clients.authenticate(
                secret.client_id, token_hash(secret.secret), now_ms=store.clock()
            )
    if ends != "rotate":
        with RecipientDatabase(place, now_ms=store.clock) as replica, pytest.raises(LinkInvalid):
            replica.activate(link.code)


async def test_a_state_that_was_read_before_the_process_was_stopped_is_not_used(clock, tmp_path, caplog):
    """The time of a stop passes at once; requests that waited come before the next reading."""
    place = DatabasePlace(tmp_path / "recipients.db")
    with RecipientDatabase(place, now_ms=clock) as database:
        token = database.add("alice", shares=["sales"]).token
        stopped = [0.0]
        store = FollowedStore(
            place, clock, elapsed=lambda: elapsed_seconds() + stopped[0], maxOutageSeconds=5
        )
        store.store.end_outdated()
        assert store.knows(token).name == "alice"
        stopped[0] = 12.0
        store.store.end_outdated()
        assert (store.knows(token), store.tables[-1].is_incomplete) == (None, True)
        store.store.end_outdated()
        assert len(store.tables) == 2
        assert "was not read for 5 s" in caplog.text
        stopped[0] = 0.0
        async with store.watching():
            await until(lambda: store.knows(token) is not None)
            assert not store.tables[-1].is_incomplete


@pytest.mark.processes
async def test_a_server_that_has_become_read_only_is_left_for_the_one_that_takes_changes(clock):
    """A demoted primary that goes on to answer, as the operator's fencing leaves it."""
    with postgresql_running() as primary, primary.standby() as standby:
        place = DatabasePlace(None, Secret(primary.url(primary.new_database(), standby)))
        with RecipientDatabase(place, now_ms=clock) as database:
            token = database.add("alice", shares=["sales"]).token
        store = FollowedStore(place, clock)
        async with store.watching():
            written = primary.execute("SELECT pg_current_wal_lsn()").strip()
            applied = f"SELECT pg_last_wal_replay_lsn() >= '{written}'"
            await until(lambda: standby.execute(applied).strip() == "t")
            standby.execute("SELECT pg_promote()")
            primary.execute("ALTER SYSTEM SET default_transaction_read_only = on")
            primary.execute("SELECT pg_reload_conf()")
            await asyncio.to_thread(revoked, place, clock)
            await until(lambda: store.knows(token) is None)
            assert store.readable == 1


def revoked(place, clock):
    with RecipientDatabase(place, now_ms=clock) as database:
        database.revoke("alice")


async def test_the_end_of_an_outage_that_fails_once_is_in_force_with_the_next_look(clock, tmp_path):
    place = DatabasePlace(tmp_path / "recipients.db")
    with RecipientDatabase(place, now_ms=clock) as database:
        token = database.add("alice", shares=["sales"]).token
    store = FollowedStore(place, clock, maxOutageSeconds=0)
    fail_first(store, 1)
    async with store.watching():
        place.path.rename(tmp_path / "away.db")
        await until(lambda: store.knows(token) is None)
        assert store.tables[-1].is_incomplete
        (tmp_path / "away.db").rename(place.path)
        await until(lambda: store.knows(token) is not None)


async def test_columns_of_a_later_release_do_not_matter(database, clock, place):
    token = database.add("alice", shares=["sales"]).token
    with by_hand(place) as execute:
        for table in ("recipients", "tokens", "grants", "policies", "shares", "tables"):
            execute(f"ALTER TABLE {table} ADD COLUMN later text")
        execute("UPDATE recipients SET later = 'x'")
    assert FollowedStore(place, clock).knows(token).name == "alice"
    assert database.grant("alice", ["Logs"]).shares == ("logs", "sales")


async def test_a_file_that_is_put_in_its_place_is_read_with_all_that_it_revokes(clock, tmp_path, caplog):
    place = DatabasePlace(tmp_path / "recipients.db")
    path = place.path
    with RecipientDatabase(place, now_ms=clock) as database:
        kept = database.add("alice", shares=["sales"]).token
        with (
            closing(sqlite3.connect(path)) as source,
            closing(sqlite3.connect(tmp_path / "backup")) as backup,
        ):
            source.backup(backup)
        added = database.add("bob", shares=["sales"]).token
    store = FollowedStore(place, clock)
    assert store.knows(kept) is not None
    assert store.knows(added) is not None
    async with store.watching():
        assert RESTORED not in caplog.text
        (tmp_path / "backup").rename(path)
        await until(lambda: store.knows(added) is None)
        assert store.knows(kept) is not None
        assert caplog.messages.count(RESTORED) == 1
        with RecipientDatabase(place, now_ms=clock) as restored:
            assert [record.name for record in restored.list()] == ["alice"]
            restored.revoke("alice")
        await until(lambda: store.knows(kept) is None)
    assert not list(path.parent.glob("*-wal"))


async def test_a_restored_dump_is_read_with_all_that_it_revokes_also_when_more_changes_follow(
    postgresql, clock, caplog
):
    name = postgresql.new_database()
    place = postgresql.place(name)
    with RecipientDatabase(place, now_ms=clock) as database:
        kept = database.add("alice", shares=["sales"]).token
        dump = postgresql.dump(name)
        added = database.add("bob", shares=["sales"]).token
    store = FollowedStore(place, clock)
    assert store.knows(added) is not None
    async with store.watching():
        await asyncio.to_thread(postgresql.restore, name, dump)
        await until(lambda: store.knows(added) is None)
        assert store.knows(kept) is not None
        # The numbers of changes are beyond those that were read before the next look.
        await asyncio.to_thread(postgresql.stop)
        await until(lambda: store.readable == 0)
        await asyncio.to_thread(postgresql.start)
        await asyncio.to_thread(postgresql.restore, name, dump)
        with RecipientDatabase(place, now_ms=clock) as restored:
            for _ in range(20):
                restored.add("carol")
                restored.delete("carol")
            token = restored.issue("alice", NewToken()).token
        await until(lambda: store.knows(token) is not None)
        assert store.knows(kept) is None
        assert {*store.tables[-1].recipients} == {"anonymous", "alice"}
        assert caplog.messages.count(RESTORED) == 1


def test_a_dump_that_is_being_restored_is_not_read_in_part(postgresql, clock):
    """Without one transaction its tables are filled one after the other, `changes` among the first."""
    name = postgresql.new_database()
    place = postgresql.place(name)
    with RecipientDatabase(place, now_ms=clock) as database:
        database.add("alice", shares=["sales"])
        dump = postgresql.dump(name)
        database.add("bob", shares=["sales"])
    first, middle, rest = dump.partition("-- Data for Name: recipients;")
    with closing(DatabaseReader(lambda: place)) as reader:
        assert {*reader.read().by_key} == {"alice", "bob"}
        _restore_without_transaction(postgresql, name, first)
        with pytest.raises(DatabaseUnusable, match="being restored"):
            reader.read()
        _restore_without_transaction(postgresql, name, middle + rest)
        assert {*reader.read().by_key} == {"alice"}


def _restore_without_transaction(postgresql, name, part):
    # pg_dump forbids commands of psql from its first line to its last.
    statements = "\n".join(line for line in part.splitlines() if "restrict " not in line)
    postgresql.program(
        "psql", "-X", "-q", "-v", "ON_ERROR_STOP=1", "-d", postgresql.url(name), input=statements
    )


async def test_a_revocation_is_in_force_though_the_shares_cannot_be_served(database, clock, place):
    token = database.add("alice", shares=["sales"]).token
    store = FollowedStore(place, clock)
    asked = []

    async def refused(shares):
        asked.append(shares)
        raise MemoryError

    store.store._take_shares = refused
    async with store.watching():
        await until(lambda: asked)
        database.revoke("alice")
        await until(lambda: store.knows(token) is None)
        assert store.readable == 0


async def test_what_a_change_gives_waits_for_its_shares_and_what_it_takes_does_not(database, clock, place):
    """A table may have taken the place of another one by the change that grants it."""
    before = {"gains": ["sales"], "loses": ["sales", "logs"], "moves": ["sales"], "stays": ["sales"]}
    tokens = {name: database.add(name, shares=shares).token for name, shares in before.items()}
    store = FollowedStore(place, clock)
    asked, served = asyncio.Event(), asyncio.Event()

    async def slow(shares):
        if shares:
            asked.set()
            await served.wait()

    def shares_of():
        known = {name: store.knows(token) for name, token in tokens.items()}
        return {name: sorted(recipient.shares) for name, recipient in known.items() if recipient}

    store.store._take_shares = slow
    ended = token_hash(database.add("ended").token)
    async with store.watching():
        await until(lambda: "ended" in store.tables[-1].recipients)
        database.revoke("ended")
        await until(lambda: store.tables[-1].revoked(ended))
        with database.together() as whole:
            whole.connection.execute(insert(SHARES).values(key="s", name="s", options="{}", created_ms=1))
            database.grant("gains", ["logs"])
            database.revoke("loses", shares=["logs"])
            database.grant("moves", ["logs"])
            database.revoke("moves", shares=["sales"])
            tokens["new"] = database.add("new", shares=["logs"]).token
        await asked.wait()
        assert shares_of() == {"gains": ["sales"], "loses": ["sales"], "stays": ["sales"]}
        # Of the others nobody can say yet what they may read.
        assert store.tables[-1].is_incomplete
        assert store.tables[-1].revoked(token_hash(tokens["moves"])) is None
        database.revoke("gains")
        served.set()
        after = {"loses": ["sales"], "moves": ["logs"], "new": ["logs"], "stays": ["sales"]}
        await until(lambda: shares_of() == after)
        assert not store.tables[-1].is_incomplete
        # The table was changed: one that is made again of all recipients knows no token that has ended.
        assert store.tables[-1].revoked(ended).name == "ended"


@pytest.mark.parametrize(
    "url",
    ["postgresql://u:first@SECRET@127.0.0.1:1/db", "postgresql://u:first@word:SECRET@127.0.0.1:1/db"],
)
def test_a_password_with_an_unescaped_separator_is_refused_and_not_shown(url):
    with pytest.raises(ConfigError, match="%40") as refused:
        loads(f"{BEGINNING}, database: '{url}'}}\n")
    assert "SECRET" not in str(refused.value)


def test_an_option_of_a_url_may_have_any_character():
    loads(f"{BEGINNING}, database: 'postgresql://u:first@h/db?application_name=a@b'}}\n")


def test_a_password_in_the_place_of_a_port_is_not_shown():
    place = DatabasePlace(None, Secret("postgresql://u:SECRET/db"))
    with pytest.raises(DatabaseUnusable, match="none that libpq reads") as refused:
        Database(place)
    assert "SECRET" not in str(refused.value)


@pytest.mark.parametrize("damage", ["gone", "empty", "no database", "newer"])
async def test_an_unreadable_file_adds_no_grants_and_is_reported(clock, tmp_path, damage, caplog):
    place = DatabasePlace(tmp_path / "recipients.db")
    path = place.path
    with RecipientDatabase(place, now_ms=clock) as database:
        token = database.add("alice", shares=["sales"]).token
    store = FollowedStore(place, clock)
    async with store.watching():
        assert store.readable == 1
        path.rename(tmp_path / "kept")
        if damage == "empty":
            path.touch()
        elif damage == "no database":
            path.write_bytes(b"no database at all" * 1000)
        elif damage == "newer":
            with closing(sqlite3.connect(path)) as newer:
                newer.executescript(
                    "CREATE TABLE alembic_version (version_num TEXT);"
                    "INSERT INTO alembic_version VALUES ('9999')"
                )
        await until(lambda: store.readable == 0)
        assert store.knows(token).name == "alice"
        assert len(store.tables) == 1
        (tmp_path / "kept").rename(path)
        await until(lambda: store.readable == 1)
        assert store.knows(token).name == "alice"
    said = [record.message for record in caplog.records if "cannot be read" in record.message]
    assert said
    assert len({*said}) == len(said), "each reason is said once"
    assert path.exists()


async def test_an_unreachable_server_adds_no_grants_and_is_reported(postgresql, clock, caplog):
    place = postgresql.place(postgresql.new_database())
    with RecipientDatabase(place, now_ms=clock) as database:
        token = database.add("alice", shares=["sales"]).token
    store = FollowedStore(place, clock)
    async with store.watching():
        await asyncio.to_thread(postgresql.kill)
        await until(lambda: store.readable == 0)
        assert store.knows(token).name == "alice"
        await asyncio.to_thread(postgresql.start)
        await until(lambda: store.readable == 1)
        assert len(store.tables) == 1
        with RecipientDatabase(place, now_ms=clock) as database:
            database.revoke("alice")
        await until(lambda: store.knows(token) is None)
    said = [record.message for record in caplog.records if "cannot be read" in record.message]
    assert said
    assert len({*said}) == len(said), "each reason is said once"


async def test_a_server_that_hangs_is_given_up_and_ends_the_last_state(postgresql, clock, monkeypatch):
    """A stopped process: its kernel still accepts and acknowledges all that is sent."""
    monkeypatch.setattr("gateway.database.postgresql.BoundedConnection.answer_seconds", 0.5)
    monkeypatch.setitem(OPTIONS, "connect_timeout", 2)
    name = postgresql.new_database()
    place = postgresql.place(name)
    with RecipientDatabase(place, now_ms=clock) as database:
        token = database.add("alice", shares=["sales"]).token
    store = FollowedStore(place, clock, maxOutageSeconds=1)
    async with store.watching():
        await until(lambda: store.readable == 1)
        with postgresql.stopped_processes():
            await until(lambda: store.readable == 0)
            await until(lambda: store.tables[-1].is_incomplete)
            assert store.knows(token) is None
        # The next look takes another connection: the stopped one answers no more.
        await until(lambda: store.knows(token) is not None)
        assert store.readable == 1


def test_a_statement_without_an_answer_ends_on_either_side(postgresql, clock, monkeypatch):
    place = postgresql.place(postgresql.new_database())
    RecipientDatabase(place, now_ms=clock).close()
    with closing(Database(place)) as database, closing(Database(place)) as other:
        with database.statement() as connection:
            assert connection.exec_driver_sql("SHOW statement_timeout").scalar() == "30s"
        database.driver.execute("SET statement_timeout = '100ms'")
        with other.changing() as connection:
            connection.exec_driver_sql("LOCK TABLE changes")
            with pytest.raises(DatabaseUnusable, match="statement timeout"), database.reading() as reading:
                reading.exec_driver_sql("SELECT * FROM changes")
            database.driver.execute("SET statement_timeout = 0")
            database.driver.answer_seconds = 0.2
            with pytest.raises(DatabaseUnusable, match="no answer within"), database.reading() as reading:
                reading.exec_driver_sql("SELECT * FROM changes")
    options = "&options=-c%20statement_timeout%3D4s"
    with (
        closing(Database(DatabasePlace(None, Secret(place.url.reveal() + options)))) as database,
        database.statement() as connection,
    ):
        assert connection.exec_driver_sql("SHOW statement_timeout").scalar() == "4s"


@pytest.mark.parametrize("dropped", ["DROP TABLE changes", "DROP SCHEMA public CASCADE"])
async def test_dropped_tables_are_no_empty_database(postgresql, clock, dropped):
    name = postgresql.new_database()
    place = postgresql.place(name)
    with RecipientDatabase(place, now_ms=clock) as database:
        token = database.add("alice", shares=["sales"]).token
    store = FollowedStore(place, clock)
    async with store.watching():
        await asyncio.to_thread(postgresql.execute, dropped, name)
        await until(lambda: store.readable == 0)
        assert store.knows(token).name == "alice"


async def test_the_last_state_ends_after_the_longest_outage_and_comes_back(database, clock, place):
    token = database.add("alice", shares=["sales"]).token
    client = database.issue("alice", NewClient())
    database.add("bob", Policies({"default": policy()}))
    store = FollowedStore(place, clock, maxOutageSeconds=3600)
    assert not store.tables[-1].is_incomplete
    async with store.watching():
        with by_hand(place) as execute:
            execute("ALTER TABLE changes RENAME TO hidden")
            await until(lambda: store.readable == 0)
            assert store.knows(token).name == "alice"
            # An hour passes.
            store.store._read_at_seconds -= 3600
            await until(lambda: store.tables[-1].is_incomplete)
            assert store.knows(token) is None
            assert {*store.tables[-1].recipients} == {"anonymous"}
            assert not len(store.tables[-1].clients)
            # A reload meanwhile brings nothing back.
            assert (await store.store.latest_table(store.config)).find(token_hash(token), now_ms=0) is None
            execute("ALTER TABLE hidden RENAME TO changes")
            await until(lambda: store.readable == 1)
    assert store.knows(token).name == "alice"
    assert client.client_id
    assert {*store.tables[-1].recipients} == {"anonymous", "alice", "bob"}
    assert not store.tables[-1].is_incomplete


async def test_shares_end_with_the_last_state_and_come_back_when_later_ones_are_served(
    database, clock, place
):
    """Also those that only recipients of the configuration read."""
    store = FollowedStore(place, clock, maxOutageSeconds=3600)
    have_ended, asked, served = [], asyncio.Event(), asyncio.Event()

    async def slow(shares):
        if shares:
            asked.set()
            await served.wait()

    def changed(table):
        store.tables.append(table)
        have_ended.append(store.store.have_shares_ended)

    store.store._changed, store.store._take_shares = changed, slow
    async with store.watching():
        with by_hand(place) as execute:
            execute("ALTER TABLE changes RENAME TO hidden")
            await until(lambda: store.readable == 0)
            store.store._read_at_seconds -= 3600
            await until(lambda: have_ended == [True])
            execute("ALTER TABLE hidden RENAME TO changes")
            execute("INSERT INTO shares VALUES ('s', 's', '{}', 1)")
            # The former ones are not served again meanwhile, and no recipient looks for its own among those
            # of the file.
            await asked.wait()
            assert have_ended == [True]
            served.set()
            await until(lambda: have_ended == [True, False])
            assert not store.tables[-1].is_incomplete


def test_a_process_that_was_stopped_serves_no_former_shares(clock, tmp_path):
    place = DatabasePlace(tmp_path / "recipients.db")
    with RecipientDatabase(place, now_ms=clock) as database:
        database.database.driver.execute("INSERT INTO shares VALUES ('s', 's', '{}', 1)")
        stopped = [0.0]
        store = FollowedStore(
            place, clock, elapsed=lambda: elapsed_seconds() + stopped[0], maxOutageSeconds=5
        )
        store.store.end_outdated()
        assert not store.store.have_shares_ended
        stopped[0] = 12.0
        store.store.end_outdated()
        assert store.store.have_shares_ended
        assert len(store.tables) == 2


async def test_a_database_that_does_not_answer_is_seen_and_stops_nothing(clock, tmp_path, monkeypatch):
    monkeypatch.setattr("gateway.governance.credential_store.PATIENCE_SECONDS", 0.6)
    monkeypatch.setattr("gateway.database.engine.BUSY_SECONDS", 3.0)
    place = DatabasePlace(tmp_path / "recipients.db")
    with RecipientDatabase(place, now_ms=clock) as database:
        token = database.add("alice", shares=["sales"]).token
    store = FollowedStore(place, clock)
    with closing(sqlite3.connect(place.path, isolation_level=None)) as locked:
        async with store.watching():
            locked.execute("BEGIN EXCLUSIVE")
            await until(lambda: store.readable == 0)
            assert store.knows(token).name == "alice"
            locked.execute("UPDATE tokens SET expires_ms = 0")
            locked.execute("COMMIT")
            await until(lambda: store.knows(token) is None)
            assert store.readable == 1


async def test_a_first_recipient_may_be_added_while_the_server_runs(clock, place):
    store = FollowedStore(place, clock)
    async with store.watching():
        with RecipientDatabase(place, now_ms=clock) as database:
            token = database.add("alice", shares=["sales"]).token
        await until(lambda: store.knows(token) is not None)


def test_names_that_differ_in_more_than_ascii_case_share_no_tokens(database, clock, place):
    one = database.add("Émile", shares=["sales"])
    with by_hand(place) as execute:
        # As another program, or a build that did not compare how names look, has stored it.
        execute("INSERT INTO recipients VALUES ('émile', 'émile', '', 1, '{}', FALSE)")
        execute(f"INSERT INTO tokens VALUES ('{token_hash('other').hex()}', 'émile', 1, NULL)")
        execute("INSERT INTO grants (recipient, share) VALUES ('émile', 'logs')")
    store = FollowedStore(place, clock)
    assert (store.knows(one.token).name, store.knows(one.token).shares) == ("Émile", {"sales"})
    assert (store.knows("other").name, store.knows("other").shares) == ("émile", {"logs"})


def test_grants_of_parts_are_no_grants_of_the_share(database, clock, place):
    token = database.add("alice").token
    with by_hand(place) as execute:
        execute('UPDATE recipients SET properties = \'{"country": "de"}\'')
        execute("INSERT INTO grants (recipient, share, condition) VALUES ('alice', 'sales', 'a = 1')")
        execute("INSERT INTO grants (recipient, share, schema) VALUES ('alice', 'logs', 'x')")
    known = FollowedStore(place, clock).knows(token)
    assert known.shares == frozenset()
    assert known.grants == (Grant("logs", "x"), Grant("sales", condition="a = 1"))
    assert known.properties == (("country", "de"),)
    assert database.show("alice").shares == ()


MANY = 20_000


def many_recipients(place, clock):
    """As many recipients in a new database, with a token, a share and a network each."""
    RecipientDatabase(place, now_ms=clock).close()
    names = [f"recipient-{number:06}" for number in range(MANY)]
    recipient = {"comment": "", "created_ms": 0, "properties": "{}", "forbids_bearer_tokens": False}
    with closing(Database(place)) as database, database.changing() as connection:

        def add(table, rows):
            # To return a column makes one statement of a thousand rows: PostgreSQL takes a fifth of the time.
            connection.execute(insert(table).returning(literal_column("1")), rows)

        add(RECIPIENTS, [{"key": name, "name": name} | recipient for name in names])
        tokens = [
            {"sha256": token_hash(name).hex(), "recipient": name, "created_ms": 0, "expires_ms": None}
            for name in names
        ]
        add(TOKENS, tokens)
        add(GRANTS, [{"recipient": name, "share": "sales"} for name in names])
        add(NETWORKS, [{"recipient": name, "network": "192.0.2.0/24"} for name in names])


async def test_a_rotation_among_many_recipients_stalls_no_loop_and_is_seen_soon(clock, place):
    many_recipients(place, clock)
    store = FollowedStore(place, clock)
    assert store.knows("recipient-012345").name == "recipient-012345"
    taken = []
    async with store.watching():
        for number in (12345, 0, MANY - 1):
            name = f"recipient-{number:06}"
            started, cpu_seconds = time.monotonic(), time.process_time()
            token = (await asyncio.to_thread(rotated, place, clock, name)).token
            worst = 0.0
            while store.knows(token) is None:
                before = time.thread_time(), time.monotonic()
                await asyncio.sleep(0.001)
                # What this thread itself did on the loop, which other work of the machine does not lengthen.
                worst = max(worst, time.thread_time() - before[0])
                assert time.monotonic() - started < 60
            assert store.knows(name) is None
            taken.append((worst, time.process_time() - cpu_seconds))
    assert min(worst for worst, _ in taken) < 0.02
    assert min(seconds for _, seconds in taken) < 0.2


def policy(subject="a"):
    return TokenPolicy("https://idp.example.com", "sub", subject, frozenset({"b", "c"}), (("tid", "t"),))


async def test_policies_of_the_database_are_followed(database, clock, place):
    database.add("alice", Policies({"default": policy()}), shares=["sales"])
    store = FollowedStore(place, clock)
    claims = {"iss": "https://idp.example.com", "sub": "a", "aud": "c", "tid": "t"}
    assert store.tables[-1].policies.recipient(claims).name == "alice"
    async with store.watching():
        database.add_policy("alice", "second", policy("other"))
        database.remove_policy("alice", "default")
        await until(lambda: len(store.tables) > 1)
    with pytest.raises(TokenRefused):
        store.tables[-1].policies.recipient(claims)
    assert store.tables[-1].policies.recipient(claims | {"sub": "other"}).shares == {"sales"}


def rotated(place, clock, name):
    with RecipientDatabase(place, now_ms=clock) as database:
        return database.issue(name, NewToken())


STEPS = {
    "add": lambda database, name, _: database.add(name, shares=["sales"]),
    "rotate": lambda database, name, _: database.issue(name, NewToken(old_expires_in_seconds=5)),
    "revoke": lambda database, name, _: database.revoke(name),
    "grant": lambda database, name, number: database.grant(name, [f"s{number % 3}"]),
    "take": lambda database, name, _: database.revoke(name, shares=["sales"]),
    "allow": lambda database, name, number: database.allow(name, [f"192.0.2.{number}"]),
    "policy": lambda database, name, number: database.add_policy(
        name, f"p{number % 3}", policy(subject=str(number))
    ),
    "no policy": lambda database, name, number: database.remove_policy(name, f"p{number % 3}"),
    "client": lambda database, name, number: database.issue(name, NewClient(expires_in_seconds=number + 1)),
    "new secret": lambda database, name, _: database.issue(name, NewSecret(old_expires_in_seconds=5)),
    "no client": lambda database, name, _: database.remove_client(name),
    "forbid": lambda database, name, number: database.forbid_bearer_tokens(name, forbidden=number % 3 > 0),
    "delete": lambda database, name, _: database.delete(name),
    "by hand": lambda database, name, _: database.database.driver.execute(
        f"DELETE FROM tokens WHERE recipient = '{name.lower()}'"
    ),
}


@given(st.lists(st.tuples(st.sampled_from([*STEPS, "add", "add"]), st.integers(0, 11)), max_size=25))
def test_incremental_reads_equal_the_content_of_the_database(tmp_path_factory, steps):
    clock = Clock(1_700_000_000_000)
    check_incremental_reads(DatabasePlace(tmp_path_factory.mktemp("db") / "r.db"), clock, steps)


def test_incremental_reads_equal_the_content_of_a_database_of_postgresql(postgresql):
    clock, random = Clock(1_700_000_000_000), Random(7)
    steps = [(random.choice([*STEPS, "add", "add"]), random.randrange(12)) for _ in range(300)]
    check_incremental_reads(postgresql.place(postgresql.new_database()), clock, steps)


def contents(table):
    """All that a table knows, without the order of its entries."""
    return (
        {prefix: {one.sha256: one for one in bucket} for prefix, bucket in table._by_prefix.items()},
        table._forbidden,
        table.recipients,
        table.clients._by_id,
        {
            issuer: {
                claim: {subject: sorted(found, key=repr) for subject, found in subjects.items()}
                for claim, subjects in claims.items()
            }
            for issuer, claims in table.policies._by_issuer.items()
        },
    )


def check_incremental_reads(place, clock, steps):
    database, reader = RecipientDatabase(place, now_ms=clock), DatabaseReader(lambda: place)
    store = FollowedStore(place, clock)
    for step, number in steps:
        name = f"{'Rr'[number % 2]}{number}"
        clock.now_ms += 1
        with suppress(RecipientError):
            STEPS[step](database, name, number)
        before = reader.read()
        assert reader.read() is before
        changed = store.store._table(store.config, before)
        whole = store.store._whole_table(store.config, before, is_incomplete=False)
        assert contents(changed) == contents(whole)
        assert {
            (
                stored.recipient.name,
                stored.recipient.shares,
                stored.recipient.networks,
                frozenset(
                    (token.sha256.hex(), token.expires_ms, token.is_forbidden) for token in stored.credentials
                ),
                stored.policies,
                frozenset(
                    (client.id, secret.sha256.hex(), secret.expires_ms)
                    for client in stored.clients
                    for secret in client.secrets
                ),
            )
            for stored in before
        } == {
            (
                record.name,
                frozenset(record.shares),
                parse_networks(record.networks),
                frozenset(
                    (token.sha256, token.expires_ms, record.forbids_bearer_tokens) for token in record.tokens
                ),
                tuple(known.policy for known in record.policies),
                frozenset(
                    (client.id, secret.sha256, secret.expires_ms)
                    for client in record.clients
                    for secret in client.secrets
                ),
            )
            for record in database.list()
        }
    thread = store.store._thread
    thread._thread.submit(thread._close).result()
    reader.close()
    database.close()


async def test_without_a_database_the_shares_never_change(tmp_path):
    taken = []

    async def take(shares):
        taken.append(shares)

    config = loads(f"{BEGINNING}, recipientsDatabase: {tmp_path}/none.db}}\n")
    store = CredentialStore(config, lambda _table: None, Metrics(), Clock(0), take_shares=take)
    first = store.shares
    async with store.watching(lambda: config):
        await until(lambda: len(taken) > 1)
    assert all(one is first for one in taken)
