"""Changes of a stored share, as functions from one state to the next. Nothing is written.

They raise ShareNotFound for an absent name, and ShareExists for a taken one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from gateway.catalog.stored_shares import StoredSchema, StoredShare, StoredTable
from gateway.governance.share_records import ShareExists, ShareNotFound


def with_options(share: StoredShare, options: Mapping[str, Any]) -> StoredShare:
    """Return a share with changed options; the value None removes an option."""
    return replace(share, options=_updated(share.options, options))


def with_schema(share: StoredShare, name: str) -> StoredShare:
    """Return a share with a further schema."""
    if _schema(share, name) is not None:
        raise ShareExists(f"{share.name} has a schema {name!r} already")
    return replace(share, schemas=(*share.schemas, StoredSchema(name)))


def without_schema(share: StoredShare, name: str) -> StoredShare:
    """Return a share without a schema and its tables."""
    removed = _needed_schema(share, name)
    return replace(share, schemas=tuple(schema for schema in share.schemas if schema is not removed))


def with_table(share: StoredShare, schema: str, table: StoredTable, *, is_new: bool = True) -> StoredShare:
    """Return a share with a table, in a schema that may be new. `is_new`: no table of the name is there."""
    before = _schema(share, schema) or StoredSchema(schema)
    if "tables" in before.options:
        raise ShareExists(
            f"the tables of {share.name}.{before.name} are discovered; none can be listed there"
        )
    siblings = tuple(sibling for sibling in before.tables if sibling.key != table.key)
    if is_new and len(siblings) < len(before.tables):
        raise ShareExists(f"{share.name}.{before.name} has a table {table.name!r} already")
    return _with(share, replace(before, tables=(*siblings, table)))


def table_of(share: StoredShare, schema: str, name: str) -> StoredTable:
    parent = _needed_schema(share, schema)
    for table in parent.tables:
        if table.key == name.casefold():
            return table
    raise ShareNotFound(f"{share.name}.{parent.name} has no table {name!r}")


def without_table(share: StoredShare, schema: str, name: str) -> StoredShare:
    """Return a share without a table. The schema stays."""
    before, removed = _needed_schema(share, schema), table_of(share, schema, name)
    return _with(
        share, replace(before, tables=tuple(table for table in before.tables if table is not removed))
    )


def with_discovery(share: StoredShare, schema: str | None, discovery: Mapping[str, Any]) -> StoredShare:
    """Return a share, or one of its schemas, whose tables are discovered. The schema may be new.

    `discovery` has the configuration's keys of `tables`. It replaces an earlier discovery.
    """
    options = {"tables": dict(discovery)}
    if schema is None:
        return with_options(share, options)
    before = _schema(share, schema) or StoredSchema(schema)
    if before.tables:
        raise ShareExists(f"{share.name}.{before.name} has listed tables; remove them first")
    return _with(share, replace(before, options=_updated(before.options, options)))


def without_discovery(share: StoredShare, schema: str | None) -> StoredShare:
    """Return a share, or one of its schemas, without discovered tables. The schema stays."""
    before = share if schema is None else _needed_schema(share, schema)
    if "tables" not in before.options:
        raise ShareNotFound(f"no tables of {before.name!r} are discovered")
    after = replace(before, options=_updated(before.options, {"tables": None}))
    return after if isinstance(after, StoredShare) else _with(share, after)


def with_volume(share: StoredShare, schema: str, volume: Mapping[str, Any]) -> StoredShare:
    """Return a share with a volume, in a schema that may be new. The volume has the configuration's keys."""
    before = _schema(share, schema) or StoredSchema(schema)
    volumes = _volumes(before)
    if any(_is_named(sibling, str(volume.get("name"))) for sibling in volumes):
        raise ShareExists(f"{share.name}.{before.name} has a volume {volume.get('name')!r} already")
    return _with(share, replace(before, options={**before.options, "volumes": [*volumes, dict(volume)]}))


def volume_of(share: StoredShare, schema: str, name: str) -> Mapping[str, Any]:
    """Return a volume of a share, with the configuration's keys."""
    parent = _needed_schema(share, schema)
    for volume in _volumes(parent):
        if _is_named(volume, name):
            return volume
    raise ShareNotFound(f"{share.name}.{parent.name} has no volume {name!r}")


def without_volume(share: StoredShare, schema: str, name: str) -> StoredShare:
    """Return a share without a volume. The schema stays."""
    before, removed = _needed_schema(share, schema), volume_of(share, schema, name)
    volumes = [volume for volume in _volumes(before) if volume is not removed]
    return _with(share, replace(before, options=_updated(before.options, {"volumes": volumes or None})))


def _schema(share: StoredShare, name: str) -> StoredSchema | None:
    return next((schema for schema in share.schemas if schema.key == name.casefold()), None)


def _needed_schema(share: StoredShare, name: str) -> StoredSchema:
    schema = _schema(share, name)
    if schema is None:
        raise ShareNotFound(f"share {share.name!r} has no schema {name!r}")
    return schema


def _with(share: StoredShare, schema: StoredSchema) -> StoredShare:
    """Return a share with a schema, which replaces the one of its name or is the last one."""
    schemas = {earlier.key: earlier for earlier in share.schemas} | {schema.key: schema}
    return replace(share, schemas=tuple(schemas.values()))


def _volumes(schema: StoredSchema) -> list[Mapping[str, Any]]:
    return list(schema.options.get("volumes") or ())


def _is_named(volume: Mapping[str, Any], name: str) -> bool:
    return str(volume.get("name")).casefold() == name.casefold()


def _updated(options: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in {**options, **changes}.items() if value is not None}
