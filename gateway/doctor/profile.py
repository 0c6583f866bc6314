"""Reads a profile of every version and type that clients know, and says which clients accept it.

In: a file, perhaps with `#share.schema.table` after it. Out: a `RecipientProfile` and findings. The file is
read more tolerantly than by any client, so that the server is examined even if the file has mistakes.
"""

from __future__ import annotations

import codecs
import os
import re
import stat
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

import orjson

from gateway.client.table_name import TableName
from gateway.doctor.clock import utc_text
from gateway.doctor.findings import Findings, Owner, Problem
from gateway.doctor.urls import is_loopback, parse_url
from gateway.encoding import is_header_token

MAX_PROFILE_BYTES = 1024 * 1024
NEWEST_VERSION = 2
SOON_SECONDS = 14 * 24 * 3600
STEP = "profile"

Kind = Literal["bearer", "oauth_client_credentials", "oauth_jwt_bearer_private_key_jwt", "basic"]

# A value that a template leaves for the recipient to replace.
_PLACEHOLDER = re.compile(
    r"<[^<>]*>|\{\{.*\}\}|\$\{.*\}|\[[^\]]*\]|\.{3,}|…|[x*]{3,}|todo|replace[-_ ]?me|change[-_ ]?me|"
    r"your[-_ ].*|client[-_ ]?(id|secret)",
    re.IGNORECASE,
)


@dataclass(frozen=True, slots=True)
class ClientKind:
    """A type of profile: its fields and the clients that accept it."""

    words: str
    required: tuple[str, ...]
    clients: str
    refused_by: str = ""


KINDS: Mapping[Kind, ClientKind] = {
    "bearer": ClientKind("a bearer token", ("bearerToken",), "every client"),
    "oauth_client_credentials": ClientKind(
        "OAuth client credentials",
        ("tokenEndpoint", "clientId", "clientSecret"),
        "the official Python client (from 1.2) and Spark client (1.4)",
        "`gateway.spark` and clients that only know bearer tokens",
    ),
    "oauth_jwt_bearer_private_key_jwt": ClientKind(
        "an OAuth assertion that a private key signs",
        (
            "auth.tokenEndpoint",
            "auth.issuer",
            "auth.clientId",
            "auth.audience",
            "auth.privateKey.privateKeyFile",
            "auth.privateKey.keyId",
        ),
        "the official Python client (1.4)",
        'the Spark client ("Unknown profile type") and `gateway.spark`',
    ),
    "basic": ClientKind(
        "a user name and a password",
        ("username", "password"),
        "the official Python client (1.4)",
        "the Spark client and `gateway.spark`",
    ),
}


@dataclass(frozen=True, slots=True)
class PrivateKey:
    """The key that signs assertions."""

    file: Path
    key_id: str
    algorithm: str
    issuer: str
    audience: str


@dataclass(frozen=True, slots=True)
class RecipientProfile:
    """A profile that can be used for requests."""

    kind: Kind
    endpoint: str
    bearer_token: str = field(default="", repr=False)
    expires: datetime | None = None
    token_endpoint: str = ""
    client_id: str = ""
    client_secret: str = field(default="", repr=False)
    scope: str = ""
    private_key: PrivateKey | None = None
    username: str = ""
    password: str = field(default="", repr=False)

    @property
    def secrets(self) -> tuple[str, ...]:
        """Return the values that no text may have."""
        return (self.bearer_token, self.client_secret, self.password)


def split_reference(reference: str) -> tuple[Path, TableName | None]:
    """Split `PROFILE#share.schema.table`. Raises ValueError for a malformed table."""
    if "#" not in reference or Path(reference).exists():
        return Path(reference), None
    path, _, table = reference.rpartition("#")
    return Path(path), TableName.parse(table)


def read_profile(path: Path, findings: Findings, now: datetime) -> RecipientProfile:
    """Read a profile; mistakes are findings. Raises Problem if no request can be sent by it."""
    document = _document(_content(path), findings)
    for name in ("bearerToken", "clientSecret", "password"):
        value = _text(document, name)
        findings.hide(value, value.strip())
    kind = _kind(document, findings)
    _check_fields(document, kind, findings)
    profile = _profile(document, kind, path.parent, findings)
    _check_access(path, findings)
    if profile.private_key is not None:
        _check_private_key(profile.private_key.file, findings)
    _check_expiry(profile, findings, now)
    if not findings.has_failed:
        findings.ok(STEP, f"version {document['shareCredentialsVersion']}, {KINDS[kind].words}")
        findings.ok("clients", _clients(KINDS[kind]))
    return profile


def _clients(kind: ClientKind) -> str:
    refused = f"; refused by {kind.refused_by}" if kind.refused_by else ""
    return f"accepted by {kind.clients}{refused}"


