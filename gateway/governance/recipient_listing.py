"""Pages and counts of the recipients in the database, by SQL: a list reads the recipients that it shows.

In: a connection within a transaction. Out: a page of recipients in the order of their keys, which recipients
of another source can be merged into, or those whose credentials end first.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from sqlalchemy import ColumnElement, Connection, false, func, select, true, union_all

from gateway.database.rows import all_rows, is_text
from gateway.database.schema import CLIENT_SECRETS, RECIPIENTS, TOKENS, recipient_key
from gateway.governance import rows
from gateway.governance.recipient_records import RecipientRecord


@dataclass(frozen=True, slots=True)
class RecipientPage:
    """A page of recipients.

    Attributes:
        keys: the keys of its recipients in order, each with whether the recipient is stored in the database.
        records: the stored ones by their keys.
        unreadable: why others, whose rows another program has written, cannot be read.
        total: the number of all recipients that match.
        number: of the page, from 1.

    """

    keys: Sequence[tuple[str, bool]]
    records: Mapping[str, RecipientRecord]
    unreadable: Mapping[str, str]
    total: int
    number: int


Rank = Callable[[str, bool], float | None]


@dataclass(frozen=True, slots=True)
class EndingRecipients:
    """Recipients whose credentials end, the first ones with their ends, and the number of all of them."""

    first: Sequence[tuple[str, int]]
    total: int


def count(connection: Connection, text: str = "") -> int:
    """Return the number of recipients with a text in their names, without the case of ASCII letters."""
    query = select(func.count()).select_from(RECIPIENTS).where(_has(text))
    return connection.execute(query).scalar_one()


def page(
    connection: Connection, text: str, elsewhere: Sequence[str], *, number: int, length: int
) -> RecipientPage:
    """Return a page of the recipients with a text in their names; beyond the last page the last one.

    `elsewhere`: the sorted keys of recipients elsewhere that belong into the list.
    """
    total = count(connection, text) + len(elsewhere)
    number = max(1, min(number, -(-total // length)))
    begin = (number - 1) * length
    # At most all of the others come before the page, so these stored ones include those of the page.
    skipped = max(0, begin - len(elsewhere))
    query = select(RECIPIENTS.c.key).where(_has(text)).order_by(RECIPIENTS.c.key)
    stored = all_rows(connection, query.offset(skipped).limit(begin + length - skipped))
    # A key that is no text cannot be asked for. The log has it.
    readable = ((row.key, True) for row in stored if is_text(row.key))
    merged = sorted([*readable, *((key, False) for key in elsewhere)])
    return _read(connection, merged[begin - skipped : begin - skipped + length], total, number)


def ranked_page(
    connection: Connection, text: str, elsewhere: Sequence[str], rank: Rank, *, number: int, length: int
) -> RecipientPage:
    """Return such a page of the recipients that have a rank, the least ranks first.

    `rank`: of a key, with whether its recipient is stored; None leaves it out.
    """
    stored = all_rows(connection, select(RECIPIENTS.c.key).where(_has(text)))
    keys = [*((row.key, True) for row in stored if is_text(row.key)), *((key, False) for key in elsewhere)]
    ranked = sorted((place, key) for key in keys if (place := rank(*key)) is not None)
    number = max(1, min(number, -(-len(ranked) // length)))
    begin = (number - 1) * length
    return _read(connection, [key for _, key in ranked[begin : begin + length]], len(ranked), number)


def _read(connection: Connection, keys: Sequence[tuple[str, bool]], total: int, number: int) -> RecipientPage:
    wanted = [key for key, is_stored in keys if is_stored]
    reading = rows.read(connection, wanted)
    records = {recipient_key(record.name): record for record in reading.records}
    return RecipientPage(keys, records, reading.unreadable, total, number)


def ending(connection: Connection, before_ms: int, most: int | None = None) -> EndingRecipients:
    """Return the recipients whose last token or secret ends, or has ended, before a time: at most `most`.

    Tokens that are forbidden do not count. Who has a credential without an end is not among them.
    """
    accepted = RECIPIENTS.c.forbids_bearer_tokens.is_(False)
    tokens = select(TOKENS.c.recipient, TOKENS.c.expires_ms)
    tokens = tokens.join(RECIPIENTS, RECIPIENTS.c.key == TOKENS.c.recipient).where(accepted)
    credentials = union_all(
        tokens, select(CLIENT_SECRETS.c.recipient, CLIENT_SECRETS.c.expires_ms)
    ).subquery()
    last = func.max(credentials.c.expires_ms)
    ends = (
        select(credentials.c.recipient, last.label("expires_ms"))
        .group_by(credentials.c.recipient)
        .having(func.count() == func.count(credentials.c.expires_ms), last < before_ms)
        .subquery()
    )
    first = all_rows(
        connection,
        select(RECIPIENTS.c.name, ends.c.expires_ms, func.count().over().label("total"))
        .join(ends, ends.c.recipient == RECIPIENTS.c.key)
        .order_by(ends.c.expires_ms, RECIPIENTS.c.key)
        .limit(most),
    )
    total = first[0].total if first else 0
    texts = ((row.name, row.expires_ms) for row in first if is_text(row.name))
    return EndingRecipients(tuple(texts), total)


def _has(text: str) -> ColumnElement[bool]:
    if not text:
        return true()
    if rows.NOT_STORABLE.search(text):
        # No recipient has it in its name, and PostgreSQL takes no such text.
        return false()
    return RECIPIENTS.c.key.contains(recipient_key(text), autoescape=True)
