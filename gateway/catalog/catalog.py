"""The catalog of shares: Share > Schema > SharedTable, as a recipient may see it.

In: the configuration's shares and the names of a request. Out: frozen values with stable ids; a table has
the rule of the recipient's grants, if they have conditions. Names are compared without case. A name that is
not granted and a name that does not exist raise the same `NotFound`, after the same work. Spark sends a blank
as `+`, so a name is looked up as it is and then with `+` for blanks.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Generic, Literal, Protocol, TypeVar

from gateway.catalog.grants import NO_GRANTS, Grant, GrantIndex, Rule
from gateway.config import SchemaEntry, ShareEntry, TableEntry, VolumeEntry
from gateway.config.locations import Location
from gateway.config.networks import Network
from gateway.config.recipients import EVERY_SHARE
from gateway.config.shares import stable_id
from gateway.config.table_catalog import TableCatalog
from gateway.errors import GatewayError, NotShared, Unavailable

Place = tuple[Location, TableCatalog | None]


class HasName(Protocol):
    """Anything with a name."""

    @property
    def name(self) -> str:
        """The name as configured."""


Named = TypeVar("Named", bound=HasName)
Default = TypeVar("Default")


@dataclass(frozen=True, slots=True)
class Recipient:
    """A recipient and its grants.

    Attributes:
        name: in logs, metrics and the audit log.
        shares: the shares that are granted as a whole, in lower case; `*` grants every share.
        networks: the allowed source networks; empty allows every address.
        grants: those for parts of shares.
        properties: values for conditions, by name.
        revision: number that changes when the rows of a recipient of the database do, whatever they hold.

    """

    name: str
    shares: frozenset[str]
    networks: tuple[Network, ...] = ()
    grants: tuple[Grant, ...] = ()
    properties: tuple[tuple[str, str], ...] = ()
    revision: int = 0
    _index: GrantIndex = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        # Almost all recipients have whole shares alone.
        object.__setattr__(self, "_index", GrantIndex(self.grants) if self.grants else NO_GRANTS)

    def may_read(self, share: Share) -> bool:
        """Return whether a share is granted as a whole."""
        return EVERY_SHARE in self.shares or share.name.casefold() in self.shares

    def may_see(self, share: Share) -> bool:
        """Return whether a share or something in it is granted."""
        if self.may_read(share):
            return True
        return bool(self.grants) and (
            self._index.is_named(share.name.casefold())
            or any(_has(share, *names) for names in self._index.in_every_share)
        )

    def grants_in(self, share: Share, *, is_searched: bool = False) -> tuple[Grant, ...]:
        """Return the grants by which a share or something in it may be seen; none where it may not.

        `is_searched`: tables of the share are discovered, so a grant in every share may be for one of them.
        """
        key = share.name.casefold()
        whole = (Grant(name) for name in (EVERY_SHARE, key) if name in self.shares)
        parts = (
            grant
            for grant in self.grants
            if grant.share == key
            or (grant.share == EVERY_SHARE and (is_searched or _has(share, grant.schema, grant.table)))
        )
        return (*whole, *parts)

    def may_see_schema(self, share: Share, schema: str) -> bool:
        """Return whether a schema or something in it is granted, in the same time for any schema."""
        return self._index.reaches(share.name.casefold(), schema.casefold())

    def may_read_volumes(self, share: Share, schema: str) -> bool:
        """Return whether the volumes of a schema are granted, by an unconditional grant for all of it."""
        return self._index.is_whole_schema(share.name.casefold(), schema.casefold())

    def granted(self, table: SharedTable) -> SharedTable | None:
        """Return a table with the rule of its grants; None if there is no grant. Not for whole shares."""
        covering = self._index.conditions(
            table.share.casefold(), table.schema.casefold(), table.name.casefold()
        )
        if not covering:
            return None
        is_whole = None in covering
        if is_whole and not table.auxiliary_locations:
            return table
        # Credentials give access to every file of a directory, and an auxiliary location may be a table that
        # is granted by a rule or not at all.
        modes = tuple(mode for mode in table.access_modes if mode != "dir")
        conditions = tuple(sorted({text for text in covering if text is not None}))
        rule = None if is_whole else Rule(conditions, self.properties)
        return replace(table, rule=rule, access_modes=modes, auxiliary_locations=(), access_members="")


PROVIDER = Recipient("provider", frozenset({EVERY_SHARE}))
"""A recipient of all shares, for commands and the console."""


@dataclass(frozen=True, slots=True)
class SharedTable:
    """A table of a schema, with the part of its history that is shared."""

    name: str
    schema: str
    share: str
    share_id: str
    id: str
    location: Location
    history_shared: bool
    start_version: int
    access_modes: tuple[Literal["url", "dir"], ...] = ("url",)
    auxiliary_locations: tuple[Location, ...] = ()
    access_members: str = ""
    """What metadata shows of directory access: members in JSON, without braces; empty without it."""
    managed_by: TableCatalog | None = None
    """The catalog that ratifies its commits."""
    rule: Rule | None = None
    """The rule of the recipient's grants. As part of the table it is in every answer, cache and token."""

    @property
    def offers_urls(self) -> bool:
        """Return whether recipients may query the table for URLs."""
        return "url" in self.access_modes

    @property
    def offers_directory(self) -> bool:
        """Return whether recipients may request credentials for the table's directory."""
        return "dir" in self.access_modes

    def is_answered_by(self, earlier: SharedTable) -> bool:
        """Return whether an answer that began with an `earlier` state of this table may continue."""
        return (
            (self.id, self.location, self.rule) == (earlier.id, earlier.location, earlier.rule)
            and self.history_shared >= earlier.history_shared
            and self.start_version <= earlier.start_version
            and self.offers_urls >= earlier.offers_urls
        )

    def __hash__(self) -> int:
        # A hash of all values would be computed for each request.
        return hash(self.id)

    @property
    def place(self) -> Place:
        """What its log is read from: the location, and the catalog that ratifies its commits."""
        return self.location, self.managed_by

    @property
    def full_name(self) -> str:
        """`share.schema.table`."""
        return f"{self.share}.{self.schema}.{self.name}"


