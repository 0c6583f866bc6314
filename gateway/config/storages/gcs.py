"""The keys of Google Cloud Storage in `gateway.storages[]`."""

from __future__ import annotations

import base64
import binascii
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from gateway.config.checks import check_url
from gateway.config.errors import Invalid
from gateway.config.locations import Location
from gateway.config.networks import Network
from gateway.config.operation import setting
from gateway.config.secret import Secret
from gateway.config.storages.entry import StorageEntry, check_access_key, is_insecure

_CREDENTIAL_FIELDS: Mapping[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "service_account": (("client_email", "private_key", "token_uri"), ()),
    "authorized_user": (("client_id", "client_secret", "refresh_token"), ()),
    "external_account": (("audience", "subject_token_type", "token_url"), ("credential_source",)),
    "external_account_authorized_user": (("client_id", "client_secret", "refresh_token", "token_url"), ()),
    "impersonated_service_account": (("service_account_impersonation_url",), ("source_credentials",)),
}
"""The texts and the maps that a file of each type must have."""

_PEM = re.compile(
    r"\s*-----BEGIN (RSA )?PRIVATE KEY-----\s+([A-Za-z0-9+/=\s]+?)-----END (?:RSA )?PRIVATE KEY-----\s*"
)
_EMAIL = re.compile(r"[^@\s/]+@[^@\s/]+")
_PROJECT = re.compile(r"[a-z0-9.:-]{1,100}")


@dataclass(frozen=True, slots=True)
class GcsEntry(StorageEntry):
    """A bucket of Google. The reference takes the meaning of keys that S3 has, too, from `S3Entry`.

    Attributes:
        access_key_id: id of an HMAC key, which reads and signs.
        secret_access_key: secret of the HMAC key.
        sts_endpoint: URL of the token service.
        credentials_file: Google: JSON file of a service account, of a workload identity federation or of
            another type. Without it the application default credentials.
        impersonate: Google: e-mail address of a service account whose tokens are used.
        user_project: Google: project that is charged for requests to buckets whose requester pays.
        max_remote_signatures: Google: number of files in an answer up to which URLs are signed by one call
            each, where no key is on the machine.

    """

    KIND: ClassVar[str] = "gs"
    KIND_NAME: ClassVar[str] = "gs://"

    access_key_id: Secret | None = None
    secret_access_key: Secret | None = None
    sts_endpoint: str | None = None
    credentials_file: Path | None = None
    impersonate: str | None = None
    user_project: str | None = setting(None, identifies=False)
    max_remote_signatures: int = setting(1000, minimum=0, identifies=False)

    @property
    def extra(self) -> str:
        """Return the extra that requests tokens; empty for an HMAC key."""
        return "gcp" if self.access_key_id is None else ""

    def networks_problem(self, networks: Sequence[Network]) -> str | None:
        """Return why a credential cannot be limited to a recipient's networks; None if it can."""
        return "credentials of Google cannot be limited to networks" if networks else None

    def _root_problem(self, _location: Location) -> str | None:
        if self.access_key_id is not None:
            return "an HMAC key issues no tokens; give credentialsFile in gateway.storages"
        return None

    def _check(self) -> None:
        check_url("sts_endpoint", self.sts_endpoint)
        check_access_key(self.access_key_id, self.secret_access_key)
        self._check_visible("access_key_id")
        self._check_printable("secret_access_key")
        if self.access_key_id is not None:
            for name in ("credentials_file", "impersonate", "user_project"):
                if getattr(self, name) is not None:
                    raise Invalid(name, "is not used with an HMAC key; remove it, or accessKeyId")
        elif is_insecure(self.endpoint):
            raise Invalid("endpoint", "tokens are sent only by HTTPS; give https://, or accessKeyId")
        if is_insecure(self.sts_endpoint):
            raise Invalid("sts_endpoint", "tokens are sent only by HTTPS; give https://")
        self._check_form("impersonate", _EMAIL, "name@project.iam.gserviceaccount.com")
        self._check_form("user_project", _PROJECT, "the id of a project")
        if self.credentials_file is not None:
            try:
                google_credentials(self.credentials_file)
            except ValueError as reason:
                raise Invalid("credentials_file", str(reason)) from None


def google_credentials(file: Path) -> dict[str, object]:
    """Read a file with credentials of Google. Raises ValueError, whose text has nothing of the file."""
    try:
        document = json.loads(file.read_text(encoding="utf-8-sig"))
    except OSError as reason:
        raise ValueError(f"{file} cannot be read: {reason.strerror}") from None
    except (ValueError, RecursionError):
        raise ValueError(f"{file} is not JSON") from None
    kind = document.get("type") if isinstance(document, dict) else None
    if not isinstance(kind, str) or kind not in _CREDENTIAL_FIELDS:
        raise ValueError(
            f"{file} has no credentials of Google: its `type` is none of {', '.join(_CREDENTIAL_FIELDS)}"
        )
    texts, maps = _CREDENTIAL_FIELDS[kind]
    missing = [name for name in texts if not isinstance(document.get(name), str) or not document[name]]
    missing += [name for name in maps if not isinstance(document.get(name), dict) or not document[name]]
    if missing:
        raise ValueError(f"{file} has no {' and no '.join(missing)}")
    if kind == "service_account" and not _is_private_key(document["private_key"]):
        raise ValueError(f"{file} has a private_key that is no private key of RSA in PEM form")
    return dict(document)


def _is_private_key(text: str) -> bool:
    """Return whether a text is a whole private key: one DER sequence with a version, in PEM form."""
    match = _PEM.fullmatch(text)
    if match is None:
        return False
    try:
        content = base64.b64decode("".join(match[2].split()), validate=True)
    except (binascii.Error, ValueError):
        return False
    # 30 82 LENGTH: a sequence of 256 to 65,535 bytes, as keys of 512 bits and more are; 02 01 00: version 0.
    return (
        content[:2] == b"\x30\x82"
        and int.from_bytes(content[2:4]) == len(content) - 4
        and content[4:7] == b"\x02\x01\x00"
    )
