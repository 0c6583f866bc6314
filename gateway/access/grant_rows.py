"""The rows of grants in the database.

In: a connection, within the transaction of an operation. Out: changed rows.
"""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy import Connection, Delete, delete, insert

from gateway.access.recipient_records import RecipientError, RecipientRecord
from gateway.database.schema import GRANTS, name_key, recipient_key


def insert_shares(connection: Connection, record: RecipientRecord, shares: Sequence[str]) -> None:
    """Grant shares as a whole; those that are granted already stay."""
    for share in dict.fromkeys(map(name_key, shares)):
        if share not in record.shares:
            # A grant of all of the share with a condition gives way to one without.
            connection.execute(_delete_share(record, share))
            connection.execute(insert(GRANTS).values(recipient=recipient_key(record.name), share=share))


def delete_shares(connection: Connection, record: RecipientRecord, shares: Sequence[str]) -> None:
    """Take back grants of whole shares. Raises RecipientError for one that is not granted."""
    for key, share in {name_key(share): share for share in shares}.items():
        if key not in record.shares:
            raise RecipientError(f"share {share!r} is not granted to {record.name!r}")
        connection.execute(_delete_share(record, key))


def _delete_share(record: RecipientRecord, share: str) -> Delete:
    return delete(GRANTS).where(
        GRANTS.c.recipient == recipient_key(record.name),
        GRANTS.c.share == share,
        GRANTS.c.schema.is_(None),
        GRANTS.c.table.is_(None),
    )
