"""The rows of recipients in the database: read as records, and written.

In: a connection within the transaction of an operation. Out: records of recipients by name, and changed rows.
`PARTS` says which tables have which field of a record. Any program can write the rows: what is wrong with
those of one recipient makes that recipient unreadable, and no other.
"""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, get_args

import sqlalchemy
from sqlalchemy import ColumnElement, Connection, Select, Table, select

from gateway.authentication.credential_table import token_hash
from gateway.authentication.policies import TokenPolicy, stored_policy
from gateway.catalog.grants import Grant
from gateway.config.checks import check_hash
from gateway.config.networks import parse_networks
from gateway.database.rows import all_rows, batches, insert_rows
from gateway.database.schema import (
    ACTIVATION_LINKS,
    CLIENT_SECRETS,
    CLIENTS,
    GRANTS,
    NETWORKS,
    POLICIES,
    RECIPIENTS,
    TOKENS,
    name_key,
    recipient_key,
)
from gateway.governance.recipient_names import check_network
from gateway.governance.recipient_records import (
    TEXTS,
    ClientRecord,
    IssuedSecret,
    IssuedToken,
    LinkKind,
    PolicyRecord,
    RecipientNotFound,
    RecipientRecord,
    RecipientUnreadable,
    TokenRecord,
)

RECIPIENT_TABLES = (TOKENS, CLIENTS, CLIENT_SECRETS, NETWORKS, POLICIES, GRANTS, ACTIVATION_LINKS)
"""Those whose rows belong to a recipient."""
NOT_STORABLE = re.compile(r"[\x00\ud800-\udfff]")
"""What the databases accept in no text."""
REPEATED_MS = 60_000
"""The time in which a form that is sent twice, as by a double click, gets the same profile."""
LINK_ID_LENGTH = 12
_NO_PROPERTIES = "{}"
_SHA256 = re.compile(r"[0-9a-f]{64}")

_Rows = Sequence[Any]
"""Rows of one recipient in a table, each with the recipient's key first."""


@dataclass(frozen=True, slots=True)
class ReadRecipients:
    """Recipients of a reading, and by the keys of others which part of their rows is invalid."""

    records: tuple[RecipientRecord, ...]
    unreadable: Mapping[str, str] = field(default_factory=dict)

    def check_whole(self, keys: Collection[str] | None = None) -> None:
        """Raise RecipientUnreadable if some of the recipients cannot be read. `keys`: of these alone."""
        for key, reason in self.unreadable.items():
            if keys is None or key in keys:
                raise RecipientUnreadable(
                    f"the rows of recipient {key!r} cannot be read: {reason}; mend them by SQL, or delete it"
                )


def read(connection: Connection, keys: Collection[str] | None) -> ReadRecipients:
    """Return the recipients with these keys that exist; None: all."""
    if keys is None:
        return _read(connection, None)
    readings = [_read(connection, batch) for batch in batches(sorted(keys))]
    return ReadRecipients(
        tuple(record for reading in readings for record in reading.records),
        {key: reason for reading in readings for key, reason in reading.unreadable.items()},
    )


def read_one(connection: Connection, name: str) -> RecipientRecord:
    """Return a recipient. Raises RecipientNotFound and RecipientUnreadable."""
    check_storable(name)
    reading = read(connection, [recipient_key(name)])
    reading.check_whole()
    if not reading.records:
        raise RecipientNotFound(f"no recipient {name!r} in the database")
    return reading.records[0]


def check_storable(name: str) -> None:
    """Raise RecipientNotFound for a name that no recipient can have: earlier releases accepted others."""
    if NOT_STORABLE.search(name):
        raise RecipientNotFound(f"no recipient {name!r} in the database")


def insert(connection: Connection, rows: Mapping[Table, Iterable[Mapping[str, Any]]]) -> None:
    """Insert rows, by their tables."""
    for table, of_table in rows.items():
        for batch in batches(of_table):
            insert_rows(connection, table, batch)


def update(connection: Connection, name: str, **values: Any) -> None:
    """Change columns of a recipient."""
    row = sqlalchemy.update(RECIPIENTS).where(RECIPIENTS.c.key == recipient_key(name))
    connection.execute(row.values(values))


def delete(connection: Connection, table: Table, name: str, *conditions: ColumnElement[bool]) -> int:
    """Delete the rows of a recipient in a table, and return their number."""
    rows = sqlalchemy.delete(table).where(table.c.recipient == recipient_key(name), *conditions)
    return connection.execute(rows).rowcount


def grant_row(name: str, grant: Grant) -> dict[str, Any]:
    return {"recipient": recipient_key(name), **asdict(grant), "share": name_key(grant.share)}


def share_rows(name: str, shares: Sequence[str]) -> list[dict[str, Any]]:
    """Return rows that grant shares as a whole to a recipient without any."""
    return [grant_row(name, Grant(share)) for share in dict.fromkeys(map(name_key, shares))]


