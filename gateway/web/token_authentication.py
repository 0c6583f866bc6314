"""Authentication of requests by their bearer token.

In: a request. Out: the credential of its recipient. Each kind of token has a function, and they are asked in
order: one returns the credential, passes with None if the text is not of its kind, or raises `TokenRefused`.
Absent, malformed, unknown, ended and revoked tokens have one answer; the reason is in the log.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from aiohttp import hdrs, web
from msgspec import Struct

from gateway.authentication.access_tokens import access_credential
from gateway.authentication.credential_table import (
    UNREADABLE_RECIPIENTS,
    Credential,
    bearer_token,
    has_no_token,
    sends_token,
    token_hash,
)
from gateway.authentication.policies import TokenRefused
from gateway.errors import Unauthenticated, Unavailable
from gateway.oidc.federation import Federation
from gateway.state import GatewayState
from gateway.web.context import RequestContext

log = logging.getLogger("gateway.federation")

AUDITED_AS = {"forbidden": "forbiddenTo", "expired": "endedOf", "revoked": "revokedOf"}
"""By the reason of a refusal, the field of the audit log that names whose token it was."""


class BearerToken(Struct, frozen=True):
    """The token of a request and its SHA-256."""

    text: str
    sha256: bytes

    def __repr__(self) -> str:
        """Return no part of the token."""
        return "BearerToken()"


def stored_token(state: GatewayState, token: BearerToken) -> Credential | None:
    """Return the credential of a token of the configuration or the database."""
    return state.credentials.find(token.sha256, now_ms=state.now_ms())


def ended_token(state: GatewayState, token: BearerToken) -> None:
    """Raise TokenRefused for a token of a recipient that is no longer valid, or that is forbidden."""
    credentials = state.credentials
    forbidden = credentials.forbidden(token.sha256)
    if forbidden is not None:
        message = f"bearer tokens are forbidden to recipient {forbidden.name}"
        raise TokenRefused("forbidden", message, forbidden)
    ended = credentials.find(token.sha256, now_ms=0)
    if ended is not None:
        message = f"the token of recipient {ended.recipient.name} has ended"
        raise TokenRefused("expired", message, ended.recipient)
    revoked = credentials.revoked(token.sha256)
    if revoked is not None:
        message = f"the token of recipient {revoked.name} was replaced or revoked"
        raise TokenRefused("revoked", message, revoked)


def access_token(state: GatewayState, token: BearerToken) -> Credential | None:
    """Return the credential of a token that this server issued to an OAuth client. Raises TokenRefused."""
    return access_credential(state.sealer, state.credentials.clients, token.text, now_ms=state.now_ms())


OWN_TOKENS: tuple[Callable[[GatewayState, BearerToken], Credential | None], ...] = (
    stored_token,
    ended_token,
    access_token,
)
"""The kinds of tokens of this server, in order. Identity providers verify all others."""


class TokenAuthentication:
    """The bearer tokens of a server's requests."""

    def __init__(self) -> None:
        self.federation = Federation()

    async def credential(self, context: RequestContext) -> Credential:
        """Return the credential of a request. Raises Unauthenticated, Unavailable."""
        state = context.state
        token = sent_token(state, context.request)
        if isinstance(token, Credential):
            return token
        kind = "token"
        try:
            credential = own_credential(state, token)
            if credential is None:
                kind = "token of an identity provider"
                credential = await self.federation.credential(token.text, state)
        except TokenRefused as refused:
            credential = None
            context.record.refusal = refused.reason
            if refused.recipient is not None:
                context.refused_recipient = refused.recipient
                context.identity = ((AUDITED_AS[refused.reason], refused.recipient.name),)
            log.info("request %s: the %s is refused: %s", context.id, kind, refused)
        if credential is not None:
            context.identity = credential.identity
            return credential
        if state.credentials.is_incomplete:
            raise Unavailable(UNREADABLE_RECIPIENTS)
        raise Unauthenticated(token_sent=True)

    def renewed(
        self, request: web.BaseRequest, credential: Credential, state: GatewayState
    ) -> Credential | None:
        """Return the credential of a running request in a newer state. Never waits.

        Returns None, or raises Unauthenticated or TokenRefused, if the token is no longer accepted.
        """
        token = sent_token(state, request)
        if isinstance(token, Credential):
            return token
        return own_credential(state, token) or self.federation.renewed(credential, state)


def sent_token(state: GatewayState, request: web.BaseRequest) -> BearerToken | Credential:
    """Return the token of a request, or the credential of a request that needs none.

    Where a token is not required, a token that is sent must still be valid. Raises Unauthenticated.
    """
    authorization = request.headers.getall(hdrs.AUTHORIZATION, [])
    if state.credentials.anonymous is not None and all(map(has_no_token, authorization)):
        return Credential(b"", state.credentials.anonymous)
    if (text := bearer_token(authorization)) is None:
        raise Unauthenticated(token_sent=sends_token(authorization))
    return BearerToken(text, token_hash(text))


def own_credential(state: GatewayState, token: BearerToken) -> Credential | None:
    """Return the credential of a token of this server; None for another text. Raises TokenRefused."""
    for kind in OWN_TOKENS:
        credential = kind(state, token)
        if credential is not None:
            return credential
    return None
