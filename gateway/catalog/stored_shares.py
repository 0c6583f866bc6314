"""Shares of the database, and a configuration with them.

In: what the database stores. Out: the entries that the configuration would have, and what is left out because
it is no longer valid, with the reason: nothing that is stored can keep a server from starting. A share of the
configuration takes precedence over a stored one of the same name.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import Any

from gateway.catalog.conflicts import Conflicts, LeftOut
from gateway.config import Config, ConfigError, SchemaEntry, ShareEntry, Source
from gateway.config.directory_access import directory_problems, session_policy_problems
from gateway.config.entries import EntryReader
from gateway.config.errors import Invalid
from gateway.config.roots import DIRECTORY, Holder

IN_CONFIGURATION = "the configuration has a share of this name, which is the one that is shared"
EXCLUDING_OPTIONS = frozenset({"id", "accessModes", "auxiliaryLocations"})
"""Options by which a table may exclude a table of another share."""
OTHER_KEY = "its name in the database is not that of this key"


@dataclass(frozen=True, slots=True)
class _Stored:
    name: str

    @property
    def key(self) -> str:
        """The name as it is compared."""
        return self.name.casefold()


@dataclass(frozen=True, slots=True)
class StoredTable(_Stored):
    """A table as it is stored; `options` are its other keys of the configuration."""

    location: str
    options: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class StoredSchema(_Stored):
    """A schema as it is stored; `options` are its other keys of the configuration.

    `tables` is one of them where tables are discovered, in the place of listed ones.
    """

    options: Mapping[str, Any] = field(default_factory=dict)
    tables: tuple[StoredTable, ...] = ()


@dataclass(frozen=True, slots=True)
class StoredShare(_Stored):
    """A share as it is stored; `options` are its other keys of the configuration but `schemas`."""

    options: Mapping[str, Any] = field(default_factory=dict)
    schemas: tuple[StoredSchema, ...] = ()

    @property
    def excludes_others(self) -> bool:
        """Return whether one of its ids or directories may exclude a table of another share."""
        return any(
            "volumes" in schema.options
            or any(not EXCLUDING_OPTIONS.isdisjoint(table.options) for table in schema.tables)
            for schema in self.schemas
        )

    @property
    def discovers(self) -> bool:
        """Return whether tables of the share are discovered."""
        return "tables" in self.options or any("tables" in schema.options for schema in self.schemas)


StoredShares = Mapping[str, StoredShare]
"""Shares by their keys."""


@dataclass(frozen=True, slots=True)
class _MadeShare:
    """A stored share, its entry, which is None for an invalid share, and its own invalid parts."""

    stored: StoredShare
    entry: ShareEntry | None
    left_out: tuple[LeftOut, ...]


@dataclass(frozen=True, slots=True)
class WithStored:
    """A configuration with the stored shares, and what of them was left out.

    Attributes:
        config: the configuration with the shares.
        left_out: what of the shares is not in it.
        base: the configuration without the shares.
        made: the entry of each share, by its key.

    """

    config: Config
    left_out: tuple[LeftOut, ...] = ()
    base: Config | None = field(default=None, repr=False)
    made: Mapping[str, _MadeShare] = field(default_factory=dict, repr=False)


def with_stored(config: Config, stored: StoredShares, previous: WithStored | None = None) -> WithStored:
    """Return the configuration with the stored shares that are valid in it. Slow for thousands of tables.

    Shares that are the same values in `previous`, of the same configuration, have the same entries, and take
    no time. Where shares have directories for which recipients get credentials, all are compared again.
    """
    if not stored:
        return WithStored(config)
    known = previous.made if previous is not None and previous.base is config else {}
    reader = EntryReader(config)
    made = {
        key: earlier
        if (earlier := known.get(key)) is not None and earlier.stored is share
        else _made(reader, key, share)
        for key, share in sorted(stored.items())
    }
    configured = {share.name.casefold() for share in config.shares}
    entries, left_out = [], list[LeftOut]()
    for key, share in made.items():
        if key in configured:
            left_out.append(LeftOut(share.stored.name, IN_CONFIGURATION))
            continue
        left_out += share.left_out
        if share.entry is not None:
            entries.append(share.entry)
    fitting, conflicting = _without_conflicts(config, entries)
    whole, unreadable = _without_problems(config, fitting)
    return WithStored(whole, (*left_out, *conflicting, *unreadable), config, made)


def _made(reader: EntryReader, key: str, share: StoredShare) -> _MadeShare:
    if key != share.key:
        # Another share may have the name, and commands and grants with the name mean that share.
        return _MadeShare(share, None, (LeftOut(key, OTHER_KEY),))
    schemas, left_out = [], list[LeftOut]()
    for schema in share.schemas:
        made, without = _schema(reader, share.name, schema)
        schemas += [] if made is None else [made]
        left_out += without
    try:
        return _MadeShare(share, reader.share(share.name, share.options, schemas), tuple(left_out))
    except (ConfigError, Invalid) as error:
        return _MadeShare(share, None, (*left_out, LeftOut(share.name, str(error))))


def stored_sources(config: Config, stored: StoredShares) -> tuple[Source, ...]:
    """Return the places where tables of stored shares are discovered."""
    # There may be many listed tables, which have no such places.
    searched = {
        key: replace(share, schemas=tuple(replace(schema, tables=()) for schema in share.schemas))
        for key, share in stored.items()
        if share.discovers
    }
    if not searched:
        return ()
    stored_shares = with_stored(config, searched).config.shares[len(config.shares) :]
    return tuple(chain.from_iterable(share.sources for share in stored_shares))


def _schema(
    reader: EntryReader, share: str, schema: StoredSchema
) -> tuple[SchemaEntry | None, list[LeftOut]]:
    """Return the entry of a schema, None for an invalid one, and what of it is left out."""
    name, tables, left_out = f"{share}.{schema.name}", [], list[LeftOut]()
    for table in schema.tables:
        try:
            tables.append(reader.table(table.name, table.location, table.options))
        except ConfigError as error:
            left_out.append(LeftOut(f"{name}.{table.name}", str(error)))
    try:
        return reader.schema(schema.name, schema.options, tables), left_out
    except (ConfigError, Invalid) as error:
        return None, [*left_out, LeftOut(name, str(error))]


def _without_conflicts(
    config: Config, shares: Sequence[ShareEntry]
) -> tuple[tuple[ShareEntry, ...], list[LeftOut]]:
    """Return shares without tables that take an id or files of others, and these tables."""
    conflicts = Conflicts(config, shares)
    if not conflicts:
        return tuple(shares), []
    left_out = {
        (False, f"{share.name}.{schema.name}.{table.name}"): problem
        for share in shares
        for schema in share.schemas
        for table in schema.tables
        if (problem := conflicts.problem(share, schema, table)) is not None
    }
    return tuple(_without(share, left_out) for share in shares), _left_out(left_out)


def _without_problems(config: Config, shares: tuple[ShareEntry, ...]) -> tuple[Config, list[LeftOut]]:
    """Return the configuration with shares. Directories that no credential may read are left out."""
    whole, left_out = replace(config, shares=(*config.shares, *shares)), list[LeftOut]()
    while any(_has_directories(share) for share in shares):
        problems: dict[Holder, str] = {}
        for holder, reason in chain(directory_problems(whole), session_policy_problems(config, shares)):
            problems.setdefault(holder, reason)
        if not problems:
            break
        holders = set(_holders(shares))
        of_shares = {holder: reason for holder, reason in problems.items() if holder in holders}
        left_out += _left_out(of_shares)
        if of_shares:
            shares = tuple(_without(share, of_shares) for share in shares)
        else:
            # A directory of the configuration has files in common with one of the database.
            left_out += (
                LeftOut(share.name, next(iter(problems.values())))
                for share in shares
                if _has_directories(share)
            )
            shares = tuple(share for share in shares if not _has_directories(share))
        whole = replace(config, shares=(*config.shares, *shares))
    return whole, left_out


def _left_out(problems: Mapping[Holder, str]) -> list[LeftOut]:
    return [LeftOut(name, reason) for (_, name), reason in problems.items()]


def _has_directories(share: ShareEntry) -> bool:
    return any(
        schema.volumes or any(DIRECTORY in table.access_modes for table in schema.tables)
        for schema in share.schemas
    )


def _holders(shares: Iterable[ShareEntry]) -> Iterator[Holder]:
    for share in shares:
        for schema in share.schemas:
            yield from ((False, f"{share.name}.{schema.name}.{table.name}") for table in schema.tables)
            yield from ((True, f"{share.name}.{schema.name}.{volume.name}") for volume in schema.volumes)


def _without(share: ShareEntry, refused: Collection[Holder]) -> ShareEntry:
    """Return a share without some tables and volumes."""
    if not refused:
        return share

    def without(schema: SchemaEntry) -> SchemaEntry:
        prefix = f"{share.name}.{schema.name}."
        tables = (table for table in schema.tables if (False, prefix + table.name) not in refused)
        volumes = (volume for volume in schema.volumes if (True, prefix + volume.name) not in refused)
        return replace(schema, tables=tuple(tables), volumes=tuple(volumes))

    return replace(share, schemas=tuple(without(schema) for schema in share.schemas))
