"""A sign-in by an identity provider that has begun: what the browser keeps until the provider leads it back.

The browser alone has it, in a sealed cookie, so any process with the same keys can end the sign-in. `state`
binds the provider's answer to the browser, `nonce` the ID token and `verifier` (PKCE, RFC 7636) the code.
"""

from __future__ import annotations

import base64
import hashlib
import secrets
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from gateway.authentication.sealed_tokens import InvalidToken, Sealer
from gateway.config import ConsoleOidc

if TYPE_CHECKING:
    from aiohttp import web

FLOW_SECONDS = 600
NAME = "delta_gateway_sign_in"
_BYTES = 32


class SignInFailed(Exception):
    """Raised when a sign-in fails. The text is for the user.

    Attributes:
        status: status of the answer.
        reason: the cause, for the log; without tokens, codes and secrets.

    """

    def __init__(self, status: int, message: str, reason: str) -> None:
        super().__init__(message)
        self.status = status
        self.reason = reason


@dataclass(frozen=True, slots=True)
class SignInFlow:
    """A begun sign-in. `target` is the page of the console to which it leads on."""

    target: str
    state: str = field(default_factory=lambda: secrets.token_urlsafe(_BYTES), repr=False)
    nonce: str = field(default_factory=lambda: secrets.token_urlsafe(_BYTES), repr=False)
    verifier: str = field(default_factory=lambda: secrets.token_urlsafe(_BYTES), repr=False)

    @property
    def code_challenge(self) -> str:
        """Return the challenge of the verifier, by the method S256."""
        digest = hashlib.sha256(self.verifier.encode()).digest()
        return base64.urlsafe_b64encode(digest).rstrip(b"=").decode()

    def seal(self, sealer: Sealer, settings: ConsoleOidc, *, now_ms: int) -> str:
        """Return the value of the cookie, for these settings alone."""
        value = {"t": self.target, "s": self.state, "n": self.nonce, "v": self.verifier}
        return sealer.seal("sign-in", _owner(settings), value, expires_ms=now_ms + FLOW_SECONDS * 1000)

    @staticmethod
    def open(sealer: Sealer, settings: ConsoleOidc, cookie: str, *, now_ms: int) -> SignInFlow | None:
        """Return the sign-in of a cookie; None for one that is altered, has ended or is of other settings."""
        try:
            value = sealer.open("sign-in", _owner(settings), cookie, now_ms=now_ms)
        except InvalidToken:
            return None
        return SignInFlow(value["t"], value["s"], value["n"], value["v"])


def cookie_name(settings: ConsoleOidc) -> str:
    """Return the name of the cookie. With TLS no other host, and no page without TLS, can set it."""
    return f"__Host-{NAME}" if settings.uses_https else NAME


def set_cookie(response: web.Response, settings: ConsoleOidc, value: str) -> None:
    """Give a browser the cookie. It is sent when the provider, another site, leads the browser back."""
    response.set_cookie(
        cookie_name(settings),
        value,
        max_age=FLOW_SECONDS,
        path="/",
        httponly=True,
        samesite="Lax",
        secure=settings.uses_https,
    )


def delete_cookie(response: web.Response, settings: ConsoleOidc) -> None:
    """Take the cookie from a browser."""
    response.del_cookie(
        cookie_name(settings), path="/", httponly=True, samesite="Lax", secure=settings.uses_https
    )


def _owner(settings: ConsoleOidc) -> str:
    return f"{settings.issuer}\0{settings.client_id}\0{settings.redirect_url}"
