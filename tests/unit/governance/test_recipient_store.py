"""Recipients in the database: tokens, grants, networks, and the history of changes."""

import shutil
import sqlite3
import stat
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import replace
from functools import partial
from itertools import count

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sqlalchemy import event, select
from support.gateway_app import Clock
from support.waiting import wait_until

from gateway.authentication.credential_table import token_hash
from gateway.authentication.policies import TokenPolicy
from gateway.config.database import DatabasePlace
from gateway.database import engine
from gateway.database.errors import DatabaseBusy, DatabaseMissing, DatabaseUnusable
from gateway.database.schema import METADATA
from gateway.governance.credentials import NewClient, NewLink, NewSecret, NewToken, Policies
from gateway.governance.recipient_records import (
    MAX_LIFE_SECONDS,
    LinkInvalid,
    Permission,
    PurgedRows,
    RecipientError,
    RecipientExists,
    RecipientNotFound,
)
from gateway.governance.recipient_store import RecipientDatabase
from gateway.governance.stored_recipients import DatabaseReader
from gateway.times import epoch_ms


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
    assert [token.sha256 for token in record.tokens] == [token_hash(issued.token).hex()]
    assert len(issued.token) >= 43


def test_the_statements_that_add_recipients_do_not_grow_with_them(database):
    policy = TokenPolicy("https://issuer.example", "sub", "s", frozenset({"a"}), (("c", "1"),))
    described = {"shares": ["sales", "logs"], "networks": ["192.0.2.7"], "comment": "ACME"}
    described["allow_absent"] = True
    numbers = []
    for names in (range(10, 20), range(20, 40)):
        statements = []

        def executed(_connection, _cursor, statement, *_rest, statements=statements):
            statements.append(statement)

        event.listen(database.database.connection, "before_cursor_execute", executed)
        database.add_all({f"r{n}": (Policies({"p": policy}), described) for n in names})
        event.remove(database.database.connection, "before_cursor_execute", executed)
        numbers.append(len(statements))
    assert numbers[0] == numbers[1]
    assert len(database.list()) == 30
    database.add("one", Policies({"p": policy}), **described)
    one, many = database.show("one"), database.show("r12")
    assert replace(many, name="one") == one
    assert (one.shares, one.networks, one.comment) == (("logs", "sales"), ("192.0.2.7/32",), "ACME")
    assert [stored.policy for stored in one.policies] == [policy]
    assert [change.action for change in database.history("r12")] == ["createRecipient"]
    with pytest.raises(RecipientExists, match="'R12' exists already"):
        database.add_all({"new": (Policies({}), {}), "R12": (Policies({}), {})})
    with pytest.raises(RecipientExists, match="is listed twice"):
        database.add_all({"new": (Policies({}), {}), "NEW": (Policies({}), {})})
    assert len(database.list()) == 31


def test_the_plain_token_is_nowhere_in_the_database_nor_in_any_repr(database, tmp_path, changes):
    issued = database.add("alice")
    with database.database.reading() as connection:
        rows = [
            str(row) for table in METADATA.sorted_tables for row in connection.execute(select(table)).all()
        ]
    assert any(token_hash(issued.token).hex() in row for row in rows)
    assert not any(issued.token in row for row in rows)
    assert not any(issued.token.encode() in file.read_bytes() for file in tmp_path.rglob("*.db*"))
    text = repr((issued, database.list(), changes, database.history("alice")))
    assert issued.token not in text
    assert token_hash(issued.token).hex() not in text


def test_the_file_belongs_to_its_owner_alone(tmp_path, clock):
    path = tmp_path / "state" / "recipients.db"
    RecipientDatabase(DatabasePlace(path), now_ms=clock).close()
    assert stat.S_IMODE((tmp_path / "state" / "recipients.db").stat().st_mode) == 0o600
    assert stat.S_IMODE((tmp_path / "state").stat().st_mode) == 0o700


def test_rotation_leaves_two_live_tokens_and_then_one(database, clock):
    first = database.add("alice")
    clock.now_ms += 1000
    second = database.issue("alice", NewToken(old_expires_in_seconds=60))
    both = {token_hash(first.token).hex(), token_hash(second.token).hex()}
    assert live_hashes(database.show("alice"), clock.now_ms) == both
    clock.now_ms += 60_000
    assert live_hashes(database.show("alice"), clock.now_ms) == {token_hash(second.token).hex()}


