"""The section `gateway.storages[]`: how the locations below a prefix are reached and signed."""

from __future__ import annotations

import base64
import binascii
import dataclasses
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from ipaddress import ip_address
from pathlib import Path
from typing import Literal
from urllib.parse import urlsplit

from gateway.config.errors import Invalid, shown
from gateway.config.known_keys import camel_case
from gateway.config.locations import Location, check_account
from gateway.config.operation import setting
from gateway.config.secret import Secret

_EVERY_KIND = {"prefix", "endpoint", "public_endpoint", "timeout_seconds", "retry_seconds"}
_ACCESS_KEY = {"access_key_id", "secret_access_key"}
_ROLE = ("external_id", "role_session_name", "session_seconds")
KEYS_OF_KIND = {
    "s3": {
        "region",
        "path_style",
        "dual_stack",
        "fips",
        "requester_pays",
        *_ACCESS_KEY,
        "session_token",
        "session_expires",
        "profile",
        "role_arn",
        *_ROLE,
        "sts_endpoint",
        "directory_role_arn",
        "cloudflare_api_token",
    },
    "azure": {
        "account",
        "account_key",
        "tenant_id",
        "client_id",
        "client_secret",
        "federated_token_file",
        "identity",
        "authority_host",
        "hierarchical_namespace",
    },
    "gs": {
        *_ACCESS_KEY,
        "credentials_file",
        "impersonate",
        "user_project",
        "max_remote_signatures",
        "sts_endpoint",
    },
}
"""The keys of each kind of location, beside those of every kind."""

_KIND_NAMES = {"s3": "s3://", "azure": "Azure", "gs": "gs://"}
_IDENTITY_KEYS = {
    "accountKey": ("account_key",),
    "clientSecret": ("tenant_id", "client_id", "client_secret"),
    "workloadIdentity": ("tenant_id", "client_id", "federated_token_file"),
    "managedIdentity": ("client_id",),
    "cli": ("tenant_id",),
    "auto": ("client_id",),
}
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
_REGION = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._-]{0,62}[A-Za-z0-9])?")
_VISIBLE = re.compile(r"[!-~]+")
_SESSION_NAME = re.compile(r"[\w+=,.@-]{2,64}", re.ASCII)
_EXTERNAL_ID = re.compile(r"[\w+=,.@:/-]{2,1224}", re.ASCII)
_ARN = re.compile(r"[!-~]{20,2048}")
_DIRECTORY_ID = re.compile(r"[A-Za-z0-9.-]{1,128}")
_EMAIL = re.compile(r"[^@\s/]+@[^@\s/]+")
_HOST = re.compile(r"(?!\.)(?:(?!\.\.)[a-z0-9._-]){1,253}")
_R2_HOST = re.compile(r"([0-9a-f]{32})(?:\.(eu|fedramp))?\.r2\.cloudflarestorage\.com")
_AWS_DOMAINS = (".amazonaws.com", ".amazonaws.com.cn", ".api.aws")
_PROJECT = re.compile(r"[a-z0-9.:-]{1,100}")