def _content(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            content = file.read(MAX_PROFILE_BYTES + 1)
    except OSError as error:
        raise _failed(
            f"the file cannot be read: {error.strerror}",
            "give the path of the profile that the provider sent",
        ) from None
    if len(content) > MAX_PROFILE_BYTES:
        raise _failed("the file has more than 1 MiB", "give the path of the profile that the provider sent")
    return content


def _document(content: bytes, findings: Findings) -> dict[str, Any]:
    for mark, encoding in (
        (codecs.BOM_UTF8, "utf-8-sig"),
        (codecs.BOM_UTF16_LE, "utf-16"),
        (codecs.BOM_UTF16_BE, "utf-16"),
    ):
        if content.startswith(mark):
            name = "UTF-8 with a byte order mark" if mark == codecs.BOM_UTF8 else "UTF-16"
            _mistake(
                findings,
                f"the file is {name}, which the Spark client cannot read",
                "save it as UTF-8 without a byte order mark, or download it again",
            )
            content = content.decode(encoding, "replace").encode()
            break
    if content.lstrip()[:1] == b"<":
        raise _failed(
            "the file is an HTML or XML page, not a profile",
            "open the provider's link in a browser and download the file; a login page was saved instead",
        )
    try:
        document = orjson.loads(content)
    except orjson.JSONDecodeError as error:
        raise _failed(
            f"the file is not JSON: line {error.lineno}, column {error.colno}",
            "download the profile again; an editor may have changed quotes or cut the file",
        ) from None
    if not isinstance(document, dict):
        raise _failed("the file is not a JSON object", "download the profile again")
    return document


def _kind(document: Mapping[str, Any], findings: Findings) -> Kind:
    name = document.get("type")
    version = _version(document.get("shareCredentialsVersion"), findings)
    if version is None:
        _mistake(findings, "shareCredentialsVersion is not a number", "write 1 for a bearer token, else 2")
        version = 1 if "bearerToken" in document else NEWEST_VERSION
    elif not 1 <= version <= NEWEST_VERSION:
        _mistake(
            findings,
            f"shareCredentialsVersion is {version}; clients know 1 and {NEWEST_VERSION}",
            "ask the provider for a profile of version 1, or update the client",
        )
    if not isinstance(name, str | None):
        raise _failed("`type` is not a text", "download the profile again")
    if version == 1 and name in (None, "bearer_token"):
        return "bearer"
    if version == 1 and name in KINDS:
        _mistake(findings, f"clients read `{name}` only at version 2", "set shareCredentialsVersion to 2")
    elif name == "bearer_token":
        _mistake(
            findings,
            "every client refuses `bearer_token` at version 2",
            "set shareCredentialsVersion to 1 and remove `type`; the token stays the same",
        )
        return "bearer"
    kind = next((kind for kind in KINDS if kind == name and kind != "bearer"), None)
    if kind is None:
        raise _failed(
            "`type` is missing" if name is None else "`type` is one that no client knows",
            f"accepted at version 2: {', '.join(kind for kind in KINDS if kind != 'bearer')}",
        )
    return kind


def _version(value: Any, findings: Findings) -> int | None:
    """Return a version as the official Python client reads it; None if the client cannot."""
    try:
        version = int(value)
    except (TypeError, ValueError, OverflowError):
        return None
    if not isinstance(value, int) or isinstance(value, bool):
        _warn(
            findings,
            "shareCredentialsVersion is not an integer; the Python client converts it, and other clients "
            "may refuse it",
            Owner.RECIPIENT,
            f"write {version} without quotes",
        )
    return version


def _check_fields(document: Mapping[str, Any], kind: Kind, findings: Findings) -> None:
    required = ("endpoint", *KINDS[kind].required)
    if kind == "bearer" and document.get("bearerToken") == "":
        required = ("endpoint",)
        _warn(
            findings,
            "bearerToken is empty, which a server that needs no token accepts",
            Owner.PROVIDER,
            "send a profile with a token, unless everyone may read",
        )
    if missing := [name for name in required if not _text(document, name).strip()]:
        raise _failed(
            f"these fields are missing or empty: {', '.join(missing)}",
            "ask the provider for a complete profile"
            if kind == "bearer"
            else "add them; they are values of the client at the identity provider",
        )
    optional = ("scope", "auth.scope")
    if left := [
        name for name in (*required, *optional) if _PLACEHOLDER.fullmatch(_text(document, name).strip())
    ]:
        raise _failed(
            f"these fields still have the placeholder of a template: {', '.join(left)}",
            "replace them by the values of the client at the identity provider",
        )
    # A name is shown, never a value.
    if spaced := [name for name in required if _text(document, name) != _text(document, name).strip()]:
        _mistake(
            findings, f"these fields begin or end with a blank: {', '.join(spaced)}", "remove the blanks"
        )


def _profile(
    document: Mapping[str, Any], kind: Kind, directory: Path, findings: Findings
) -> RecipientProfile:
    endpoint = _endpoint(_text(document, "endpoint").strip(), findings)
    if kind == "bearer":
        token = _text(document, "bearerToken").strip()
        if not is_header_token(token):
            raise _failed("bearerToken has a blank or a character that is not ASCII", "copy the token again")
        if token.lower().startswith("bearer"):
            _mistake(findings, "bearerToken begins with the word Bearer", "remove the word")
        expires = _expires(document.get("expirationTime"), findings)
        return RecipientProfile(kind, endpoint, bearer_token=token, expires=expires)
    if kind == "basic":
        return RecipientProfile(
            kind, endpoint, username=_text(document, "username"), password=_text(document, "password")
        )
    prefix = "auth." if kind == "oauth_jwt_bearer_private_key_jwt" else ""
    token_endpoint = _text(document, f"{prefix}tokenEndpoint").strip()
    _check_url("tokenEndpoint", token_endpoint, findings)
    return RecipientProfile(
        kind,
        endpoint,
        token_endpoint=token_endpoint.removesuffix("/"),
        client_id=_text(document, f"{prefix}clientId"),
        client_secret=_text(document, "clientSecret"),
        scope=_text(document, f"{prefix}scope"),
        private_key=_private_key(document, directory) if prefix else None,
    )


def _private_key(document: Mapping[str, Any], directory: Path) -> PrivateKey:
    file = Path(_text(document, "auth.privateKey.privateKeyFile"))
    return PrivateKey(
        # Clients read it from their working directory. The text may be the key itself, which is no path.
        file=file if os.path.exists(file) else directory / file,  # noqa: PTH110 - `exists` raises for it
        key_id=_text(document, "auth.privateKey.keyId"),
        algorithm=_text(document, "auth.privateKey.algorithm") or "RS256",
        issuer=_text(document, "auth.issuer"),
        audience=_text(document, "auth.audience"),
    )


def _endpoint(endpoint: str, findings: Findings) -> str:
    if endpoint.endswith("//"):
        _mistake(findings, "the endpoint ends with more than one slash", "remove the slashes at its end")
    if re.search(r"/shares(/.*)?$", endpoint):
        _mistake(findings, "the endpoint ends with a route", "remove /shares and what follows from it")
        endpoint = endpoint[: endpoint.rindex("/shares")]
    _check_url("endpoint", endpoint, findings)
    return endpoint.rstrip("/")


def _check_url(name: str, url: str, findings: Findings) -> None:
    parts = parse_url(url)
    if parts is None or parts.scheme not in {"http", "https"} or not parts.hostname:
        raise _failed(
            f"{name} is not a URL that begins with https://",
            "write the scheme and the host before the path, such as https://share.example.com",
        )
    if parts.username is not None or parts.query or parts.fragment:
        _mistake(findings, f"{name} has a user, a query or a fragment", f"remove it from {name}")
    if parts.scheme == "http" and not is_loopback(parts.hostname):
        _warn(
            findings,
            f"{name} is http, so everyone on the way can read the token",
            Owner.PROVIDER,
            f"serve TLS, and send a profile with https in {name}",
        )


def _expires(value: Any, findings: Findings) -> datetime | None:
    if value is None:
        return None
    try:
        expires = datetime.fromisoformat(str(value))
    except ValueError:
        _warn(
            findings,
            "expirationTime is not a time in ISO 8601",
            Owner.PROVIDER,
            "write it as 2027-06-30T00:00:00Z",
        )
        return None
    return expires.replace(tzinfo=expires.tzinfo or UTC)


def _check_expiry(profile: RecipientProfile, findings: Findings, now: datetime) -> None:
    if profile.expires is None:
        return
    left_seconds = (profile.expires - now).total_seconds()
    day = utc_text(profile.expires.timestamp())
    if left_seconds <= 0:
        problem = f"the token expired on {day}"
        findings.fail(STEP, Problem(problem, Owner.PROVIDER, "issue a new profile to this recipient"))
    elif left_seconds < SOON_SECONDS:
        _warn(findings, f"the token expires on {day}", Owner.PROVIDER, "issue a new profile before that time")


def _check_access(path: Path, findings: Findings) -> None:
    """Warn about a file that other users of the machine can read."""
    if os.name == "posix" and stat.S_IMODE(path.stat().st_mode) & 0o077:
        _warn(
            findings,
            "other users of this machine can read the file, which has a secret",
            Owner.RECIPIENT,
            "run chmod 600 on it",
        )


def _check_private_key(file: Path, findings: Findings) -> None:
    if not os.path.isfile(file):  # noqa: PTH113 - as above
        raise _failed(
            "the file of auth.privateKey.privateKeyFile does not exist",
            "give the absolute path of the private key in PEM",
        )
    _check_access(file, findings)


def _text(document: Mapping[str, Any], path: str) -> str:
    """Return the text of a field, by names with dots between; empty if it is missing or of another type."""
    value: Any = document
    for name in path.split("."):
        value = value.get(name) if isinstance(value, dict) else None
    return value if isinstance(value, str) else ""


def _mistake(findings: Findings, message: str, advice: str) -> None:
    findings.fail(STEP, Problem(message, Owner.RECIPIENT, advice))


def _warn(findings: Findings, message: str, owner: Owner, advice: str) -> None:
    findings.warn(STEP, Problem(message, owner, advice))


def _failed(message: str, advice: str) -> Problem:
    return Problem(message, Owner.RECIPIENT, advice)