def network_rows(name: str, networks: Sequence[str]) -> list[dict[str, Any]]:
    """Return rows that allow a recipient to connect from networks. Raises RecipientError."""
    distinct = dict.fromkeys(str(check_network(text)) for text in networks)
    return [{"recipient": recipient_key(name), "network": network} for network in distinct]


def policy_row(name: str, policy_name: str, policy: TokenPolicy, now_ms: int) -> dict[str, Any]:
    return {
        "recipient": recipient_key(name),
        "name": policy_name,
        **asdict(policy),
        "audiences": json.dumps(sorted(policy.audiences)),
        "claims": json.dumps(dict(policy.claims)),
        "created_ms": now_ms,
    }


def properties_text(properties: Mapping[str, str]) -> str:
    """Return properties as the column has them."""
    return json.dumps(dict(properties), ensure_ascii=False, sort_keys=True)


def put_grant(connection: Connection, record: RecipientRecord, grant: Grant) -> None:
    """Insert a grant in the place of one for the same place."""
    delete_grant(connection, record, grant)
    insert(connection, {GRANTS: [grant_row(record.name, grant)]})


def delete_grant(connection: Connection, record: RecipientRecord, grant: Grant) -> bool:
    """Delete the grant for the place of another one, with any condition, and return whether there was one."""
    place = (
        GRANTS.c.share == name_key(grant.share),
        GRANTS.c.schema.is_not_distinct_from(grant.schema),
        GRANTS.c.table.is_not_distinct_from(grant.table),
    )
    return delete(connection, GRANTS, record.name, *place) > 0


def grant_shares(connection: Connection, record: RecipientRecord, shares: Sequence[str]) -> None:
    """Grant shares as a whole; those that are granted already stay."""
    for share in dict.fromkeys(map(name_key, shares)):
        if share not in record.shares:
            put_grant(connection, record, Grant(share))


def revoke_shares(
    connection: Connection, record: RecipientRecord, shares: Sequence[str], *, all_parts: bool = False
) -> None:
    """Take back grants of whole shares, or `all_parts` of them. Raises RecipientError without one."""
    for key, share in {name_key(share): share for share in shares}.items():
        if all_parts:
            is_revoked = delete(connection, GRANTS, record.name, GRANTS.c.share == key) > 0
        else:
            is_revoked = key in record.shares and delete_grant(connection, record, Grant(key))
        if not is_revoked:
            raise record.not_granted(f"share {share!r}", Grant(key))


@dataclass(frozen=True, slots=True)
class OpenLink:
    """An activation link that can be used, and what it gives: a token, or an OAuth client with a secret."""

    sha256: str
    recipient: str
    kind: str
    lifetime_seconds: int | None

    @property
    def id(self) -> str:
        """Return what the history calls the link; it does not show the code."""
        return self.sha256[:LINK_ID_LENGTH]


def open_link(connection: Connection, code: str, now_ms: int) -> OpenLink | None:
    """Return the link of a code; None for one that is unknown, was used or has ended."""
    links = ACTIVATION_LINKS.c
    query = (
        select(links.sha256, RECIPIENTS.c.name, links.kind, links.lifetime_seconds)
        .join(RECIPIENTS, RECIPIENTS.c.key == links.recipient)
        .where(links.sha256 == token_hash(code).hex(), links.used_ms.is_(None), links.expires_ms > now_ms)
        # What a later release gives for another kind is unknown.
        .where(links.kind.in_(get_args(LinkKind)))
    )
    row = connection.execute(query).one_or_none()
    return None if row is None else OpenLink(*row)


def use_link(connection: Connection, link: OpenLink, now_ms: int) -> bool:
    """Mark a link as used, and return whether it could be: of two uses at once the second one fails."""
    links = ACTIVATION_LINKS.c
    used = connection.execute(
        sqlalchemy.update(ACTIVATION_LINKS)
        .where(links.sha256 == link.sha256, links.used_ms.is_(None), links.expires_ms > now_ms)
        .values(used_ms=now_ms)
    )
    return used.rowcount == 1


def given_by_link(
    connection: Connection, code: str, secret: str, now_ms: int
) -> IssuedToken | IssuedSecret | None:
    """Return what a link has given within a minute, by its secret; None for all others."""
    link, names = ACTIVATION_LINKS.c, RECIPIENTS.c
    for table in (TOKENS, CLIENT_SECRETS):
        client = table.c.client if table is CLIENT_SECRETS else sqlalchemy.null()
        query = (
            select(names.name, client, table.c.expires_ms)
            .join(ACTIVATION_LINKS, link.recipient == names.key)
            .join(table, table.c.recipient == names.key)
            .where(table.c.sha256 == token_hash(secret).hex(), link.sha256 == token_hash(code).hex())
            .where(link.used_ms > now_ms - REPEATED_MS)
        )
        row = connection.execute(query).one_or_none()
        if row is not None:
            name, client_id, expires_ms = row
            if client_id is None:
                return IssuedToken(name, secret, expires_ms)
            return IssuedSecret(name, client_id, secret, expires_ms)
    return None


