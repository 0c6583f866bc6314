"""The operations of the admin API on shares, one function each, as in `handlers`.

Shares of the configuration are returned, too; changes of them are refused, as the file holds them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Container, Mapping
from contextlib import suppress
from itertools import chain
from typing import Any, Literal

import msgspec
from msgspec import UNSET, UnsetType

from gateway.admin import share_messages as messages
from gateway.admin.call import Call
from gateway.authentication.credential_table import built_in_recipients, configured_recipients
from gateway.catalog.catalog import Catalog, Recipient
from gateway.catalog.grants import grant_text
from gateway.catalog.stored_shares import StoredShare, StoredTable, WithStored, with_stored
from gateway.config import Config, Discovery, SchemaEntry, ShareEntry, TableEntry, VolumeEntry
from gateway.database.errors import DatabaseMissing
from gateway.governance import share_edits
from gateway.governance.credential_store import configured_names
from gateway.governance.recipient_records import Permission
from gateway.governance.recipient_store import RecipientDatabase
from gateway.governance.share_records import ShareError, ShareNotFound
from gateway.governance.share_store import ShareDatabase
from gateway.governance.stored_recipients import recipient_of

LIMITS = ("history_data_sharing_status", "start_version", "access_modes", "auxiliary_locations")
"""Fields of tables alone: one that is ignored would share more than was meant."""

Texts = messages.NewShare | messages.ShareUpdate
Source = Literal["configuration", "database"]


async def list_shares(call: Call) -> messages.Shares:
    """List the shares of the configuration and of the database."""
    whole = await _whole(call)
    return await asyncio.to_thread(_listed, call.administration.config(), whole)


def _listed(config: Config, whole: WithStored) -> messages.Shares:
    configured = _keys(config)
    left_out = tuple(messages.LeftOutObject(entry.name, entry.reason) for entry in whole.left_out)
    return messages.Shares(tuple(_info(configured, share) for share in whole.config.shares), left_out)


def _keys(config: Config) -> frozenset[str]:
    """Return the names of the configuration's shares as they are compared."""
    return frozenset(share.name.casefold() for share in config.shares)


async def show_share(call: Call) -> messages.ShareInfo:
    """Return a share with its data objects."""

    def read(database: ShareDatabase) -> WithStored:
        call.tag(database)
        return database.with_configuration()

    whole = await _whole(call, read)
    return _whole_info(call.administration.config(), whole, call.share)


async def add_share(call: Call, body: messages.NewShare) -> messages.ShareInfo:
    """Add a share to the database."""
    new = share_edits.with_options(StoredShare(body.name), _options(body))
    whole = await call.with_shares(lambda database: _added(database, new), create=True)
    return _whole_info(call.administration.config(), whole, body.name)


def _added(database: ShareDatabase, new: StoredShare) -> WithStored:
    database.add(new, _discovery_detail(new.options))
    return database.with_configuration()


async def update_share(call: Call, body: messages.ShareUpdate) -> messages.ShareInfo:
    """Change a share of the database: its description and its data objects."""

    def edit(share: StoredShare) -> StoredShare:
        changed = share_edits.with_options(share, options)
        for update in body.updates:
            changed = updated(changed, update)
        return changed

    options = _options(body)
    detail = _discovery_detail(options)
    for number, update in enumerate(body.updates):
        target = update.data_object
        detail[f"{number} {update.action}"] = f"{target.data_object_type} {target.shared_as}"
        if not isinstance(target.tables, UnsetType):
            detail[f"{number} discover"] = target.tables.discover

    def change(database: ShareDatabase) -> WithStored:
        database.edit(call.share, edit, detail)
        return database.with_configuration()

    whole = await call.with_shares(change)
    return _whole_info(call.administration.config(), whole, call.share)


async def remove_share(call: Call) -> messages.ShareInfo:
    """Remove a share of the database; the files of its tables stay."""

    def remove(database: ShareDatabase) -> StoredShare:
        share = database.show(call.share)
        database.remove(call.share)
        return share

    removed = await call.with_shares(remove)
    return messages.ShareInfo(removed.name, "database", comment=removed.options.get("comment") or UNSET)


