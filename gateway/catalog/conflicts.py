"""The tables of a database or a search that may not be shared beside the configured ones.

In: a configuration, and a table of the database or of a search. Out: why it is not shared, if it may not be.
The configuration itself is refused as a whole for the same reasons when it is loaded.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import chain

from gateway.config import Config, Location, SchemaEntry, ShareEntry, TableEntry
from gateway.config.projection_directories import projection_directories, within
from gateway.config.roots import NamedDirectories, readable_directories
from gateway.config.shares import have_own_ids


@dataclass(frozen=True, slots=True)
class LeftOut:
    """A stored or discovered entry that is not shared, by its name or its directory, and why."""

    name: str
    reason: str


class Conflicts:
    """What of a configuration no other table may have: its ids, and files that are shared otherwise."""

    def __init__(self, config: Config, compared: Iterable[ShareEntry] = ()) -> None:
        """`compared`: the shares of the tables to compare, needed where tables have an `id`."""
        self._readable = NamedDirectories(config, readable_directories(config))
        self._projections = projection_directories(config)
        self._has_ids = have_own_ids(chain(config.shares, compared))
        self._ids: dict[str, Location] = {}
        for share in config.shares if self._has_ids else ():
            for schema in share.schemas:
                for table in schema.tables:
                    self._ids.setdefault(share.table_id(schema, table), table.location)

    def __bool__(self) -> bool:
        """Return whether a table can have a problem."""
        return bool(self._readable or self._projections or self._has_ids)

    def problem(self, share: ShareEntry, schema: SchemaEntry, table: TableEntry) -> str | None:
        """Return why a table is not shared by these names. None if it may be: its id is then its own."""
        for location in table.roots:
            if name := self._projections.containing(location):
                return within(name)
        if name := self._readable.overlapping(table.location):
            return f"it has files in common with {name}, for which recipients get credentials"
        if self._has_ids:
            identity = share.table_id(schema, table)
            if self._ids.setdefault(identity, table.location) != table.location:
                return f"the id '{identity}' belongs to a table of another location"
        return None
