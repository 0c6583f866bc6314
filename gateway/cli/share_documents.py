"""Shares in a file of `delta-gateway export` and `apply`: maps with the configuration's keys, both ways."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gateway.catalog.stored_shares import StoredSchema, StoredShare, StoredTable
from gateway.governance.share_records import ShareError


def document_of(share: StoredShare) -> dict[str, Any]:
    """Return the map of a share."""
    return {
        "name": share.name,
        **share.options,
        "schemas": [_schema_document(schema) for schema in share.schemas],
    }


def _schema_document(schema: StoredSchema) -> dict[str, Any]:
    if "tables" in schema.options:
        return {"name": schema.name, **schema.options}
    tables = [{"name": table.name, "location": table.location, **table.options} for table in schema.tables]
    return {"name": schema.name, **schema.options, "tables": tables}


def share_of(document: Mapping[str, Any]) -> StoredShare:
    """Return the share of a map. Raises ShareError for another form."""
    rest = dict(document)
    name, schemas = rest.pop("name", None), rest.pop("schemas", None) or []
    return StoredShare(
        _text(name, "name"), rest, tuple(_schema_of(schema) for schema in _maps(schemas, "schemas"))
    )


def _schema_of(document: Mapping[str, Any]) -> StoredSchema:
    rest = dict(document)
    name, tables = rest.pop("name", None), rest.pop("tables", None) or []
    if isinstance(tables, dict):
        return StoredSchema(_text(name, "name"), {**rest, "tables": tables})
    return StoredSchema(
        _text(name, "name"), rest, tuple(_table_of(table) for table in _maps(tables, "tables"))
    )


def _table_of(document: Mapping[str, Any]) -> StoredTable:
    rest = dict(document)
    name, location = rest.pop("name", None), rest.pop("location", None)
    return StoredTable(_text(name, "name"), _text(location, "location"), rest)


def _text(value: Any, key: str) -> str:
    if not isinstance(value, str) or not value:
        raise ShareError(f"{key} must be given as text")
    return value


def _maps(value: Any, key: str) -> list[Mapping[str, Any]]:
    if not isinstance(value, list) or not all(isinstance(item, dict) for item in value):
        raise ShareError(f"{key}: expected a list of maps")
    return value