@dataclass(frozen=True, slots=True)
class SharedVolume:
    """A volume of a schema: a directory of files that are no table."""

    name: str
    schema: str
    share: str
    share_id: str
    id: str
    location: Location
    comment: str | None = None

    @property
    def full_name(self) -> str:
        """`share.schema.volume`."""
        return f"{self.share}.{self.schema}.{self.name}"


@dataclass(frozen=True, slots=True)
class Schema:
    """A schema with its tables and volumes, in the configuration's order."""

    name: str
    share: str
    tables: Names[SharedTable]
    volumes: Names[SharedVolume]


@dataclass(frozen=True, slots=True)
class Share:
    """A share and its schemas, in the configuration's order."""

    name: str
    id: str
    schemas: Names[Schema]
    display_name: str | None = None
    comment: str | None = None
    properties: Mapping[str, str] = field(default_factory=dict)

    def tables(self) -> list[SharedTable]:
        """All tables of all schemas, in order."""
        return [table for schema in self.schemas for table in schema.tables]

    def volumes(self) -> list[SharedVolume]:
        """All volumes of all schemas, in order."""
        return [volume for schema in self.schemas for volume in schema.volumes]


class Names(Generic[Named]):
    """Named items in order, looked up without case: by name, or by name with `+` for blanks."""

    def __init__(self, items: Iterable[Named]) -> None:
        self._items = tuple(items)
        self._exact = {item.name.casefold(): item for item in self._items}
        self._form_encoded = {item.name.casefold().replace(" ", "+"): item for item in reversed(self._items)}

    def __iter__(self) -> Iterator[Named]:
        return iter(self._items)

    def __len__(self) -> int:
        return len(self._items)

    def find(self, name: str, absent: Default) -> Named | Default:
        """Return the item with a name, or `absent`.

        Every lookup takes the same steps, so its time says nothing about names that are not granted.
        """
        folded = name.casefold()
        return self._exact.get(folded, self._form_encoded.get(folded, absent))

    def named(self, key: str, absent: Default) -> Named | Default:
        """Return the item with a lower-case name, as grants have it, or `absent`."""
        return self._exact.get(key, absent)


