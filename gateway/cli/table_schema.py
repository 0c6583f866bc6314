"""Finds schemas that no client reads."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import orjson

from gateway.tables.native import Snapshot


def schema_problem(snapshot: Snapshot) -> str | None:
    """Return why no client reads a table with its schema; None if it has no such fault."""
    try:
        fields = orjson.loads(snapshot.schema_string or "")["fields"]
        return _problem(fields, snapshot.partition_columns)
    except (ValueError, KeyError, TypeError):
        return "its schema is not valid"


def _problem(fields: Sequence[dict[str, Any]], partition_columns: Sequence[str]) -> str | None:
    names = {field["name"].lower() for field in fields}
    for column in partition_columns:
        if column.lower() not in names:
            return f"its schema lacks the partition column {column!r}, and no client reads it"
    for column in _void_columns(fields):
        return f"its column {column!r} has the type void, which no client reads; the provider must drop it"
    return None


def _void_columns(fields: Sequence[dict[str, Any]]) -> Iterator[str]:
    for field in fields:
        if _has_void(field["type"]):
            yield field["name"]


def _has_void(data_type: Any) -> bool:
    if not isinstance(data_type, dict):
        return data_type in {"void", "null"}
    inner = [data_type.get(key) for key in ("elementType", "keyType", "valueType")]
    inner += [field["type"] for field in data_type.get("fields", ())]
    return any(_has_void(part) for part in inner)
