"""The sections for identity providers: issuers, policies of recipients, and the sign-in to the console.

The names are those of federation policies on other platforms.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar
from urllib.parse import urlsplit

from gateway.config.errors import Invalid
from gateway.config.fetched_urls import is_accepted_url
from gateway.config.operation import setting
from gateway.config.secret import Secret
from gateway.times import DAY_SECONDS

ALGORITHMS = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "EdDSA")
"""Accepted signatures: none that a public key could forge."""
CALLBACK_PATH = "/console/sign-in/callback"
"""The path to which an identity provider leads a browser back."""

_SCOPE = re.compile(r"[\x21\x23-\x5b\x5d-\x7e]+")
"""A scope by RFC 6749, section 3.3."""
_LOCAL_HOSTS = frozenset({"localhost", "127.0.0.1", "::1"})


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

    REFUSES_UNKNOWN_KEYS: ClassVar[bool] = True

    issuer: str
    subject: str
    audiences: tuple[str, ...]
    subject_claim: str = setting("sub", protects=True)
    claims: Mapping[str, str] = dataclasses.field(default_factory=dict, metadata={"protects": True})

    def __post_init__(self) -> None:
        if not self.audiences:
            raise Invalid("audiences", "is empty; a token for another service must not be accepted here")


@dataclass(frozen=True, slots=True)
class ConsoleOidc:
    """Sign-in to the console by an identity provider (OpenID Connect, authorization code flow with PKCE).

    A reload takes changed keys, and ends the sessions that began by others.

    Attributes:
        issuer: URL of the provider: the `iss` claim of its ID tokens, byte for byte, and the URL below which
            its discovery document is.
        client_id: id of the console at the provider.
        client_secret: secret of the console at the provider. A public client has none.
        redirect_url: URL to which the provider sends browsers back: the admin listener as browsers see it,
            with the path `/console/sign-in/callback`. Plain `http` is only for this machine.
        scopes: requested scopes; `openid` is always one of them.
        roles_claim: claim of the ID token that decides about the role, such as `groups`, `roles` or `email`.
            A name with dots that is not a claim leads into objects, such as `realm_access.roles`. The values
            of `email` count only with `email_verified`.
        operator_values: values of that claim which make an operator.
        viewer_values: values which make a viewer, who sees every page and changes nothing.
        name_claim: claim of the ID token that names the user in the history and in the audit log.
        algorithms: accepted signature algorithms.
        allow_private_addresses: allows private addresses in the provider's URLs, and `http` on this machine.

    """

    issuer: str
    client_id: str
    redirect_url: str
    client_secret: Secret | None = setting(None, protects=True)
    scopes: tuple[str, ...] = ("openid", "profile", "email")
    roles_claim: str = setting("groups", protects=True)
    operator_values: tuple[str, ...] = setting((), protects=True)
    viewer_values: tuple[str, ...] = setting((), protects=True)
    name_claim: str = "sub"
    algorithms: tuple[str, ...] = setting(ALGORITHMS, protects=True)
    allow_private_addresses: bool = False

    def __post_init__(self) -> None:
        if not is_accepted_url(self.issuer, allow_private_addresses=self.allow_private_addresses):
            raise Invalid(
                "issuer", "expected a URL of https, without a private address unless allowPrivateAddresses"
            )
        # Raises Invalid for algorithms.
        _ = self.trusted_issuer
        if not _is_redirect_url(self.redirect_url):
            raise Invalid(
                "redirect_url",
                f"expected https://HOST{CALLBACK_PATH}, as the provider has it; http only for localhost",
            )
        for scope in self.scopes:
            if not _SCOPE.fullmatch(scope):
                raise Invalid("scopes", "a scope is a word of printable ASCII without quotes and backslashes")
        if not self.operator_values and not self.viewer_values:
            raise Invalid("operator_values", "give operatorValues or viewerValues; else nobody can sign in")

    @property
    def trusted_issuer(self) -> Issuer:
        """Return the provider as an issuer of tokens."""
        return Issuer(
            self.issuer,
            algorithms=self.algorithms,
            max_lifetime_seconds=DAY_SECONDS,
            allow_private_addresses=self.allow_private_addresses,
        )

    @property
    def uses_https(self) -> bool:
        """Return whether browsers reach the console by TLS."""
        return self.redirect_url.startswith("https:")


def _is_redirect_url(url: str) -> bool:
    try:
        parts = urlsplit(url)
        host, _port = parts.hostname or "", parts.port
    except ValueError:
        return False
    is_plain = url.isascii() and url.isprintable() and parts.username is None
    is_callback = parts.path == CALLBACK_PATH and not parts.query and not parts.fragment
    is_safe = parts.scheme == "https" or (parts.scheme == "http" and host in _LOCAL_HOSTS)
    return bool(host) and is_plain and is_callback and is_safe
