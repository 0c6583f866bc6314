"""Temporary credentials of Azure: a shared access signature of one directory.

It exists in accounts with a hierarchical namespace only. The store refuses it in others.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
from dataclasses import dataclass
from datetime import UTC, datetime
from urllib.parse import quote

from gateway.config.locations import Location
from gateway.config.networks import address_range
from gateway.config.secret import Secret
from gateway.config.storages.azure import AzureEntry
from gateway.storage.azure.credentials import AzureCredentials, UserDelegationKey
from gateway.storage.credentials import CredentialsUnavailable
from gateway.storage.vending.credential import CredentialRequest, TemporaryCredential, digest_id

VERSION = "2022-11-02"
READ_AND_LIST = "rl"


def issued_signature(
    entry: AzureEntry, request: CredentialRequest, keys: AzureCredentials, now_ms: int
) -> TemporaryCredential:
    """Return a signature of a directory. Raises CredentialsUnavailable."""
    if not entry.hierarchical_namespace:
        raise CredentialsUnavailable("a flat namespace has no directories", lasting=True)
    span = address_range(request.networks)
    if request.networks and span is None:
        raise CredentialsUnavailable("the networks are not one range of IPv4 addresses", lasting=True)
    end = now_ms // 1000 + request.seconds
    if keys.user_delegation_key is not None:
        end = min(end, int(datetime.fromisoformat(keys.user_delegation_key.expiry).timestamp()))
    signature = DirectorySignature(
        request.location,
        expiry=datetime.fromtimestamp(end, UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
        addresses="" if span is None else "-".join(dict.fromkeys(map(str, span))),
        protocol="" if (entry.endpoint or "").startswith("http://") else "https",
    )
    token = signature.token(keys.account_key, keys.user_delegation_key)
    return TemporaryCredential(
        request.location,
        "azureUserDelegationSas",
        {"sasToken": Secret(token)},
        end * 1000,
        digest_id(signature.signature(keys.account_key, keys.user_delegation_key)),
    )


@dataclass(frozen=True, slots=True)
class DirectorySignature:
    """A shared access signature that reads and lists a directory.

    Attributes:
        location: the directory.
        expiry: its end, in the form of Azure.
        addresses: an IPv4 address or a range, `first-last`; empty for all.
        protocol: `https`, or empty for both.

    """

    location: Location
    expiry: str
    addresses: str = ""
    protocol: str = "https"

    def token(self, account_key: Secret | None, delegation_key: UserDelegationKey | None) -> str:
        """Return the query string. Raises CredentialsUnavailable without a key."""
        values = {
            "sp": READ_AND_LIST,
            "se": self.expiry,
            "sip": self.addresses,
            "spr": self.protocol,
            "sv": VERSION,
            "sr": "d",
            "sdd": str(len(self.location.key.split("/"))),
        }
        if account_key is None and delegation_key is not None:
            names = ("skoid", "sktid", "skt", "ske", "sks", "skv")
            values |= dict(zip(names, delegation_key.fields, strict=True))
        values["sig"] = self.signature(account_key, delegation_key)
        return "&".join(f"{name}={quote(value, safe='')}" for name, value in values.items() if value)

    def signature(self, account_key: Secret | None, delegation_key: UserDelegationKey | None) -> str:
        """Return the signature in Base64. Raises CredentialsUnavailable without a key."""
        if account_key is not None:
            key, text = account_key, self.string_to_sign(None)
        elif delegation_key is not None:
            key, text = delegation_key.value, self.string_to_sign(delegation_key)
        else:
            raise CredentialsUnavailable("the identity has no key that signs", lasting=True)
        digest = hmac.digest(base64.b64decode(key.reveal()), text.encode(), hashlib.sha256)
        return base64.b64encode(digest).decode()

    def string_to_sign(self, delegation_key: UserDelegationKey | None) -> str:
        """Return the text that is signed: a line for each value, in the order of Azure's version."""
        location = self.location
        resource = f"/blob/{location.account}/{location.bucket}/{location.key}"
        lines = [READ_AND_LIST, "", self.expiry, resource]
        if delegation_key is None:
            lines.append("")  # stored access policy
        else:
            # Authorized user, unauthorized user, correlation.
            lines += [*delegation_key.fields, "", "", ""]
        lines += [self.addresses, self.protocol, VERSION, "d"]
        # Snapshot, encryption scope, and five headers of the answer.
        return "\n".join([*lines, *[""] * 7])
