"""Takes over the rows of a recipients' database of release 0.1: a SQLite file of the versions 1 to 3.

Within the transaction of the migration the tables of that file are renamed, their rows are inserted in the
new tables, and they are dropped.
"""

from __future__ import annotations

import json
from typing import Any

from sqlalchemy import Connection

from gateway.database.schema import name_key, recipient_key

VERSIONS = range(1, 4)
REFUSED_VERSION = 4
"""The `user_version` of files with the schema of `migrations`: release 0.1 refuses it as a newer one."""

_TABLES = (
    "recipients", "tokens", "grants", "networks", "history",
    "policies",
    "clients", "client_secrets", "bearer_tokens_forbidden",
)  # fmt: skip
_TABLES_OF_VERSION = {1: _TABLES[:5], 2: _TABLES[:6], 3: _TABLES}

_KNOWN = "WHERE recipient IN (SELECT name FROM earlier_recipients)"
_STATEMENTS = {
    "recipients": (
        "INSERT INTO recipients (key, name, comment, created_ms, properties, forbids_bearer_tokens)"
        " SELECT recipient_key(name), name, comment, created_ms, '{}', 0 FROM earlier_recipients"
    ),
    "bearer_tokens_forbidden": (
        "UPDATE recipients SET forbids_bearer_tokens = 1"
        " WHERE key IN (SELECT recipient_key(recipient) FROM earlier_bearer_tokens_forbidden)"
    ),
    "tokens": (
        "INSERT INTO tokens (sha256, recipient, created_ms, expires_ms)"
        f" SELECT sha256, recipient_key(recipient), created_ms, expires_ms FROM earlier_tokens {_KNOWN}"
    ),
    # Early releases stored a share as it was spelled, possibly in several spellings.
    "grants": (
        "INSERT INTO grants (recipient, share)"
        f" SELECT DISTINCT recipient_key(recipient), name_key(share) FROM earlier_grants {_KNOWN}"
    ),
    "networks": (
        "INSERT INTO networks (recipient, network)"
        f" SELECT recipient_key(recipient), network FROM earlier_networks {_KNOWN}"
    ),
    "policies": (
        "INSERT INTO policies"
        " (recipient, name, issuer, subject_claim, subject, audiences, claims, created_ms)"
        " SELECT recipient_key(recipient), name, issuer, subject_claim, subject, audiences, claims,"
        f" created_ms FROM earlier_policies {_KNOWN}"
    ),
    "clients": (
        "INSERT INTO clients (id, recipient, created_ms)"
        f" SELECT id, recipient_key(recipient), created_ms FROM earlier_clients {_KNOWN}"
    ),
    "client_secrets": (
        "INSERT INTO client_secrets (sha256, recipient, client, created_ms, expires_ms)"
        " SELECT sha256, recipient_key(recipient), client, created_ms, expires_ms"
        f" FROM earlier_client_secrets {_KNOWN} AND client IN (SELECT id FROM clients)"
    ),
    "history": (
        "INSERT INTO history (at_ms, actor, action, kind, subject, name, detail)"
        " SELECT at_ms, actor, action, 'recipient', recipient_key(recipient), recipient, detail(detail)"
        " FROM earlier_history ORDER BY rowid"
    ),
}


def version(connection: Connection) -> int:
    """Return the version of a SQLite file; 0 for a new one."""
    (found,) = connection.exec_driver_sql("PRAGMA user_version").one()
    return int(found)


def set_aside(connection: Connection) -> tuple[str, ...]:
    """Rename the tables of a recipients' database of release 0.1, and return their names."""
    if connection.dialect.name != "sqlite":
        return ()
    tables = _TABLES_OF_VERSION.get(version(connection), ())
    for table in tables:
        connection.exec_driver_sql(f"ALTER TABLE {table} RENAME TO earlier_{table}")
    return tables


def take_over(connection: Connection, tables: tuple[str, ...]) -> None:
    """Insert the rows of these tables, which were set aside, in the new ones, and drop them."""
    driver: Any = connection.connection.driver_connection
    driver.create_function("recipient_key", 1, recipient_key, deterministic=True)
    driver.create_function("name_key", 1, name_key, deterministic=True)
    driver.create_function("detail", 1, _detail, deterministic=True)
    for table, statement in _STATEMENTS.items():
        if table in tables:
            connection.exec_driver_sql(statement)
    # A table is dropped before the one that it refers to.
    for table in (*(name for name in reversed(tables) if name not in {"clients", "recipients"}), "clients"):
        if table in tables:
            connection.exec_driver_sql(f"DROP TABLE earlier_{table}")
    connection.exec_driver_sql("DROP TABLE earlier_recipients")


def refuse_earlier_releases(connection: Connection) -> None:
    """Let release 0.1 name the file that of a newer release."""
    connection.exec_driver_sql(f"PRAGMA user_version = {REFUSED_VERSION}")


def _detail(lines: str) -> str:
    """Return the JSON of lines `key=value`."""
    pairs = (line.partition("=") for line in lines.split("\n") if line)
    return json.dumps({key: value for key, _, value in pairs}, ensure_ascii=False)
