"""OAuth clients of recipients, by which programs get short-lived access tokens for a secret.

In: a client id with the hash of a secret, or the ids in an access token. Out: the client and its secret, or
`ClientRefused` and `TokenRefused` with the failed check.
"""

from __future__ import annotations

import hmac
import os
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from gateway.authentication.policies import TokenRefused
from gateway.catalog.catalog import Recipient

if TYPE_CHECKING:
    from gateway.telemetry.request_record import ClientRefusal

SECRET_ID_BYTES = 8


class ClientRefused(Exception):
    """Raised for a client that is not authenticated. The reason and its recipient are for operators."""

    def __init__(self, reason: ClientRefusal, recipient: Recipient) -> None:
        super().__init__(reason)
        self.reason = reason
        self.recipient = recipient


def secret_id(sha256: bytes) -> str:
    """Return the beginning of the hash of a secret, which identifies it."""
    return sha256[:SECRET_ID_BYTES].hex()


@dataclass(frozen=True, slots=True)
class ClientSecret:
    """The hash of a secret. Without `expires_ms` it has no end."""

    sha256: bytes = field(repr=False)
    expires_ms: int | None = None

    @property
    def id(self) -> str:
        """Return the id of the secret."""
        return secret_id(self.sha256)

    def has_expired(self, now_ms: int) -> bool:
        """Return whether the secret has expired at that time."""
        return self.expires_ms is not None and now_ms >= self.expires_ms


@dataclass(frozen=True, slots=True)
class OAuthClient:
    """A client of a recipient."""

    id: str
    recipient: Recipient
    secrets: tuple[ClientSecret, ...]


@dataclass(frozen=True, slots=True)
class AuthenticatedClient:
    """A client, and the secret that it was authenticated by."""

    client: OAuthClient
    secret: ClientSecret

    @property
    def recipient(self) -> Recipient:
        """Return the recipient of the client."""
        return self.client.recipient

    @property
    def identity(self) -> tuple[tuple[str, str], ...]:
        """Return what the audit log records."""
        return (("clientId", self.client.id), ("secretId", self.secret.id))


class ClientTable:
    """The clients of all recipients, by id."""

    def __init__(self, clients: Iterable[OAuthClient] = ()) -> None:
        self._by_id: dict[str, OAuthClient] = {}
        for client in clients:
            self._by_id.setdefault(client.id, client)
        self._unknown = OAuthClient("", Recipient("", frozenset()), (ClientSecret(os.urandom(32)),))

    def __len__(self) -> int:
        return len(self._by_id)

    def replaced(self, gone: Iterable[OAuthClient], new: Iterable[OAuthClient]) -> ClientTable | None:
        """Return a table with some clients in place of others; this one stays as it is.

        None where another client has the id of one of them.
        """
        gone, new = tuple(gone), tuple(new)
        if not gone and not new:
            return self
        table = ClientTable()
        table._by_id = dict(self._by_id)
        for client in gone:
            if table._by_id.pop(client.id, None) is not client:
                return None
        for client in new:
            if table._by_id.setdefault(client.id, client) is not client:
                return None
        return table

    def authenticate(self, client_id: str, sha256: bytes, *, now_ms: int) -> AuthenticatedClient:
        """Return the client of an id and the hash of a secret. Raises ClientRefused.

        An unknown client takes the same work as one with another secret.
        """
        client = self._by_id.get(client_id, self._unknown)
        match: ClientSecret | None = None
        for known in client.secrets:
            if hmac.compare_digest(known.sha256, sha256):
                match = known
        if match is None:
            raise ClientRefused("client" if client is self._unknown else "secret", client.recipient)
        if match.has_expired(now_ms):
            raise ClientRefused("expired", client.recipient)
        return AuthenticatedClient(client, match)

    def find(self, client_id: str, secret_id: str, recipient: str, *, now_ms: int) -> AuthenticatedClient:
        """Return the client that a token was issued to. Raises TokenRefused if it or its secret has ended."""
        client = self._by_id.get(client_id)
        if client is None or client.recipient.name != recipient:
            raise TokenRefused("client", "the client of the token does not exist")
        for secret in client.secrets:
            if secret.id == secret_id and not secret.has_expired(now_ms):
                return AuthenticatedClient(client, secret)
        raise TokenRefused("client", "the secret by which the token was issued has ended")
