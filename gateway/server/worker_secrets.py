"""What the workers of one server have in common although no file holds it: handed to each at its start.

In: the configuration. Out: the secret behind page tokens, refresh tokens and local URLs where no `tokenKeys`
are configured, the self-signed certificate, both made once for a server, and the text of the configuration in
force. Workers that made their own secrets would refuse each other's tokens; one that is started again while
the file holds a configuration that the server has refused could not start.
"""

from __future__ import annotations

import json
import os
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from gateway.access.sealed_tokens import SECRET_BYTES
from gateway.server.self_signed import self_signed_pair

if TYPE_CHECKING:
    from gateway.config import Config


@dataclass(frozen=True, slots=True)
class WorkerSecrets:
    """Secrets of one server. `certificate` is a PEM pair of key and certificate, where one is to be made."""

    token_secret: bytes = field(repr=False)
    certificate: bytes | None = field(default=None, repr=False)
    config_text: str = field(default="", repr=False)
    has_recipients_database: bool = False
    """It was there when the server started: a worker that does not find it must not start without it."""

    @staticmethod
    def made(config: Config) -> WorkerSecrets:
        """Make them, once for a server."""
        is_self_signed = config.ssl is not None and config.ssl.self_signed
        certificate = self_signed_pair(config.host) if is_self_signed else None
        return WorkerSecrets(
            os.urandom(SECRET_BYTES), certificate, config.text, config.recipients_database.exists()
        )

    def pack(self) -> bytes:
        """The bytes to hand down."""
        certificate = None if self.certificate is None else self.certificate.decode()
        return json.dumps(
            [self.token_secret.hex(), certificate, self.config_text, self.has_recipients_database]
        ).encode()

    @staticmethod
    def unpack(packed: bytes) -> WorkerSecrets:
        """Read what `pack` made."""
        token_secret, certificate, config_text, has_database = json.loads(packed)
        encoded = None if certificate is None else certificate.encode()
        return WorkerSecrets(bytes.fromhex(token_secret), encoded, config_text, has_database)
