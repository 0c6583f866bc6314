"""A running server follows the credentials of the database."""

from __future__ import annotations

import asyncio
import json
import sqlite3
import time
from contextlib import closing, contextmanager, suppress
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sqlalchemy import insert
from support.gateway_app import Clock
from support.waiting import until

from gateway.access.authentication import token_hash
from gateway.access.credential_store import POLL_SECONDS, CredentialStore
from gateway.access.federation import FederationPolicy, TokenRefused
from gateway.access.grants import Grant
from gateway.access.recipient_records import RecipientError
from gateway.access.recipient_store import RecipientDatabase
from gateway.access.stored_recipients import RecipientReader
from gateway.config import ConfigError, loads
from gateway.config.database import DatabasePlace
from gateway.config.networks import parse_networks
from gateway.config.secret import Secret
from gateway.database.engine import Database
from gateway.database.errors import DatabaseUnusable
from gateway.database.schema import GRANTS, NETWORKS, RECIPIENTS, TOKENS
from gateway.telemetry.metrics import Metrics

SHARES = "version: 1\nshares: [{name: sales}]\ngateway: {anonymous: true"


def config_of(place, **keys):
    """A configuration with a database."""
    url = f"sqlite:///{place.path}" if place.url is None else place.url.reveal()
    section = json.dumps({"url": url} | keys)
    return loads(f"{SHARES}, database: {section}}}\n")


class FollowedStore:
    """The credentials of a database as a running server follows them."""

    def __init__(self, place, clock, **keys):
        self.config = config_of(place, **keys)
        self.metrics = Metrics()
        self.clock = clock
        self.tables = []
        self.store = CredentialStore(self.config, self.tables.append, self.metrics, clock)
        self.tables.append(self.store.table(self.config))

    def knows(self, token):
        credential = self.tables[-1].find(token_hash(token), now_ms=self.clock())
        return credential and credential.recipient

    @property
    def readable(self):
        return self.metrics.registry.get_sample_value("delta_gateway_recipients_readable")

    def watching(self):
        return self.store.watching(lambda: self.config)


@contextmanager
def by_hand(place):
    """A function that executes a statement without the gateway."""
    with closing(Database(place)) as database, database.statement() as connection:
        yield connection.exec_driver_sql


async def test_a_row_that_cannot_be_read_ends_no_watch_and_hides_no_revocation(database, clock, place):
    token = database.add("alice", shares=["sales"]).token
    database.add("bob", shares=["sales"], networks=["192.0.2.7"])
    store = FollowedStore(place, clock)
    assert store.knows(token) is not None
    with by_hand(place) as execute:
        async with store.watching():
            execute("UPDATE networks SET network = 'none'")
            await until(lambda: store.readable == 0)
            assert len(store.tables) == 1
            execute("DELETE FROM networks")
            execute("DELETE FROM tokens WHERE recipient = 'alice'")
            await until(lambda: store.knows(token) is None)
            assert store.readable == 1


async def test_a_file_that_is_put_in_its_place_is_read_with_all_that_it_revokes(clock, tmp_path):
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
        (tmp_path / "backup").rename(path)
        await until(lambda: store.knows(added) is None)
        assert store.knows(kept) is not None
        with RecipientDatabase(place, now_ms=clock) as restored:
            assert [record.name for record in restored.list()] == ["alice"]
            restored.revoke("alice")
        await until(lambda: store.knows(kept) is None)
    assert not list(path.parent.glob("*-wal"))


