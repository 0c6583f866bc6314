"""The rows of OAuth clients in the recipients' database.

In: a connection, within the transaction of an operation. Out: records, and changed rows.
"""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING

from gateway.access.recipient_records import (
    ClientRecord,
    RecipientError,
    RecipientNotFound,
    RecipientRecord,
    TokenRecord,
)

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Mapping

MAX_CLIENTS = 20


def read(connection: sqlite3.Connection, name: str | None) -> Mapping[str, tuple[ClientRecord, ...]]:
    """Return the clients of a recipient, or of all; by the recipient's name, the oldest first."""
    secrets: dict[str, list[TokenRecord]] = {}
    for client, sha256, created_ms, expires_ms in connection.execute(
        "SELECT client, sha256, created_ms, expires_ms FROM client_secrets"
        " WHERE ?1 IS NULL OR recipient = ?1 ORDER BY created_ms, sha256",
        (name,),
    ):
        secrets.setdefault(client, []).append(TokenRecord(sha256, created_ms, expires_ms))
    clients: dict[str, tuple[ClientRecord, ...]] = {}
    for recipient, client, created_ms in connection.execute(
        "SELECT recipient, id, created_ms FROM clients"
        " WHERE ?1 IS NULL OR recipient = ?1 ORDER BY created_ms, id",
        (name,),
    ):
        record = ClientRecord(client, created_ms, tuple(secrets.get(client, ())))
        clients[recipient] = (*clients.get(recipient, ()), record)
    return clients


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


def insert_client(connection: sqlite3.Connection, record: RecipientRecord, now_ms: int) -> str:
    """Add a client to a recipient, and return its id. Raises RecipientError for too many."""
    if len(record.clients) >= MAX_CLIENTS:
        raise RecipientError(f"recipient {record.name!r} has {MAX_CLIENTS} clients, remove one first")
    client_id = str(uuid.uuid4())
    connection.execute("INSERT INTO clients VALUES (?, ?, ?)", (client_id, record.name, now_ms))
    return client_id


def insert_secret(connection: sqlite3.Connection, name: str, client_id: str, secret: TokenRecord) -> None:
    """Add a secret to a client of a recipient."""
    row = (secret.sha256, name, client_id, secret.created_ms, secret.expires_ms)
    connection.execute("INSERT INTO client_secrets VALUES (?, ?, ?, ?, ?)", row)


def delete(connection: sqlite3.Connection, client_id: str) -> None:
    """Delete a client and its secrets."""
    connection.execute("DELETE FROM client_secrets WHERE client = ?", (client_id,))
    connection.execute("DELETE FROM clients WHERE id = ?", (client_id,))


def forbid_bearer_tokens(connection: sqlite3.Connection, name: str, *, forbidden: bool) -> None:
    """Set whether the bearer tokens of a recipient are refused."""
    if forbidden:
        connection.execute("INSERT OR IGNORE INTO bearer_tokens_forbidden VALUES (?)", (name,))
    else:
        connection.execute("DELETE FROM bearer_tokens_forbidden WHERE recipient = ?", (name,))
