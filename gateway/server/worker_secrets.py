"""Secrets and configuration that all workers of a server share; no file holds them.

In: the configuration. Out: the secret of page tokens, refresh tokens and local URLs where no `tokenKeys` are
configured, the self-signed certificate, and the text of the configuration in force. Workers with different
secrets would reject each other's tokens. A worker that restarts while the file holds a rejected
configuration, or a file with a secret is gone, could not start without their texts.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field

from gateway.authentication.sealed_tokens import SECRET_BYTES
from gateway.config import Config
from gateway.config.secret import Secret


@dataclass(frozen=True, slots=True)
class WorkerSecrets:
    """The secrets that all workers of a server share. `certificate` is a self-signed PEM pair."""

    token_secret: bytes = field(repr=False)
    certificate: bytes | None = field(default=None, repr=False)
    config_text: str = field(default="", repr=False)
    has_database: bool = False
    """Whether the database existed at the start; if so, a worker must not start without it."""
    discovered: int = -1
    """The descriptor of the file in memory in which the supervisor lists discovered tables."""
    of_files: Mapping[str, Secret] = field(default_factory=dict)
    """The secrets of files, by their paths."""

    @staticmethod
    def made(config: Config) -> WorkerSecrets:
        """Make the secrets, once for a server."""
        certificate = None
        if config.ssl is not None and config.ssl.self_signed:
            # The library is slow to import.
            from gateway.server.self_signed import self_signed_pair  # noqa: PLC0415

            certificate = self_signed_pair(config.host)
        return WorkerSecrets(os.urandom(SECRET_BYTES), certificate, config.text, config.has_database)

    def pack(self) -> bytes:
        """Return the bytes that a worker receives."""
        certificate = None if self.certificate is None else self.certificate.decode()
        return json.dumps(
            [
                self.token_secret.hex(),
                certificate,
                self.config_text,
                self.has_database,
                self.discovered,
                {path: secret.reveal() for path, secret in self.of_files.items()},
            ]
        ).encode()

    @staticmethod
    def unpack(packed: bytes) -> WorkerSecrets:
        """Read the bytes of `pack`."""
        token_secret, certificate, config_text, has_database, discovered, of_files = json.loads(packed)
        encoded = None if certificate is None else certificate.encode()
        secrets = {path: Secret(text) for path, text in of_files.items()}
        return WorkerSecrets(
            bytes.fromhex(token_secret), encoded, config_text, has_database, discovered, secrets
        )
