"""The identity provider at which users of the console sign in: OpenID Connect, by code with PKCE.

In: the code that the provider gives a browser. Out: the verified claims of its ID token, or `SignInFailed`.
The discovery document is fetched by one task at a time, when a sign-in needs it, and the last one stays in
use while the provider does not answer. Codes are redeemed a few at a time. Used by the event loop only.
"""

from __future__ import annotations

import asyncio
import base64
import hmac
import logging
import re
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote_plus, urlencode

import orjson

from gateway.authentication.policies import TokenRefused, texts_of
from gateway.config import ConsoleOidc
from gateway.config.fetched_urls import is_accepted_url
from gateway.oidc.identity_token import IdentityToken
from gateway.oidc.issuer_keys import IssuerKeys
from gateway.oidc.provider_requests import (
    EXPECTED,
    OK,
    FetchError,
    ProviderAnswer,
    provider_session,
    reason_of,
)
from gateway.oidc.sign_in_flow import SignInFailed, SignInFlow

log = logging.getLogger("gateway.admin")

LIFE_SECONDS, RETRY_SECONDS = 3600.0, 5.0
REDEEM_SECONDS = 10.0
"""Of a code, with the fetch of the keys."""
CONCURRENT_CODES = 8
MAX_HINT_LENGTH = 4096
UNAVAILABLE = (
    "The identity provider does not answer as it should. Try again in a minute, or sign in with a token. The "
    "log of the server has the reason."
)
FOREIGN = "The answer is not that of the identity provider of this console. Sign in again."
AGAIN = "The sign-in took too long, or its answer was used before. Sign in again."

_ERROR_CODE = re.compile(r"[\x20-\x21\x23-\x5b\x5d-\x7e]{1,100}")
"""An error by RFC 6749, section 5.2."""


@dataclass(frozen=True, slots=True)
class ProviderMetadata:
    """What the discovery document says (OpenID Connect Discovery 1.0, section 3).

    Attributes:
        authorization_endpoint: URL at which users sign in.
        token_endpoint: URL at which the server redeems codes.
        end_session_endpoint: URL at which users sign out; None without one.
        names_issuer: the answers have the parameter `iss` (RFC 9207).
        sends_secret_in_form: the client's secret is sent in the form, not by Basic authentication.

    """

    authorization_endpoint: str
    token_endpoint: str
    end_session_endpoint: str | None
    names_issuer: bool
    sends_secret_in_form: bool

    @staticmethod
    def parse(document: Mapping[str, Any], settings: ConsoleOidc) -> ProviderMetadata:
        """Read the document. Raises FetchError."""

        def url(name: str) -> str | None:
            value = document.get(name)
            private = settings.allow_private_addresses
            if not isinstance(value, str) or not value.isascii() or not value.isprintable() or "#" in value:
                return None
            return value if is_accepted_url(value, allow_private_addresses=private) else None

        authorization, token = url("authorization_endpoint"), url("token_endpoint")
        if authorization is None or token is None:
            raise FetchError(
                "the discovery document has no authorization_endpoint or token_endpoint, or one that is not "
                "https or has a private address"
            )
        return ProviderMetadata(
            authorization,
            token,
            url("end_session_endpoint"),
            document.get("authorization_response_iss_parameter_supported") is True,
            # Basic authentication encodes unusual secrets in ways on which providers do not agree.
            "client_secret_post" in texts_of(document.get("token_endpoint_auth_methods_supported")),
        )


@dataclass(frozen=True, slots=True)
class VerifiedIdToken:
    """The claims of a verified ID token, and its text if it may be sent back as a hint at the sign-out."""

    claims: Mapping[str, Any]
    hint: str | None = field(repr=False)


