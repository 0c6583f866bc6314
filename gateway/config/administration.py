"""The section of the admin listener: its tokens, its TLS, and who signs in to the console.

Each is a frozen dataclass as in `sections`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from urllib.parse import urlsplit

from gateway.config.checks import check_hash
from gateway.config.errors import Invalid
from gateway.config.federation import ALGORITHMS, Issuer
from gateway.config.fetched_urls import is_accepted_url
from gateway.config.operation import Ssl, setting
from gateway.config.secret import Secret
from gateway.times import DAY_SECONDS

CALLBACK_PATH = "/console/sign-in/callback"
"""The path to which an identity provider leads a browser back."""

_SHA256 = re.compile(r"[0-9a-fA-F]{64}")
_SCOPE = re.compile(r"[\x21\x23-\x5b\x5d-\x7e]+")
"""A scope by RFC 6749, section 3.3."""
_LOCAL_HOSTS = frozenset({"localhost", "127.0.0.1", "::1"})


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


@dataclass(frozen=True, slots=True)
class Admin:
    """The admin API and metrics, on a separate listener.

    Attributes:
        token_sha256: SHA-256 of the bearer token that opens the admin API and the metrics, in hexadecimal
            digits, as `delta-gateway token --admin` prints it.
        metrics_token_sha256: SHA-256 of a bearer token that opens the metrics only.
        viewer_token_sha256: SHA-256 of a token that signs in to the console to look, not to change anything.
        host: address or host name of the listener.
        port: port of the listener; 0 takes a free one.
        ssl: TLS of the listener, with the keys of the top-level `ssl`; it may name the same files. Without it
            plain HTTP.
        oidc: lets people sign in to the console by an identity provider.

    """

    token_sha256: str
    metrics_token_sha256: str | None = setting(None, protects=True)
    viewer_token_sha256: str | None = setting(None, protects=True)
    host: str = "127.0.0.1"
    port: int = setting(8081, minimum=0, maximum=65535)
    ssl: Ssl | None = setting(None, protects=True)
    oidc: ConsoleOidc | None = setting(None, protects=True)

    def __post_init__(self) -> None:
        for name in ("token_sha256", "metrics_token_sha256", "viewer_token_sha256"):
            value = getattr(self, name)
            if value is not None and not _SHA256.fullmatch(value):
                raise Invalid(name, "expected 64 hexadecimal digits: the SHA-256 of a token")
            check_hash(name, value or "")


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
