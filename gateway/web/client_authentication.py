"""Authentication of token requests, whose clients have an id and a secret.

In: a request for a token with its whole body. Out: the client. An unknown client, a wrong or expired secret
and an address that is not allowed have one answer; the reason is in the log. Failed attempts are limited.
"""

from __future__ import annotations

import logging

from gateway.authentication.credential_table import UNREADABLE_RECIPIENTS, token_hash
from gateway.authentication.oauth_clients import AuthenticatedClient, ClientRefused
from gateway.config.networks import Address, allowed
from gateway.errors import InvalidClient, Unavailable
from gateway.limits.attempts import FailedAttempts, network_of
from gateway.protocol.oauth import TokenRequest
from gateway.web.context import RequestContext

log = logging.getLogger("gateway.clients")


class ClientAuthentication:
    """The clients of a server, and their failed attempts."""

    def __init__(self, attempts: FailedAttempts) -> None:
        self._attempts = attempts

    def client(self, context: RequestContext) -> AuthenticatedClient:
        """Return the client of a request. Raises InvalidClient, LimitExceeded, Unavailable, GatewayError."""
        headers = context.request.headers
        request = TokenRequest.parse(
            headers.get("Content-Type"), headers.getall("Authorization", []), context.body
        )
        address = context.address
        try:
            return self._found(context, request, address)
        except ClientRefused as refused:
            if context.state.credentials.is_incomplete and refused.reason == "client":
                raise Unavailable(UNREADABLE_RECIPIENTS) from None
            # A right secret needs no budget: others who fail at its address lock nobody out.
            site = network_of(address)
            self._attempts.check(site, request.client_id)
            self._attempts.failed(site, request.client_id)
            context.record.refusal = refused.reason
            if refused.reason != "client":
                context.refused_recipient = refused.recipient
            log.info("request %s: the client of a token request is refused: %s", context.id, refused.reason)
            raise InvalidClient from None

    def _found(
        self, context: RequestContext, request: TokenRequest, address: Address | None
    ) -> AuthenticatedClient:
        """Return the client by its decoded secret, or by the secret as it was sent. Raises ClientRefused."""
        try:
            return self._authenticate(context, request.client_id, token_hash(request.secret), address)
        except ClientRefused:
            if (sent := request.as_sent) is None:
                raise
        return self._authenticate(context, sent.client_id, token_hash(sent.secret), address)

    def _authenticate(
        self, context: RequestContext, client_id: str, secret_sha256: bytes, address: Address | None
    ) -> AuthenticatedClient:
        state = context.state
        client = state.credentials.clients.authenticate(client_id, secret_sha256, now_ms=state.now_ms())
        networks = client.recipient.networks
        if networks and not allowed(networks, address):
            raise ClientRefused("address", client.recipient)
        return client