def delete_open_links(connection: Connection, name: str) -> None:
    """Delete the unused links of a recipient."""
    delete(connection, ACTIVATION_LINKS, name, ACTIVATION_LINKS.c.used_ms.is_(None))


def _read(connection: Connection, keys: Collection[str] | None) -> ReadRecipients:
    def rows(query: Select[Any], column: ColumnElement[str]) -> _Rows:
        return all_rows(connection, query if keys is None else query.where(column.in_(keys)))

    recipients = rows(select(RECIPIENTS).order_by(RECIPIENTS.c.key), RECIPIENTS.c.key)
    if not recipients:
        # As for each new recipient, whose name must be free.
        return ReadRecipients(())
    groups: dict[Table, dict[str, list[Any]]] = {}
    for table, query in ((table, query) for part in PARTS for table, query in part.queries.items()):
        groups[table] = defaultdict(list)
        for row in rows(query, table.c.recipient):
            groups[table][row[0]].append(row)
    records, unreadable = [], {}
    for row in recipients:
        of_recipient = {table: group.get(row.key, ()) for table, group in groups.items()}
        record = _recipient(row, of_recipient)
        if isinstance(record, RecipientRecord):
            records.append(record)
        else:
            unreadable[row.key] = f"{record} invalid"
    return ReadRecipients(tuple(records), unreadable)


def _recipient(row: Any, rows: Mapping[Table, _Rows]) -> RecipientRecord | str:
    """Return the record of a recipient, or which part of its rows is invalid."""
    called = "its name, or its key, which is not that of the name, is"
    try:
        # Changes are recorded by the key: a recipient with another one would outlive its deletion.
        if recipient_key(row.name) != row.key:
            raise ValueError  # noqa: TRY301 - as what the parts raise
        values: dict[str, Any] = {text: _text(getattr(row, text)) for text in ("name", *TEXTS)}
        called = "its time of creation is"
        values["created_ms"] = _number(row.created_ms)
        for part in PARTS:
            called = part.called
            values[part.field] = part.read(*(rows[table] for table in part.queries))
        called = "its properties are"
        values["properties"] = _properties(row.properties)
        grants = values.pop("all_grants")
        return RecipientRecord(
            shares=tuple(grant.share for grant in grants if grant.is_whole_share),
            grants=tuple(grant for grant in grants if not grant.is_whole_share),
            forbids_bearer_tokens=bool(row.forbids_bearer_tokens),
            **values,
        )
    except Exception:  # noqa: BLE001 - whatever another program has written
        return called


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


def _place(grant: Grant) -> tuple[str, str, str]:
    return grant.share, grant.schema or "", grant.table or ""


def _networks(rows: _Rows) -> tuple[str, ...]:
    networks = tuple(network for _, network in rows)
    if networks:
        parse_networks(networks)
    return networks


def _policies(rows: _Rows) -> tuple[PolicyRecord, ...]:
    return tuple(
        [
            PolicyRecord(name, stored_policy(*columns), _number(created_ms))
            for _, name, *columns, created_ms in rows
        ]
    )


def _clients(rows: _Rows, secret_rows: _Rows) -> tuple[ClientRecord, ...]:
    secrets: dict[str, list[TokenRecord]] = defaultdict(list)
    for _, client, *secret in secret_rows:
        secrets[client].append(_token(*secret))
    return tuple(
        [
            ClientRecord(_text(client), _number(created_ms), tuple(secrets.get(client, ())))
            for _, client, created_ms in rows
        ]
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


@dataclass(frozen=True, slots=True)
class Part:
    """What other tables have of a recipient.

    Attributes:
        field: of the record.
        called: what is wrong where `read` raises an exception for the rows.
        read: returns the field of the rows of each table.
        queries: of the rows by their tables, in order, each with the recipient's key first.

    """

    field: str
    called: str
    read: Callable[..., Any]
    queries: Mapping[Table, Select[Any]]


def _query(table: Table, columns: str, order: str = "") -> dict[Table, Select[Any]]:
    chosen = [table.c[name] for name in ("recipient", *columns.split())]
    return {table: select(*chosen).order_by(*(table.c[name] for name in order.split()))}


PARTS = (
    Part("all_grants", "a grant is", _grants, _query(GRANTS, "share schema table condition")),
    Part(
        "tokens",
        "a token is",
        _tokens,
        _query(TOKENS, "sha256 created_ms expires_ms", order="created_ms sha256"),
    ),
    Part("networks", "a network is", _networks, _query(NETWORKS, "network", order="network")),
    Part(
        "policies",
        "a federation policy is",
        _policies,
        _query(POLICIES, "name issuer subject_claim subject audiences claims created_ms", order="name"),
    ),
    Part(
        "clients",
        "an OAuth client is",
        _clients,
        _query(CLIENTS, "id created_ms", order="created_ms id")
        | _query(CLIENT_SECRETS, "client sha256 created_ms expires_ms", order="created_ms sha256"),
    ),
)
