"""The section of the admin listener: its tokens and its TLS."""

from __future__ import annotations

from dataclasses import dataclass

from gateway.config.checks import check_hash, check_host
from gateway.config.oidc import ConsoleOidc
from gateway.config.operation import Ssl, setting


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
        check_host("host", self.host)
        for name in ("token_sha256", "metrics_token_sha256", "viewer_token_sha256"):
            value = getattr(self, name)
            if value is not None:
                check_hash(name, value)
