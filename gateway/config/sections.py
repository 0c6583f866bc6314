"""The whole configuration and its map `gateway`: each section a frozen dataclass, each key a field.

A key is added by adding a field with its default and limits, and its line under `Attributes`: `reader` finds
the field by its type, and `reference` makes the documentation of it.
"""

from __future__ import annotations

import dataclasses
import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from gateway.config.administration import Admin
from gateway.config.checks import DOTS, check_host, check_networks, check_unique, check_url
from gateway.config.database import Database, DatabasePlace
from gateway.config.discovery import Source
from gateway.config.errors import Invalid, shown
from gateway.config.file_stamps import Stamp
from gateway.config.locations import Location
from gateway.config.name_forms import is_built_in
from gateway.config.oidc import Oidc
from gateway.config.operation import PROTECTS, Audit, Cors, Limits, Ssl, StorageFaults, Tracing, setting
from gateway.config.recipients import EVERY_SHARE, Authorization, OAuth, RecipientEntry
from gateway.config.secret import Secret
from gateway.config.shares import ShareEntry, TableEntry, VolumeEntry, have_own_ids
from gateway.config.storages import StorageForm, default_entry
from gateway.config.storages.entry import StorageEntry
from gateway.times import DAY_SECONDS, HOUR_SECONDS

CURRENT_VERSION = 1
RECIPIENTS_DATABASE = "recipients.db"
NO_PUBLIC_HOSTS = frozenset({"", "localhost", "127.0.0.1", "::1", "0.0.0.0", "::"})  # noqa: S104 - compared with
MIN_TOKEN_KEY_LENGTH = 16


@dataclass(frozen=True, slots=True)
class TokenKey:
    """A key that seals page, refresh and access tokens and signs the URLs of local files.

    The first key of the list seals and all keys open: to rotate, add a new key last, and put it first once
    all replicas have it. Without any key the server makes one at start, which no other replica knows.

    Attributes:
        id: name of the key, part of each token.
        secret: at least 16 bytes of random text.

    """

    id: str
    secret: Secret

    def __post_init__(self) -> None:
        if len(self.secret.reveal().encode()) < MIN_TOKEN_KEY_LENGTH:
            raise Invalid("secret", f"expected at least {MIN_TOKEN_KEY_LENGTH} bytes of random text")


@dataclass(frozen=True, slots=True)
class Cache:
    """Memory, files and threads for tables.

    Attributes:
        memory_bytes: memory for columns of hot tables and for the versions and ranges that later pages
            continue. Divided by the number of workers. Without it 512 MiB, and at most half of what
            `gateway.limits.memoryBytes` leaves beside processes at rest: streams need the other half.
        directory: directory for columns of hot tables, which all workers map into memory and the next start
            finds again. On a file system of this machine; it belongs to the server's user, and nobody else
            can write to it. It is made if it is absent. Without it, columns are in memory only.
        disk_bytes: maximum size of all files of the directory. The least recently used ones are removed.
        threads: threads that read logs and write answers. Without it the number of CPUs.

    """

    memory_bytes: int | None = setting(None, minimum=0)
    directory: Path | None = None
    disk_bytes: int = setting(8 * 1024 * 1024 * 1024, minimum=1024 * 1024)
    threads: int | None = setting(None, minimum=1, maximum=1024)


@dataclass(frozen=True, slots=True)
class Compression:
    """When an answer is compressed for a client that accepts it.

    Attributes:
        enabled: compresses answers with zstd or gzip, by the client's `Accept-Encoding`.
        minimum_files: answers with fewer files are sent uncompressed. An answer with changes counts as long
            enough unless it is paged.
        skip_loopback: sends answers to clients on the same machine uncompressed.

    """

    enabled: bool = True
    minimum_files: int = setting(64, minimum=0)
    skip_loopback: bool = False