def test_a_second_rotation_ends_the_oldest_at_once(database, clock):
    first = database.add("alice")
    clock.now_ms += 1
    second = database.issue("alice", NewToken(old_expires_in_seconds=3600))
    clock.now_ms += 1
    third = database.issue("alice", NewToken(old_expires_in_seconds=3600))
    live = live_hashes(database.show("alice"), clock.now_ms)
    assert live == {token_hash(second.token).hex(), token_hash(third.token).hex()}
    assert token_hash(first.token).hex() not in live


@pytest.mark.parametrize("kind", ["token", "secret"])
def test_the_youngest_one_stays_also_after_a_clock_that_was_ahead(database, clock, kind):
    """The first one is issued on an operator's machine, the others by the server."""
    clock.now_ms += 3_600_000
    database.add("alice", NewToken() if kind == "token" else NewClient())
    clock.now_ms -= 3_000_000
    kind_of = NewToken if kind == "token" else NewSecret
    second, third = (database.issue("alice", kind_of(old_expires_in_seconds=3600)) for _ in range(2))
    record = database.show("alice")
    (known,) = (record.tokens,) if kind == "token" else (client.secrets for client in record.clients)
    issued = {token_hash(getattr(one, kind)).hex() for one in (second, third)}
    assert {one.sha256 for one in known if one.live(clock.now_ms)} == issued


def test_rotation_never_lengthens_an_old_life(database, clock):
    database.add("alice", NewToken(10))
    expires_ms = clock.now_ms + 10_000
    database.issue("alice", NewToken(old_expires_in_seconds=86_400))
    assert database.show("alice").tokens[0].expires_ms in (expires_ms, None)
    assert expires_ms in {token.expires_ms for token in database.show("alice").tokens}


@settings(max_examples=20)
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
    clock = Clock(1_700_000_000_000)
    database = RecipientDatabase(DatabasePlace(tmp_path_factory.mktemp("db") / "r.db"), now_ms=clock)
    database.add("alice")
    ends: dict[str, float] = {}
    for step, seconds, life in steps:
        if step == "rotate":
            database.issue("alice", NewToken(old_expires_in_seconds=seconds, expires_in_seconds=life))
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
    database.issue("alice", NewToken(old_expires_in_seconds=3600))
    assert live_hashes(database.revoke("alice"), clock.now_ms) == set()
    database.issue("alice", NewToken())
    assert len(live_hashes(database.show("alice"), clock.now_ms)) == 1


def test_a_share_with_blanks_is_granted_and_an_absent_one_with_allow_absent(database, changes):
    database.add("alice", shares=["a share", "logs", "*"])
    assert database.show("alice").shares == ("*", "a share", "logs")
    with pytest.raises(
        RecipientError, match="'later' is not in the configuration, whose shares are: Logs, a sh"
    ):
        database.grant("alice", ["later"])
    with pytest.raises(RecipientError, match="part of a share is granted by `recipient grant`"):
        database.grant("alice", ["logs.public"])
    assert "later" in database.grant("alice", ["later", "other share"], allow_absent=True).shares
    database.revoke("alice", shares=["other share"])
    assert [change.detail.get("shares") or change.detail.get("granted") for change in changes[:2]] == [
        '"a share" logs *',
        'later "other share"',
    ]


def test_a_share_of_any_case_is_one_share_and_taken_back_it_is_closed(database, place):
    database.add("alice", shares=["\u00c4RZTE", "\u00e4rzte", "STRASSE", "logs"], allow_absent=True)
    assert database.grant("alice", ["\u00c4rzte", "stra\u00dfe"], allow_absent=True).shares == (
        "logs",
        "strasse",
        "\u00e4rzte",
    )
    record = database.revoke("alice", shares=["\u00e4rzte", "\u00c4rzte", "Stra\u00dfe"])
    assert record.shares == ("logs",)
    with closing(DatabaseReader(lambda: place)) as reader:
        [stored] = reader.read()
    assert stored.recipient.shares == {"logs"}
    with pytest.raises(RecipientError, match="not granted"):
        database.revoke("alice", shares=["\u00c4RZTE"])


