"""The sections of the configuration: each a frozen dataclass, each key a field with its default and limits.

A key is added by adding a field: `reader` finds it by its type, and a test holds the README's table against
it.
"""

from __future__ import annotations

import dataclasses
import re
from dataclasses import dataclass
from datetime import datetime
from ipaddress import ip_address
from pathlib import Path
from urllib.parse import urlsplit

from gateway.config.errors import Invalid
from gateway.config.locations import Location
from gateway.config.operation import (
    PROTECTS,
    Admin,
    Audit,
    Cors,
    Limits,
    RecipientLimits,
    Ssl,
    StorageFaults,
    Tracing,
    setting,
)
from gateway.config.secret import Secret
from gateway.networks import parse_networks

CURRENT_VERSION = 1
RECIPIENTS_DATABASE = "recipients.db"
EVERY_SHARE = "*"
SEVEN_DAYS_SECONDS = 7 * 24 * 3600
MAX_NAME_LENGTH = 255
MIN_TOKEN_KEY_LENGTH = 16

_UNSPEAKABLE = re.compile(r"[/\x00-\x1f\x7f]")
_NOT_IN_A_HEADER = re.compile(r"[\x00-\x08\x0a-\x1f\x7f]")
_SHA256 = re.compile(r"[0-9a-fA-F]{64}")


@dataclass(frozen=True, slots=True)
class TableEntry:
    """One shared table."""

    name: str
    location: Location
    id: str | None = None
    history_shared: bool = False
    start_version: int = setting(0, minimum=0, protects=True)

    def __post_init__(self) -> None:
        _check_name(self.name)


@dataclass(frozen=True, slots=True)
class SchemaEntry:
    """One schema of a share."""

    name: str
    tables: tuple[TableEntry, ...] = ()

    def __post_init__(self) -> None:
        _check_name(self.name)
        _check_unique("tables", [table.name for table in self.tables])


@dataclass(frozen=True, slots=True)
class ShareEntry:
    """One share."""

    name: str
    id: str | None = None
    schemas: tuple[SchemaEntry, ...] = ()

    def __post_init__(self) -> None:
        _check_name(self.name)
        _check_unique("schemas", [schema.name for schema in self.schemas])


@dataclass(frozen=True, slots=True)
class Authorization:
    """The reference server's one token: a recipient who is granted every share."""

    bearer_token: Secret

    def __post_init__(self) -> None:
        token = self.bearer_token.reveal()
        if token != token.strip(" \t") or _NOT_IN_A_HEADER.search(token):
            raise Invalid(
                "bearer_token",
                "no client can send it in a header: expected text without control characters and without "
                "blanks at its ends",
            )


@dataclass(frozen=True, slots=True)
class TokenEntry:
    """One token of a recipient, by its hash."""

    sha256: str
    expires: datetime | None = setting(None, protects=True)

    def __post_init__(self) -> None:
        if not _SHA256.fullmatch(self.sha256):
            raise Invalid("sha256", "expected 64 hexadecimal digits; `delta-gateway token` prints them")


@dataclass(frozen=True, slots=True)
class RecipientEntry:
    """Who may read, and what."""

    name: str
    tokens: tuple[TokenEntry, ...] = ()
    shares: tuple[str, ...] = ()
    networks: tuple[str, ...] = setting((), protects=True)
    limits: RecipientLimits | None = setting(None, protects=True)

    def __post_init__(self) -> None:
        _check_networks("networks", self.networks)


@dataclass(frozen=True, slots=True)
class StorageEntry:
    """How the locations below one prefix are read and their URLs signed."""

    prefix: Location
    endpoint: str | None = None
    public_endpoint: str | None = None
    region: str | None = None
    path_style: bool = False
    access_key_id: Secret | None = None
    secret_access_key: Secret | None = None
    session_token: Secret | None = None
    session_expires: datetime | None = setting(None, protects=True)
    timeout_seconds: float = setting(30.0, minimum=0.1)
    retry_seconds: float = setting(5.0, minimum=0)

    def __post_init__(self) -> None:
        if self.prefix.kind != "s3":
            raise Invalid("prefix", "a storage describes s3:// prefixes; directories need none")
        for name in ("endpoint", "public_endpoint"):
            _check_url(name, getattr(self, name))
            if not self.path_style and _names_an_address(getattr(self, name)):
                raise Invalid(
                    name, "a bucket is no part of an IP address; give pathStyle: true or a host name"
                )
        if (self.access_key_id is None) != (self.secret_access_key is None):
            raise Invalid("access_key_id", "accessKeyId and secretAccessKey go together")
        if self.session_token is not None and self.access_key_id is None:
            raise Invalid("session_token", "a sessionToken needs accessKeyId and secretAccessKey")


