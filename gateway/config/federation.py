"""The sections for tokens of identity providers: trusted issuers, and policies of recipients.

The names are those of federation policies on other platforms.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from gateway.config.errors import Invalid
from gateway.config.fetched_urls import is_accepted_url
from gateway.config.operation import setting
from gateway.times import DAY_SECONDS

ALGORITHMS = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "EdDSA")
"""Accepted signatures: none that a public key could forge."""


@dataclass(frozen=True, slots=True)
class Issuer:
    """An identity provider whose tokens are accepted.

    Attributes:
        issuer: the `iss` claim of its tokens, byte for byte, and the URL of its discovery document.
        jwks_uri: URL of its public keys. Without it the URL of the discovery document's `jwks_uri`.
        jwks_file: file with its public keys, instead of a URL. It is read again every minute.
        algorithms: accepted signature algorithms.
        max_lifetime_seconds: maximum lifetime of a token, from `iat` to `exp`.
        emails_are_verified: accepts its claim `email` also without `email_verified`, which some providers
            never send. Only for a provider whose users cannot choose their address.
        allow_private_addresses: allows private addresses in its URLs, and `http` on this machine. Behind a
            proxy of the environment, which resolves names itself, addresses of names are not checked.

    """

    issuer: str
    jwks_uri: str | None = None
    jwks_file: Path | None = None
    algorithms: tuple[str, ...] = setting(ALGORITHMS, protects=True)
    max_lifetime_seconds: int = setting(DAY_SECONDS, minimum=1, protects=True)
    emails_are_verified: bool = False
    allow_private_addresses: bool = False

    def __post_init__(self) -> None:
        if self.jwks_uri is not None and self.jwks_file is not None:
            raise Invalid("jwks_file", "jwksUri and jwksFile exclude each other")
        for algorithm in self.algorithms:
            if algorithm not in ALGORITHMS:
                raise Invalid(
                    "algorithms", f"'{algorithm}' is not accepted; accepted: {', '.join(ALGORITHMS)}"
                )
        if not self.algorithms:
            raise Invalid("algorithms", "is empty; leave the key out to accept all algorithms")
        if self.jwks_file is None:
            name = "issuer" if self.jwks_uri is None else "jwks_uri"
            url = self.issuer if self.jwks_uri is None else self.jwks_uri
            if not is_accepted_url(url, allow_private_addresses=self.allow_private_addresses):
                raise Invalid(
                    name,
                    "its keys are fetched by https only, and not from private addresses without "
                    "allowPrivateAddresses; with jwksFile nothing is fetched",
                )


@dataclass(frozen=True, slots=True)
class Oidc:
    """Tokens of identity providers (OpenID Connect).

    Attributes:
        issuers: the accepted identity providers.

    """

    issuers: tuple[Issuer, ...] = ()

    def __post_init__(self) -> None:
        names = [issuer.issuer for issuer in self.issuers]
        if len({*names}) < len(names):
            raise Invalid("issuers", "an issuer is listed twice")


@dataclass(frozen=True, slots=True)
class PolicyEntry:
    """Which tokens of an identity provider are those of a recipient.

    Attributes:
        issuer: an issuer of `gateway.oidc.issuers`.
        subject_claim: claim that identifies the recipient: `sub`, `oid`, `azp`, `groups` or another claim.
        subject: value of that claim. A claim that is a list must contain it.
        audiences: accepted values of the `aud` claim; one of them must be in the token.
        claims: further claims with the values that they must have. `scope` and `scp` must contain theirs.

    """

    issuer: str
    subject: str
    audiences: tuple[str, ...]
    subject_claim: str = setting("sub", protects=True)
    claims: Mapping[str, str] = dataclasses.field(default_factory=dict, metadata={"protects": True})

    def __post_init__(self) -> None:
        if not self.audiences:
            raise Invalid("audiences", "is empty; a token for another service must not be accepted here")
