"""A temporary credential, and the request for one."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from gateway.config.locations import Location
from gateway.config.networks import Network
from gateway.config.secret import Secret

CredentialForm = Literal["awsTempCredentials", "azureUserDelegationSas", "gcpOauthToken", "r2Credentials"]
"""The names of the forms in answers."""


@dataclass(frozen=True, slots=True)
class CredentialRequest:
    """A request for a credential.

    Attributes:
        location: the directory that the credential gives access to. It is not the root of a bucket.
        recipient: name of the recipient, which the provider's logs show where the store supports it.
        networks: addresses from which the credential can be used; empty for all.
        seconds: requested lifetime.

    """

    location: Location
    recipient: str
    networks: tuple[Network, ...]
    seconds: int


@dataclass(frozen=True, slots=True)
class TemporaryCredential:
    """A credential that reads one directory.

    Attributes:
        location: the directory, as clients read it.
        form: name of the form in answers.
        fields: the parts of the form by their names in answers.
        expires_ms: its end, as the provider states it.
        key_id: identifies the credential in logs of the store. Not secret.

    """

    location: Location
    form: CredentialForm
    fields: Mapping[str, Secret]
    expires_ms: int
    key_id: str

    @property
    def size_bytes(self) -> int:
        """Return the approximate size in memory."""
        return sum(len(name) + len(value.reveal()) for name, value in self.fields.items())


def digest_id(secret: str) -> str:
    """Return an id for a secret that has none: its SHA-256, as logs of Azure show it for signatures."""
    return hashlib.sha256(secret.encode()).hexdigest()