@dataclass(frozen=True, slots=True)
class StorageEntry:
    """How to read the locations below one prefix and to sign their URLs.

    A key belongs to all kinds of stores, or to those that its meaning names. Without keys of an identity
    the identity of the environment is used.

    Attributes:
        prefix: locations in a bucket or container that this entry applies to; the longest matching prefix
            wins.
        endpoint: URL of the object store as the server reaches it. Without it AWS, Azure or Google.
        public_endpoint: URL of the object store in signed URLs, where clients reach it by another host.
        timeout_seconds: time limit of one call to the object store.
        retry_seconds: time for which a failing call is repeated.
        region: S3: region that requests and URLs are signed for. Without it the region of the environment.
        path_style: S3: puts the bucket in the path instead of the host name.
        dual_stack: AWS: uses the hosts that IPv6 reaches, too.
        fips: AWS: uses the hosts with FIPS 140 cryptography.
        requester_pays: AWS: requests, and those of the recipients' URLs, are charged to the identity that
            signs them.
        access_key_id: S3 and Google: access key that reads and signs; of Google an HMAC key. Without it the
            credentials of the environment.
        secret_access_key: S3 and Google: secret of the access key.
        session_token: S3: session token of temporary keys.
        session_expires: S3: ISO 8601 time at which temporary keys end. No URL claims to live longer.
        profile: AWS: profile of the shared credentials file or of AWS's configuration file, which may name a
            role, a single sign-on or a credential process.
        role_arn: AWS: role that is assumed with the credentials of this entry or of the environment.
        external_id: AWS: external id that the role's trust policy asks for.
        role_session_name: AWS: name of the role's session in the logs of the provider. Without it
            `delta-sharing-gateway`.
        session_seconds: AWS: lifetime of the role's session. Without it one hour, the most for a role that
            is assumed by another role's session.
        sts_endpoint: AWS and Google: URL of the token service; of R2, of Cloudflare's API. Without it that of
            the region or of the provider. Directory access needs it for other stores of S3.
        directory_role_arn: AWS: role whose sessions recipients of directory access get, limited to the table.
            Without it `roleArn`. Stores other than AWS accept any text in the form of an ARN.
        cloudflare_api_token: R2: token of Cloudflare's API, for temporary credentials of directory access.
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
        credentials_file: Google: JSON file of a service account, of a workload identity federation or of
            another type. Without it the application default credentials.
        impersonate: Google: e-mail address of a service account whose tokens are used.
        user_project: Google: project that is charged for requests to buckets whose requester pays.
        max_remote_signatures: Google: number of files in an answer up to which URLs are signed by one call
            each, where no key is on the machine.

    """

    prefix: Location
    endpoint: str | None = None
    public_endpoint: str | None = None
    timeout_seconds: float = setting(30.0, minimum=0.1)
    retry_seconds: float = setting(5.0, minimum=0)
    region: str | None = None
    path_style: bool = False
    dual_stack: bool = False
    fips: bool = False
    requester_pays: bool = False
    access_key_id: Secret | None = None
    secret_access_key: Secret | None = None
    session_token: Secret | None = None
    session_expires: datetime | None = setting(None, protects=True)
    profile: str | None = None
    role_arn: str | None = None
    external_id: str | None = None
    role_session_name: str | None = None
    session_seconds: int | None = setting(None, minimum=900, maximum=43200)
    sts_endpoint: str | None = None
    directory_role_arn: str | None = None
    cloudflare_api_token: Secret | None = None
    account: str | None = None
    account_key: Secret | None = None
    tenant_id: str | None = None
    client_id: str | None = None
    client_secret: Secret | None = None
    federated_token_file: Path | None = None
    identity: Literal["auto", "accountKey", "clientSecret", "workloadIdentity", "managedIdentity", "cli"] = (
        "auto"
    )
    authority_host: str | None = None
    hierarchical_namespace: bool = False
    credentials_file: Path | None = None
    impersonate: str | None = None
    user_project: str | None = None
    max_remote_signatures: int = setting(1000, minimum=0)

    def __post_init__(self) -> None:
        if self.prefix.kind == "file":
            raise Invalid(
                "prefix", "a storage describes prefixes of S3, Azure and Google; directories need none"
            )
        self._check_kind()
        for name in ("endpoint", "public_endpoint", "sts_endpoint", "authority_host"):
            check_url(name, getattr(self, name))
        self._check_pair("access_key_id", "secret_access_key")
        self._check_secrets()
        if self.prefix.kind == "s3":
            self._check_s3()
        elif self.prefix.kind == "azure":
            self._check_azure()
        else:
            self._check_gs()

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
    def r2_account(self) -> tuple[str, str] | None:
        """Return the account of R2 and its jurisdiction, `default` or another; None for other stores."""
        match = _R2_HOST.fullmatch(urlsplit(self.endpoint or "").hostname or "")
        return (match[1], match[2] or "default") if match else None

    @property
    def is_aws(self) -> bool:
        """Return whether the store and the token service are those of AWS."""
        hosts = [urlsplit(url).hostname or "" for url in (self.endpoint, self.sts_endpoint) if url]
        return self.prefix.kind == "s3" and all(host.endswith(_AWS_DOMAINS) for host in hosts)

    def _check_secrets(self) -> None:
        """Check that headers can have the keys. No message has a part of one."""
        for name in ("access_key_id", "session_token", "cloudflare_api_token"):
            secret: Secret | None = getattr(self, name)
            if secret is not None and not _VISIBLE.fullmatch(secret.reveal()):
                raise Invalid(name, "has a blank, a line break or another character that no key has")
        for name in ("secret_access_key", "client_secret"):
            secret = getattr(self, name)
            if secret is not None and not (
                secret.reveal().isprintable() and secret.reveal() == secret.reveal().strip()
            ):
                raise Invalid(name, "has a line break, a control character, or a blank at an end")

    def _check_kind(self) -> None:
        accepted = _EVERY_KIND | KEYS_OF_KIND[self.prefix.kind]
        for field in dataclasses.fields(self):
            if field.name not in accepted and getattr(self, field.name) != field.default:
                raise Invalid(
                    field.name, f"is no key of a prefix of {_KIND_NAMES[self.prefix.kind]}; remove it"
                )

    def _check_s3(self) -> None:
        for name in ("endpoint", "public_endpoint"):
            if not self.path_style and _names_an_address(getattr(self, name)):
                raise Invalid(
                    name, "a bucket is no part of an IP address; give pathStyle: true or a host name"
                )
        if self.session_token is not None and self.access_key_id is None:
            raise Invalid("session_token", "a sessionToken needs accessKeyId and secretAccessKey")
        if self.session_expires is not None and self.access_key_id is None:
            raise Invalid("session_expires", "is the end of temporary keys; give accessKeyId, too")
        self._check_form("region", _REGION, "letters, digits, hyphens, dots and _, such as eu-west-1")
        if self.profile is not None and self.access_key_id is not None:
            raise Invalid("profile", "the entry has keys; give either accessKeyId or profile")
        for name in ("dual_stack", "fips"):
            if getattr(self, name) and self.endpoint is not None:
                raise Invalid(name, "chooses a host of AWS, and `endpoint` is another; give one of them")
        self._check_roles()

    def _check_roles(self) -> None:
        for name in _ROLE:
            is_of_directory_role = name == "external_id" and self.directory_role_arn is not None
            if getattr(self, name) is not None and self.role_arn is None and not is_of_directory_role:
                raise Invalid(name, "describes the session of a role; give roleArn, too")
        for name in ("role_arn", "directory_role_arn"):
            self._check_form(name, _ARN, "arn:aws:iam::123456789012:role/name")
        if self.cloudflare_api_token is not None and (self.r2_account is None or self.access_key_id is None):
            raise Invalid(
                "cloudflare_api_token",
                "is for R2: give accessKeyId and `endpoint`, https://ACCOUNT.r2.cloudflarestorage.com",
            )
        if self.cloudflare_api_token is not None and _is_insecure(self.sts_endpoint):
            raise Invalid("sts_endpoint", "tokens are sent by HTTPS alone; give https://")
        self._check_form("external_id", _EXTERNAL_ID, "2 to 1224 letters, digits and +=,.@:/-_")
        self._check_form("role_session_name", _SESSION_NAME, "2 to 64 letters, digits and +=,.@-_")

    def _check_azure(self) -> None:
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
            raise Invalid("endpoint", "tokens are sent by HTTPS alone; give https://, or accountKey")
        self._check_form("tenant_id", _DIRECTORY_ID, "the id or the domain of a directory")
        self._check_form("client_id", _DIRECTORY_ID, "the id of a client")
        if self.authority_host is not None and not self.authority_host.startswith("https://"):
            raise Invalid("authority_host", "tokens are requested by HTTPS alone; accepted: https://host")
        self._check_azure_identity(chosen)

    def _check_azure_identity(self, chosen: str) -> None:
        """Check that the keys of the chosen identity are there, and none of another one."""
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
                others = [camel_case(key) for key in needed if key != given]
                raise Invalid(given, f"{text} needs {' and '.join(others)}")
        for name in dict.fromkeys(key for keys in _IDENTITY_KEYS.values() for key in keys):
            if getattr(self, name) is not None and name not in _IDENTITY_KEYS[chosen]:
                if chosen == "auto":
                    raise Invalid(name, "needs clientSecret, federatedTokenFile or `identity`")
                raise Invalid(
                    name, f"is not used by the identity {chosen}; remove it, or the keys of {chosen}"
                )

    def _check_gs(self) -> None:
        if self.access_key_id is not None:
            for name in ("credentials_file", "impersonate", "user_project"):
                if getattr(self, name) is not None:
                    raise Invalid(name, "is not used with an HMAC key; remove it, or accessKeyId")
        elif _is_insecure(self.endpoint):
            raise Invalid("endpoint", "tokens are sent by HTTPS alone; give https://, or accessKeyId")
        if _is_insecure(self.sts_endpoint):
            raise Invalid("sts_endpoint", "tokens are sent by HTTPS alone; give https://")
        self._check_form("impersonate", _EMAIL, "name@project.iam.gserviceaccount.com")
        self._check_form("user_project", _PROJECT, "the id of a project")
        if self.credentials_file is not None:
            try:
                google_credentials(self.credentials_file)
            except ValueError as reason:
                raise Invalid("credentials_file", str(reason)) from None

    def _check_pair(self, one: str, other: str) -> None:
        if (getattr(self, one) is None) != (getattr(self, other) is None):
            raise Invalid(one, f"{camel_case(one)} and {camel_case(other)} go together")

    def _check_form(self, name: str, form: re.Pattern[str], accepted: str) -> None:
        value = getattr(self, name)
        if value is not None and not form.fullmatch(value):
            raise Invalid(name, f"{shown(value)} is not accepted; accepted: {accepted}")