async def test_a_restored_dump_is_read_with_all_that_it_revokes_also_when_more_changes_follow(
    postgresql, clock
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
            token = restored.rotate("alice").token
        await until(lambda: store.knows(token) is not None)
        assert store.knows(kept) is None
        assert {*store.tables[-1].recipients} == {"anonymous", "alice"}


def test_a_dump_that_is_being_restored_is_not_read_in_part(postgresql, clock):
    """Without one transaction its tables are filled one after the other, `changes` among the first."""
    name = postgresql.new_database()
    place = postgresql.place(name)
    with RecipientDatabase(place, now_ms=clock) as database:
        database.add("alice", shares=["sales"])
        dump = postgresql.dump(name)
        database.add("bob", shares=["sales"])
    first, middle, rest = dump.partition("-- Data for Name: recipients;")
    with closing(RecipientReader(lambda: place)) as reader:
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


@pytest.mark.parametrize(
    "url",
    ["postgresql://u:first@SECRET@127.0.0.1:1/db", "postgresql://u:first@word:SECRET@127.0.0.1:1/db"],
)
def test_a_password_with_an_unescaped_separator_is_refused_and_not_shown(url):
    with pytest.raises(ConfigError, match="%40") as refused:
        loads(f"{SHARES}, database: '{url}'}}\n")
    assert "SECRET" not in str(refused.value)


def test_a_password_in_the_place_of_a_port_is_not_shown():
    place = DatabasePlace(None, Secret("postgresql://u:SECRET/db"))
    with pytest.raises(DatabaseUnusable, match="cannot be parsed") as refused:
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
                newer.execute("PRAGMA user_version = 99")
        await until(lambda: store.readable == 0)
        assert store.knows(token).name == "alice"
        assert len(store.tables) == 1
        (tmp_path / "kept").rename(path)
        await until(lambda: store.readable == 1)
        assert store.knows(token).name == "alice"
    said = [record.message for record in caplog.records if "cannot be read" in record.message]
    assert len(said) == 1
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
    assert len([record for record in caplog.records if "cannot be read" in record.message]) == 1


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
    client = database.add_client("alice")
    database.add_federated("bob", {"default": policy()})
    store = FollowedStore(place, clock, maxOutageSeconds=1)
    assert not store.tables[-1].is_incomplete
    async with store.watching():
        with by_hand(place) as execute:
            execute("ALTER TABLE changes RENAME TO hidden")
            await until(lambda: store.readable == 0)
            assert store.knows(token).name == "alice"
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


async def test_a_database_that_does_not_answer_is_seen_and_stops_nothing(clock, tmp_path, monkeypatch):
    monkeypatch.setattr("gateway.access.credential_store.PATIENCE_SECONDS", 0.6)
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
    one, other = database.add("Émile", shares=["sales"]), database.add("émile", shares=["logs"])
    store = FollowedStore(place, clock)
    assert (store.knows(one.token).name, store.knows(one.token).shares) == ("Émile", {"sales"})
    assert (store.knows(other.token).name, store.knows(other.token).shares) == ("émile", {"logs"})


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
        connection.execute(insert(RECIPIENTS), [{"key": name, "name": name} | recipient for name in names])
        tokens = [
            {"sha256": token_hash(name).hex(), "recipient": name, "created_ms": 0, "expires_ms": None}
            for name in names
        ]
        connection.execute(insert(TOKENS), tokens)
        connection.execute(insert(GRANTS), [{"recipient": name, "share": "sales"} for name in names])
        networks = [{"recipient": name, "network": "192.0.2.0/24"} for name in names]
        connection.execute(insert(NETWORKS), networks)


async def test_a_rotation_among_many_recipients_stalls_no_loop_and_is_seen_soon(clock, place):
    many_recipients(place, clock)
    store = FollowedStore(place, clock)
    assert store.knows("recipient-012345").name == "recipient-012345"
    taken = []
    async with store.watching():
        await asyncio.sleep(2 * POLL_SECONDS)
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
    assert min(seconds for _, seconds in taken) < 0.4


def policy(subject="a"):
    return FederationPolicy("https://idp.example.com", "sub", subject, frozenset({"b", "c"}), (("tid", "t"),))


async def test_policies_of_the_database_are_followed(database, clock, place):
    database.add_federated("alice", {"default": policy()}, shares=["sales"])
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
        return database.rotate(name)


STEPS = {
    "add": lambda database, name, _: database.add(name, shares=["sales"]),
    "rotate": lambda database, name, _: database.rotate(name, old_expires_in_seconds=5),
    "revoke": lambda database, name, _: database.revoke(name),
    "grant": lambda database, name, number: database.grant(name, [f"s{number % 3}"]),
    "take": lambda database, name, _: database.revoke(name, shares=["sales"]),
    "allow": lambda database, name, number: database.allow(name, [f"192.0.2.{number}"]),
    "policy": lambda database, name, number: database.add_policy(
        name, f"p{number % 3}", policy(subject=str(number))
    ),
    "no policy": lambda database, name, number: database.remove_policy(name, f"p{number % 3}"),
    "client": lambda database, name, number: database.add_client(name, expires_in_seconds=number + 1),
    "new secret": lambda database, name, _: database.rotate_client(name, old_expires_in_seconds=5),
    "no client": lambda database, name, _: database.remove_client(name),
    "forbid": lambda database, name, number: database.forbid_bearer_tokens(name, forbidden=number % 3 > 0),
    "delete": lambda database, name, _: database.delete(name),
    "by hand": lambda database, name, _: database.database.driver.execute(
        f"DELETE FROM tokens WHERE recipient = '{name.lower()}'"
    ),
}


@settings(max_examples=40, deadline=None)
@given(st.lists(st.tuples(st.sampled_from([*STEPS, "add", "add"]), st.integers(0, 11)), max_size=25))
def test_incremental_reads_equal_the_content_of_the_database(tmp_path_factory, steps):
    clock = Clock(1_700_000_000_000)
    check_incremental_reads(DatabasePlace(tmp_path_factory.mktemp("db") / "r.db"), clock, steps)


def test_incremental_reads_equal_the_content_of_a_database_of_postgresql(postgresql):
    clock, random = Clock(1_700_000_000_000), Random(7)
    steps = [(random.choice([*STEPS, "add", "add"]), random.randrange(12)) for _ in range(300)]
    check_incremental_reads(postgresql.place(postgresql.new_database()), clock, steps)


def check_incremental_reads(place, clock, steps):
    database, reader = RecipientDatabase(place, now_ms=clock), RecipientReader(lambda: place)
    for step, number in steps:
        name = f"{'Rr'[number % 2]}{number}"
        clock.now_ms += 1
        with suppress(RecipientError):
            STEPS[step](database, name, number)
        before = reader.read()
        assert reader.read() is before
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
    reader.close()
    database.close()
