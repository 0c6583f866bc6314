"""The rows of recipients in the database, as records.

In: a connection within a transaction, and the keys of recipients. Out: their records, by name. Any program
can write the rows: what is wrong with those of one recipient makes that recipient unreadable, and no other.
"""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import ColumnElement, Connection, Select, Table, select

from gateway.authentication.policies import stored_policy
from gateway.catalog.grants import Grant
from gateway.config.checks import check_hash
from gateway.config.networks import parse_networks
from gateway.database.rows import all_rows
from gateway.database.schema import (
    CLIENT_SECRETS,
    CLIENTS,
    GRANTS,
    NETWORKS,
    POLICIES,
    RECIPIENTS,
    TOKENS,
    recipient_key,
)
from gateway.governance.recipient_records import (
    TEXTS,
    ClientRecord,
    PolicyRecord,
    RecipientNotFound,
    RecipientRecord,
    RecipientUnreadable,
    TokenRecord,
)

BATCH_KEYS = 500
_NO_PROPERTIES = "{}"
_SHA256 = re.compile(r"[0-9a-f]{64}")

_Rows = Sequence[Any]
"""Rows of one recipient in a table, each with the recipient's key first."""


@dataclass(frozen=True, slots=True)
class UnreadableRecipient:
    """A recipient whose rows are invalid. `reason` names the part, and has no value of it."""

    key: str
    reason: str


_Read = RecipientRecord | UnreadableRecipient


@dataclass(frozen=True, slots=True)
class ReadRecipients:
    """Recipients of a reading."""

    records: tuple[RecipientRecord, ...]
    unreadable: tuple[UnreadableRecipient, ...] = ()


def read(connection: Connection, keys: Collection[str] | None) -> ReadRecipients:
    """Return the recipients with these keys that exist; None: all."""
    if keys is None:
        return _read(connection, None)
    ordered = sorted(keys)
    batches = [
        _read(connection, ordered[begin : begin + BATCH_KEYS]) for begin in range(0, len(ordered), BATCH_KEYS)
    ]
    return ReadRecipients(
        tuple(record for batch in batches for record in batch.records),
        tuple(one for batch in batches for one in batch.unreadable),
    )


def read_one(connection: Connection, name: str) -> RecipientRecord:
    """Return a recipient. Raises RecipientNotFound and RecipientUnreadable."""
    found = read(connection, [recipient_key(name)])
    for one in found.unreadable:
        raise RecipientUnreadable(
            f"the rows of recipient {name!r} cannot be read: {one.reason}; mend them by SQL, or delete it"
        )
    if not found.records:
        raise RecipientNotFound(f"no recipient {name!r} in the database")
    return found.records[0]


def _read(connection: Connection, keys: Collection[str] | None) -> ReadRecipients:
    def rows(query: Select[Any], column: ColumnElement[str]) -> _Rows:
        return all_rows(connection, query if keys is None else query.where(column.in_(keys)))

    def grouped(query: Select[Any]) -> Mapping[str, _Rows]:
        groups: dict[str, list[Any]] = defaultdict(list)
        for row in rows(query, query.selected_columns[0]):
            groups[row[0]].append(row)
        return groups

    found = rows(select(RECIPIENTS).order_by(RECIPIENTS.c.key), RECIPIENTS.c.key)
    if not found:
        # As for each new recipient, whose name must be free.
        return ReadRecipients(())
    others = {
        TOKENS: grouped(
            select(TOKENS.c.recipient, TOKENS.c.sha256, TOKENS.c.created_ms, TOKENS.c.expires_ms).order_by(
                TOKENS.c.created_ms, TOKENS.c.sha256
            )
        ),
        NETWORKS: grouped(select(NETWORKS.c.recipient, NETWORKS.c.network).order_by(NETWORKS.c.network)),
        GRANTS: grouped(
            select(GRANTS.c.recipient, GRANTS.c.share, GRANTS.c.schema, GRANTS.c.table, GRANTS.c.condition)
        ),
        POLICIES: grouped(select(POLICIES).order_by(POLICIES.c.name)),
        CLIENTS: grouped(
            select(CLIENTS.c.recipient, CLIENTS.c.id, CLIENTS.c.created_ms).order_by(
                CLIENTS.c.created_ms, CLIENTS.c.id
            )
        ),
        CLIENT_SECRETS: grouped(
            select(
                CLIENT_SECRETS.c.recipient,
                CLIENT_SECRETS.c.client,
                CLIENT_SECRETS.c.sha256,
                CLIENT_SECRETS.c.created_ms,
                CLIENT_SECRETS.c.expires_ms,
            ).order_by(CLIENT_SECRETS.c.created_ms, CLIENT_SECRETS.c.sha256)
        ),
    }
    read = [_recipient(row, others) for row in found]
    return ReadRecipients(
        tuple(one for one in read if isinstance(one, RecipientRecord)),
        tuple(one for one in read if isinstance(one, UnreadableRecipient)),
    )