async def show_permissions(call: Call) -> messages.Permissions:
    """List the recipients that may read a share or something in it."""
    whole = await _whole(call)
    entry = _entry(whole, call.share)
    (share,) = Catalog.of([entry]).all()
    is_searched = any(True for _ in entry.sources)

    def assigned(recipient: Recipient, source: Source) -> list[messages.PrivilegeAssignment]:
        # By the function that requests use.
        grants = tuple(map(grant_text, recipient.grants_in(share, is_searched=is_searched)))
        return [messages.PrivilegeAssignment(recipient.name, grants=grants, source=source)] if grants else []

    def stored(database: RecipientDatabase) -> list[messages.PrivilegeAssignment]:
        taken = configured_names(call.administration.config())
        records = (record for record in database.list() if record.name.lower() not in taken)
        return [*chain.from_iterable(assigned(recipient_of(record), "database") for record in records)]

    configured = [*built_in_recipients(whole.config), *configured_recipients(whole.config)]
    assignments = [*chain.from_iterable(assigned(recipient, "configuration") for recipient in configured)]
    with suppress(DatabaseMissing):
        assignments += await call.with_database(stored, read_only=True)
    return messages.Permissions(tuple(assignments))


async def update_permissions(call: Call, body: messages.PermissionsUpdate) -> messages.Permissions:
    """Grant a share to recipients, or take it back: all changes or none."""
    await show_share(call)
    changes = [
        Permission(change.principal, is_granted)
        for change in body.changes
        for is_granted, privileges in ((True, change.add), (False, change.remove))
        if privileges
    ]
    await call.with_database(lambda database: database.update_permissions(call.share, changes))
    if body.omit_permissions_list:
        return messages.Permissions(())
    return await show_permissions(call)


async def _whole(
    call: Call, read: Callable[[ShareDatabase], WithStored] = ShareDatabase.with_configuration
) -> WithStored:
    try:
        return await call.with_shares(read, read_only=True)
    except DatabaseMissing:
        return with_stored(call.administration.config(), {})


def _options(body: Texts) -> dict[str, Any]:
    """Return the options that a request changes; None takes one away."""
    given = {"comment": body.comment, "displayName": body.display_name, "properties": body.properties}
    options = {name: value or None for name, value in given.items() if value is not UNSET}
    if body.tables is not UNSET:
        options["tables"] = None if body.tables is None else _discovery(body.tables)
    return options


def _discovery(tables: messages.DiscoveredTables) -> dict[str, Any]:
    """Return discovered tables as the configuration has them."""
    history = tables.history_data_sharing_status
    return _given(
        discover=tables.discover,
        everySeconds=tables.every_seconds,
        keepSeconds=tables.keep_seconds,
        maxDepth=tables.max_depth,
        maxTables=tables.max_tables,
        maxCalls=tables.max_calls,
        historyShared=UNSET if history is UNSET else history == "ENABLED",
        replaceDots=tables.replace_dots,
    )


def _discovery_detail(options: Mapping[str, Any]) -> dict[str, str]:
    """Return the detail of changed options for the history: where tables of the share are discovered."""
    if "tables" not in options:
        return {}
    return {"discover": "nothing" if options["tables"] is None else options["tables"]["discover"]}


def updated(share: StoredShare, update: messages.DataObjectUpdate) -> StoredShare:
    """Return a share after one change of its data objects. Raises ShareError."""
    target, action = update.data_object, update.action
    for name in () if target.data_object_type == "TABLE" else LIMITS:
        if getattr(target, name) is not UNSET:
            raise ShareError(f"{target.shared_as}: a {target.data_object_type} has no {name}")
    if target.data_object_type == "SCHEMA":
        return _updated_schema(share, target, action)
    if not isinstance(target.tables, UnsetType):
        raise ShareError(f"{target.shared_as}: tables are discovered in a share or a SCHEMA")
    schema, separator, name = target.shared_as.partition(".")
    if not (schema and separator and name):
        raise ShareError(f"shared_as {target.shared_as!r}: expected schema.name")
    if target.data_object_type == "VOLUME":
        return _updated_volume(share, schema, name, update)
    if action == "REMOVE":
        return share_edits.without_table(share, schema, name)
    options = _table_options(target)
    if action == "UPDATE":
        # Fields that the request does not have stay: without its access modes a table may have more of them.
        before = share_edits.table_of(share, schema, name)
        location = before.location if target.name is UNSET else target.name
        table = StoredTable(name, location, {**before.options, **options})
        return share_edits.with_table(share, schema, table, is_new=False)
    return share_edits.with_table(share, schema, StoredTable(name, _location(target), options))


