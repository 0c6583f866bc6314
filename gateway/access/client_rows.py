"""The rows of OAuth clients in the database.

In: a connection, within the transaction of an operation. Out: changed rows.
"""

from __future__ import annotations

import uuid

from sqlalchemy import Connection, delete, insert, update

from gateway.access.recipient_records import (
    ClientRecord,
    RecipientError,
    RecipientNotFound,
    RecipientRecord,
)
from gateway.database.schema import CLIENTS, RECIPIENTS, recipient_key

MAX_CLIENTS = 20


def find(record: RecipientRecord, client_id: str | None) -> ClientRecord:
    """Return a client of a recipient; without an id its only one. Raises RecipientError."""
    if client_id is None and len(record.clients) > 1:
        known = ", ".join(client.id for client in record.clients)
        raise RecipientError(f"recipient {record.name!r} has several clients, name one: {known}")
    for client in record.clients:
        if client_id in (None, client.id):
            return client
    named = "" if client_id is None else f" {client_id!r}"
    raise RecipientNotFound(f"recipient {record.name!r} has no client{named}")


def insert_client(connection: Connection, record: RecipientRecord, now_ms: int) -> str:
    """Add a client to a recipient, and return its id. Raises RecipientError for too many."""
    if len(record.clients) >= MAX_CLIENTS:
        raise RecipientError(f"recipient {record.name!r} has {MAX_CLIENTS} clients, remove one first")
    client_id = str(uuid.uuid4())
    connection.execute(
        insert(CLIENTS).values(id=client_id, recipient=recipient_key(record.name), created_ms=now_ms)
    )
    return client_id


def remove(connection: Connection, client_id: str) -> None:
    """Delete a client and its secrets."""
    connection.execute(delete(CLIENTS).where(CLIENTS.c.id == client_id))


def forbid_bearer_tokens(connection: Connection, name: str, *, forbidden: bool) -> None:
    """Set whether the bearer tokens of a recipient are refused."""
    connection.execute(
        update(RECIPIENTS)
        .where(RECIPIENTS.c.key == recipient_key(name))
        .values(forbids_bearer_tokens=forbidden)
    )
