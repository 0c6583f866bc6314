"""Discovered tables, and the shares of a configuration with them.

In: what searches found, by the places of the configuration. Out: the entries of shares as if the tables were
listed there, and each table that is left out, with the reason. Reads nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from gateway.config import Config, Location, SchemaEntry, ShareEntry, Source, TableEntry
from gateway.config.errors import Invalid
from gateway.config.projection_directories import projection_directories
from gateway.config.roots import NamedDirectories, ReadableRoots
from gateway.config.shares import stable_id

SourceKey = tuple[str, str, str, str]


@dataclass(frozen=True, slots=True)
class FoundTable:
    """A table of a search, with the names that its directories or its catalog give.

    Attributes:
        schema: name of the schema in the share.
        name: name of the table in the share.
        location: root of the table.
        listed_in: schema of the catalog that lists the table; empty for tables of directories.

    """

    schema: str
    name: str
    location: Location
    listed_in: str = ""


@dataclass(frozen=True, slots=True)
class Refusal:
    """A directory, or a table of a catalog, that is not shared, and why."""

    name: str
    reason: str


@dataclass(frozen=True, slots=True)
class Discovered:
    """The found tables of each place of the configuration."""

    tables: Mapping[SourceKey, tuple[FoundTable, ...]] = field(default_factory=dict)

    def of(self, source: Source) -> tuple[FoundTable, ...]:
        """Return the tables of a place; none before its first search."""
        return self.tables.get(source.key, ())


@dataclass(frozen=True, slots=True)
class DiscoveredShares:
    """All shares of a configuration with their discovered tables, and the tables that were left out."""

    shares: tuple[ShareEntry, ...]
    refused: tuple[Refusal, ...] = ()


NOTHING_DISCOVERED = Discovered()


def with_discovered(config: Config, discovered: Discovered) -> DiscoveredShares:
    """Return the shares with their discovered tables. Slow for thousands of tables."""
    if not discovered.tables:
        return DiscoveredShares(config.shares)
    others = _Others(ReadableRoots(config), projection_directories(config), _own_ids(config))
    refused: list[Refusal] = []
    shares = tuple(_with_tables(share, discovered, others, refused) for share in config.shares)
    return DiscoveredShares(shares, tuple(refused))


@dataclass(frozen=True, slots=True)
class _Others:
    """What of a configuration no found table may have files of.

    Attributes:
        readable: directories for which recipients get credentials.
        projections: directories of projections, which have rows before their proof.
        ids: the locations of tables with ids of their own.

    """

    readable: ReadableRoots
    projections: NamedDirectories
    ids: Mapping[str, Location]

    def problem(self, share: str, schema: str, table: str, location: Location) -> str | None:
        """Return why a table at a location is not shared by these names; None if it may be."""
        if self.ids and self.ids.get(stable_id(share, schema, table), location) != location:
            return "the id of its names belongs to a table of another location"
        name = self.projections.containing(location)
        if name is not None:
            return f"it lies within the projection {name}, which has rows before their proof"
        name = self.readable.overlapping(location)
        if name is not None:
            return f"it has files in common with {name}, for which recipients get credentials"
        return None


def _own_ids(config: Config) -> Mapping[str, Location]:
    return {
        table.id: table.location
        for share in config.shares
        for schema in share.schemas
        for table in schema.tables
        if table.id
    }


def _with_tables(
    share: ShareEntry, discovered: Discovered, others: _Others, refused: list[Refusal]
) -> ShareEntry:
    sources = list(share.sources)
    if not sources:
        return share
    schemas = {schema.name.casefold(): schema for schema in share.schemas}
    listed = {table.location for schema in share.schemas for table in schema.tables}
    names = {key: {table.name.casefold() for table in schema.tables} for key, schema in schemas.items()}
    added: dict[str, list[TableEntry]] = {}
    # The template of a schema is more exact than that of its share.
    for source in reversed(sources):
        for found in discovered.of(source):
            schema = source.schema or found.schema
            key = schema.casefold()
            taken = names.setdefault(key, set())
            entry = _entry(source, replace(found, schema=schema), taken, listed, others)
            if isinstance(entry, str):
                refused.append(Refusal(found.location.url, entry))
                continue
            schemas.setdefault(key, SchemaEntry(schema))
            taken.add(found.name.casefold())
            listed.add(found.location)
            added.setdefault(key, []).append(entry)
    configured = [schema.name.casefold() for schema in share.schemas]
    ordered = (*configured, *sorted(added.keys() - {*configured}))
    return replace(share, schemas=tuple(_extended(schemas[key], added.get(key, ())) for key in ordered))


def _entry(
    source: Source, found: FoundTable, taken: set[str], listed: set[Location], others: _Others
) -> TableEntry | str:
    """Return the entry of a found table, or why it is not shared."""
    if found.location in listed:
        return "its directory is a table of the share already"
    if found.name.casefold() in taken:
        return "a table of its schema has its name"
    problem = others.problem(source.share, found.schema, found.name, found.location)
    if problem is not None:
        return problem
    try:
        SchemaEntry(found.schema)
        return TableEntry(found.name, found.location, history_shared=source.discovery.history_shared)
    except Invalid as invalid:
        return f"its name {invalid}"


def _extended(schema: SchemaEntry, tables: Iterable[TableEntry]) -> SchemaEntry:
    added = sorted(tables, key=lambda table: table.name)
    return replace(schema, tables=(*schema.tables, *added)) if added else schema
