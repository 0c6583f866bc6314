"""Recipients in the database: tokens, grants, networks, history, and what other processes see."""

from __future__ import annotations

import asyncio
import sqlite3
import stat
import subprocess
import sys
from contextlib import closing

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.auth import token_hash
from gateway.config import loads
from gateway.metrics import Metrics
from gateway.recipients import (
    RecipientDatabase,
    RecipientError,
    RecipientExists,
    RecipientNotFound,
    token_sha256,
)
from gateway.serving.book import POLL_SECONDS, RecipientBook


class Clock:
    def __init__(self, now_ms=1_700_000_000_000):
        self.now_ms = now_ms

    def __call__(self):
        return self.now_ms


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def changes():
    return []


@pytest.fixture
def database(tmp_path, clock, changes):
    database = RecipientDatabase(
        tmp_path / "state" / "recipients.db",
        now_ms=clock,
        actor="cli:test",
        taken_names=lambda: frozenset({"from-yaml"}),
        on_change=changes.append,
    )
    yield database
    database.close()


def live_hashes(record, now_ms):
    return {token.sha256 for token in record.tokens if token.live(now_ms)}


def test_a_new_recipient_has_one_token_its_shares_and_its_networks(database):
    issued = database.add(
        "alice", shares=["sales", "logs"], networks=["192.0.2.7", "2001:db8::/32"], comment="ACME"
    )
    record = database.show("ALICE")
    assert (record.name, record.comment) == ("alice", "ACME")
    assert record.shares == ("logs", "sales")
    assert record.networks == ("192.0.2.7/32", "2001:db8::/32")
    assert [token.sha256 for token in record.tokens] == [token_sha256(issued.token)]
    assert len(issued.token) >= 43


def test_the_plain_token_is_nowhere_in_the_file_nor_in_any_repr(database, tmp_path, changes):
    issued = database.add("alice")
    files = list((tmp_path / "state").iterdir())
    assert files
    assert not any(issued.token.encode() in file.read_bytes() for file in files)
    told = repr((issued, database.list(), changes, database.history("alice")))
    assert issued.token not in told
    assert token_sha256(issued.token) not in told


def test_the_file_belongs_to_its_owner_alone(database, tmp_path):
    assert stat.S_IMODE((tmp_path / "state" / "recipients.db").stat().st_mode) == 0o600
    assert stat.S_IMODE((tmp_path / "state").stat().st_mode) == 0o700


def test_rotation_leaves_two_live_tokens_and_then_one(database, clock):
    first = database.add("alice")
    clock.now_ms += 1000
    second = database.rotate("alice", old_expires_in_seconds=60)
    both = {token_sha256(first.token), token_sha256(second.token)}
    assert live_hashes(database.show("alice"), clock.now_ms) == both
    clock.now_ms += 60_000
    assert live_hashes(database.show("alice"), clock.now_ms) == {token_sha256(second.token)}


def test_a_second_rotation_ends_the_oldest_at_once(database, clock):
    first = database.add("alice")
    clock.now_ms += 1
    second = database.rotate("alice", old_expires_in_seconds=3600)
    clock.now_ms += 1
    third = database.rotate("alice", old_expires_in_seconds=3600)
    live = live_hashes(database.show("alice"), clock.now_ms)
    assert live == {token_sha256(second.token), token_sha256(third.token)}
    assert token_sha256(first.token) not in live


def test_rotation_never_lengthens_an_old_life(database, clock):
    database.add("alice", expires_in_seconds=10)
    expires_ms = clock.now_ms + 10_000
    database.rotate("alice", old_expires_in_seconds=86_400)
    assert database.show("alice").tokens[0].expires_ms in (expires_ms, None)
    assert expires_ms in {token.expires_ms for token in database.show("alice").tokens}


@settings(max_examples=60, deadline=None)
@given(
    st.lists(
        st.tuples(
            st.sampled_from(["rotate", "revoke", "wait"]),
            st.integers(0, 5000),
            st.none() | st.integers(1, 5000),
        ),
        max_size=12,
    )
)
def test_any_history_keeps_two_live_tokens_at_most_and_only_shortens(tmp_path_factory, steps):
    clock = Clock()
    database = RecipientDatabase(tmp_path_factory.mktemp("db") / "r.db", now_ms=clock)
    database.add("alice")
    ends: dict[str, float] = {}
    for step, seconds, life in steps:
        if step == "rotate":
            database.rotate("alice", old_expires_in_seconds=seconds, expires_in_seconds=life)
        elif step == "revoke":
            database.revoke("alice")
        clock.now_ms += 1 if step != "wait" else seconds * 1000
        record = database.show("alice")
        assert len(live_hashes(record, clock.now_ms)) <= 2
        for token in record.tokens:
            end = float("inf") if token.expires_ms is None else token.expires_ms
            assert end <= ends.get(token.sha256, float("inf"))
            ends[token.sha256] = end
    database.close()