NO_SHARE = Share("", "", Names(()))
NO_SCHEMA = Schema("", "", Names(()), Names(()))
NO_TABLE = SharedTable("", "", "", "", "", Location("file", "", ""), history_shared=False, start_version=0)
NO_VOLUME = SharedVolume("", "", "", "", "", NO_TABLE.location)
"""Used for absent items, which then take the same steps as items without a grant."""


class Catalog:
    """Everything that is shared."""

    def __init__(
        self,
        shares: Iterable[Share],
        entries: Iterable[ShareEntry] = (),
        unsearched: Collection[tuple[str, str | None]] = (),
    ) -> None:
        """`entries`: those that the shares were made of, in the same order. `unsearched`: as of `of`."""
        self._shares = Names(shares)
        self._unsearched = unsearched
        self.made = {entry.name: (entry, share) for entry, share in zip(entries, self._shares, strict=False)}
        """The entries with their shares, by name."""
        self._tables = tuple(table for share in self._shares for table in share.tables())

    @staticmethod
    def of(
        entries: Iterable[ShareEntry],
        previous: Catalog | None = None,
        unsearched: Collection[tuple[str, str | None]] = (),
    ) -> Catalog:
        """Build the catalog of a configuration. Entries that are the same in `previous` keep their shares.

        `unsearched`: shares, or schemas of them, of whose tables not all are known; names in lower case, and
        `*` where not all shares are known.
        """
        entries = tuple(entries)
        known = {} if previous is None else previous.made
        return Catalog(
            [
                share if made is entry else _share(entry)
                for entry in entries
                for made, share in (known.get(entry.name, (None, NO_SHARE)),)
            ],
            entries,
            unsearched,
        )

    def all(self) -> Iterable[Share]:
        """All shares, in order."""
        return self._shares

    def tables(self) -> Iterable[SharedTable]:
        return self._tables

    def shares_of(self, recipient: Recipient) -> list[Share]:
        """Return the granted shares, in order."""
        return [share for share in self._shares if recipient.may_see(share)]

    def tables_of(self, recipient: Recipient) -> Iterator[SharedTable]:
        """Iterate over the granted tables, each with the rule of its grants."""
        for share in self.shares_of(recipient):
            yield from self.share(recipient, share.name).tables()

    def share(self, recipient: Recipient, share: str) -> Share:
        """Find a granted share. Raises NotFound."""
        visible = self._seen(recipient, share)
        if visible is None:
            self._check_searched(recipient, None)
            raise NotShared("share")
        return _granted_part(recipient, visible) if _is_partial(recipient, visible) else visible

    def schema(self, recipient: Recipient, share: str, schema: str) -> Schema:
        """Find a schema of a granted share. Raises NotFound."""
        parent = self._seen(recipient, share)
        inner: Schema | None = (parent or NO_SHARE).schemas.find(schema, NO_SCHEMA)
        if inner is not None and parent is not None and _is_partial(recipient, parent):
            inner = _granted_schema(recipient, parent, inner)
        if inner is None or inner is NO_SCHEMA:
            self._check_searched(recipient, parent, schema)
            raise NotShared("schema")
        return inner

    def table(self, recipient: Recipient, share: str, schema: str, table: str) -> SharedTable:
        """Find a granted table, with the rule of its grants. Raises NotFound."""
        parent = self._seen(recipient, share)
        known = (parent or NO_SHARE).schemas.find(schema, NO_SCHEMA).tables.find(table, NO_TABLE)
        granted: SharedTable | None = known
        if parent is not None and _is_partial(recipient, parent):
            granted = recipient.granted(known)
        if granted is None or known is NO_TABLE:
            self._check_searched(recipient, parent, schema)
            raise NotShared("table")
        return granted

    def require_searched(self, recipient: Recipient, share: str = "", schema: str | None = None) -> None:
        """Raise Unavailable for a list of shares, schemas or tables that may look whole and not be."""
        if self._unsearched:
            self._check_searched(recipient, self._seen(recipient, share), schema)

    def _check_searched(self, recipient: Recipient, share: Share | None, schema: str | None = None) -> None:
        """Raise Unavailable where granted tables of a share, or of a schema of it, may be unknown.

        Of no share: where a grant in every share may be for a schema of one that is not searched.
        """
        if share is None:
            is_unknown = self._unsearched and (
                any(grant.share == EVERY_SHARE for grant in recipient.grants)
                or ((EVERY_SHARE, None) in self._unsearched and EVERY_SHARE in recipient.shares)
            )
        else:
            key, inner = share.name.casefold(), schema and schema.casefold()
            is_whole = recipient.may_read(share)
            is_unknown = any(
                not place or (inner in (None, place) and (is_whole or recipient.may_see_schema(share, place)))
                for name, place in self._unsearched
                if name == key
            )
        if is_unknown:
            raise Unavailable("the tables of the share are not known yet; try again later")

    def volume(self, recipient: Recipient, share: str, schema: str, volume: str) -> SharedVolume:
        """Find a granted volume. Raises NotFound."""
        parent = self._seen(recipient, share)
        known = (parent or NO_SHARE).schemas.find(schema, NO_SCHEMA).volumes.find(volume, NO_VOLUME)
        may_read = True
        if parent is not None and _is_partial(recipient, parent):
            may_read = recipient.may_read_volumes(parent, known.schema)
        if not may_read or known is NO_VOLUME:
            if parent is None:
                self._check_searched(recipient, None)
            raise NotShared("volume")
        return known

    def has(self, names: Mapping[str, str]) -> bool:
        """Return whether the place in a path of the protocol is shared with anybody.

        Every place takes the same lookups, so the time of an answer says nothing about it.
        """
        share = self._shares.find(names["share"], NO_SHARE)
        schema = share.schemas.find(names.get("schema", ""), NO_SCHEMA)
        if "table" in names:
            return schema.tables.find(names["table"], NO_TABLE) is not NO_TABLE
        if "volume" in names:
            return schema.volumes.find(names["volume"], NO_VOLUME) is not NO_VOLUME
        return schema is not NO_SCHEMA if "schema" in names else share is not NO_SHARE

    def grants(
        self, recipient: Recipient, share: str, schema: str | None = None, table: str | None = None
    ) -> tuple[Grant, ...]:
        """Return the grants by which a recipient reads a table or sees a share; none where it does not."""
        parent = self._seen(recipient, share)
        if parent is None:
            return ()
        grants = recipient.grants_in(parent)
        if schema is None or table is None:
            return grants
        try:
            shared = self.table(recipient, share, schema, table)
        except GatewayError:
            return ()
        return tuple(grant for grant in grants if grant.covers(shared.schema, shared.name))

    def _seen(self, recipient: Recipient, share: str) -> Share | None:
        """Return a share with a grant. An absent share takes the same steps as one that is not granted."""
        named = self._shares.find(share, NO_SHARE)
        if not recipient.may_see(named) or named is NO_SHARE:
            return None
        return named