@dataclass(frozen=True, slots=True)
class TokenKey:
    """A key that seals page and refresh tokens and signs the URLs of local files."""

    id: str
    secret: Secret

    def __post_init__(self) -> None:
        if len(self.secret.reveal().encode()) < MIN_TOKEN_KEY_LENGTH:
            raise Invalid("secret", f"expected at least {MIN_TOKEN_KEY_LENGTH} bytes of random text")


@dataclass(frozen=True, slots=True)
class Cache:
    """What the process may keep of tables."""

    memory_bytes: int = setting(512 * 1024 * 1024, minimum=0)
    threads: int | None = setting(None, minimum=1, maximum=1024)


@dataclass(frozen=True, slots=True)
class Compression:
    """When an answer is compressed, for a client that accepts it."""

    enabled: bool = True
    minimum_files: int = setting(64, minimum=0)
    skip_loopback: bool = False


@dataclass(frozen=True, slots=True)
class Gateway:
    """What the reference server does not have."""

    anonymous: bool = False
    recipients: tuple[RecipientEntry, ...] = ()
    recipients_database: Path | None = None
    trusted_proxies: tuple[str, ...] = ()
    storages: tuple[StorageEntry, ...] = ()
    token_keys: tuple[TokenKey, ...] = ()
    allowed_roots: tuple[Location, ...] = ()
    public_url: str | None = None
    max_staleness_seconds: float = setting(0.0, minimum=0)
    drain_seconds: float = setting(30.0, minimum=0)
    drain_delay_seconds: float = setting(1.0, minimum=0)
    cache: Cache = dataclasses.field(default_factory=Cache)
    compression: Compression = dataclasses.field(default_factory=Compression)
    cors: Cors = dataclasses.field(default_factory=Cors)
    limits: Limits = dataclasses.field(default_factory=Limits, metadata=PROTECTS)
    storage_faults: StorageFaults = dataclasses.field(default_factory=StorageFaults)
    audit: Audit | None = setting(None, protects=True)
    admin: Admin | None = None
    tracing: Tracing | None = None

    def __post_init__(self) -> None:
        _check_networks("trusted_proxies", self.trusted_proxies)
        _check_url("public_url", self.public_url)
        _check_unique("recipients", [recipient.name for recipient in self.recipients])
        _check_unique("token_keys", [key.id for key in self.token_keys])
        self._check_tokens()

    def _check_tokens(self) -> None:
        """One token is one recipient's, with one expiry: which of two counts would be a guess."""
        owners: dict[str, str] = {}
        for recipient in self.recipients:
            for token in recipient.tokens:
                digest = token.sha256.lower()
                if digest in owners:
                    message = f"one token is given twice, to {owners[digest]} and to {recipient.name}"
                    raise Invalid("recipients", message)
                owners[digest] = recipient.name


