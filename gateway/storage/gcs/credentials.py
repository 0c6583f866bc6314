"""Credentials of Google Cloud: an HMAC key, or a token and its signer."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path

from gateway.config.secret import Secret


@dataclass(frozen=True, slots=True)
class GcsCredentials:
    """Credentials that read and sign, with their expiry.

    Attributes:
        access_id: id of an HMAC key. Without it `token` reads.
        secret: secret of the HMAC key.
        token: bearer token.
        email: service account that signs; None for an identity that can only read.
        private_key: key of the service account, in PEM form.
        signing_token: token of an identity that may sign with the service account's key by a call.
        iam_endpoint: URL of the service that signs; None for Google's.
        expires: end of the token, or of the signing token if that is earlier.
        file: file that the key comes from.
        source: the identity.

    """

    access_id: Secret | None = None
    secret: Secret | None = None
    token: Secret | None = None
    email: str | None = None
    private_key: Secret | None = None
    signing_token: Secret | None = None
    iam_endpoint: str | None = None
    expires: datetime | None = None
    file: Path | None = None
    source: str = field(default="", compare=False)
