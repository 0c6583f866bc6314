"""Verifies tokens of identity providers.

In: a bearer token and the state of the gateway. Out: a `Credential` of its recipient. The signature of a
token is verified once, and its verified claims are kept until it ends, within a bound of bytes. Its policy is
looked up for each request, so a policy that is removed takes effect at once. Every refusal gets the same
answer; the reason is in the log and in the metrics.
"""

from __future__ import annotations

import logging
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from gateway.authentication.credential_table import Credential, token_hash
from gateway.authentication.policies import VERIFIED, PolicyTable, TokenRefused
from gateway.config import Config, Issuer
from gateway.oidc.identity_token import LEEWAY_SECONDS, IdentityToken, SigningKey
from gateway.oidc.issuer_keys import IssuerKeys
from gateway.times import MILLISECONDS

if TYPE_CHECKING:
    from gateway.state import GatewayState

log = logging.getLogger("gateway.federation")

MAX_CACHED_BYTES = 16 * 1024 * 1024
BYTES_PER_CHARACTER, BYTES_PER_TOKEN = 4, 1024
"""Estimated memory of kept claims, by the length of their token."""


@dataclass(frozen=True, slots=True)
class VerifiedToken:
    """The claims of a token, and the key that signed it."""

    claims: Mapping[str, Any]
    key: SigningKey
    estimated_bytes: int

    @property
    def expires_ms(self) -> int:
        """Return the end of the token, with the leeway for clocks."""
        return int((self.claims["exp"] + LEEWAY_SECONDS) * MILLISECONDS)

    def credential(self, sha256: bytes, policies: PolicyTable) -> Credential:
        """Return the credential by the current policies. Raises TokenRefused."""
        claims = self.claims
        subject, token_id = claims.get("sub"), claims.get("jti")
        identity = [("issuer", claims["iss"])]
        if isinstance(subject, str):
            identity.append(("subject", subject))
        if isinstance(token_id, str):
            identity.append(("tokenIdSha256", token_hash(token_id).hex()))
        return Credential(sha256, policies.recipient(claims), self.expires_ms, tuple(identity), self)


class TokenVerifier:
    """The issuers' keys and the verified tokens of a process."""

    def __init__(self) -> None:
        self._keys: dict[Issuer, IssuerKeys] = {}
        self._verified: OrderedDict[bytes, VerifiedToken] = OrderedDict()
        self._bytes = 0
        self._issuers: tuple[Issuer, ...] = ()

    async def credential(self, text: str, state: GatewayState) -> Credential | None:
        """Return the credential of a token; None for a text that is not a token of an identity provider.

        Raises TokenRefused.
        """
        issuers = state.config.gateway.oidc.issuers
        now_ms, sha256 = state.now_ms(), token_hash(text)
        self._notice_reload(issuers)
        verified = self._kept(sha256, issuers, now_ms)
        if verified is None:
            token = IdentityToken.parse(text)
            if token is None:
                return None
            verified = await self._verify(token, issuers, now_ms)
            self._remember(sha256, verified)
        return verified.credential(sha256, state.credentials.policies)

    def renewed(self, credential: Credential, state: GatewayState) -> Credential | None:
        """Return a credential by the current policies and keys; None if it is no longer accepted.

        The token need not be kept here: a stream may last longer.
        """
        verified = credential.verified
        issuers, now_ms = state.config.gateway.oidc.issuers, state.now_ms()
        if not isinstance(verified, VerifiedToken) or not self._is_valid(verified, issuers, now_ms):
            return None
        try:
            return verified.credential(credential.sha256, state.credentials.policies)
        except TokenRefused:
            return None

    def ages_seconds(self, config: Config) -> Mapping[str, float]:
        """Return the ages of the keys of issuers, as far as they were fetched, and keep these fresh.

        Keys that no token needs for half a day would look as if they could not be fetched.
        """
        ages: dict[str, float] = {}
        for issuer in config.gateway.oidc.issuers:
            keys = self._keys.get(issuer)
            if keys is not None and keys.age_seconds is not None:
                keys.refresh()
                ages[issuer.issuer] = keys.age_seconds
        return ages

    def _notice_reload(self, issuers: tuple[Issuer, ...]) -> None:
        """Fetch the keys of all issuers again after a reload of the configuration."""
        if issuers is not self._issuers:
            self._issuers = issuers
            for keys in self._keys.values():
                keys.is_stale = True

    def _kept(self, sha256: bytes, issuers: tuple[Issuer, ...], now_ms: int) -> VerifiedToken | None:
        verified = self._verified.get(sha256)
        if verified is None:
            return None
        if not self._is_valid(verified, issuers, now_ms):
            del self._verified[sha256]
            self._bytes -= verified.estimated_bytes
            return None
        self._verified.move_to_end(sha256)
        issuer = _issuer(issuers, verified.claims["iss"])
        return None if issuer is not None and self._keys[issuer].is_stale else verified

    def _is_valid(self, verified: VerifiedToken, issuers: tuple[Issuer, ...], now_ms: int) -> bool:
        issuer = _issuer(issuers, verified.claims["iss"])
        keys = self._keys.get(issuer) if issuer is not None else None
        return keys is not None and now_ms < verified.expires_ms and keys.is_current(verified.key)

    def _remember(self, sha256: bytes, verified: VerifiedToken) -> None:
        if sha256 in self._verified:
            return
        self._verified[sha256] = verified
        self._bytes += verified.estimated_bytes
        while self._bytes > MAX_CACHED_BYTES:
            _, oldest = self._verified.popitem(last=False)
            self._bytes -= oldest.estimated_bytes

    async def _verify(self, token: IdentityToken, issuers: tuple[Issuer, ...], now_ms: int) -> VerifiedToken:
        issuer = _issuer(issuers, token.issuer)
        if issuer is None:
            raise TokenRefused("issuer", "the token's issuer is not configured")
        claims, key = await self._keys_of(issuer, issuers).verify(token, now_ms / MILLISECONDS)
        if issuer.emails_are_verified:
            claims = {VERIFIED: True, **claims}
        return VerifiedToken(claims, key, len(token.text) * BYTES_PER_CHARACTER + BYTES_PER_TOKEN)

    def _keys_of(self, issuer: Issuer, issuers: tuple[Issuer, ...]) -> IssuerKeys:
        if issuer not in self._keys:
            # A reload may have changed or removed the others.
            self._keys = {known: keys for known, keys in self._keys.items() if known in issuers}
            self._keys[issuer] = IssuerKeys(issuer)
        return self._keys[issuer]


def _issuer(issuers: tuple[Issuer, ...], name: str) -> Issuer | None:
    return next((issuer for issuer in issuers if issuer.issuer == name), None)
