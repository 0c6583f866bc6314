"""Tokens of identity providers (JSON Web Tokens): their header, signature and times.

In: the text of a bearer token. Out: its verified claims, or `TokenRefused`. PyJWT verifies signatures. Header
parameters that name or hold a key (`jku`, `jwk`, `x5u`, `x5c`) are ignored: keys are those of the issuer.
"""

from __future__ import annotations

import binascii
import math
from base64 import urlsafe_b64decode
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import jwt
import orjson

from gateway.authentication.policies import TokenRefused

LEEWAY_SECONDS = 60
"""Difference of clocks that is accepted."""
TYPES = frozenset({"jwt", "at+jwt", "application/at+jwt", "application/jwt"})
PARTS = 3
ENCRYPTED_PARTS = 5
MAX_KEYS_OF_A_TOKEN = 4
MIN_RSA_BITS = 2048
FAMILIES: Mapping[tuple[str, str], tuple[str, ...]] = {
    ("RSA", ""): ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512"),
    ("EC", "P-256"): ("ES256",),
    ("EC", "P-384"): ("ES384",),
    ("OKP", "Ed25519"): ("EdDSA",),
}
"""The algorithms of a key, by its type and curve. A key of another type signs nothing here."""

PUBLIC = frozenset({"kty", "crv", "n", "e", "x", "y"})
"""The parameters of public keys."""

_SIGNATURES = jwt.PyJWS()


@dataclass(frozen=True, slots=True)
class IdentityToken:
    """A token whose signature is not verified yet.

    Attributes:
        text: the token.
        issuer: its `iss` claim.
        algorithm: the `alg` of its header.
        key_id: the `kid` of its header.

    """

    text: str = field(repr=False)
    issuer: str
    algorithm: str
    key_id: str | None

    @staticmethod
    def parse(text: str) -> IdentityToken | None:
        """Return the token; None for a text that is no JSON Web Token. Raises TokenRefused."""
        parts = text.split(".") if text.isascii() else []
        header = _json(parts[0]) if len(parts) in (PARTS, ENCRYPTED_PARTS) else None
        if header is None:
            return None
        if len(parts) == ENCRYPTED_PARTS:
            raise TokenRefused("header", "the token is encrypted")
        algorithm, key_id = header.get("alg"), header.get("kid")
        if not isinstance(algorithm, str) or not isinstance(header.get("kid", ""), str):
            raise TokenRefused("header", "the header has no algorithm, or its kid is no text")
        if "crit" in header:
            raise TokenRefused("header", "the header has critical parameters")
        if str(header.get("typ", "JWT")).lower() not in TYPES:
            raise TokenRefused("header", "the token is of another type")
        claims = _json(parts[1])
        issuer = claims.get("iss") if claims is not None else None
        if not isinstance(issuer, str):
            raise TokenRefused("issuer", "the token has no issuer")
        return IdentityToken(text, issuer, algorithm, key_id)

    def claims(self, key: SigningKey, *, now_seconds: float, max_lifetime_seconds: int) -> Mapping[str, Any]:
        """Return the claims. Raises TokenRefused unless the key signed them and they are valid now."""
        try:
            payload = _SIGNATURES.decode(self.text, key.key, algorithms=[self.algorithm])
        except (jwt.PyJWTError, ValueError) as error:
            raise TokenRefused("signature", f"the signature is not valid ({type(error).__name__})") from None
        # These bytes are signed; `parse` may have read others, of a text with unusual characters.
        claims = _parsed(payload)
        if claims is None or claims.get("iss") != self.issuer:
            raise TokenRefused("signature", "the signed claims are not those of the token")
        _check_times(claims, now_seconds, max_lifetime_seconds)
        return claims


@dataclass(frozen=True, slots=True)
class SigningKey:
    """A public key of an issuer, for one family of algorithms."""

    key_id: str | None
    algorithms: tuple[str, ...]
    parameters: tuple[tuple[str, str], ...] = field(repr=False)
    key: Any = field(repr=False, compare=False)


