"""The rows of tokens and client secrets, whose lives only ever get shorter.

In: a connection, within the transaction of an operation. Out: changed rows. What ends at once is deleted: a
time would be to come by the clock of a server that is behind.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict

from sqlalchemy import Connection, Table, delete, insert, or_, update

from gateway.access.recipient_records import TokenRecord
from gateway.database.schema import CLIENT_SECRETS, TOKENS, recipient_key


def insert_token(connection: Connection, table: Table, name: str, token: TokenRecord, **client: str) -> None:
    """Add a token, or a secret of a `client`, to a recipient."""
    row = {"recipient": recipient_key(name), **asdict(token), **client}
    connection.execute(insert(table).values(row))


def end_all(connection: Connection, name: str) -> None:
    """End all tokens and client secrets of a recipient at once."""
    for table in (TOKENS, CLIENT_SECRETS):
        connection.execute(delete(table).where(table.c.recipient == recipient_key(name)))


def end_old(
    connection: Connection, table: Table, old: Sequence[TokenRecord], *, now_ms: int, expires_in_seconds: int
) -> None:
    """End the youngest live one in that time, and the others at once."""
    live = [token for token in old if token.live(now_ms)]
    kept = max(live, key=lambda token: token.created_ms, default=None) if expires_in_seconds else None
    ended = [token.sha256 for token in old if token is not kept]
    connection.execute(delete(table).where(table.c.sha256.in_(ended)))
    if kept is not None:
        expires_ms = now_ms + expires_in_seconds * 1000
        lives_longer = or_(table.c.expires_ms.is_(None), table.c.expires_ms > expires_ms)
        connection.execute(
            update(table).where(table.c.sha256 == kept.sha256, lives_longer).values(expires_ms=expires_ms)
        )