def _is_partial(recipient: Recipient, share: Share) -> bool:
    """Return whether parts of a share are granted, and not the share as a whole."""
    return bool(recipient.grants) and not recipient.may_read(share)


def _granted_part(recipient: Recipient, share: Share) -> Share:
    """Return the granted schemas and tables of a share, each table with its rule.

    A schema without a granted table is part of it only if all of the schema is granted.
    """
    schemas = (_granted_schema(recipient, share, schema) for schema in share.schemas)
    return replace(share, schemas=Names(schema for schema in schemas if schema is not None))


def _granted_schema(recipient: Recipient, share: Share, schema: Schema) -> Schema | None:
    """Return the granted part of a schema; None without any."""
    if not recipient.may_see_schema(share, schema.name):
        # Its tables are not looked at: the time would say that there are some, and how many.
        return None
    tables = [granted for table in schema.tables if (granted := recipient.granted(table)) is not None]
    is_whole = recipient.may_read_volumes(share, schema.name)
    if not tables and not is_whole:
        return None
    return replace(schema, tables=Names(tables), volumes=schema.volumes if is_whole else Names(()))


def _has(share: Share, schema: str | None, table: str | None) -> bool:
    """Return whether a share has a schema or a table by lower-case names; None for any."""
    if schema is None:
        return True
    inner = share.schemas.named(schema, NO_SCHEMA)
    known = inner.tables.named(table or "", NO_TABLE)
    return inner is not NO_SCHEMA and (table is None or known is not NO_TABLE)