class IdentityProvider:
    """The provider of one configuration."""

    def __init__(self, settings: ConsoleOidc, *, now_ms: Callable[[], int]) -> None:
        """`now_ms` is the time of day, by which tokens end."""
        self.settings = settings
        self._issuer = settings.trusted_issuer
        self._keys = IssuerKeys(self._issuer)
        self._now_ms = now_ms
        self._metadata: ProviderMetadata | None = None
        self._due_seconds = 0.0
        self._task: asyncio.Task[None] | None = None
        self._redeeming = asyncio.Semaphore(CONCURRENT_CODES)

    async def metadata(self) -> ProviderMetadata:
        """Return what the discovery document says. Raises SignInFailed."""
        if time.monotonic() >= self._due_seconds and self._task is None:
            self._due_seconds = time.monotonic() + RETRY_SECONDS
            self._task = asyncio.ensure_future(self._discover())
        if self._task is not None:
            # The task goes on if this request is cancelled.
            await asyncio.shield(self._task)
        if self._metadata is None:
            raise SignInFailed(503, UNAVAILABLE, "the discovery document is not available")
        return self._metadata

    async def sign_in_url(self, flow: SignInFlow) -> str:
        """Return the address at which a user signs in. Raises SignInFailed."""
        settings = self.settings
        query = {
            "response_type": "code",
            "client_id": settings.client_id,
            "redirect_uri": settings.redirect_url,
            "scope": " ".join(dict.fromkeys(("openid", *settings.scopes))),
            "state": flow.state,
            "nonce": flow.nonce,
            "code_challenge": flow.code_challenge,
            "code_challenge_method": "S256",
        }
        return _with_query((await self.metadata()).authorization_endpoint, query)

    def sign_out_url(self, hint: str | None) -> str | None:
        """Return the address at which a user signs out of the provider; None without one."""
        endpoint = self._metadata.end_session_endpoint if self._metadata is not None else None
        if endpoint is None:
            return None
        hints = {} if hint is None else {"id_token_hint": hint}
        return _with_query(endpoint, {"client_id": self.settings.client_id, **hints})

    async def check_issuer(self, named: str | None) -> None:
        """Check the parameter `iss` of an answer (RFC 9207). Raises SignInFailed for another provider's."""
        is_needed = (await self.metadata()).names_issuer
        if named != self.settings.issuer and (named is not None or is_needed):
            raise SignInFailed(400, FOREIGN, "the answer names another issuer, or none")

    async def redeem(self, code: str, flow: SignInFlow) -> VerifiedIdToken:
        """Return the verified ID token of a code. Raises SignInFailed."""
        metadata = await self.metadata()
        if self._redeeming.locked():
            raise SignInFailed(503, UNAVAILABLE, f"{CONCURRENT_CODES} sign-ins wait for the provider")
        async with self._redeeming:
            try:
                async with asyncio.timeout(REDEEM_SECONDS):
                    text = await self._id_token(metadata, code, flow)
                    return await self._verified(text, flow)
            except EXPECTED as error:
                raise SignInFailed(503, UNAVAILABLE, f"the token endpoint: {reason_of(error)}") from None
            except TokenRefused as error:
                raise SignInFailed(503, UNAVAILABLE, f"the ID token is refused: {error}") from None

    async def _discover(self) -> None:
        try:
            async with provider_session(self._issuer) as session:
                self._metadata = ProviderMetadata.parse(await session.discover(), self.settings)
        except Exception as error:  # noqa: BLE001 - no document of a provider may end the process's sign-ins
            issuer, reason = self.settings.issuer, reason_of(error)
            log.warning("the identity provider %s cannot be discovered: %s", issuer, reason)
        else:
            self._due_seconds = time.monotonic() + LIFE_SECONDS
        finally:
            self._task = None

    async def _id_token(self, metadata: ProviderMetadata, code: str, flow: SignInFlow) -> str:
        settings, headers = self.settings, {}
        form = {
            "grant_type": "authorization_code",
            "code": code,
            "redirect_uri": settings.redirect_url,
            "code_verifier": flow.verifier,
        }
        secret = None if settings.client_secret is None else settings.client_secret.reveal()
        if secret is None or metadata.sends_secret_in_form:
            form |= {"client_id": settings.client_id} | ({} if secret is None else {"client_secret": secret})
        else:
            headers = {"Authorization": _basic(settings.client_id, secret)}
        async with provider_session(self._issuer) as session:
            answer = await session.post(metadata.token_endpoint, form, headers)
        parsed = _parsed(answer)
        if answer.status != OK:
            error = parsed.get("error")
            if error == "invalid_grant":
                raise SignInFailed(400, AGAIN, "the provider refuses the code")
            raise FetchError(f"it answers {answer.status} {error_code(error)}".rstrip())
        text = parsed.get("id_token")
        if not isinstance(text, str):
            raise FetchError("it gives no ID token; the scope openid is needed")
        return text

    async def _verified(self, text: str, flow: SignInFlow) -> VerifiedIdToken:
        """Return a verified ID token (OpenID Connect Core 1.0, section 3.1.3.7). Raises TokenRefused."""
        token = IdentityToken.parse(text)
        if token is None or token.issuer != self.settings.issuer:
            raise TokenRefused("issuer", "it is no token of the issuer")
        claims, _ = await self._keys.verify(token, self._now_ms() / 1000)
        audiences, party = texts_of(claims.get("aud")), claims.get("azp")
        if self.settings.client_id not in audiences:
            raise TokenRefused("audience", "it is for another client")
        if party != self.settings.client_id and (party is not None or len(audiences) > 1):
            raise TokenRefused("audience", "it was issued to another client")
        if "iat" not in claims:
            raise TokenRefused("expired", "it has no time of issue")
        nonce = claims.get("nonce")
        if not isinstance(nonce, str) or not hmac.compare_digest(nonce.encode(), flow.nonce.encode()):
            raise TokenRefused("subject", "it is of another sign-in: its nonce differs")
        return VerifiedIdToken(claims, text if len(text) <= MAX_HINT_LENGTH else None)


def error_code(value: Any) -> str:
    """Return an error of a provider as it may be in the log; empty for one that is none."""
    return value if isinstance(value, str) and _ERROR_CODE.fullmatch(value) else ""


def _parsed(answer: ProviderAnswer) -> dict[str, Any]:
    try:
        parsed = orjson.loads(answer.body)
    except ValueError:
        parsed = None
    if not isinstance(parsed, dict):
        raise FetchError(f"it answers {answer.status} without JSON")
    return parsed


def _basic(client_id: str, secret: str) -> str:
    """Return the header of Basic authentication, encoded by RFC 6749, section 2.3.1."""
    pair = f"{quote_plus(client_id)}:{quote_plus(secret)}"
    return f"Basic {base64.b64encode(pair.encode()).decode()}"


def _with_query(url: str, query: Mapping[str, str]) -> str:
    return f"{url}{'&' if '?' in url else '?'}{urlencode(query)}"
