"""Finds schemas that no client reads."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import orjson

from gateway.tables.native import Snapshot


def schema_problem(snapshot: Snapshot) -> str | None:
    """Return why no client reads a table with its schema; None if it has no such fault."""
    try:
        void = next(_void_columns(orjson.loads(snapshot.schema_string or "")["fields"]), None)
    except (ValueError, KeyError, TypeError):
        return "its schema is not valid"
    if void is None:
        return None
    return f"its column {void!r} has the type void, which no client reads; the provider must drop it"


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
