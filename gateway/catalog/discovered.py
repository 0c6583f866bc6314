"""Discovered tables, and the shares of a configuration with them.

In: what searches found, by the places of the configuration. Out: the entries of shares as if the tables were
listed there, and each table that is left out, with the reason. Reads nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from itertools import chain

from gateway.catalog.conflicts import Conflicts, LeftOut
from gateway.config import Config, Location, SchemaEntry, ShareEntry, Source, TableEntry
from gateway.config.errors import Invalid

SourceKey = tuple[str, str, str, str]
Place = tuple[str, str | None]
_Entries = tuple[SchemaEntry, TableEntry]


@dataclass(frozen=True, slots=True)
class FoundTable:
    """A table of a search, with the names that its directories or its catalog give.

    Attributes:
        schema: name of the schema in the share.
        name: name of the table in the share.
        location: root of the table.
        listed_in: schema of the catalog that lists the table; empty for tables of directories.
        managed_as: name of the table in the catalog, if that manages it.

    """

    schema: str
    name: str
    location: Location
    listed_in: str = ""
    managed_as: str = ""


@dataclass(frozen=True, slots=True)
class Discovered:
    """The found tables of each place of the configuration that a search has reached.

    `partial`: the places of which a fault has kept each search from a part.
    """

    tables: Mapping[SourceKey, tuple[FoundTable, ...]] = field(default_factory=dict)
    partial: frozenset[SourceKey] = frozenset()

    def of(self, source: Source) -> tuple[FoundTable, ...]:
        """Return the tables of a place; none of one that no search has reached."""
        return self.tables.get(source.key, ())


@dataclass(frozen=True, slots=True)
class DiscoveredShares:
    """All shares of a configuration with their discovered tables, and the tables that are left out.

    `unsearched`: the places that no search has reached whole, each as a share and one of its schemas or None.
    """

    shares: tuple[ShareEntry, ...]
    left_out: tuple[LeftOut, ...] = ()
    unsearched: frozenset[Place] = frozenset()


NOTHING_DISCOVERED = Discovered()


def with_discovered(config: Config, discovered: Discovered) -> DiscoveredShares:
    """Return the shares with their discovered tables. Slow for thousands of tables."""
    unsearched = frozenset(
        (source.share.casefold(), source.schema and source.schema.casefold())
        for source in config.sources
        if source.key not in discovered.tables or source.key in discovered.partial
    )
    if not discovered.tables:
        return DiscoveredShares(config.shares, unsearched=unsearched)
    conflicts = Conflicts(config)
    extended = [_with_tables(share, discovered, conflicts) for share in config.shares]
    left_out = chain.from_iterable(without for _, without in extended)
    return DiscoveredShares(tuple(share for share, _ in extended), tuple(left_out), unsearched)


def _with_tables(
    share: ShareEntry, discovered: Discovered, conflicts: Conflicts
) -> tuple[ShareEntry, list[LeftOut]]:
    """Return a share with its discovered tables, and those that are left out."""
    sources = list(share.sources)
    if not sources:
        return share, []
    left_out = list[LeftOut]()
    schemas = {schema.name.casefold(): schema for schema in share.schemas}
    listed = {table.location for schema in share.schemas for table in schema.tables}
    names = {key: {table.name.casefold() for table in schema.tables} for key, schema in schemas.items()}
    added: dict[str, list[TableEntry]] = {}
    # The template of a schema is more exact than the template of its share.
    for source in reversed(sources):
        for table in discovered.of(source):
            key = (source.schema or table.schema).casefold()
            taken = names.setdefault(key, set())
            if table.location in listed:
                made: _Entries | str = "its directory is a table of the share already"
            elif table.name.casefold() in taken:
                made = "a table of its schema has its name"
            else:
                made = _entries(share, source, table, conflicts)
            if isinstance(made, str):
                left_out.append(LeftOut(table.location.url, made))
                continue
            schemas.setdefault(key, made[0])
            taken.add(table.name.casefold())
            listed.add(table.location)
            added.setdefault(key, []).append(made[1])
    configured = [schema.name.casefold() for schema in share.schemas]
    ordered = (*configured, *sorted(added.keys() - {*configured}))
    whole = replace(share, schemas=tuple(_extended(schemas[key], added.get(key, ())) for key in ordered))
    return whole, left_out


def _entries(
    share: ShareEntry, source: Source, discovered: FoundTable, conflicts: Conflicts
) -> _Entries | str:
    """Return the entries of a found table and its schema, or why it is not shared."""
    try:
        schema = SchemaEntry(source.schema or discovered.schema)
        catalog = source.discovery.unity_catalog if discovered.managed_as else None
        table = TableEntry(
            discovered.name,
            discovered.location,
            history_shared=source.discovery.history_shared,
            catalog=catalog.manages(discovered.managed_as) if catalog is not None else None,
        )
    except Invalid as invalid:
        return f"its {invalid.field} {invalid}"
    return conflicts.problem(share, schema, table) or (schema, table)


def _extended(schema: SchemaEntry, tables: Iterable[TableEntry]) -> SchemaEntry:
    added = sorted(tables, key=lambda table: table.name)
    return replace(schema, tables=(*schema.tables, *added)) if added else schema
