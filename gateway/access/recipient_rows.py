"""The rows of recipients in the database, as records.

In: a connection within a transaction, and the keys of recipients. Out: their records, by name.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any, TypeVar

from sqlalchemy import ColumnElement, Connection, Row, Select, select

from gateway.access.federation import stored_policy
from gateway.access.grants import Grant
from gateway.access.recipient_records import ClientRecord, PolicyRecord, RecipientRecord, TokenRecord
from gateway.database.schema import (
    CLIENT_SECRETS,
    CLIENTS,
    GRANTS,
    NETWORKS,
    POLICIES,
    RECIPIENTS,
    TOKENS,
)

T = TypeVar("T")

BATCH_KEYS = 500


def read(connection: Connection, keys: Collection[str] | None) -> tuple[RecipientRecord, ...]:
    """Return the recipients with these keys that exist; None: all."""
    if keys is None:
        return tuple(_read(connection, None))
    ordered = sorted(keys)
    batches = (ordered[begin : begin + BATCH_KEYS] for begin in range(0, len(ordered), BATCH_KEYS))
    return tuple(record for batch in batches for record in _read(connection, batch))


def _read(connection: Connection, keys: Collection[str] | None) -> Iterable[RecipientRecord]:
    def rows(query: Select[Any], column: ColumnElement[str]) -> Iterable[Row[Any]]:
        return connection.execute(query if keys is None else query.where(column.in_(keys)))

    def grouped(query: Select[Any], record: Callable[[Row[Any]], T]) -> Mapping[str, list[T]]:
        """Return the records of rows by the recipient, which is their first column."""
        groups: dict[str, list[T]] = {}
        for row in rows(query, query.selected_columns[0]):
            groups.setdefault(row[0], []).append(record(row))
        return groups

    tokens = grouped(
        select(TOKENS.c.recipient, TOKENS.c.sha256, TOKENS.c.created_ms, TOKENS.c.expires_ms).order_by(
            TOKENS.c.created_ms, TOKENS.c.sha256
        ),
        lambda row: TokenRecord(row.sha256, row.created_ms, row.expires_ms),
    )
    networks = grouped(
        select(NETWORKS.c.recipient, NETWORKS.c.network).order_by(NETWORKS.c.network),
        lambda row: str(row.network),
    )
    grants = grouped(
        select(GRANTS.c.recipient, GRANTS.c.share, GRANTS.c.schema, GRANTS.c.table, GRANTS.c.condition),
        lambda row: Grant(row.share, row.schema, row.table, row.condition),
    )
    policies = grouped(select(POLICIES).order_by(POLICIES.c.name), _policy)
    secrets: dict[str, list[TokenRecord]] = {}
    for secret in rows(
        select(CLIENT_SECRETS).order_by(CLIENT_SECRETS.c.created_ms, CLIENT_SECRETS.c.sha256),
        CLIENT_SECRETS.c.recipient,
    ):
        record = TokenRecord(secret.sha256, secret.created_ms, secret.expires_ms)
        secrets.setdefault(secret.client, []).append(record)
    clients = grouped(
        select(CLIENTS.c.recipient, CLIENTS.c.id, CLIENTS.c.created_ms).order_by(
            CLIENTS.c.created_ms, CLIENTS.c.id
        ),
        lambda row: ClientRecord(row.id, row.created_ms, tuple(secrets.get(row.id, ()))),
    )
    for row in rows(select(RECIPIENTS).order_by(RECIPIENTS.c.key), RECIPIENTS.c.key):
        own = sorted(grants.get(row.key, ()), key=_place)
        yield RecipientRecord(
            row.name,
            row.comment,
            row.created_ms,
            tuple(tokens.get(row.key, ())),
            tuple(grant.share for grant in own if grant.is_whole_share),
            tuple(networks.get(row.key, ())),
            tuple(policies.get(row.key, ())),
            tuple(clients.get(row.key, ())),
            row.forbids_bearer_tokens,
            tuple(grant for grant in own if not grant.is_whole_share),
            tuple(sorted(json.loads(row.properties).items())) if row.properties != "{}" else (),
        )


def _policy(row: Row[Any]) -> PolicyRecord:
    policy = stored_policy(row.issuer, row.subject_claim, row.subject, row.audiences, row.claims)
    return PolicyRecord(row.name, policy, row.created_ms)


def _place(grant: Grant) -> tuple[str, str, str]:
    return grant.share, grant.schema or "", grant.table or ""
