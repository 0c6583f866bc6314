"""Credentials of an account of Azure: its key, or a token with a user delegation key."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path

from gateway import _native
from gateway.config.secret import Secret


@dataclass(frozen=True, slots=True)
class UserDelegationKey:
    """A user delegation key, each field as the service returns it.

    Attributes:
        fields: object, tenant, start, expiry, service and version, in the order of signatures.
        value: the key in Base64.

    """

    fields: tuple[str, str, str, str, str, str]
    value: Secret

    @property
    def expiry(self) -> str:
        """Return the end of the key."""
        return self.fields[3]


@dataclass(frozen=True, slots=True)
class AzureCredentials:
    """Credentials that read and sign the containers of an account, with their expiry.

    Attributes:
        account_key: the account's key, in Base64. Without it the other two are there.
        token: the bearer token that reads.
        delegation_key: the key that signs URLs for the token's identity. URLs end before it.
        user_delegation_key: the same key, for signatures of directories.
        expires: the end of the token or of the delegation key, whichever is earlier.
        file: no file is watched.
        source: the identity.

    """

    account_key: Secret | None = None
    token: Secret | None = None
    delegation_key: _native.DelegationKey | None = None
    user_delegation_key: UserDelegationKey | None = field(default=None, compare=False)
    expires: datetime | None = None
    file: Path | None = None
    source: str = field(default="", compare=False)