@dataclass(frozen=True, slots=True)
class Config:
    """The whole file. Times of life in seconds or milliseconds, as the names say."""

    version: int
    shares: tuple[ShareEntry, ...] = ()
    authorization: Authorization | None = setting(None, protects=True)
    ssl: Ssl | None = setting(None, protects=True)
    host: str = "localhost"
    port: int = setting(80, minimum=0, maximum=65535)
    endpoint: str = "/delta-sharing"
    pre_signed_url_timeout_seconds: int = setting(3600, minimum=1, maximum=SEVEN_DAYS_SECONDS)
    query_table_page_size_limit: int = setting(10_000, minimum=1)
    query_table_page_token_ttl_ms: int = setting(259_200_000, minimum=1)
    refresh_token_ttl_ms: int = setting(3_600_000, minimum=1)
    request_timeout_seconds: int = setting(300, minimum=0)
    evaluate_predicate_hints: bool = True
    evaluate_json_predicate_hints: bool = True
    evaluate_json_predicate_hints_v2: bool = True
    staleness_acceptable: bool = False
    delta_table_cache_size: int = setting(10, minimum=0)
    temporary_credential_validity_seconds: int = setting(3600, minimum=0)
    gateway: Gateway = dataclasses.field(default_factory=Gateway, metadata=PROTECTS)
    secret_files: tuple[Path, ...] = dataclasses.field(default=(), metadata={"found": True})
    """The files that secrets were read from; no key, but found on the way."""
    directory: Path = dataclasses.field(default=Path("/"), metadata={"found": True})
    """Where the file is: names of files in it are relative to this."""
    text: str = dataclasses.field(default="", metadata={"found": True}, repr=False, compare=False)
    """The file as it was read."""

    def __post_init__(self) -> None:
        if not 1 <= self.version <= CURRENT_VERSION:
            raise Invalid("version", f"{self.version} is no known version; accepted: 1")
        if not self.endpoint.startswith("/") or "?" in self.endpoint or "#" in self.endpoint:
            raise Invalid(
                "endpoint", f"'{self.endpoint}' is no path prefix; accepted: /delta-sharing and the like"
            )
        _check_unique("shares", [share.name for share in self.shares])
        self._check_ids()
        self._check_grants()

    @property
    def readers(self) -> bool:
        """Whether anyone could read."""
        ours = self.gateway
        named = ours.recipients or self.authorization or self.has_recipients_database
        return ours.anonymous or bool(named)

    @property
    def recipients_database(self) -> Path:
        """The database of recipients, which need not be there yet."""
        return self.gateway.recipients_database or self.directory / RECIPIENTS_DATABASE

    @property
    def has_recipients_database(self) -> bool:
        """Whether a server reads it: it is asked for, or somebody made the one beside the file."""
        return self.gateway.recipients_database is not None or self.recipients_database.exists()

    @property
    def prefix(self) -> str:
        """The path before `/shares`, without a trailing slash."""
        return self.endpoint.rstrip("/")

    @property
    def public_url(self) -> str:
        """Scheme and host by which clients reach this server, without a trailing slash."""
        if self.gateway.public_url is not None:
            return self.gateway.public_url.rstrip("/")
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{'http' if self.ssl is None else 'https'}://{host}:{self.port}"

    def _check_ids(self) -> None:
        """One table may stand in several shares with its id; two tables may not have one id."""
        locations: dict[str, Location] = {}
        for table in (t for share in self.shares for schema in share.schemas for t in schema.tables):
            if table.id and locations.setdefault(table.id, table.location) != table.location:
                raise Invalid("shares", f"the id '{table.id}' stands at tables of different locations")

    def _check_grants(self) -> None:
        known = {share.name.casefold() for share in self.shares}
        for recipient in self.gateway.recipients:
            for share in recipient.shares:
                if share != EVERY_SHARE and share.casefold() not in known:
                    raise Invalid(
                        "gateway", f"recipient {recipient.name} is granted '{share}', which is not shared"
                    )


def _check_name(name: str) -> None:
    if len(name) > MAX_NAME_LENGTH:
        raise Invalid("name", f"is longer than {MAX_NAME_LENGTH} characters")
    if _UNSPEAKABLE.search(name):
        raise Invalid("name", "may hold no '/' and no control character")


def _check_unique(field: str, names: list[str]) -> None:
    seen: set[str] = set()
    for name in names:
        if name.casefold() in seen:
            raise Invalid(field, f"'{name}' stands there twice (names are case-insensitive)")
        seen.add(name.casefold())


def _check_url(field: str, url: str | None) -> None:
    if url is not None and not re.fullmatch(r"https?://[^/?#\s]+(/[^?#\s]*)?", url):
        raise Invalid(field, f"'{url}' is no URL; accepted: https://host, http://host:port")


def _names_an_address(url: str | None) -> bool:
    try:
        ip_address(urlsplit(url or "").hostname or "")
    except ValueError:
        return False
    return True


def _check_networks(field: str, networks: tuple[str, ...]) -> None:
    try:
        parse_networks(networks)
    except ValueError as reason:
        raise Invalid(field, f"{reason}; accepted: addresses and networks such as 10.0.0.0/8") from None
