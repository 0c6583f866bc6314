"""What the workers of one server have in common although no file holds it: made once, handed to each.

In: the configuration at the start. Out: the secret behind page tokens, refresh tokens and local URLs where no
`tokenKeys` are configured, and the self-signed certificate. Workers that made their own would refuse each
other's tokens.
"""

from __future__ import annotations

import json
import os
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from gateway.tls import self_signed_pair
from gateway.tokens import SECRET_BYTES

if TYPE_CHECKING:
    from gateway.config import Config


@dataclass(frozen=True, slots=True)
class Handed:
    """Secrets of one server. `certificate` is a PEM pair of key and certificate, where one is to be made."""

    token_secret: bytes = field(repr=False)
    certificate: bytes | None = field(default=None, repr=False)

    @staticmethod
    def made(config: Config) -> Handed:
        """Make them, once for a server."""
        is_self_signed = config.ssl is not None and config.ssl.self_signed
        return Handed(os.urandom(SECRET_BYTES), self_signed_pair(config.host) if is_self_signed else None)

    def pack(self) -> bytes:
        """The bytes to hand down."""
        certificate = None if self.certificate is None else self.certificate.decode()
        return json.dumps([self.token_secret.hex(), certificate]).encode()

    @staticmethod
    def unpack(packed: bytes) -> Handed:
        """Read what `pack` made."""
        token_secret, certificate = json.loads(packed)
        return Handed(bytes.fromhex(token_secret), None if certificate is None else certificate.encode())
