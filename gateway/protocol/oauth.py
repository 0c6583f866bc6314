"""Token requests of OAuth 2.0 with the grant `client_credentials` (RFC 6749, section 4.4).

In: the headers and the body of a request. Out: a `TokenRequest`. A client sends its id and secret by HTTP
Basic or as fields of the form, not both. Within Basic both are form-encoded (section 2.3.1), and by some
clients sent as they are.
"""

from __future__ import annotations

import binascii
import re
from base64 import b64decode
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from urllib.parse import parse_qsl, unquote_plus

from gateway.errors import InvalidClient, MalformedRequest, UnsupportedGrant

FORM_CONTENT_TYPE = "application/x-www-form-urlencoded"
GRANT = "client_credentials"
MAX_FIELDS = 32
REPEATABLE = frozenset({"resource", "audience"})

_BASIC = re.compile(r"basic[ \t]+([A-Za-z0-9+/]+={0,2})[ \t]*", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class TokenRequest:
    """A request for an access token. Its scope is ignored: tokens read all that their recipient may."""

    client_id: str
    secret: str = field(repr=False)
    as_sent: TokenRequest | None = field(default=None, repr=False)
    """The id and secret without decoding, where that differs."""

    @staticmethod
    def parse(content_type: str | None, authorization: Sequence[str], body: bytes) -> TokenRequest:
        """Return the request. Raises MalformedRequest, UnsupportedGrant, InvalidClient."""
        fields = _fields(content_type, body)
        request = _request(authorization, fields.get("client_id"), fields.get("client_secret"))
        grant = fields.get("grant_type")
        if grant is None:
            raise MalformedRequest("grant_type is missing")
        if grant != GRANT:
            raise UnsupportedGrant
        return request


def _request(authorization: Sequence[str], client_id: str | None, secret: str | None) -> TokenRequest:
    if not authorization:
        if client_id is None or secret is None:
            raise InvalidClient
        return TokenRequest(client_id, secret)
    if secret is not None or len(authorization) > 1:
        raise MalformedRequest("a client is authenticated by one method: HTTP Basic or client_secret")
    request = _basic(authorization[0])
    sent = request.as_sent or request
    if client_id not in (None, request.client_id, sent.client_id):
        raise MalformedRequest("client_id differs from the client of the header")
    return request


def _fields(content_type: str | None, body: bytes) -> Mapping[str, str]:
    """Return the fields of a form; one without a value counts as absent."""
    if not body:
        return {}
    if content_type is not None and content_type.partition(";")[0].strip().lower() != FORM_CONTENT_TYPE:
        raise MalformedRequest(f"the body is {FORM_CONTENT_TYPE}")
    try:
        pairs = parse_qsl(body.decode(), errors="strict", max_num_fields=MAX_FIELDS)
    except ValueError:
        raise MalformedRequest(f"the body is no form of UTF-8 text and at most {MAX_FIELDS} fields") from None
    # RFC 8707 allows several of these, which are ignored.
    pairs = [(name, text) for name, text in pairs if name not in REPEATABLE]
    if len({name for name, _ in pairs}) < len(pairs):
        raise MalformedRequest("a field is given twice")
    return dict(pairs)


def _basic(authorization: str) -> TokenRequest:
    match = _BASIC.fullmatch(authorization)
    try:
        client_id, colon, secret = b64decode(match.group(1) if match else "").decode().partition(":")
    except (binascii.Error, ValueError):
        raise InvalidClient from None
    if not colon:
        raise InvalidClient
    sent = TokenRequest(client_id, secret)
    try:
        decoded = TokenRequest(_decoded(client_id), _decoded(secret), sent)
    except UnicodeDecodeError:
        return sent
    is_same = (decoded.client_id, decoded.secret) == (client_id, secret)
    return sent if is_same else decoded


def _decoded(text: str) -> str:
    """Return a form-encoded text. Raises UnicodeDecodeError."""
    return unquote_plus(text, errors="strict")
