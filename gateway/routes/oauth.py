"""`POST {endpoint}/oauth/token`: access tokens for OAuth clients of recipients."""

from __future__ import annotations

from gateway.authentication.access_tokens import issue
from gateway.authentication.oauth_clients import ClientRefused
from gateway.errors import InvalidClient
from gateway.protocol.headers import JSON_CONTENT_TYPE
from gateway.protocol.messages import IssuedToken, encoded
from gateway.web.context import RequestContext
from gateway.web.error_response import NOT_STORED
from gateway.web.response import WholeResponse


async def issue_token(context: RequestContext) -> WholeResponse:
    """Issue an access token for the secret of a client."""
    state = context.state
    try:
        issued = issue(
            state.sealer,
            context.required_client,
            now_ms=state.now_ms(),
            lifetime_seconds=state.config.gateway.oauth.token_lifetime_seconds,
        )
    except ClientRefused as refused:
        # The secret has ended while the request waited.
        context.record.refusal = refused.reason
        raise InvalidClient from None
    body = encoded(IssuedToken(issued.text, "Bearer", issued.lifetime_seconds))
    return WholeResponse(body, {"Content-Type": JSON_CONTENT_TYPE, **NOT_STORED})