class SigningKeys:
    """The public keys of an issuer."""

    def __init__(self, keys: Iterable[SigningKey]) -> None:
        self._keys = tuple(keys)

    def __len__(self) -> int:
        return len(self._keys)

    def __contains__(self, key: object) -> bool:
        return any(known is key for known in self._keys)

    @staticmethod
    def parse(document: bytes) -> SigningKeys:
        """Return the keys of a JSON Web Key Set. Raises ValueError.

        Keys for encryption, of unknown types and with weak parameters are left out.
        """
        parsed = _parsed(document)
        listed = parsed.get("keys") if parsed is not None else None
        keys = (
            [key for key_document in listed if (key := _signing_key(key_document))]
            if isinstance(listed, list)
            else []
        )
        if not keys:
            raise ValueError("the document is no set of keys, or has no key that can verify a token")
        return SigningKeys(keys)

    def updated(self, keys: SigningKeys) -> SigningKeys:
        """Return newer keys, with the objects of those that did not change."""
        known = {key: key for key in self._keys}
        return SigningKeys(known.get(key, key) for key in keys._keys)

    def find(self, key_id: str | None, algorithm: str) -> list[SigningKey]:
        """Return the few keys that may have signed a token: those of its key id, or all without."""
        fitting = [key for key in self._keys if algorithm in key.algorithms]
        if key_id is not None:
            fitting = [key for key in fitting if key.key_id == key_id]
        # Each costs a verification on the event loop.
        return fitting if len(fitting) <= MAX_KEYS_OF_A_TOKEN else []


def _signing_key(described: Any) -> SigningKey | None:
    if not isinstance(described, dict) or described.get("use", "sig") != "sig":
        return None
    operations = described.get("key_ops", ["verify"])
    if not isinstance(operations, list) or "verify" not in operations:
        return None
    kind, key_id = described.get("kty"), described.get("kid")
    curve = described.get("crv", "") if kind != "RSA" else ""
    if not isinstance(kind, str) or not isinstance(curve, str) or not isinstance(key_id, str | None):
        return None
    algorithms = FAMILIES.get((kind, curve), ())
    if (only := described.get("alg")) is not None:
        algorithms = tuple(name for name in algorithms if name == only)
    if not algorithms:
        return None
    public = {name: value for name, value in described.items() if name in PUBLIC and isinstance(value, str)}
    try:
        key = jwt.PyJWK(public, algorithm=algorithms[0]).key
    except (jwt.PyJWTError, ValueError, TypeError):
        return None
    if kind == "RSA" and key.key_size < MIN_RSA_BITS:
        return None
    return SigningKey(key_id, algorithms, tuple(sorted(public.items())), key)


def _check_times(claims: Mapping[str, Any], now_seconds: float, max_lifetime_seconds: int) -> None:
    times = {name: claims[name] for name in ("exp", "nbf", "iat") if name in claims}
    for name, value in times.items():
        if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
            raise TokenRefused("expired", f"the claim {name} is no time")
    if "exp" not in times:
        raise TokenRefused("expired", "the token has no end")
    if now_seconds >= times["exp"] + LEEWAY_SECONDS:
        raise TokenRefused("expired", "the token has ended")
    if any(times.get(name, 0) > now_seconds + LEEWAY_SECONDS for name in ("nbf", "iat")):
        raise TokenRefused("expired", "the token is not valid yet, or this server's clock is behind")
    if times["exp"] - times.get("iat", now_seconds) > max_lifetime_seconds:
        raise TokenRefused("expired", f"the token lives for more than {max_lifetime_seconds} s")


def _json(part: str) -> dict[str, Any] | None:
    try:
        return _parsed(urlsafe_b64decode(part + "=" * (-len(part) % 4)))
    except (binascii.Error, ValueError):
        return None


def _parsed(document: bytes) -> dict[str, Any] | None:
    try:
        parsed = orjson.loads(document)
    except ValueError:
        return None
    return parsed if isinstance(parsed, dict) else None
