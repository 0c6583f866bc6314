"""A first configuration: the tables that were found, as a share that one recipient may read.

In: a search's tables and the answers of `delta-gateway init`. Out: names for share, schemas and tables, and
the text of the configuration. Reads and writes nothing.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from gateway.cli.yaml_text import dumped
from gateway.config import Location
from gateway.config.checks import MAX_NAME_LENGTH
from gateway.tables.search import FoundTable

DEFAULT_SCHEMA = "default"
DEFAULT_SHARE = "share"

_NAME = re.compile(r"[\w-]+")
_NO_NAME = re.compile(r"[^\w-]+")


@dataclass(frozen=True, slots=True)
class NamedTable:
    """A found table with its names in the share."""

    schema: str
    name: str
    location: Location

    @property
    def full_name(self) -> str:
        """Return the name within the share."""
        return f"{self.schema}.{self.name}"


@dataclass(frozen=True, slots=True)
class S3Address:
    """How a bucket is reached: the keys of an entry of `gateway.storages`."""

    region: str
    endpoint: str | None

    def entry(self, bucket: str) -> dict[str, Any]:
        """Return the entry of a bucket. With an endpoint the bucket is in the path, which every store has."""
        entry: dict[str, Any] = {"prefix": f"s3://{bucket}/", "region": self.region}
        if self.endpoint is not None:
            entry |= {"endpoint": self.endpoint, "pathStyle": True}
        return entry


def check_share_name(name: str) -> str:
    """Return a name that every client can write. Raises ValueError that names the accepted characters."""
    if not _NAME.fullmatch(name) or len(name) > MAX_NAME_LENGTH:
        raise ValueError(
            f"'{name}' cannot name a share for every client; accepted: letters, digits, '_' and '-', "
            f"at most {MAX_NAME_LENGTH} of them"
        )
    return name


def legal_name(directory: str, default: str) -> str:
    """Return the name of a directory as a name that every client can write."""
    # Some file systems write `ü` as two characters.
    text = unicodedata.normalize("NFC", directory)
    return _NO_NAME.sub("_", text).strip("_")[:MAX_NAME_LENGTH] or default


def default_share(location: Location, tables: Iterable[FoundTable]) -> str:
    """Return the name of the searched directory, or of the one above a single table."""
    parts = [location.bucket, *location.key.split("/")] if location.bucket else location.key.split("/")
    parts = [part for part in parts if part]
    if any(not table.path for table in tables):
        parts = parts[:-1]
    return legal_name(parts[-1], DEFAULT_SHARE) if parts else DEFAULT_SHARE


def named_tables(tables: Iterable[FoundTable]) -> list[NamedTable]:
    """Return the tables with distinct names: the last directory is the table, those before it the schema."""
    named: list[NamedTable] = []
    taken: set[str] = set()
    for table in tables:
        path = table.path or (table.location.key.rpartition("/")[2],)
        schema = legal_name("_".join(path[:-1]), DEFAULT_SCHEMA)
        name = base = legal_name(path[-1], "table")
        number = 1
        # Names are compared without case.
        while f"{schema}.{name}".casefold() in taken:
            number += 1
            name = f"{base}_{number}"
        taken.add(f"{schema}.{name}".casefold())
        named.append(NamedTable(schema, name, table.location))
    return named


@dataclass(frozen=True, slots=True)
class Server:
    """The keys of a configuration that are not asked for."""

    port: int
    public_url: str | None
    address: S3Address

    @property
    def host(self) -> str:
        """Return the address that it listens on: recipients on other machines are named, or none."""
        return "localhost" if self.public_url is None else "0.0.0.0"  # noqa: S104

    def configuration(
        self,
        share: str,
        tables: Sequence[NamedTable],
        token_key: Mapping[str, str],
        *,
        history_shared: bool = False,
    ) -> str:
        """Return the text of a configuration that shares the tables, with or without their history."""
        # One schema for names that differ in case alone.
        schemas: dict[str, dict[str, Any]] = {}
        for table in tables:
            schema = schemas.setdefault(table.schema.casefold(), {"name": table.schema, "tables": []})
            entry: dict[str, Any] = {"name": table.name, "location": _escaped(table.location.text)}
            schema["tables"].append(entry | {"historyShared": True} if history_shared else entry)
        gateway: dict[str, Any] = {"tokenKeys": [{"id": "k1", **token_key}]}
        buckets = sorted({table.location.bucket for table in tables if table.location.kind == "s3"})
        if buckets:
            gateway["storages"] = [self.address.entry(bucket) for bucket in buckets]
        top: dict[str, Any] = {"version": 1, "port": self.port}
        if self.public_url is not None:
            top["host"] = self.host
            gateway["publicUrl"] = self.public_url
        top["shares"] = [{"name": share, "schemas": list(schemas.values())}]
        top["gateway"] = gateway
        return dumped(top)


def _escaped(text: str) -> str:
    """Return a text without variables."""
    return text.replace("${", "$${")