def _recipient(
    row: Any, others: Mapping[Table, Mapping[str, _Rows]]
) -> RecipientRecord | UnreadableRecipient:
    """Return the record of a recipient, or which part of its rows is invalid."""

    def own(table: Table) -> _Rows:
        return others[table].get(key, ())

    key, part = row.key, "its name, or its key, which is not that of the name, is"
    try:
        # Changes are recorded by the key: a recipient with another one would outlive its deletion.
        if recipient_key(row.name) != key:
            raise ValueError  # noqa: TRY301 - as what the parts raise
        name, texts = _text(row.name), {text: _text(getattr(row, text)) for text in TEXTS}
        part = "its time of creation is"
        created_ms = _number(row.created_ms)
        part = "a grant is"
        grants = _grants(own(GRANTS))
        part = "a token is"
        tokens = _tokens(own(TOKENS))
        part = "a network is"
        networks = _networks(own(NETWORKS))
        part = "a federation policy is"
        policies = _policies(own(POLICIES))
        part = "its properties are"
        properties = _properties(row.properties)
        part = "an OAuth client is"
        clients = _clients(own(CLIENTS), own(CLIENT_SECRETS))
        return RecipientRecord(
            name=name,
            created_ms=created_ms,
            tokens=tokens,
            shares=tuple(grant.share for grant in grants if grant.is_whole_share),
            networks=networks,
            policies=policies,
            clients=clients,
            forbids_bearer_tokens=bool(row.forbids_bearer_tokens),
            grants=tuple(grant for grant in grants if not grant.is_whole_share),
            properties=properties,
            **texts,
        )
    except Exception:  # noqa: BLE001 - whatever another program has written
        return UnreadableRecipient(key, f"{part} invalid")


def _tokens(rows: _Rows) -> tuple[TokenRecord, ...]:
    return tuple([_token(sha256, created_ms, expires_ms) for _, sha256, created_ms, expires_ms in rows])


def _token(sha256: str, created_ms: int, expires_ms: int | None) -> TokenRecord:
    # In other digits the row of a token could be there twice, with two recipients or two ends.
    if not _SHA256.fullmatch(sha256):
        raise ValueError
    check_hash("sha256", sha256)
    return TokenRecord(sha256, _number(created_ms), None if expires_ms is None else _number(expires_ms))


def _grants(rows: _Rows) -> list[Grant]:
    grants = [Grant(*place) for _, *place in rows]
    for grant in grants:
        if grant.table is not None and grant.schema is None:
            raise ValueError
        for text in (grant.share, grant.schema, grant.table, grant.condition):
            if text is not None:
                _text(text)
    return sorted(grants, key=_place) if len(grants) > 1 else grants


def _networks(rows: _Rows) -> tuple[str, ...]:
    if not rows:
        return ()
    networks = tuple(network for _, network in rows)
    parse_networks(networks)
    return networks


def _policies(rows: _Rows) -> tuple[PolicyRecord, ...]:
    if not rows:
        return ()
    return tuple(
        PolicyRecord(
            row.name,
            stored_policy(row.issuer, row.subject_claim, row.subject, row.audiences, row.claims),
            _number(row.created_ms),
        )
        for row in rows
    )


def _clients(rows: _Rows, secret_rows: _Rows) -> tuple[ClientRecord, ...]:
    if not rows:
        return ()
    secrets: dict[str, list[TokenRecord]] = defaultdict(list)
    for _, client, *secret in secret_rows:
        secrets[client].append(_token(*secret))
    return tuple(
        ClientRecord(_text(client), _number(created_ms), tuple(secrets.get(client, ())))
        for _, client, created_ms in rows
    )


def _properties(text: str) -> tuple[tuple[str, str], ...]:
    if text == _NO_PROPERTIES:
        return ()
    properties = json.loads(text).items()
    for name, value in properties:
        _text(name)
        _text(value)
    return tuple(sorted(properties))


def _text(value: str) -> str:
    """Return a text of UTF-8. Raises ValueError and AttributeError."""
    if not value.isascii():
        value.encode()
    return value


def _number(value: int) -> int:
    # SQLite keeps a text in a column of numbers.
    if type(value) is not int:
        raise TypeError
    return value


def _place(grant: Grant) -> tuple[str, str, str]:
    return grant.share, grant.schema or "", grant.table or ""
