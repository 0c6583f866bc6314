"""The rows of tokens and client secrets, whose lives only ever get shorter.

In: a connection, within the transaction of an operation. Out: changed rows.
"""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy import Connection, Table, insert, or_, update

from gateway.access.recipient_records import TokenRecord
from gateway.database.schema import TOKENS, recipient_key


def insert_token(connection: Connection, name: str, token: TokenRecord) -> None:
    """Add a token to a recipient."""
    connection.execute(
        insert(TOKENS).values(
            sha256=token.sha256,
            recipient=recipient_key(name),
            created_ms=token.created_ms,
            expires_ms=token.expires_ms,
        )
    )


def end(connection: Connection, table: Table, sha256: str, expires_ms: int) -> None:
    """End a token or secret at a time, unless it ends before."""
    lives_longer = or_(table.c.expires_ms.is_(None), table.c.expires_ms > expires_ms)
    connection.execute(
        update(table).where(table.c.sha256 == sha256, lives_longer).values(expires_ms=expires_ms)
    )


def end_old(
    connection: Connection, table: Table, old: Sequence[TokenRecord], *, now_ms: int, expires_in_seconds: int
) -> None:
    """End the live ones at once, but the youngest in that time."""
    youngest_first = sorted(old, key=lambda token: token.created_ms, reverse=True)
    live = [token for token in youngest_first if token.live(now_ms)]
    for rank, token in enumerate(live):
        end(connection, table, token.sha256, now_ms + (expires_in_seconds * 1000 if rank == 0 else 0))
