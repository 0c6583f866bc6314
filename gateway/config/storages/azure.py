"""The keys of Azure in `gateway.storages[]`."""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Literal

from gateway.config.checks import check_url
from gateway.config.errors import Invalid
from gateway.config.known_keys import camel_case
from gateway.config.locations import Location, check_account
from gateway.config.networks import Network, address_range
from gateway.config.operation import setting
from gateway.config.secret import Secret
from gateway.config.storages.entry import StorageEntry

_IDENTITY_KEYS = {
    "accountKey": ("account_key",),
    "clientSecret": ("tenant_id", "client_id", "client_secret"),
    "workloadIdentity": ("tenant_id", "client_id", "federated_token_file"),
    "managedIdentity": ("client_id",),
    "cli": ("tenant_id",),
    "auto": ("client_id",),
}
_DIRECTORY_ID = re.compile(r"[A-Za-z0-9.-]{1,128}")


@dataclass(frozen=True, slots=True)
class AzureEntry(StorageEntry):
    """A container of Azure.

    Attributes:
        account: Azure: storage account of a prefix whose form names none, such as `az://container/`.
        account_key: Azure: key of the account, in Base64. It reads and signs.
        tenant_id: Azure: directory of the client.
        client_id: Azure: client of a secret or of a federated token, or the user-assigned managed identity.
        client_secret: Azure: secret of the client.
        federated_token_file: Azure: file with the token of a workload identity.
        identity: Azure: the identity to use: `auto`, `accountKey`, `clientSecret`, `workloadIdentity`,
            `managedIdentity` or `cli`. `auto` takes the first one that the keys of the entry or the
            environment describe.
        authority_host: Azure: host of Microsoft Entra ID in national clouds, as a URL.
        hierarchical_namespace: Azure: the account has a hierarchical namespace, which directory access needs.

    """

    KIND: ClassVar[str] = "azure"
    KIND_NAME: ClassVar[str] = "Azure"

    account: str | None = setting(None, identifies=False)
    account_key: Secret | None = None
    tenant_id: str | None = None
    client_id: str | None = None
    client_secret: Secret | None = None
    federated_token_file: Path | None = None
    identity: Literal["auto", "accountKey", "clientSecret", "workloadIdentity", "managedIdentity", "cli"] = (
        "auto"
    )
    authority_host: str | None = None
    hierarchical_namespace: bool = setting(False, identifies=False)

    @property
    def chosen_identity(self) -> str:
        """Return the identity on Azure that the keys choose; `auto` where the environment does."""
        if self.identity != "auto":
            return self.identity
        if self.account_key is not None:
            return "accountKey"
        if self.client_secret is not None:
            return "clientSecret"
        return "auto" if self.federated_token_file is None else "workloadIdentity"

    @property
    def extra(self) -> str:
        """Return the extra that requests tokens; empty for the key of the account."""
        return "azure" if self.chosen_identity != "accountKey" else ""

    def networks_problem(self, networks: Sequence[Network]) -> str | None:
        """Return why a credential cannot be limited to a recipient's networks; None if it can."""
        if networks and address_range(networks) is None:
            return "credentials of Azure can be limited to one range of IPv4 addresses only"
        return None

    def _root_problem(self, location: Location) -> str | None:
        if "?" in location.key or "#" in location.key:
            return "its path has ? or #, which no location for clients can have; give it another path"
        if not self.hierarchical_namespace:
            return (
                "an account with a flat namespace has no credentials for a directory; if the account has a "
                "hierarchical namespace, give hierarchicalNamespace: true in gateway.storages"
            )
        return None

    def _check(self) -> None:
        check_url("authority_host", self.authority_host)
        self._check_printable("client_secret")
        if self.account is not None:
            try:
                check_account(self.account)
            except ValueError as reason:
                raise Invalid("account", str(reason)) from None
            if self.account != self.prefix.account:
                raise Invalid("account", f"the prefix is in the account {self.prefix.account}")
        if self.account_key is not None and not _is_base64(self.account_key.reveal()):
            raise Invalid("account_key", "is not Base64; copy the key of the account as a whole")
        chosen = self.chosen_identity
        if chosen != "accountKey" and (self.endpoint or "").startswith("http://"):
            raise Invalid("endpoint", "tokens are sent only by HTTPS; give https://, or accountKey")
        self._check_form("tenant_id", _DIRECTORY_ID, "the id or the domain of a directory")
        self._check_form("client_id", _DIRECTORY_ID, "the id of a client")
        if self.authority_host is not None and not self.authority_host.startswith("https://"):
            raise Invalid("authority_host", "tokens are requested only by HTTPS; accepted: https://host")
        self._check_identity(chosen)

    def _check_identity(self, chosen: str) -> None:
        """Check that the chosen identity has its keys, and no other identity has any."""
        needed = _IDENTITY_KEYS[chosen] if chosen in ("accountKey", "clientSecret") else ()
        if self.federated_token_file is not None:
            needed = ("tenant_id", "client_id")
        for name in needed:
            if getattr(self, name) is None:
                # A key that chooses the identity is at its place, else `identity` is.
                given = next(
                    (key for key in ("client_secret", "federated_token_file") if getattr(self, key)),
                    "identity",
                )
                text = chosen if given == "identity" else f"a {camel_case(given)}"
                missing = [camel_case(key) for key in needed if key != given]
                raise Invalid(given, f"{text} needs {' and '.join(missing)}")
        for name in dict.fromkeys(key for keys in _IDENTITY_KEYS.values() for key in keys):
            if getattr(self, name) is not None and name not in _IDENTITY_KEYS[chosen]:
                if chosen == "auto":
                    raise Invalid(name, "needs clientSecret, federatedTokenFile or `identity`")
                raise Invalid(
                    name, f"is not used by the identity {chosen}; remove it, or the keys of {chosen}"
                )


def _is_base64(text: str) -> bool:
    try:
        decoded = base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        return False
    # Bits after the last byte are an error for other decoders.
    return bool(decoded) and base64.b64encode(decoded).decode() == text