def test_revoking_ends_every_token_at_once(database, clock):
    database.add("alice")
    clock.now_ms += 5
    database.rotate("alice", old_expires_in_seconds=3600)
    assert live_hashes(database.revoke("alice"), clock.now_ms) == set()
    database.rotate("alice")
    assert len(live_hashes(database.show("alice"), clock.now_ms)) == 1


def test_shares_are_granted_and_taken_back_without_touching_tokens(database, clock):
    database.add("alice", shares=["sales"])
    assert database.grant("alice", ["logs", "SALES"]).shares == ("logs", "sales")
    assert database.revoke("alice", shares=["Sales"]).shares == ("logs",)
    assert live_hashes(database.show("alice"), clock.now_ms)
    with pytest.raises(RecipientError, match="not granted"):
        database.revoke("alice", shares=["sales"])


def test_networks_are_replaced_whole(database):
    database.add("alice", networks=["192.0.2.0/24"])
    assert database.allow("alice", ["2001:db8::/32"]).networks == ("2001:db8::/32",)
    assert database.allow("alice", []).networks == ()


@pytest.mark.parametrize(
    ("arguments", "keywords", "error"),
    [
        (("alice",), {}, RecipientExists),
        (("ALICE",), {}, RecipientExists),
        (("From-YAML",), {}, RecipientExists),
        (("a b",), {}, RecipientError),
        (("a/b",), {}, RecipientError),
        (("",), {}, RecipientError),
        (("x" * 256,), {}, RecipientError),
        (("bob",), {"networks": ["10.0.0.1/8"]}, RecipientError),
        (("bob",), {"shares": ["a share"]}, RecipientError),
        (("bob",), {"expires_in_seconds": 0}, RecipientError),
    ],
)
def test_a_refused_addition_leaves_nothing_behind(database, changes, arguments, keywords, error):
    database.add("alice")
    with pytest.raises(error):
        database.add(*arguments, **keywords)
    assert [record.name for record in database.list()] == ["alice"]
    assert [change.action for change in changes] == ["createRecipient"]


@pytest.mark.parametrize("operation", ["show", "rotate", "revoke"])
def test_an_unknown_recipient_is_said_to_be_unknown(database, operation):
    with pytest.raises(RecipientNotFound, match="'bob'"):
        getattr(database, operation)("bob")


def test_every_change_is_in_the_history_and_told_once_with_its_actor(database, clock, changes):
    database.add("alice", shares=["sales"])
    clock.now_ms += 1000
    database.rotate("alice", old_expires_in_seconds=60)
    database.grant("alice", ["logs"])
    database.allow("alice", ["192.0.2.1"])
    database.revoke("alice", shares=["logs"])
    database.revoke("alice")
    assert [change.action for change in changes] == [
        "createRecipient",
        "rotateRecipientToken",
        "updateSharePermissions",
        "updateRecipient",
        "updateSharePermissions",
        "revokeRecipientTokens",
    ]
    assert database.history("Alice") == tuple(changes)
    assert {change.actor for change in changes} == {"cli:test"}


def test_another_process_change_is_seen_by_polling_and_our_own_reading_is_not(database, tmp_path):
    assert database.changed()
    assert not database.changed()
    code = (
        "import sys, pathlib; from gateway.recipients import RecipientDatabase\n"
        "RecipientDatabase(pathlib.Path(sys.argv[1]), now_ms=lambda: 5).add('bob')"
    )
    subprocess.run([sys.executable, "-c", code, str(tmp_path / "state" / "recipients.db")], check=True)
    assert database.changed()
    assert [record.name for record in database.list()] == ["bob"]
    assert not database.changed()


def test_a_database_of_a_newer_gateway_is_refused(tmp_path, clock):
    path = tmp_path / "recipients.db"
    RecipientDatabase(path, now_ms=clock).close()
    with sqlite3.connect(path) as connection:
        connection.execute("PRAGMA user_version = 99")
    connection.close()
    with pytest.raises(RecipientError, match="version 99"):
        RecipientDatabase(path, now_ms=clock)


async def test_a_row_that_cannot_be_read_ends_no_watch_and_hides_no_revocation(database, clock, tmp_path):
    taken = []
    sha256 = token_hash(database.add("alice", shares=["sales"]).token)
    database.add("bob", shares=["sales"], networks=["192.0.2.7"])
    config = loads("version: 1\nshares: [{name: sales}]\ngateway: {anonymous: true}\n")
    book = RecipientBook(lambda: database, taken.append, Metrics(), clock)
    assert book.look()
    assert book.table(config).find(sha256, now_ms=clock()) is not None
    with closing(sqlite3.connect(tmp_path / "state" / "recipients.db", isolation_level=None)) as by_hand:
        async with asyncio.timeout(20), book.watching(lambda: config):
            by_hand.execute("UPDATE networks SET network = 'none'")
            await asyncio.sleep(2 * POLL_SECONDS)
            assert not taken
            by_hand.execute("DELETE FROM networks")
            by_hand.execute("DELETE FROM tokens WHERE recipient = 'alice'")
            while not taken or taken[-1].find(sha256, now_ms=clock()) is not None:
                await asyncio.sleep(0.01)
