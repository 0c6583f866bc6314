"""The rows of grants in the database.

In: a connection, within the transaction of an operation. Out: changed rows. There is one row for a place: a
share, or a schema or a table of it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sqlalchemy import Connection, delete, insert

from gateway.catalog.grants import Grant
from gateway.database.schema import GRANTS, name_key, recipient_key
from gateway.governance.recipient_records import RecipientError, RecipientRecord


def of_shares(recipient: str, shares: Sequence[str]) -> list[dict[str, Any]]:
    """Return rows that grant shares as a whole to a recipient without any."""
    return [_row(recipient, Grant(share)) for share in dict.fromkeys(map(name_key, shares))]


def _row(recipient: str, grant: Grant) -> dict[str, Any]:
    return {
        "recipient": recipient_key(recipient),
        "share": name_key(grant.share),
        "schema": grant.schema,
        "table": grant.table,
        "condition": grant.condition,
    }


def put(connection: Connection, record: RecipientRecord, grant: Grant) -> None:
    """Insert a grant in the place of one for the same place."""
    delete_at(connection, record, grant)
    connection.execute(insert(GRANTS), _row(record.name, grant))


def delete_at(connection: Connection, record: RecipientRecord, grant: Grant) -> bool:
    """Delete the grant for the place of another one, with any condition, and return whether there was one."""
    rows = delete(GRANTS).where(
        GRANTS.c.recipient == recipient_key(record.name),
        GRANTS.c.share == name_key(grant.share),
        GRANTS.c.schema.is_(None) if grant.schema is None else GRANTS.c.schema == grant.schema,
        GRANTS.c.table.is_(None) if grant.table is None else GRANTS.c.table == grant.table,
    )
    return connection.execute(rows).rowcount > 0


def insert_shares(connection: Connection, record: RecipientRecord, shares: Sequence[str]) -> None:
    """Grant shares as a whole; those that are granted already stay."""
    for share in dict.fromkeys(map(name_key, shares)):
        if share not in record.shares:
            put(connection, record, Grant(share))


def delete_shares(
    connection: Connection, record: RecipientRecord, shares: Sequence[str], *, all_parts: bool = False
) -> None:
    """Take back grants of whole shares, or `all_parts` of them. Raises RecipientError without one."""
    for key, share in {name_key(share): share for share in shares}.items():
        if all_parts:
            rows = delete(GRANTS).where(
                GRANTS.c.recipient == recipient_key(record.name), GRANTS.c.share == key
            )
            if connection.execute(rows).rowcount:
                continue
        elif key in record.shares:
            delete_at(connection, record, Grant(key))
            continue
        raise RecipientError(f"share {share!r} is not granted to {record.name!r}")
