"""Operations on the OAuth clients and activation links of recipients in the database.

A link gives one token, or one client with a secret. Of secrets and links only the SHA-256 is stored.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable
from contextlib import suppress
from typing import Unpack

from sqlalchemy import Connection

from gateway.access import activation_rows, client_rows, token_rows
from gateway.access.activation_rows import LinkKind, OpenLink
from gateway.access.authentication import token_hash
from gateway.access.recipient_changes import (
    TOKEN_BYTES,
    RecipientChanges,
    check_old_life,
    end_text,
    read_one,
    undelivered,
)
from gateway.access.recipient_records import (
    MAX_LIFE_SECONDS,
    MAX_LINK_SECONDS,
    IssuedLink,
    IssuedSecret,
    IssuedToken,
    LinkInvalid,
    NewRecipient,
    RecipientError,
    RecipientRecord,
    TokenRecord,
    end_ms,
)
from gateway.access.recorded_database import nothing
from gateway.database.schema import CLIENT_SECRETS, TOKENS


class ClientChanges(RecipientChanges):
    """One connection to the database, for changes of clients and links."""

    def add_with_client(
        self,
        name: str,
        *,
        expires_in_seconds: int | None = None,
        deliver: Callable[[IssuedSecret], None] = undelivered,
        committed: Callable[[], None] = nothing,
        **described: Unpack[NewRecipient],
    ) -> IssuedSecret:
        """Add a recipient with an OAuth client and without a bearer token, which is forbidden to it.

        The arguments are those of `add`, for the client's secret.
        """
        self._check_new(name, described.get("comment", ""))
        with self._change("createRecipient", name, lambda: deliver(issued), committed) as (
            connection,
            detail,
        ):
            self._insert(connection, name, detail, **described)
            client_rows.forbid_bearer_tokens(connection, name, forbidden=True)
            detail["bearerTokensForbidden"] = "true"
            client_id = client_rows.insert_client(connection, read_one(connection, name), self.now_ms())
            issued = self._issue_secret(connection, name, client_id, expires_in_seconds, detail)
            return issued

    def add_client(
        self,
        name: str,
        *,
        expires_in_seconds: int | None = None,
        deliver: Callable[[IssuedSecret], None] = undelivered,
        committed: Callable[[], None] = nothing,
    ) -> IssuedSecret:
        """Add an OAuth client to a recipient, and return its first secret. Raises RecipientNotFound.

        `deliver` and `committed` as for `add`.
        """
        with self._change("createClient", name, lambda: deliver(issued), committed) as (connection, detail):
            record = read_one(connection, name)
            client_id = client_rows.insert_client(connection, record, self.now_ms())
            issued = self._issue_secret(connection, record.name, client_id, expires_in_seconds, detail)
            return issued

    def rotate_client(
        self,
        name: str,
        client_id: str | None = None,
        *,
        old_expires_in_seconds: int = 0,
        expires_in_seconds: int | None = None,
        deliver: Callable[[IssuedSecret], None] = undelivered,
        committed: Callable[[], None] = nothing,
    ) -> IssuedSecret:
        """Issue a new secret. Only the youngest old secret stays valid, as a token does for `rotate`.

        Without `client_id` the recipient must have one client. Raises RecipientNotFound.
        """
        check_old_life(old_expires_in_seconds, "secret")
        with self._change("rotateClientSecret", name, lambda: deliver(issued), committed) as (
            connection,
            detail,
        ):
            record = read_one(connection, name)
            client = client_rows.find(record, client_id)
            token_rows.end_old(
                connection,
                CLIENT_SECRETS,
                client.secrets,
                now_ms=self._earliest_ms(),
                expires_in_seconds=old_expires_in_seconds,
            )
            detail["oldSecretExpiresInSeconds"] = str(old_expires_in_seconds)
            issued = self._issue_secret(connection, record.name, client.id, expires_in_seconds, detail)
            return issued

    def remove_client(self, name: str, client_id: str | None = None) -> RecipientRecord:
        """Remove an OAuth client, whose access tokens end with it. Raises RecipientNotFound."""
        with self._change("deleteClient", name) as (connection, detail):
            client = client_rows.find(read_one(connection, name), client_id)
            client_rows.remove(connection, client.id)
            detail["client"] = client.id
            return read_one(connection, name)

    def forbid_bearer_tokens(self, name: str, *, forbidden: bool) -> RecipientRecord:
        """Refuse the bearer tokens of a recipient, or accept those that have not ended again."""
        with self._change("updateRecipient", name) as (connection, detail):
            record = read_one(connection, name)
            client_rows.forbid_bearer_tokens(connection, record.name, forbidden=forbidden)
            detail["bearerTokensForbidden"] = "true" if forbidden else "false"
            return read_one(connection, name)

    def _issue_secret(
        self,
        connection: Connection,
        name: str,
        client_id: str,
        expires_in_seconds: int | None,
        detail: dict[str, str],
        *,
        secret: str | None = None,
    ) -> IssuedSecret:
        now_ms, secret = self.now_ms(), secret or secrets.token_urlsafe(TOKEN_BYTES)
        expires_ms = end_ms(now_ms, expires_in_seconds, "secret")
        stored = TokenRecord(token_hash(secret).hex(), now_ms, expires_ms)
        token_rows.insert_token(connection, CLIENT_SECRETS, name, stored, client=client_id)
        detail |= {"client": client_id, "secretExpiresMs": end_text(expires_ms)}
        return IssuedSecret(name, client_id, secret, expires_ms)

    def add_with_link(
        self,
        name: str,
        *,
        valid_for_seconds: int,
        kind: LinkKind = "token",
        expires_in_seconds: int | None = None,
        **described: Unpack[NewRecipient],
    ) -> IssuedLink:
        """Add a recipient without a token, and return a link that gives its first one.

        `valid_for_seconds` is the life of the link, `expires_in_seconds` that of the token or secret that it
        gives. A recipient of `kind` "client" may use no bearer tokens.
        """
        self._check_new(name, described.get("comment", ""))
        with self._change("createRecipient", name) as (connection, detail):
            self._insert(connection, name, detail, **described)
            if kind == "client":
                client_rows.forbid_bearer_tokens(connection, name, forbidden=True)
                detail["bearerTokensForbidden"] = "true"
            return self._link(
                connection,
                name,
                detail,
                valid_for_seconds=valid_for_seconds,
                kind=kind,
                expires_in_seconds=expires_in_seconds,
            )

    def add_link(
        self, name: str, *, valid_for_seconds: int, expires_in_seconds: int | None = None
    ) -> IssuedLink:
        """Return a link that gives a recipient another token, or another client where tokens are forbidden.

        Unused links of the recipient end. Raises RecipientNotFound.
        """
        with self._change("createActivationLink", name) as (connection, detail):
            record = read_one(connection, name)
            kind: LinkKind = "client" if record.forbids_bearer_tokens else "token"
            activation_rows.delete_open(connection, record.name)
            return self._link(
                connection,
                record.name,
                detail,
                valid_for_seconds=valid_for_seconds,
                kind=kind,
                expires_in_seconds=expires_in_seconds,
            )

    def activate(self, code: str, secret: str | None = None) -> IssuedToken | IssuedSecret:
        """Use a link: issue its token, or its client with a secret. Raises LinkInvalid.

        `secret` is what the link gives; None: a random one. The same call within a minute returns the same,
        as for a form that is sent twice. The youngest token of the recipient stays valid, as for a rotation.
        Where bearer tokens are forbidden, the link gives a client.
        """
        with self.database.reading() as connection:
            link = activation_rows.find(connection, code, self.now_ms())
        issued = None if link is None else self._use(link, secret)
        if issued is None and secret is not None:
            with self.database.reading() as connection:
                issued = activation_rows.given(connection, code, secret, self.now_ms())
        if issued is None:
            raise LinkInvalid
        return issued

    def _use(self, link: OpenLink, secret: str | None) -> IssuedToken | IssuedSecret | None:
        """Return what a link gives; None for one that another request has used first."""
        with suppress(LinkInvalid), self._change("activateRecipient", link.recipient) as (connection, detail):
            if not activation_rows.use(connection, link, self.now_ms()):
                raise LinkInvalid
            detail["link"] = activation_rows.link_id(link.sha256)
            record = read_one(connection, link.recipient)
            life_seconds = link.lifetime_seconds
            # Bearer tokens may have been forbidden since the link was made.
            if link.kind == "client" or record.forbids_bearer_tokens:
                client_id = client_rows.insert_client(connection, record, self.now_ms())
                return self._issue_secret(
                    connection, record.name, client_id, life_seconds, detail, secret=secret
                )
            token_rows.end_old(
                connection,
                TOKENS,
                record.tokens,
                now_ms=self._earliest_ms(),
                expires_in_seconds=MAX_LIFE_SECONDS,
            )
            return self._issue(connection, record.name, life_seconds, detail, token=secret)
        return None

    def _link(
        self,
        connection: Connection,
        name: str,
        detail: dict[str, str],
        *,
        valid_for_seconds: int,
        kind: LinkKind,
        expires_in_seconds: int | None,
    ) -> IssuedLink:
        if not 0 < valid_for_seconds <= MAX_LINK_SECONDS:
            raise RecipientError(f"a link's life: expected 1 to {MAX_LINK_SECONDS} seconds")
        now_ms, code = self.now_ms(), secrets.token_urlsafe(TOKEN_BYTES)
        end_ms(now_ms, expires_in_seconds, "token")
        expires_ms = now_ms + valid_for_seconds * 1000
        sha256 = activation_rows.insert_link(
            connection,
            name,
            code,
            kind=kind,
            now_ms=now_ms,
            expires_ms=expires_ms,
            lifetime_seconds=expires_in_seconds,
        )
        detail |= {"link": activation_rows.link_id(sha256), "linkExpiresMs": str(expires_ms)}
        return IssuedLink(name, code, expires_ms)