def test_a_recipient_that_is_added_again_as_it_was_is_another_one(database, place):
    """What was issued to the first one, such as temporary credentials, is not its own."""
    database.add("alice", shares=["logs"], allow_absent=True)
    database.add("bob", shares=["logs"], allow_absent=True)
    with closing(DatabaseReader(lambda: place)) as reader:
        before = {own.recipient.name: own.recipient for own in reader.read()}
        database.revoke("alice", shares=["logs"])
        database.grant("alice", ["logs"], allow_absent=True)
        after = {own.recipient.name: own.recipient for own in reader.read()}
    assert after["alice"].shares == before["alice"].shares
    assert after["alice"] != before["alice"]
    assert after["bob"] is before["bob"]


def test_a_token_that_nobody_received_changes_nothing(database, clock, changes):
    kept = []
    committed = partial(kept.append, "committed")
    first = database.add("alice")
    clock.now_ms += 1
    with (
        pytest.raises(OSError, match="no space"),
        database.issued(lambda: database.issue("alice", NewToken()), committed),
    ):
        raise OSError("no space left")
    assert kept == []
    assert live_hashes(database.show("alice"), clock.now_ms) == {token_hash(first.token).hex()}
    assert [change.action for change in changes] == ["createRecipient"]
    with database.issued(lambda: database.issue("alice", NewToken()), committed) as issued:
        assert kept == []
    assert kept == ["committed"]
    assert live_hashes(database.show("alice"), clock.now_ms) == {token_hash(issued.token).hex()}
    assert [change.action for change in changes] == ["createRecipient", "rotateRecipientToken"]


def test_a_full_disk_is_named_and_changes_nothing(tmp_path, clock):
    with RecipientDatabase(DatabasePlace(tmp_path / "r.db"), now_ms=clock) as database:
        database.add("alice")
        driver = database.database.driver
        (pages,) = driver.execute("PRAGMA page_count").fetchone()
        driver.execute(f"PRAGMA max_page_count = {pages}")
        with pytest.raises(DatabaseUnusable, match="full"):
            database.add("bob", comment="x" * 100_000)
        assert [record.name for record in database.list()] == ["alice"]
        driver.execute(f"PRAGMA max_page_count = {pages * 100}")
        database.add("bob", comment="x" * 100_000)


def test_a_commit_that_fails_is_rolled_back_and_the_connection_can_be_used(tmp_path, clock):
    path = tmp_path / "r.db"
    with RecipientDatabase(DatabasePlace(path), now_ms=clock) as database:
        database.database.driver.execute("PRAGMA busy_timeout = 10")
        with closing(sqlite3.connect(path, isolation_level=None)) as other:
            other.execute("BEGIN")
            other.execute("SELECT count(*) FROM recipients").fetchone()
            with pytest.raises(DatabaseBusy, match="locked"):
                database.add("alice")
            other.execute("COMMIT")
        assert database.list() == ()
        database.add("alice")


def test_a_change_that_another_one_holds_up_for_too_long_fails(postgresql, clock, monkeypatch):
    monkeypatch.setattr("gateway.database.engine.BUSY_SECONDS", 0.2)
    place = postgresql.place(postgresql.new_database())
    with (
        RecipientDatabase(place, now_ms=clock) as database,
        RecipientDatabase(place, now_ms=clock) as other,
        other.database.changing(),
    ):
        with pytest.raises(DatabaseBusy, match="locked"):
            database.add("alice")
        assert database.list() == ()


@pytest.mark.parametrize("level", ["repeatable read", "serializable"])
def test_a_revocation_ends_what_was_issued_while_it_waited(postgresql, clock, monkeypatch, level):
    monkeypatch.setattr(engine, "BUSY_SECONDS", 60.0)
    name = postgresql.new_database()
    postgresql.execute(f"ALTER DATABASE {name} SET default_transaction_isolation = '{level}'")
    place = postgresql.place(name)
    with RecipientDatabase(place, now_ms=clock) as first, RecipientDatabase(place, now_ms=clock) as second:
        first.add("alice")
        first.revoke("alice")
        with ThreadPoolExecutor(1) as thread:
            with first.together():
                revoked = thread.submit(second.revoke, "alice")
                waiting = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted"
                wait_until(lambda: postgresql.execute(waiting, name).strip() == "1")
                first.issue("alice", NewToken())
            assert revoked.result().tokens == ()
        assert first.show("alice").tokens == ()