def page(names: Sequence[str], *, after: str | None, limit: int) -> tuple[range, str | None]:
    """Return the page of a listing that follows the item called `after`.

    Returns the indexes of the page and the name after which the next page starts: the empty string for the
    first page again, None when nothing follows. Raises ValueError when `after` is no longer listed.
    """
    start = names.index(after) + 1 if after else 0
    stop = min(start + limit, len(names))
    more = stop < len(names)
    return range(start, stop), (names[stop - 1] if stop else "") if more else None


def _share(entry: ShareEntry) -> Share:
    identity = entry.id or stable_id(entry.name)
    schemas = Names(_schema(entry, identity, schema) for schema in entry.schemas)
    return Share(entry.name, identity, schemas, entry.display_name, entry.comment, entry.properties)


def _schema(share: ShareEntry, share_id: str, schema: SchemaEntry) -> Schema:
    tables = Names(_table(share, share_id, schema, table) for table in schema.tables)
    volumes = Names(_volume(share, share_id, schema, volume) for volume in schema.volumes)
    return Schema(schema.name, share.name, tables, volumes)


def _table(share: ShareEntry, share_id: str, schema: SchemaEntry, table: TableEntry) -> SharedTable:
    return SharedTable(
        name=table.name,
        schema=schema.name,
        share=share.name,
        share_id=share_id,
        id=share.table_id(schema, table),
        location=table.location,
        history_shared=table.history_shared,
        start_version=table.start_version,
        access_modes=table.access_modes,
        auxiliary_locations=table.auxiliary_locations,
        access_members=_access_members(table),
        managed_by=table.catalog,
    )


def _access_members(table: TableEntry) -> str:
    if "dir" not in table.access_modes:
        return ""
    members: dict[str, object] = {"location": table.location.hadoop_url}
    if table.auxiliary_locations:
        members["auxiliaryLocations"] = [root.hadoop_url for root in table.auxiliary_locations]
    members["accessModes"] = table.access_modes
    # In ASCII: clients split lines at separators of Unicode.
    return json.dumps(members, separators=(",", ":"))[1:-1]


def _volume(share: ShareEntry, share_id: str, schema: SchemaEntry, volume: VolumeEntry) -> SharedVolume:
    return SharedVolume(
        name=volume.name,
        schema=schema.name,
        share=share.name,
        share_id=share_id,
        # A table of the same name has another id; no name has a slash.
        id=volume.id or stable_id(share.name, schema.name, "volumes", volume.name),
        location=volume.location,
        comment=volume.comment,
    )