@dataclass(frozen=True, slots=True)
class Gateway:
    """Keys that the reference server does not have; it ignores this map.

    Attributes:
        anonymous: lets everyone read every share without a token.
        recipients: recipients that are kept in the configuration.
        oidc: tokens of identity providers.
        oauth: access tokens that the server issues to clients of recipients.
        database: database of recipients, grants and shares that change while the server runs. Without it
            the file of `recipientsDatabase`.
        recipients_database: SQLite file of the database, where `database` does not name one. Without both
            keys it is `recipients.db` beside the configuration, if that file exists. A new `database` takes
            over the recipients of this file, once.
        trusted_proxies: networks of proxies whose `X-Forwarded-For` and `traceparent` are believed.
        storages: object stores and their credentials.
        token_keys: keys that seal tokens and sign the URLs of local files.
        allowed_roots: locations outside of a table's root that absolute paths in its log may name, as in
            shallow clones.
        endpoint_aliases: further paths before `/shares`, beside `endpoint`, such as `/api/2.1/opensharing`.
            Profiles and URLs of local files have `endpoint`.
        public_url: scheme, host and path, if any, by which clients reach the server, for profiles and URLs
            of local files. Without it `host` and `port`.
        max_staleness_seconds: time for which the latest version of a table is used before the storage is
            asked for a newer one.
        drain_seconds: time from the signal of a shutdown to its end, at which running streams are cut off.
        drain_delay_seconds: the part of it in which readiness fails and connections are still accepted.
        cache: memory, files and threads for tables.
        compression: compression of answers.
        cors: access from web pages.
        limits: limits of recipients, memory and connections.
        storage_faults: behaviour while a storage fails.
        audit: the audit log.
        admin: the admin listener.
        tracing: OpenTelemetry traces.

    """

    anonymous: bool = False
    recipients: tuple[RecipientEntry, ...] = ()
    database: Database | None = None
    recipients_database: Path | None = None
    trusted_proxies: tuple[str, ...] = ()
    storages: tuple[StorageForm, ...] = ()
    token_keys: tuple[TokenKey, ...] = ()
    allowed_roots: tuple[Location, ...] = ()
    endpoint_aliases: tuple[str, ...] = ()
    oidc: Oidc = dataclasses.field(default_factory=Oidc)
    oauth: OAuth = dataclasses.field(default_factory=OAuth)
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
        check_networks("trusted_proxies", self.trusted_proxies)
        check_url("public_url", self.public_url)
        for index, alias in enumerate(self.endpoint_aliases):
            _check_path("endpoint_aliases", alias, index)
        check_unique("recipients", [recipient.name for recipient in self.recipients])
        for recipient in self.recipients:
            if is_built_in(recipient.name):
                raise Invalid("recipients", f"the server itself has a recipient '{recipient.name}'")
        self._check_prefixes()
        check_unique("token_keys", [key.id for key in self.token_keys])
        self._check_tokens()
        ids = [client.id for recipient in self.recipients for client in recipient.clients]
        if len({*ids}) < len(ids):
            raise Invalid("recipients", "a client id is listed twice")

    def storage(self, location: Location) -> StorageEntry:
        """Return the entry with the longest prefix that contains a location, or one without keys."""
        holding = [entry for entry in self.storages if entry.prefix.contains(location)]
        return max(holding, key=lambda entry: len(entry.prefix.key), default=None) or default_entry(location)

    def _check_prefixes(self) -> None:
        """Check that each place has one entry; several forms name one place."""
        places = [entry.prefix for entry in self.storages]
        for index, place in enumerate(places):
            first = places.index(place)
            if first < index:
                raise Invalid("storages", f"has the prefix of storages[{first}]: {place.url}", index)

    def _check_tokens(self) -> None:
        """Check that each token has one recipient and one expiry."""
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
    """The whole file. The top-level keys are those of the reference server and have the same meaning.

    Attributes:
        version: version of the file format; accepted is 1.
        shares: the shares.
        authorization: the reference server's single token.
        ssl: TLS of the server. Without it plain HTTP.
        host: address or host name that the server listens on: of a name, first an address of IPv4.
        port: port that the server listens on; 0 takes a free one.
        endpoint: path before `/shares`.
        pre_signed_url_timeout_seconds: lifetime of a pre-signed URL, at most seven days. Spark's client
            refuses 900 seconds and less.
        query_table_page_size_limit: maximum number of files per page, for clients that request pages.
        query_table_page_token_ttl_ms: lifetime of a page token and of all tokens that follow from it.
        refresh_token_ttl_ms: lifetime of a refresh token. Once its version is neither the latest one nor of a
            shared history, all tokens that follow from it end with it: set it to the duration of the longest
            job that reads one version.
        request_timeout_seconds: time after which the work for a request stops; 0 for never.
        evaluate_predicate_hints: uses SQL predicates of clients to leave out files.
        evaluate_json_predicate_hints: uses JSON predicates of clients to leave out files, as does the next
            key.
        evaluate_json_predicate_hints_v2: uses JSON predicates of clients to leave out files. They are ignored
            only when both keys are false.
        staleness_acceptable: lets the latest version be up to an hour old.
        delta_table_cache_size: accepted without effect; see `gateway.cache`.
        temporary_credential_validity_seconds: lifetime of temporary credentials for directory access. The
            store's provider may limit it, and Google alone decides it.
        gateway: keys that the reference server does not have.
        secret_files: the files that secrets were read from; not a key.
        secret_stamp: states of these files before they were read; not a key.
        secrets: the secrets of these files, by their paths; not a key.
        directory: directory of the file; file names in it are relative to this. Not a key.
        text: text of the file; not a key.

    """

    version: int
    shares: tuple[ShareEntry, ...] = ()
    authorization: Authorization | None = setting(None, protects=True)
    ssl: Ssl | None = setting(None, protects=True)
    host: str = "localhost"
    port: int = setting(80, minimum=0, maximum=65535)
    endpoint: str = "/delta-sharing"
    pre_signed_url_timeout_seconds: int = setting(HOUR_SECONDS, minimum=1, maximum=7 * DAY_SECONDS)
    query_table_page_size_limit: int = setting(10_000, minimum=1)
    query_table_page_token_ttl_ms: int = setting(259_200_000, minimum=1)
    refresh_token_ttl_ms: int = setting(3_600_000, minimum=1)
    request_timeout_seconds: int = setting(300, minimum=0)
    evaluate_predicate_hints: bool = True
    evaluate_json_predicate_hints: bool = True
    evaluate_json_predicate_hints_v2: bool = True
    staleness_acceptable: bool = False
    delta_table_cache_size: int = setting(10, minimum=0)
    temporary_credential_validity_seconds: int = setting(HOUR_SECONDS, minimum=900, maximum=43_200)
    gateway: Gateway = dataclasses.field(default_factory=Gateway, metadata=PROTECTS)
    secret_files: tuple[Path, ...] = dataclasses.field(default=(), metadata={"found": True})
    secret_stamp: Stamp = dataclasses.field(default=(), metadata={"found": True}, repr=False, compare=False)
    secrets: Mapping[str, Secret] = dataclasses.field(
        default_factory=dict, metadata={"found": True}, repr=False, compare=False
    )
    directory: Path = dataclasses.field(default=Path("/"), metadata={"found": True})
    text: str = dataclasses.field(default="", metadata={"found": True}, repr=False, compare=False)

    def __post_init__(self) -> None:
        if not 1 <= self.version <= CURRENT_VERSION:
            raise Invalid("version", f"{self.version} is not a supported version; accepted: 1")
        check_host("host", self.host)
        _check_path("endpoint", self.endpoint)
        check_unique("shares", [share.name for share in self.shares])
        self._check_ids()
        self._check_grants()
        self._check_policies()

    @property
    def tables(self) -> Iterator[tuple[ShareEntry, str, TableEntry]]:
        """Iterate over the tables, each with its share and its full name."""
        for share in self.shares:
            for schema in share.schemas:
                for table in schema.tables:
                    yield share, f"{share.name}.{schema.name}.{table.name}", table

    @property
    def volumes(self) -> Iterator[tuple[ShareEntry, str, VolumeEntry]]:
        """Iterate over the volumes, each with its share and its full name."""
        for share in self.shares:
            for schema in share.schemas:
                for volume in schema.volumes:
                    yield share, f"{share.name}.{schema.name}.{volume.name}", volume

    @property
    def locations(self) -> Iterator[Location]:
        """Iterate over the locations that are read: of tables, and other roots of their files."""
        for _, _, table in self.tables:
            yield from table.roots
        yield from (volume.location for _, _, volume in self.volumes)
        for source in self.sources:
            yield from source.discovery.roots
        yield from self.gateway.allowed_roots

    @property
    def sources(self) -> Iterator[Source]:
        """Iterate over the places where tables are discovered."""
        for share in self.shares:
            yield from share.sources

    @property
    def readers(self) -> bool:
        """Return whether the configuration gives access to anyone."""
        gateway = self.gateway
        named = gateway.recipients or self.authorization or self.has_database
        return gateway.anonymous or bool(named)

    @property
    def database_place(self) -> DatabasePlace:
        """Return where the database is, which may not exist yet."""
        if self.gateway.database is not None:
            return self.gateway.database.place(self.directory)
        return DatabasePlace(self._recipients_database)

    @property
    def database_source(self) -> Path | None:
        """Return the SQLite file whose rows a new database takes over, if there is one."""
        file = self._recipients_database
        is_other = self.gateway.database is not None and self.database_place.path != file
        return file if is_other and os.path.lexists(file) else None

    @property
    def has_database(self) -> bool:
        """Return whether a server reads the database: it is configured, or the default file exists."""
        gateway = self.gateway
        is_configured = gateway.database is not None or gateway.recipients_database is not None
        # A link counts: the mount that it leads to may be absent.
        return is_configured or os.path.lexists(self._recipients_database)

    @property
    def max_outage_seconds(self) -> float:
        """Return the time for which the last known state of the database is in force."""
        return DAY_SECONDS if self.gateway.database is None else self.gateway.database.max_outage_seconds

    @property
    def _recipients_database(self) -> Path:
        return self.gateway.recipients_database or self.directory / RECIPIENTS_DATABASE

    @property
    def prefix(self) -> str:
        """Return the path before `/shares`, without a trailing slash."""
        return self.endpoint.rstrip("/")

    @property
    def prefixes(self) -> tuple[str, ...]:
        """Return all paths before `/shares`, as `prefix`, which is the first."""
        aliases = (alias.rstrip("/") for alias in self.gateway.endpoint_aliases)
        return tuple(dict.fromkeys((self.prefix, *aliases)))

    @property
    def public_url(self) -> str:
        """Return the scheme and host of this server for clients, without a trailing slash."""
        if self.gateway.public_url is not None:
            return self.gateway.public_url.rstrip("/")
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{'http' if self.ssl is None else 'https'}://{host}:{self.port}"

    @property
    def local_host(self) -> str | None:
        """Return the host of `public_url` if other machines resolve it to themselves."""
        host = urlsplit(self.public_url).hostname or ""
        return host if host in NO_PUBLIC_HOSTS else None

    @property
    def endpoint_url(self) -> str:
        """Return the URL of the sharing endpoint for clients, as profiles have it."""
        return f"{self.public_url}{self.prefix}"

    def _check_ids(self) -> None:
        """Check that no two tables have the same id; a table in several shares may repeat its own."""
        if not have_own_ids(self.shares):
            return
        locations: dict[str, Location] = {}
        for share in self.shares:
            for schema in share.schemas:
                for table in schema.tables:
                    identity = share.table_id(schema, table)
                    if locations.setdefault(identity, table.location) != table.location:
                        raise Invalid(
                            "shares",
                            f"the id '{identity}' belongs to tables of different locations, of which one is "
                            f"{share.name}.{schema.name}.{table.name}; without `id` it is made of the names",
                        )

    def _check_grants(self) -> None:
        granted = [(recipient, grant) for recipient in self.gateway.recipients for grant in recipient.shares]
        if not granted:
            return
        known: set[tuple[str, ...]] = set()
        # Tables that are discovered have names that only a search knows.
        open_ended = {(source.share.casefold(), (source.schema or "").casefold()) for source in self.sources}
        for share in self.shares:
            for name in (share.name.casefold(), EVERY_SHARE):
                known.add((name,))
                for schema in share.schemas:
                    known.add((name, schema.name.casefold()))
                    known.update((name, schema.name.casefold(), t.name.casefold()) for t in schema.tables)
        for recipient, grant in granted:
            names = [name.casefold() for name in (grant.share, grant.schema, grant.table) if name is not None]
            is_known = names == [EVERY_SHARE] or tuple(names) in known
            if not is_known and not _may_be_found(names, open_ended):
                raise Invalid(
                    "gateway",
                    f"recipient {recipient.name} is granted '{grant.full_name}', which is not shared",
                )

    def _check_policies(self) -> None:
        known = {issuer.issuer for issuer in self.gateway.oidc.issuers}
        for recipient in self.gateway.recipients:
            for policy in recipient.oidc:
                if policy.issuer not in known:
                    raise Invalid(
                        "gateway",
                        f"recipient {recipient.name} has a policy of the issuer {shown(policy.issuer)}, "
                        "which is not in gateway.oidc.issuers (they are compared byte for byte)",
                    )


def _may_be_found(names: list[str], open_ended: set[tuple[str, str]]) -> bool:
    """Return whether a schema or a table of a share may be discovered; `open_ended`: share and schema."""
    share, *inner = names
    shares = {name for name, _ in open_ended} if share == EVERY_SHARE else {share}
    return bool(inner) and any((name, schema) in open_ended for name in shares for schema in ("", inner[0]))


def _check_path(field: str, path: str, index: int | None = None) -> None:
    # A path is compared when it is decoded, and clients resolve dots.
    is_plain = path.startswith("/") and "/{" not in path and DOTS.isdisjoint(path.split("/"))
    if not is_plain or re.search("[?#%]", path):
        raise Invalid(
            field, f"{shown(path)} is not a path prefix; accepted: /delta-sharing and the like", index
        )
