"""Changes of a stored share, as functions from one state to the next. Nothing is written.

Raise ShareNotFound for what is not there, and ShareExists for what is there already.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from gateway.catalog.stored_shares import StoredSchema, StoredShare, StoredTable
from gateway.governance.share_records import ShareError, ShareExists, ShareNotFound


def with_options(share: StoredShare, options: Mapping[str, Any]) -> StoredShare:
    """Return a share with other options; None in place of a value takes the option away."""
    return replace(share, options=_updated(share.options, options))


def with_schema(share: StoredShare, name: str) -> StoredShare:
    """Return a share with a further schema."""
    if _schema(share, name) is not None:
        raise ShareExists(f"{share.name} has a schema {name!r} already")
    return replace(share, schemas=(*share.schemas, StoredSchema(name)))


def without_schema(share: StoredShare, name: str) -> StoredShare:
    """Return a share without a schema and its tables."""
    found = _needed_schema(share, name)
    return replace(share, schemas=tuple(one for one in share.schemas if one is not found))


def with_table(share: StoredShare, schema: str, table: StoredTable, *, is_new: bool = True) -> StoredShare:
    """Return a share with a table, in a schema that may be new. `is_new`: no table of the name is there."""
    found = _schema(share, schema) or StoredSchema(schema)
    if "tables" in found.options:
        raise ShareExists(f"the tables of {share.name}.{found.name} are discovered; none can be listed there")
    others = tuple(one for one in found.tables if one.name.casefold() != table.name.casefold())
    if is_new and len(others) < len(found.tables):
        raise ShareExists(f"{share.name}.{found.name} has a table {table.name!r} already")
    return _with(share, replace(found, tables=(*others, table)))


def table_of(share: StoredShare, schema: str, name: str) -> StoredTable:
    """Return a table of a share."""
    found = _needed_schema(share, schema)
    for table in found.tables:
        if table.name.casefold() == name.casefold():
            return table
    raise ShareNotFound(f"{share.name}.{found.name} has no table {name!r}")


def without_table(share: StoredShare, schema: str, name: str) -> StoredShare:
    """Return a share without a table. The schema stays."""
    found, table = _needed_schema(share, schema), table_of(share, schema, name)
    return _with(share, replace(found, tables=tuple(one for one in found.tables if one is not table)))


def with_discovery(share: StoredShare, schema: str | None, discovery: Mapping[str, Any]) -> StoredShare:
    """Return a share whose tables are discovered, with the configuration's keys of `tables`.

    Of a `schema`, which may be new, its tables alone. Tables that were discovered otherwise are so no longer.
    """
    options = {"tables": dict(discovery)}
    if schema is None:
        return with_options(share, options)
    found = _schema(share, schema) or StoredSchema(schema)
    if found.tables:
        raise ShareExists(f"{share.name}.{found.name} has listed tables; remove them first")
    return _with(share, replace(found, options=_updated(found.options, options)))


def without_discovery(share: StoredShare, schema: str | None) -> StoredShare:
    """Return a share, or one of its schemas, without discovered tables. The schema stays."""
    found = None if schema is None else _needed_schema(share, schema)
    options, name = (share.options, share.name) if found is None else (found.options, found.name)
    if "tables" not in options:
        raise ShareNotFound(f"no tables of {name!r} are discovered")
    if found is None:
        return with_options(share, {"tables": None})
    return _with(share, replace(found, options=_updated(found.options, {"tables": None})))


def with_volume(share: StoredShare, schema: str, volume: Mapping[str, Any]) -> StoredShare:
    """Return a share with a volume, in a schema that may be new. The volume has the configuration's keys."""
    found = _schema(share, schema) or StoredSchema(schema)
    volumes = _volumes(found)
    if any(_is_named(one, str(volume.get("name"))) for one in volumes):
        raise ShareExists(f"{share.name}.{found.name} has a volume {volume.get('name')!r} already")
    return _with(share, replace(found, options={**found.options, "volumes": [*volumes, dict(volume)]}))


def volume_of(share: StoredShare, schema: str, name: str) -> Mapping[str, Any]:
    """Return a volume of a share, with the configuration's keys."""
    found = _needed_schema(share, schema)
    for volume in _volumes(found):
        if _is_named(volume, name):
            return volume
    raise ShareNotFound(f"{share.name}.{found.name} has no volume {name!r}")


def without_volume(share: StoredShare, schema: str, name: str) -> StoredShare:
    """Return a share without a volume. The schema stays."""
    found, volume = _needed_schema(share, schema), volume_of(share, schema, name)
    others = [one for one in _volumes(found) if one is not volume]
    return _with(share, replace(found, options=_updated(found.options, {"volumes": others or None})))


def of_document(document: Mapping[str, Any]) -> StoredShare:
    """Return a share of the configuration's keys as it is stored. Raises ShareError for another form."""
    rest = dict(document)
    name, schemas = rest.pop("name", None), rest.pop("schemas", None) or []
    return StoredShare(_text(name, "name"), rest, tuple(_schema_of(one) for one in _maps(schemas, "schemas")))


def _schema_of(document: Mapping[str, Any]) -> StoredSchema:
    rest = dict(document)
    name, tables = rest.pop("name", None), rest.pop("tables", None) or []
    if isinstance(tables, dict):
        return StoredSchema(_text(name, "name"), {**rest, "tables": tables})
    return StoredSchema(_text(name, "name"), rest, tuple(_table_of(one) for one in _maps(tables, "tables")))


def _table_of(document: Mapping[str, Any]) -> StoredTable:
    rest = dict(document)
    name, location = rest.pop("name", None), rest.pop("location", None)
    return StoredTable(_text(name, "name"), _text(location, "location"), rest)


def _text(value: Any, key: str) -> str:
    if not isinstance(value, str) or not value:
        raise ShareError(f"{key} must be given as text")
    return value


def _maps(value: Any, key: str) -> list[Mapping[str, Any]]:
    if not isinstance(value, list) or not all(isinstance(one, dict) for one in value):
        raise ShareError(f"{key}: expected a list of maps")
    return value


def _schema(share: StoredShare, name: str) -> StoredSchema | None:
    return next((one for one in share.schemas if one.name.casefold() == name.casefold()), None)


def _needed_schema(share: StoredShare, name: str) -> StoredSchema:
    found = _schema(share, name)
    if found is None:
        raise ShareNotFound(f"share {share.name!r} has no schema {name!r}")
    return found


def _with(share: StoredShare, schema: StoredSchema) -> StoredShare:
    """Return a share with a schema in place of that of its name, or behind the others."""
    key = schema.name.casefold()
    if _schema(share, schema.name) is None:
        return replace(share, schemas=(*share.schemas, schema))
    return replace(
        share, schemas=tuple(schema if one.name.casefold() == key else one for one in share.schemas)
    )


def _volumes(schema: StoredSchema) -> list[Mapping[str, Any]]:
    return list(schema.options.get("volumes") or ())


def _is_named(volume: Mapping[str, Any], name: str) -> bool:
    return str(volume.get("name")).casefold() == name.casefold()


def _updated(options: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in {**options, **changes}.items() if value is not None}
