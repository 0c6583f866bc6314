"""The sections of shares: `shares` with their schemas, tables and volumes."""

from __future__ import annotations

import dataclasses
import uuid
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Literal

from gateway.config.checks import (
    MAX_COMMENT_LENGTH,
    MAX_NAME_LENGTH,
    check_length,
    check_name,
    check_properties,
    check_unique,
)
from gateway.config.discovery import Discovery, Source, check_template
from gateway.config.errors import Invalid
from gateway.config.locations import Location
from gateway.config.operation import setting
from gateway.config.projections import Projection
from gateway.config.recipients import EVERY_SHARE
from gateway.config.table_catalog import TableCatalog

ID_NAMESPACE = uuid.UUID("6d3f2f5e-0c2b-5a5b-9a53-0f6f1d1f7c11")


def stable_id(*names: str) -> str:
    """Return the id that names give, in any case."""
    return str(uuid.uuid5(ID_NAMESPACE, "/".join(name.casefold() for name in names)))


@dataclass(frozen=True, slots=True)
class TableEntry:
    """A shared table.

    Attributes:
        name: name of the table in the share; case-insensitive.
        location: root of the Delta table: `s3://bucket/path`,
            `abfss://container@account.dfs.core.windows.net/path`, `gs://bucket/path`, `file:///directory` or
            `/directory`. Other forms of a store, such as `s3a://`, `wasbs://` and `https://`, are accepted.
        id: identifier of the table in answers and tokens. Without it the id is derived from the names and
            stays the same. Tables of different locations have different ids.
        history_shared: allows time travel, the change data feed and streaming.
        start_version: first version of the shared history. Its changes are shared, too: with them the files
            that it removes from the version before.
        access_modes: how recipients read: `url`, by a pre-signed URL of each file, and `dir`, by temporary
            credentials for the table's directory. Listings show the location of a table with `dir`.
        auxiliary_locations: for `dir`, directories outside of `location` with files of the table, as of
            shallow clones. Recipients get temporary credentials for each. `gateway.allowedRoots` contains
            them.
        projection: makes the table a projection of another one. `location` is the directory that contains it.
        catalog: the catalog that manages the table, if one does (`catalogManaged`).

    """

    name: str
    location: Location
    id: str | None = None
    history_shared: bool = False
    start_version: int = setting(0, minimum=0, protects=True)
    access_modes: tuple[Literal["url", "dir"], ...] = ("url",)
    auxiliary_locations: tuple[Location, ...] = ()
    projection: Projection | None = setting(None, protects=True)
    catalog: TableCatalog | None = setting(None, protects=True)

    def __post_init__(self) -> None:
        check_name(self.name)
        if "_delta_log" in self.location.key.split("/"):
            raise Invalid("location", "is the log of a table; give the directory that contains _delta_log")
        if self.catalog is not None:
            if "dir" in self.access_modes:
                raise Invalid(
                    "access_modes",
                    "dir is not for a table that a catalog manages: its directory does not say which commits "
                    "count",
                )
            if self.projection is not None:
                raise Invalid("catalog", "is not for a projection, which no catalog manages")
        if self.projection is not None:
            if "dir" in self.access_modes:
                raise Invalid(
                    "access_modes",
                    "dir is not for a projection: its directory has rows before their proof",
                )
            # Every reader of the table reads the directory of this rule alone.
            object.__setattr__(self, "location", self.projection.root(self.location))
        if not self.access_modes:
            raise Invalid("access_modes", "is empty; accepted: url, dir")
        check_unique("access_modes", list(self.access_modes))
        if self.auxiliary_locations and "dir" not in self.access_modes:
            raise Invalid("auxiliary_locations", "are for directory access; add dir to accessModes")

    @property
    def roots(self) -> tuple[Location, ...]:
        """Return the directories that recipients of directory access read."""
        return (self.location, *self.auxiliary_locations)


@dataclass(frozen=True, slots=True)
class VolumeEntry:
    """A shared volume: a directory of files that are no table, read by temporary credentials.

    Attributes:
        name: name of the volume in the schema; case-insensitive.
        location: the directory, in the forms of a table's location. Local directories and whole buckets
            are refused, and so is a directory that contains a table or another volume, or lies in one.
        id: identifier of the volume in answers. Without it the id is derived from the names and stays the
            same.
        comment: description of the volume, of at most 65,536 characters.

    """

    name: str
    location: Location
    id: str | None = None
    comment: str | None = None

    def __post_init__(self) -> None:
        check_name(self.name)
        check_length("comment", self.comment, MAX_COMMENT_LENGTH)


@dataclass(frozen=True, slots=True)
class SchemaEntry:
    """A schema of a share.

    Attributes:
        name: name of the schema; case-insensitive.
        tables: tables of the schema, or a map with the keys of `shares[].tables`, whose template has
            `{table}` alone.
        volumes: volumes of the schema.
        discovery: that map; not a key.

    """

    name: str
    tables: tuple[TableEntry, ...] = dataclasses.field(default=(), metadata={"map_form": "discovery"})
    volumes: tuple[VolumeEntry, ...] = ()
    discovery: Discovery | None = dataclasses.field(default=None, metadata={"found": True})

    def __post_init__(self) -> None:
        check_name(self.name)
        check_template(self.discovery, names_schemas=False)
        check_unique("tables", [table.name for table in self.tables])
        check_unique("volumes", [volume.name for volume in self.volumes])


@dataclass(frozen=True, slots=True)
class ShareEntry:
    """A share.

    Attributes:
        name: name of the share; case-insensitive.
        id: identifier of the share in answers. Without it the id is derived from the name and stays the same.
        display_name: name for people, of at most 255 characters. Clients request the share by `name`.
        comment: description of the share, of at most 65,536 characters.
        properties: at most 50 texts by names of the provider's choice. Names have at most 255 characters,
            texts at most 1,000.
        tables: tables that are found below a location, in the schemas that their directories name.
        schemas: schemas of the share.

    """

    name: str
    id: str | None = None
    display_name: str | None = None
    comment: str | None = None
    properties: Mapping[str, str] = dataclasses.field(default_factory=dict)
    tables: Discovery | None = None
    schemas: tuple[SchemaEntry, ...] = ()

    def __post_init__(self) -> None:
        check_name(self.name)
        if self.name == EVERY_SHARE:
            raise Invalid("name", "may not be '*', by which a grant names every share")
        check_template(self.tables, names_schemas=True)
        check_length("display_name", self.display_name, MAX_NAME_LENGTH)
        check_length("comment", self.comment, MAX_COMMENT_LENGTH)
        check_properties(self.properties)
        check_unique("schemas", [schema.name for schema in self.schemas])

    def table_id(self, schema: SchemaEntry, table: TableEntry) -> str:
        """Return the id of a table of the share: its `id`, or the one that its names give."""
        return table.id or stable_id(self.name, schema.name, table.name)

    @property
    def sources(self) -> Iterator[Source]:
        """Iterate over the places where tables are discovered."""
        if self.tables is not None:
            yield Source(self.name, None, self.tables)
        for schema in self.schemas:
            if schema.discovery is not None:
                yield Source(self.name, schema.name, schema.discovery)


def have_own_ids(shares: Iterable[ShareEntry]) -> bool:
    """Return whether a table has an `id`, which may equal the one that another table's names give."""
    return any(table.id for share in shares for schema in share.schemas for table in schema.tables)
