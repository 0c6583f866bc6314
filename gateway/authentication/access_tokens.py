"""Access tokens that the server issues to OAuth clients.

In: an authenticated client, or the text of a token. Out: a new token, or the credential of its recipient.
A token is sealed and holds the ids of its client and secret and the name of its recipient. Each request
compares them with the clients that exist, so nothing is stored for a token, and a client that is removed ends
its tokens at once.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from gateway.authentication.credential_table import Credential, token_hash
from gateway.authentication.oauth_clients import AuthenticatedClient, ClientRefused, ClientTable
from gateway.authentication.policies import TokenRefused
from gateway.authentication.sealed_tokens import InvalidToken, Sealer
from gateway.times import MILLISECONDS

UNKNOWN_RECIPIENT = ""
"""Bound in place of a recipient, which is not known before the token is opened."""


@dataclass(frozen=True, slots=True)
class AccessToken:
    """An issued token."""

    text: str = field(repr=False)
    lifetime_seconds: int


def issue(
    sealer: Sealer, authenticated: AuthenticatedClient, *, now_ms: int, lifetime_seconds: int
) -> AccessToken:
    """Return a new access token, which ends no later than the secret that it is issued for.

    Raises ClientRefused if the secret has ended since it was checked, or ends within the second.
    """
    client, secret = authenticated.client, authenticated.secret
    expires_ms = now_ms + lifetime_seconds * MILLISECONDS
    if secret.expires_ms is not None:
        expires_ms = min(expires_ms, secret.expires_ms)
    lifetime_seconds = (expires_ms - now_ms) // MILLISECONDS
    if lifetime_seconds < 1:
        raise ClientRefused("expired", client.recipient)
    value = {"client": client.id, "secret": secret.id, "recipient": client.recipient.name}
    text = sealer.seal("access", UNKNOWN_RECIPIENT, value, expires_ms=expires_ms)
    return AccessToken(text, lifetime_seconds)


def access_credential(sealer: Sealer, clients: ClientTable, token: str, *, now_ms: int) -> Credential | None:
    """Return the credential of an access token; None for another text. Raises TokenRefused."""
    try:
        value, expires_ms = sealer.open_with_expiry("access", UNKNOWN_RECIPIENT, token, now_ms=0)
    except InvalidToken:
        if sealer.may_have_sealed(token):
            reason = "the token is altered, or another key sealed it: gateway.tokenKeys outlive a restart"
            raise TokenRefused("key", reason) from None
        return None
    if now_ms >= expires_ms:
        raise TokenRefused("expired", "the token has ended")
    credential = clients.find(value["client"], value["secret"], value["recipient"], now_ms=now_ms)
    # A running stream is checked against this end alone, and the secret's may have been moved since.
    if credential.secret.expires_ms is not None:
        expires_ms = min(expires_ms, credential.secret.expires_ms)
    return Credential(token_hash(token), credential.recipient, expires_ms, credential.identity)