def test_a_deleted_recipient_is_gone_but_for_its_history(database, changes):
    database.add("alice", shares=["sales"], networks=["192.0.2.1"])
    assert database.delete("ALICE").name == "alice"
    assert database.list() == ()
    with pytest.raises(RecipientNotFound):
        database.delete("alice")
    assert [change.action for change in database.history("alice")] == ["createRecipient", "deleteRecipient"]
    assert dict(changes[-1].detail) == {"tokens": "1", "shares": "sales"}
    assert database.add("alice").recipient == "alice"
    assert database.show("alice").shares == ()


def test_a_share_whose_name_is_no_text_keeps_no_recipient_from_others(tmp_path, clock):
    place = DatabasePlace(tmp_path / "recipients.db")
    with RecipientDatabase(place, now_ms=clock, known_shares=lambda: ["sales"]) as database:
        with closing(sqlite3.connect(place.path)) as connection, connection:
            connection.execute("INSERT INTO shares VALUES ('odd', CAST(x'ff' AS TEXT), '{}', 0)")
        database.add("alice", shares=["sales"])
        with pytest.raises(RecipientError, match="whose shares are: sales;"):
            database.grant("alice", ["other"])


def test_a_new_recipient_gets_nothing_of_one_that_sql_has_deleted(tmp_path, clock):
    place = DatabasePlace(tmp_path / "recipients.db")
    with RecipientDatabase(place, now_ms=clock) as database:
        database.add("bob", shares=["sales"], networks=["192.0.2.7"])
        database.issue("bob", NewClient())
        database.add_policy("bob", "p", TokenPolicy("i", "sub", "s", frozenset({"a"})))
        link = database.issue("bob", NewLink(link_expires_in_seconds=60))
    with closing(sqlite3.connect(place.path)) as connection, connection:
        # As the command line of SQLite does: foreign keys are not enforced.
        connection.execute("DELETE FROM recipients")
    with RecipientDatabase(place, now_ms=clock) as database:
        issued = database.add("Bob")
        record = database.show("bob")
        assert [token.sha256 for token in record.tokens] == [token_hash(issued.token).hex()]
        assert (record.shares, record.networks, record.policies, record.clients) == ((), (), (), ())
        with pytest.raises(LinkInvalid):
            database.activate(link.code)


def test_what_ends_at_once_has_ended_by_the_clocks_of_servers(postgresql):
    ahead = Clock(int(time.time() * 1000) + 3_600_000)
    place = postgresql.place(postgresql.new_database())
    with RecipientDatabase(place, now_ms=ahead) as database:
        database.add("alice")
        client = database.issue("alice", NewClient())
        database.issue("alice", NewToken(old_expires_in_seconds=60))
        database.issue("alice", NewToken())
        database.issue("alice", NewSecret(client.client_id))
        for record, live in ((database.show("alice"), 1), (database.revoke("alice"), 0)):
            now_ms = int(time.time() * 1000) + 1
            assert len(live_hashes(record, now_ms)) == live
            assert sum(secret.live(now_ms) for secret in record.clients[0].secrets) == live


def test_a_link_gives_no_token_to_a_recipient_to_whom_tokens_were_forbidden_since(database, place):
    link = database.add("alice", NewLink(link_expires_in_seconds=60, expires_in_seconds=3600))
    database.forbid_bearer_tokens("alice", forbidden=True)
    issued = database.activate(link.code)
    record = database.show("alice")
    assert record.tokens == ()
    assert [client.id for client in record.clients] == [issued.client_id]


@pytest.mark.parametrize(
    "operation",
    [
        lambda database, _code: database.revoke("Alice"),
        lambda database, _code: database.issue("alice", NewToken()),
        lambda database, _code: database.update_permissions("sales", [Permission("alice", is_granted=True)]),
        lambda database, code: database.activate(code),
    ],
)
def test_a_stored_recipient_whose_name_the_configuration_has_can_only_be_deleted(
    database, place, clock, operation
):
    """What is taken from it may still be read by the recipient of the configuration."""
    link = database.add("alice", NewLink(60))
    with RecipientDatabase(place, now_ms=clock, taken_names=lambda: frozenset({"alice"})) as served:
        with pytest.raises(RecipientError, match="is in the configuration file"):
            operation(served, link.code)
        assert served.delete("alice").name == "alice"


