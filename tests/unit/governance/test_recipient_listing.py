"""Pages and counts of recipients by SQL equal those of a list of all of them."""

from collections.abc import Iterator
from contextlib import closing

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sqlalchemy import event

from gateway.config.database import DatabasePlace
from gateway.database.schema import recipient_key
from gateway.governance.credentials import NewClient, NewToken
from gateway.governance.recipient_store import RecipientDatabase

NOW_MS = 1_700_000_000_000
DAY_SECONDS = 86_400
STORED = [*(f"Name-{number:02}" for number in range(23)), "a%b", "a_b", "Straße", "ÄÖ", "zz"]


@pytest.fixture
def listed(place: DatabasePlace) -> Iterator[RecipientDatabase]:
    """In SQLite, and in PostgreSQL."""
    with closing(RecipientDatabase(place, now_ms=lambda: NOW_MS, actor="tests", create=True)) as opened:
        for number, name in enumerate(STORED):
            opened.add(name, NewToken(number * DAY_SECONDS if number else None))
        yield opened


# No example changes the database.
@settings(suppress_health_check=list(HealthCheck))
@given(
    st.sampled_from(["", "n", "NAME-1", "%", "_", "/", "ß", "ä", "Ä", "none", "\0", "\ud800"]),
    st.lists(st.text("aNz%é0", max_size=4).map(recipient_key), unique=True, max_size=30),
    st.integers(-1, 12),
    st.integers(1, 9),
)
def test_a_page_is_that_of_the_merged_list(
    listed: RecipientDatabase, text: str, others: list[str], number: int, length: int
) -> None:
    storable = not {"\0", "\ud800"} & {*text}
    matching = sorted(key for key in others if recipient_key(text) in key) if storable else []
    page = listed.page(text, matching, number=number, length=length)
    stored = [recipient_key(name) for name in STORED if recipient_key(text) in recipient_key(name)]
    everyone = sorted([*((key, True) for key in stored), *((key, False) for key in matching)])
    last = max(1, -(-len(everyone) // length))
    shown = max(1, min(number, last))
    assert (page.total, page.number) == (len(everyone), shown)
    assert list(page.keys) == everyone[(shown - 1) * length : shown * length]
    assert {*page.records} == {key for key, is_stored in page.keys if is_stored}


def test_a_page_reads_its_own_recipients(listed: RecipientDatabase) -> None:
    rows: list[int] = []

    def fetched(_connection: object, cursor: object, *_: object) -> None:
        del cursor
        rows.append(1)

    event.listen(listed.database.connection.engine, "after_cursor_execute", fetched)
    listed.page("", [], number=2, length=5)
    statements = len(rows)
    rows.clear()
    listed.page("", [], number=1, length=20)
    assert len(rows) == statements, "the number of statements does not depend on that of recipients"
    event.remove(listed.database.connection.engine, "after_cursor_execute", fetched)


def test_those_whose_last_credential_ends_come_first(place: DatabasePlace) -> None:
    clock = [NOW_MS]
    with closing(RecipientDatabase(place, now_ms=lambda: clock[0], actor="tests", create=True)) as database:
        database.add("late", NewToken(3 * DAY_SECONDS))
        database.add("soon", NewToken(DAY_SECONDS))
        database.add("never")
        database.add("far", NewToken(100 * DAY_SECONDS))
        database.add("renewed", NewToken(DAY_SECONDS))
        database.issue("renewed", NewToken(old_expires_in_seconds=DAY_SECONDS))
        database.add("client", NewClient(expires_in_seconds=2 * DAY_SECONDS))
        # Its only accepted credential is a secret that ends late; the token is forbidden.
        database.add("forbidden", NewToken(DAY_SECONDS))
        database.forbid_bearer_tokens("forbidden", forbidden=True)
        database.add("revoked", NewToken(DAY_SECONDS))
        database.revoke("revoked")
        total, ending = database.ending(NOW_MS + 14 * DAY_SECONDS * 1000, 2)
        assert total == 8
        assert [name for name, _ in ending.first] == ["soon", "client"]
        assert ending.total == 3, "a revoked one has no credential that ends"
        assert ending.first[0][1] == NOW_MS + DAY_SECONDS * 1000
        assert database.ending(NOW_MS, 10)[1].total == 0
        clock[0] += 50 * DAY_SECONDS * 1000
        ended = database.ending(clock[0], 10)[1]
        assert [name for name, _ in ended.first] == ["soon", "client", "late"], "also those that have ended"


def test_the_last_changes_alone_are_read(listed: RecipientDatabase) -> None:
    listed.allow(STORED[0], ["192.0.2.0/24"])
    listed.allow(STORED[0], [])
    everything = listed.history(STORED[0])
    assert len(everything) == 3
    assert listed.history(STORED[0], most=2) == everything[1:]
    assert listed.history(STORED[0], most=9) == everything
