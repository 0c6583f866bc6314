"""Spark's pushed filters as the protocol's JSON predicate hints.

Comes in: the filters of a scan and the table's schema. Goes out: one JSON tree, or nothing. A filter that the
protocol has no exact words for is left out: hints only prune, Spark applies every filter again.
"""

import datetime as dt
import json
import math
from collections.abc import Iterable
from typing import Any

from pyspark.sql import datasource as ds
from pyspark.sql import types as t

_VALUE_TYPES: dict[type[t.DataType], str] = {
    t.BooleanType: "bool",
    t.ByteType: "int",
    t.ShortType: "int",
    t.IntegerType: "int",
    t.LongType: "long",
    t.FloatType: "float",
    t.DoubleType: "double",
    t.StringType: "string",
    t.DateType: "date",
    t.TimestampType: "timestamp",
}

_COMPARISONS: dict[type[ds.Filter], str] = {
    ds.EqualTo: "equal",
    ds.LessThan: "lessThan",
    ds.LessThanOrEqual: "lessThanOrEqual",
    ds.GreaterThan: "greaterThan",
    ds.GreaterThanOrEqual: "greaterThanOrEqual",
}

# A prefix is told as its lower bound, which is weaker and must not be negated; NOT a <=> 1 holds for
# null, where the protocol's not(equal) does not.
_NOT_NEGATED = (ds.StringStartsWith, ds.EqualNullSafe)

_LONGEST_IN_LIST = 200


def json_predicate_hint(filters: Iterable[ds.Filter], schema: t.StructType) -> str | None:
    """The conjunction of what can be said of `filters`, serialised; None when nothing can."""
    trees = [tree for tree in (_tree(one, schema) for one in filters) if tree is not None]
    if not trees:
        return None
    return json.dumps(trees[0] if len(trees) == 1 else {"op": "and", "children": trees})


def _tree(one: ds.Filter, schema: t.StructType) -> dict[str, Any] | None:
    if isinstance(one, ds.Not):
        child = None if isinstance(one.child, _NOT_NEGATED) else _tree(one.child, schema)
        return None if child is None else {"op": "not", "children": [child]}
    column = _column(one, schema)
    if column is None:
        return None
    if isinstance(one, ds.IsNull):
        return {"op": "isNull", "children": [column]}
    if isinstance(one, ds.IsNotNull):
        return {"op": "not", "children": [{"op": "isNull", "children": [column]}]}
    if isinstance(one, ds.EqualNullSafe):
        return _equal_null_safe(column, one.value)
    if isinstance(one, ds.In):
        return _in(column, one.value)
    if isinstance(one, ds.StringStartsWith):
        return _compare("greaterThanOrEqual", column, one.value)
    operation = _COMPARISONS.get(type(one))
    return None if operation is None else _compare(operation, column, getattr(one, "value", None))


def _column(one: Any, schema: t.StructType) -> dict[str, Any] | None:
    """The column a filter speaks of; None for nested ones and for types without a protocol name."""
    path = one.attribute
    if len(path) != 1:
        return None
    field = next((field for field in schema.fields if field.name == path[0]), None)
    value_type = None if field is None else _VALUE_TYPES.get(type(field.dataType))
    if field is None or value_type is None:
        return None
    return {"op": "column", "name": field.name, "valueType": value_type}


def _compare(operation: str, column: dict[str, Any], value: Any) -> dict[str, Any] | None:
    text = _literal(value, column["valueType"])
    if text is None:
        return None
    literal = {"op": "literal", "value": text, "valueType": column["valueType"]}
    return {"op": operation, "children": [column, literal]}


def _equal_null_safe(column: dict[str, Any], value: Any) -> dict[str, Any] | None:
    if value is None:
        return {"op": "isNull", "children": [column]}
    return _compare("equal", column, value)


def _in(column: dict[str, Any], values: Iterable[Any]) -> dict[str, Any] | None:
    trees = [_compare("equal", column, value) for value in values if value is not None]
    if not trees or len(trees) > _LONGEST_IN_LIST or any(tree is None for tree in trees):
        return None
    return trees[0] if len(trees) == 1 else {"op": "or", "children": trees}


def _literal(value: Any, value_type: str) -> str | None:
    """A literal as the protocol writes it; None when it has no exact form there."""
    kind = {
        "bool": bool,
        "int": int,
        "long": int,
        "float": float,
        "double": float,
        "string": str,
        "date": dt.date,
        "timestamp": dt.datetime,
    }[value_type]
    if value_type in {"float", "double"} and isinstance(value, int) and not isinstance(value, bool):
        value = float(value)
    if not isinstance(value, kind) or (isinstance(value, bool) and value_type != "bool"):
        return None
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float):
        return repr(value) if math.isfinite(value) else None
    if isinstance(value, dt.datetime):
        return None if value_type == "date" else _instant(value)
    return value.isoformat() if isinstance(value, dt.date) else str(value)


def _instant(value: dt.datetime) -> str | None:
    if value.tzinfo is None:
        return None
    return value.astimezone(dt.UTC).replace(tzinfo=None).isoformat() + "Z"