def test_tokens_expired_for_long_enough_are_purged_and_no_live_ones(database, clock, changes):
    database.add("alice", NewToken(10))
    database.add("bob", NewToken(1000))
    database.add("carol")
    clock.now_ms += 60_000
    assert database.purge(tokens_expired_for_seconds=51).tokens == 0
    assert database.purge(tokens_expired_for_seconds=50).tokens == 1
    assert [len(record.tokens) for record in database.list()] == [0, 1, 1]
    assert database.purge(history_older_than_seconds=60) == PurgedRows(0, 3)
    assert database.history("alice") == ()
    assert [change.action for change in changes[3:]] == ["purgeRecipients"] * 3
    assert {change.recipient for change in changes[3:]} == {""}
    for seconds in (-1, MAX_LIFE_SECONDS + 1):
        with pytest.raises(RecipientError, match="an age"):
            database.purge(tokens_expired_for_seconds=seconds)


def test_a_machine_whose_clock_is_ahead_purges_nothing_that_lives_by_the_clock_of_the_server(
    postgresql, clock
):
    clock.now_ms = epoch_ms()
    with RecipientDatabase(postgresql.place(postgresql.new_database()), now_ms=clock) as database:
        database.add("alice", NewToken(3600))
        clock.now_ms += 30 * 86_400_000
        assert database.purge(tokens_expired_for_seconds=0, history_older_than_seconds=3600) == PurgedRows(
            0, 0
        )
        assert len(database.show("alice").tokens) == 1


def test_to_look_waits_for_no_change_and_makes_no_database(database, place, clock, postgresql, tmp_path):
    database.add("alice")
    with (
        database.database.changing(),
        RecipientDatabase(place, now_ms=clock, create=False) as second,
        RecipientDatabase(place, now_ms=clock, read_only=True) as third,
    ):
        assert [record.name for record in second.list()] == ["alice"]
        assert [record.name for record in third.list()] == ["alice"]
    absent = DatabasePlace(tmp_path / "absent" / "r.db")
    for missing in (absent, postgresql.place(postgresql.new_database())):
        for options in ({"create": False}, {"read_only": True}):
            with pytest.raises(DatabaseMissing):
                RecipientDatabase(missing, now_ms=clock, **options)
    assert not (tmp_path / "absent").exists()


@pytest.mark.parametrize("mode", ["delete", "wal"])
def test_a_file_that_another_program_has_locked_is_opened_without_a_wait_for_it(tmp_path, clock, mode):
    path = tmp_path / "r.db"
    with RecipientDatabase(DatabasePlace(path), now_ms=clock) as database:
        database.add("alice")
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute(f"PRAGMA journal_mode={mode}")
        other.execute("BEGIN IMMEDIATE")
        started = time.monotonic()
        with RecipientDatabase(DatabasePlace(path), now_ms=clock, create=False) as second:
            assert time.monotonic() - started < 2
            assert [record.name for record in second.list()] == ["alice"]


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
        (("bob",), {"shares": ["a/share"]}, RecipientError),
        (("bob",), {"shares": ["a\tshare"]}, RecipientError),
        (("bob",), {"shares": ["absent"]}, RecipientError),
        (("bob", NewToken(0)), {}, RecipientError),
        (("bob", NewToken(MAX_LIFE_SECONDS + 1)), {}, RecipientError),
    ],
)
def test_a_refused_addition_leaves_nothing_behind(database, changes, arguments, keywords, error):
    database.add("alice")
    with pytest.raises(error):
        database.add(*arguments, **keywords)
    assert [record.name for record in database.list()] == ["alice"]
    assert [change.action for change in changes] == ["createRecipient"]


@pytest.mark.parametrize("operation", ["show", "issue", "revoke"])
def test_an_unknown_recipient_is_reported_as_unknown(database, operation):
    with pytest.raises(RecipientNotFound, match="'bob'"):
        getattr(database, operation)("bob", *([NewToken()] if operation == "issue" else []))


def test_every_change_is_in_the_history_and_reported_once_with_its_actor(database, clock, changes):
    database.add("alice", shares=["sales"])
    clock.now_ms += 1000
    database.issue("alice", NewToken(old_expires_in_seconds=60))
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


