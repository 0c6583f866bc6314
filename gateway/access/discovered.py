"""Discovered tables, and the shares of a configuration with them.

In: what searches found, by the places of the configuration. Out: the entries of shares as if the tables were
listed there, and each table that is left out, with the reason. Reads nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from gateway.config import Config, Location, SchemaEntry, ShareEntry, Source, TableEntry
from gateway.config.errors import Invalid
from gateway.config.roots import ReadableRoots

SourceKey = tuple[str, str, str, str]


@dataclass(frozen=True, slots=True)
class FoundTable:
    """A table of a search, with the names that its directories give."""

    schema: str
    name: str
    location: Location


@dataclass(frozen=True, slots=True)
class Refusal:
    """A directory or a table that is not shared, and why."""

    location: Location
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
    readable = ReadableRoots(config)
    refused: list[Refusal] = []
    shares = tuple(_with_tables(share, discovered, readable, refused) for share in config.shares)
    return DiscoveredShares(shares, tuple(refused))


def _with_tables(
    share: ShareEntry, discovered: Discovered, readable: ReadableRoots, refused: list[Refusal]
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
            entry = _entry(source, found, taken, listed, readable)
            if isinstance(entry, str):
                refused.append(Refusal(found.location, entry))
                continue
            schemas.setdefault(key, SchemaEntry(schema))
            taken.add(found.name.casefold())
            listed.add(found.location)
            added.setdefault(key, []).append(entry)
    configured = [schema.name.casefold() for schema in share.schemas]
    ordered = (*configured, *sorted(added.keys() - {*configured}))
    return replace(share, schemas=tuple(_extended(schemas[key], added.get(key, ())) for key in ordered))


def _entry(
    source: Source, found: FoundTable, taken: set[str], listed: set[Location], readable: ReadableRoots
) -> TableEntry | str:
    """Return the entry of a found table, or why it is not shared."""
    if found.location in listed:
        return "its directory is a table of the share already"
    if found.name.casefold() in taken:
        return "a table of its schema has its name"
    name = readable.overlapping(found.location)
    if name is not None:
        return f"it has files in common with {name}, for which recipients get credentials"
    try:
        SchemaEntry(found.schema)
        return TableEntry(found.name, found.location, history_shared=source.discovery.history_shared)
    except Invalid as invalid:
        return f"its name {invalid}"


def _extended(schema: SchemaEntry, tables: Iterable[TableEntry]) -> SchemaEntry:
    added = sorted(tables, key=lambda table: table.name)
    return replace(schema, tables=(*schema.tables, *added)) if added else schema
