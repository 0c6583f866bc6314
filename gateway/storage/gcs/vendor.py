"""Temporary credentials of Google: an access token with a credential access boundary of one directory."""

from __future__ import annotations

import time
from typing import Any

from gateway.config.locations import Location
from gateway.config.secret import Secret
from gateway.config.storages.gcs import GcsEntry
from gateway.storage.credentials import CredentialsUnavailable
from gateway.storage.gcs.credentials import GcsCredentials
from gateway.storage.vending.credential import CredentialRequest, TemporaryCredential, digest_id

LIST_PREFIX = "api.getAttribute('storage.googleapis.com/objectListPrefix', '')"


def issued_token(entry: GcsEntry, request: CredentialRequest, keys: GcsCredentials) -> TemporaryCredential:
    """Return a token that expires with the token of `keys`. Blocks. Raises CredentialsUnavailable."""
    from gateway.storage.gcs.tokens import exchanged  # noqa: PLC0415

    if keys.token is None or request.networks:
        raise CredentialsUnavailable("credentials of Google cannot be limited as requested", lasting=True)
    token, seconds = exchanged(
        keys.token.reveal(),
        access_boundary(request.location),
        entry.sts_endpoint,
    )
    ends = keys.expires.timestamp() if keys.expires is not None else None
    if seconds is not None:
        ends = time.time() + seconds if ends is None else min(ends, time.time() + seconds)
    if ends is None:
        raise CredentialsUnavailable("Google answers without the end of the token")
    return TemporaryCredential(
        request.location,
        "gcpOauthToken",
        {"oauthToken": Secret(token)},
        int(ends) * 1000,
        digest_id(token),
    )


def access_boundary(location: Location) -> dict[str, Any]:
    """Return the boundary that permits to list a directory and to read its objects."""
    bucket = f"projects/_/buckets/{location.bucket}"
    objects, prefix = string_literal(f"{bucket}/objects/{location.key}/"), string_literal(f"{location.key}/")
    rule = {
        "availableResource": f"//storage.googleapis.com/{bucket}",
        "availablePermissions": ["inRole:roles/storage.objectViewer"],
        "availabilityCondition": {
            "expression": f"resource.name.startsWith({objects}) || {LIST_PREFIX}.startsWith({prefix})"
        },
    }
    return {"accessBoundary": {"accessBoundaryRules": [rule]}}


def string_literal(text: str) -> str:
    """Return a string literal of CEL: a quote in a key would end the literal and extend the condition."""
    return "'" + "".join(_ESCAPES.get(c, c if c.isprintable() else _by_code(c)) for c in text) + "'"


_ESCAPES = {"\\": "\\\\", "'": "\\'", '"': '\\"', "`": "\\`", "?": "\\?"}


def _by_code(character: str) -> str:
    code = ord(character)
    return f"\\u{code:04x}" if code <= 0xFFFF else f"\\U{code:08x}"  # noqa: PLR2004 - four or eight digits