def test_a_change_that_is_refused_before_its_commit_leaves_nothing_behind(place, clock):
    refused = []

    def refuse(changes):
        refused.extend(changes)
        if len(refused) > 1:
            raise RuntimeError("it cannot be recorded")

    done = []
    with RecipientDatabase(place, now_ms=clock, before_changes=refuse, on_changes=done.extend) as database:
        token = database.add("alice", shares=["sales"]).token
        before = database.list(), database.history("alice")
        clock.now_ms += 1
        for change in (
            lambda: database.add("bob"),
            lambda: database.issue("alice", NewToken()),
            lambda: database.revoke("alice"),
            lambda: database.revoke("alice", shares=["sales"]),
            lambda: database.grant("alice", ["logs"]),
            lambda: database.allow("alice", ["192.0.2.0/24"]),
        ):
            with pytest.raises(RuntimeError):
                change()
        assert (database.list(), database.history("alice")) == before
        assert live_hashes(database.show("alice"), clock.now_ms) == {token_hash(token).hex()}
    assert len(refused) == 7
    assert [change.action for change in done] == ["createRecipient"]


@pytest.mark.processes
def test_polling_detects_changes_of_other_processes_and_not_reads(database, place):
    with closing(DatabaseReader(lambda: place)) as reader:
        before = reader.read()
        assert reader.read() is before
        code = (
            "import sys, pathlib\n"
            "from gateway.governance.recipient_store import RecipientDatabase\n"
            "from gateway.config.database import DatabasePlace\n"
            "from gateway.config.secret import Secret\n"
            "path, url = sys.argv[1:]\n"
            "place = DatabasePlace(pathlib.Path(path)) if path else DatabasePlace(None, Secret(url))\n"
            "RecipientDatabase(place, now_ms=lambda: 5).add('bob')"
        )
        arguments = [str(place.path or ""), place.url.reveal() if place.url else ""]
        subprocess.run([sys.executable, "-P", "-c", code, *arguments], check=True)
        after = reader.read()
        assert [stored.recipient.name for stored in after] == ["bob"]
        assert reader.read() is after


def test_a_backup_that_is_copied_over_the_file_is_read_also_with_as_many_changes(clock, tmp_path):
    """SQLite counts the changes of a file, and takes one with the same count for the one that it knows."""
    place, backup = DatabasePlace(tmp_path / "recipients.db"), tmp_path / "backup.db"
    with RecipientDatabase(place, now_ms=clock) as database:
        database.add("alice", shares=["sales"])
        database.add("bob", shares=["sales"])
    shutil.copyfile(place.path, backup)
    reader = DatabaseReader(lambda: place)
    assert {*reader.read().by_key} == {"alice", "bob"}
    with RecipientDatabase(place, now_ms=clock) as database:
        database.grant("bob", ["logs"])
    assert reader.read().by_key["bob"].recipient.shares == {"sales", "logs"}
    shutil.copyfile(backup, place.path)
    with RecipientDatabase(place, now_ms=clock) as database:
        database.delete("alice")
    stored = reader.read()
    assert {key: held.recipient.shares for key, held in stored.by_key.items()} == {"bob": {"sales"}}
    assert reader.read() is stored
    reader.close()


def test_changes_at_the_same_time_leave_two_live_tokens_at_most(database, place, clock, monkeypatch):
    # Each of the 24 waits for those that SQLite lets pass first, on a busy machine longer than a request may.
    monkeypatch.setattr(engine, "BUSY_SECONDS", 60)
    database.add("alice")
    # Which token is the youngest, the time says.
    ticks = count(clock.now_ms + 1)

    def rotate(_number):
        with RecipientDatabase(place, now_ms=lambda: next(ticks), create=False) as other:
            return other.issue("alice", NewToken(old_expires_in_seconds=3600)).token

    with ThreadPoolExecutor(8) as threads:
        tokens = list(threads.map(rotate, range(24)))
    live = live_hashes(database.show("alice"), next(ticks))
    assert len(live) == 2
    assert live < {token_hash(token).hex() for token in tokens}
    assert [change.action for change in database.history("alice")][1:] == ["rotateRecipientToken"] * 24


