"""The rows of activation links, each of which gives one profile.

In: a connection, within the transaction of an operation. Out: changed rows. A link is used by an update of
its row that finds it unused, so of two activations at once the second finds nothing, unless it names the
secret that the first one was given.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

from sqlalchemy import Connection, delete, null, select, update

from gateway.authentication.credential_table import token_hash
from gateway.database.schema import ACTIVATION_LINKS, CLIENT_SECRETS, RECIPIENTS, TOKENS, recipient_key
from gateway.governance.recipient_records import IssuedSecret, IssuedToken

LinkKind = Literal["token", "client"]
REPEATED_MS = 60_000
"""The time in which a form that is sent twice, as by a double click, gets the same profile."""


@dataclass(frozen=True, slots=True)
class OpenLink:
    """A link that can be used, and what it gives: a token, or an OAuth client with a secret."""

    sha256: str
    recipient: str
    kind: str
    lifetime_seconds: int | None


def link_id(sha256: str) -> str:
    """Return what the history calls a link; it does not show the code."""
    return sha256[:12]


def find(connection: Connection, code: str, now_ms: int) -> OpenLink | None:
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


def use(connection: Connection, link: OpenLink, now_ms: int) -> bool:
    """Mark a link as used, and return whether it could be used."""
    links = ACTIVATION_LINKS.c
    used = connection.execute(
        update(ACTIVATION_LINKS)
        .where(links.sha256 == link.sha256, links.used_ms.is_(None), links.expires_ms > now_ms)
        .values(used_ms=now_ms)
    )
    return used.rowcount == 1


def given(connection: Connection, code: str, secret: str, now_ms: int) -> IssuedToken | IssuedSecret | None:
    """Return what a link has given within a minute, by its secret; None for all others."""
    link, names = ACTIVATION_LINKS.c, RECIPIENTS.c
    for table in (TOKENS, CLIENT_SECRETS):
        client = table.c.client if table is CLIENT_SECRETS else null()
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


def delete_open(connection: Connection, name: str) -> int:
    """Delete the unused links of a recipient, and return their number."""
    links = ACTIVATION_LINKS.c
    unused = delete(ACTIVATION_LINKS).where(links.recipient == recipient_key(name), links.used_ms.is_(None))
    return connection.execute(unused).rowcount