def google_credentials(file: Path) -> dict[str, object]:
    """Read a file with credentials of Google. Raises ValueError, whose text has nothing of the file."""
    try:
        found = json.loads(file.read_text(encoding="utf-8-sig"))
    except OSError as reason:
        raise ValueError(f"{file} cannot be read: {reason.strerror}") from None
    except (ValueError, RecursionError):
        raise ValueError(f"{file} is not JSON") from None
    kind = found.get("type") if isinstance(found, dict) else None
    if not isinstance(kind, str) or kind not in _CREDENTIAL_FIELDS:
        raise ValueError(
            f"{file} has no credentials of Google: its `type` is none of {', '.join(_CREDENTIAL_FIELDS)}"
        )
    texts, maps = _CREDENTIAL_FIELDS[kind]
    missing = [name for name in texts if not isinstance(found.get(name), str) or not found[name]]
    missing += [name for name in maps if not isinstance(found.get(name), dict) or not found[name]]
    if missing:
        raise ValueError(f"{file} has no {' and no '.join(missing)}")
    if kind == "service_account" and not _is_private_key(found["private_key"]):
        raise ValueError(f"{file} has a private_key that is no private key of RSA in PEM form")
    return dict(found)


def check_url(field: str, url: str | None) -> None:
    """Check the URL of a host, with an optional path. Raises Invalid."""
    if url is None:
        return
    accepted = "accepted: https://host, http://host:port"
    # The messages have no part of a URL that may be a password or a signature: they are logged.
    if "@" in url.partition("://")[2].partition("/")[0]:
        raise Invalid(field, f"a user or password in a URL is not accepted; {accepted}")
    if not _is_url(url):
        raise Invalid(field, f"{shown(url)} is not a URL; {accepted}")


def _is_url(url: str) -> bool:
    if not re.fullmatch(r"https?://[^/?#\s\\]+(/[^?#\s]*)?", url) or not url.isprintable():
        return False
    try:
        parts = urlsplit(url)
        host, port = parts.hostname or "", parts.port
        if parts.netloc.startswith("["):
            ip_address(host)
            return parts.netloc.partition("]")[2] in ("", f":{port}")
    except ValueError:
        return False
    return bool(_HOST.fullmatch(host)) and parts.netloc.lower() in (host, f"{host}:{port}")


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


def _is_of_this_machine(url: str | None) -> bool:
    host = urlsplit(url or "").hostname or ""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _is_insecure(url: str | None) -> bool:
    return (url or "").startswith("http://") and not _is_of_this_machine(url)


def _names_an_address(url: str | None) -> bool:
    try:
        ip_address(urlsplit(url or "").hostname or "")
    except ValueError:
        return False
    return True


def _is_base64(text: str) -> bool:
    try:
        decoded = base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        return False
    # Bits after the last byte are an error for other decoders.
    return bool(decoded) and base64.b64encode(decoded).decode() == text