def test_a_link_of_a_kind_of_a_later_release_gives_nothing(database):
    link = database.add("bob", NewLink(link_expires_in_seconds=60))
    with database.database.changing() as connection:
        connection.exec_driver_sql("UPDATE activation_links SET kind = 'future'")
    with pytest.raises(LinkInvalid):
        database.activate(link.code)
    with database.database.changing() as connection:
        connection.exec_driver_sql("UPDATE activation_links SET kind = 'token'")
    assert database.activate(link.code).recipient == "bob"


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("anonymous", "the server itself"),
        ("Anonymous", "the server itself"),
        ("\u0430nonymous", "the server itself"),
        ("authorization.bearerToken", "the server itself"),
        ("al\u0131ce", "easily taken for 'alice'"),
        ("\u0430lice", "easily taken for 'alice'"),
        ("\uff41lice", "easily taken for 'alice'"),
        ("alice\u202e", "not shown"),
        ("ali\u200bce", "not shown"),
        ("ali\u200cce", "not shown"),
        ("\u200dalice", "not shown"),
        ("\u0645\u06cc\u200d\u0631\u0648\u062f", "not shown"),
        ("alice\u3164", "not shown"),
        ("al\u034fice", "not shown"),
        ("\u2800", "not shown"),
        ("\ufe0f", "not shown"),
        ("alice\ufe0f", "easily taken for 'alice'"),
        ("ali\U000e0101ce", "easily taken for 'alice'"),
        ("alice\u00a0", "without blanks"),
        ("\u3000alice", "without blanks"),
        ("FROM-\u0423AML", "easily taken for 'from-yaml'"),
    ],
)
def test_no_new_name_is_taken_for_that_of_another_recipient(database, name, reason):
    database.add("alice")
    with pytest.raises(RecipientError, match=reason):
        database.add(name)
    assert [record.name for record in database.list()] == ["alice"]


@pytest.mark.parametrize(
    ("name", "other", "is_alike"),
    [
        # Persian with a joiner, and without it; a conjunct of Devanagari.
        ("\u0645\u06cc\u200c\u0631\u0648\u062f", "\u0645\u06cc\u0631\u0648\u062f", True),
        ("\u0915\u094d\u200d\u0937", "\u0915\u094d\u0937", True),
        # Only the capital of the Cyrillic letter looks like that of the Latin one.
        ("\u043d\u043e\u0440\u0430", "hopa", False),
        ("\u041d\u041e\u0420\u0410", "HOPA", True),
        ("\u04bbop\u0430", "hopa", True),
        ("\u04bb\u04d9\u0440", "\u043d\u04d9\u0440", False),
        ("\u03bd", "v", True),
        ("\u039d", "v", False),
        ("\u039d", "n", True),
    ],
)
def test_names_are_compared_as_they_are_shown(database, name, other, is_alike):
    database.add(name)
    assert database.show(name).name == name
    if is_alike:
        with pytest.raises(RecipientExists, match="easily taken"):
            database.add(other)
    else:
        database.add(other)


@pytest.mark.parametrize("kind", ["token", "client"])
def test_a_form_that_is_sent_twice_gets_its_secret_again_for_a_minute(place, kind):
    clock = Clock(1_700_000_000_000)
    with RecipientDatabase(place, now_ms=clock) as database:
        link = database.add("bob", NewLink(link_expires_in_seconds=3600, kind=kind, expires_in_seconds=3600))
        issued = database.activate(link.code, "secret-of-the-form")
        clock.now_ms += 59_000
        assert database.activate(link.code, "secret-of-the-form") == issued
        assert [change.action for change in database.history("bob")].count("activateRecipient") == 1
        for code, secret in ((link.code, None), (link.code, "another"), ("another", "secret-of-the-form")):
            with pytest.raises(LinkInvalid):
                database.activate(code, secret)
        clock.now_ms += 1000
        with pytest.raises(LinkInvalid):
            database.activate(link.code, "secret-of-the-form")


def test_a_form_that_is_sent_twice_gets_no_secret_that_was_revoked_meanwhile(database):
    link = database.add("bob", NewLink(link_expires_in_seconds=3600))
    database.activate(link.code, "secret-of-the-form")
    database.revoke("bob")
    with pytest.raises(LinkInvalid):
        database.activate(link.code, "secret-of-the-form")


@pytest.mark.parametrize("key", ["a\0b", "a\udcff"])
def test_a_name_that_no_database_accepts_has_no_last_change(database, key):
    assert database.last_change("recipient", key).number == 0