def _updated_volume(
    share: StoredShare, schema: str, name: str, update: messages.DataObjectUpdate
) -> StoredShare:
    target, action = update.data_object, update.action
    if action == "REMOVE":
        return share_edits.without_volume(share, schema, name)
    volume = {"name": name, **_given(location=target.name, id=target.id, comment=target.comment)}
    if action == "UPDATE":
        volume = {**share_edits.volume_of(share, schema, name), **volume}
        share = share_edits.without_volume(share, schema, name)
    else:
        _location(target)
    return share_edits.with_volume(share, schema, volume)


def _updated_schema(share: StoredShare, target: messages.DataObject, action: str) -> StoredShare:
    if action == "REMOVE":
        return share_edits.without_schema(share, target.shared_as)
    if action == "ADD":
        share = share_edits.with_schema(share, target.shared_as)
    elif isinstance(target.tables, UnsetType):
        raise ShareError("a schema has nothing to update but its discovered tables: add or remove it")
    if isinstance(target.tables, UnsetType):
        return share
    return share_edits.with_discovery(share, target.shared_as, _discovery(target.tables))


def _location(added: messages.DataObject) -> str:
    """Return the location of an added table or volume. Raises ShareError without one."""
    if added.name is UNSET:
        raise ShareError(f"{added.shared_as}: name must be given, the location of the data")
    return added.name


def _table_options(target: messages.DataObject) -> dict[str, Any]:
    history, modes, roots = (
        target.history_data_sharing_status,
        target.access_modes,
        target.auxiliary_locations,
    )
    return _given(
        id=target.id,
        historyShared=UNSET if history is UNSET else history == "ENABLED",
        startVersion=target.start_version,
        accessModes=UNSET if modes is UNSET else list(modes),
        auxiliaryLocations=UNSET if roots is UNSET else list(roots),
    )


def _given(**values: Any) -> dict[str, Any]:
    return {name: value for name, value in values.items() if value is not UNSET}


def _whole_info(config: Config, whole: WithStored, name: str) -> messages.ShareInfo:
    share = _entry(whole, name)
    info = _info(_keys(config), share)
    objects = tuple(chain.from_iterable(_objects(schema) for schema in share.schemas))
    return msgspec.structs.replace(info, objects=objects)


def _entry(whole: WithStored, name: str) -> ShareEntry:
    for share in whole.config.shares:
        if share.name.casefold() == name.casefold():
            return share
    raise ShareNotFound(f"there is no share {name!r}")


def _info(configured: Container[str], share: ShareEntry) -> messages.ShareInfo:
    is_configured = share.name.casefold() in configured
    source: Source = "configuration" if is_configured else "database"
    properties: Mapping[str, str] = share.properties
    return messages.ShareInfo(
        share.name,
        source,
        share.comment or UNSET,
        share.display_name or UNSET,
        dict(properties) or UNSET,
        _discovered(share.tables),
    )


def _discovered(discovery: Discovery | None) -> messages.DiscoveredTables | UnsetType:
    """Return discovered tables as they are shown; none of a catalog, which only the configuration has."""
    if discovery is None or discovery.discover is None:
        return UNSET
    return messages.DiscoveredTables(
        discovery.discover.text,
        discovery.every_seconds,
        discovery.keep_seconds,
        discovery.max_depth,
        discovery.max_tables,
        discovery.max_calls,
        "ENABLED" if discovery.history_shared else "DISABLED",
        discovery.replace_dots,
    )


def _objects(schema: SchemaEntry) -> list[messages.DataObject]:
    """Return a schema, and its tables and volumes, as data objects."""
    return [
        messages.DataObject(schema.name, data_object_type="SCHEMA", tables=_discovered(schema.discovery)),
        *(_table(schema, table) for table in schema.tables),
        *(_volume(schema, volume) for volume in schema.volumes),
    ]


def _table(schema: SchemaEntry, table: TableEntry) -> messages.DataObject:
    return messages.DataObject(
        f"{schema.name}.{table.name}",
        table.location.encoded,
        history_data_sharing_status="ENABLED" if table.history_shared else "DISABLED",
        start_version=table.start_version,
        access_modes=table.access_modes,
        auxiliary_locations=tuple(root.encoded for root in table.auxiliary_locations) or UNSET,
        id=table.id or UNSET,
    )


def _volume(schema: SchemaEntry, volume: VolumeEntry) -> messages.DataObject:
    return messages.DataObject(
        f"{schema.name}.{volume.name}",
        volume.location.encoded,
        "VOLUME",
        comment=volume.comment or UNSET,
        id=volume.id or UNSET,
    )
