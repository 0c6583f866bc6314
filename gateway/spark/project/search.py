"""Conditions by which a table is searched for rows that are to be removed.

In: the rows. Out: conditions that are true for each of them. They save work and decide nothing: Delta skips
files and Parquet skips pages by bounds of single columns, and a row is hashed where the value of its most
telling column is among those of the rows.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from itertools import pairwise
from typing import Any

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f
from pyspark.sql import types as t

from gateway.spark.verify.digest import quoted

_MAX_COLUMNS = 32
"""Delta has statistics of as many columns."""

_MAX_INTERVALS = 16
_MAX_TEXT_CHARACTERS = 100
_NOT_IN_LITERALS = ("'", "\\", "${", "\ufffd")
"""Ends and escapes of texts; variables such as `${env:HOME}`, for which Spark puts values of its process into
any SQL, its texts included; and what Python has in place of bytes that are no UTF-8."""

_EPOCH = dt.datetime(1970, 1, 1)  # noqa: DTZ001 - arithmetic in UTC
_SUFFIXES: dict[type[t.DataType], str] = {
    t.ByteType: "Y",
    t.ShortType: "S",
    t.IntegerType: "",
    t.LongType: "L",
}


@dataclass(frozen=True)
class _Values:
    """The values of a column in the rows: as literals of SQL in order, with numbers for their places."""

    name: str
    is_text: bool
    literals: list[str]
    places: list[int]
    has_null: bool

    def among(self) -> Column:
        """Return a condition that is true for these values."""
        return self._or_null(f"{quoted(self.name)} IN ({', '.join(self.literals)})")

    def within(self, most: int) -> Column:
        """Return a condition that is true for intervals around these values."""
        if not self.literals:
            return self._or_null("")
        starts = [0, *_after_widest_gaps(self.places, most - 1)]
        ends = [*starts[1:], len(self.literals)]
        name = quoted(self.name)
        bounds = [
            # Delta skips no file by a BETWEEN that Spark's optimizer has not seen.
            f"({name} >= {self.literals[start]} AND {name} <= {self.literals[end - 1]})"
            for start, end in zip(starts, ends, strict=True)
        ]
        return self._or_null(" OR ".join(bounds))

    def _or_null(self, condition: str) -> Column:
        column = quoted(self.name)
        if not self.literals:
            return f.expr(f"{column} IS NULL")
        return f.expr(f"({condition}) OR {column} IS NULL" if self.has_null else condition)


@dataclass(frozen=True)
class Search:
    """Conditions that all rows fulfil: `bounds`, by which files are skipped, and `among`, if there is any."""

    bounds: list[Column]
    among: Column | None

    @property
    def all(self) -> list[Column]:
        return self.bounds if self.among is None else [*self.bounds, self.among]


def conditions(rows: DataFrame, partitions: Sequence[str]) -> list[Column]:
    """Return conditions that all rows fulfil. The rows are collected: give few."""
    columns = searched(rows.schema)
    return search(rows.schema, rows.select(*columns).collect() if columns else [], partitions).all


def searched(schema: t.StructType, row: str | None = None) -> list[Column]:
    """Return the columns of a schema that `search` looks at; those of a column `row` where one is given."""
    fields = _fields(schema)
    if row is None:
        return [_collected(f.col(quoted(field.name)), field) for field in fields]
    return [_collected(f.col(row).getField(field.name), field) for field in fields]


def _fields(schema: t.StructType) -> list[t.StructField]:
    return [field for field in schema.fields if _is_comparable(field.dataType)][:_MAX_COLUMNS]


def search(schema: t.StructType, rows: Sequence[Sequence[Any]], partitions: Sequence[str]) -> Search:
    """Return conditions that all rows fulfil, of which each is given by its `searched` columns."""
    listed = [_values(field, place, rows) for place, field in enumerate(_fields(schema))]
    columns = [column for column in listed if column is not None]
    inner = [column for column in columns if column.name not in partitions]
    # Numbers are compared faster than texts, so they come first where both tell rows apart.
    telling = max(inner, key=lambda column: (len(column.literals), not column.is_text), default=None)
    bounds = [column.among() for column in columns if column.name in partitions]
    bounds += [column.within(1) for column in inner if not column.is_text and column is not telling]
    if telling is None:
        return Search(bounds, None)
    return Search([*bounds, telling.within(_MAX_INTERVALS)], telling.among())


def all_of(conditions: Sequence[Column]) -> Column:
    return reduce(Column.__and__, conditions)


def _is_comparable(kind: t.DataType) -> bool:
    return type(kind) in _SUFFIXES or kind in (t.DateType(), t.TimestampType(), t.StringType())


def _collected(column: Column, field: t.StructField) -> Column:
    """Return a value as Python holds it without loss: times as numbers, and texts that are not long."""
    match field.dataType:
        case t.DateType():
            return f.unix_date(column)
        case t.TimestampType():
            return f.unix_micros(column)
        case t.StringType():
            return f.substring(column, 1, _MAX_TEXT_CHARACTERS + 1)
    return column


def _values(field: t.StructField, place: int, rows: Sequence[Sequence[Any]]) -> _Values | None:
    """Return the values of a column; None where one of them has no literal."""
    values = {row[place] for row in rows}
    ordered = sorted(values - {None})
    literals = [_literal(value, field.dataType) for value in ordered]
    if any(literal is None for literal in literals):
        return None
    is_text = isinstance(field.dataType, t.StringType)
    places = list(range(len(ordered))) if is_text else ordered
    return _Values(field.name, is_text, [literal for literal in literals if literal], places, None in values)


def _literal(value: Any, kind: t.DataType) -> str | None:
    """Return a value in SQL, of the very type of its column: a cast of the column would skip no file."""
    try:
        match kind:
            case t.StringType():
                is_plain = value.isprintable() and not any(
                    character in value for character in _NOT_IN_LITERALS
                )
                return f"'{value}'" if is_plain and len(value) <= _MAX_TEXT_CHARACTERS else None
            case t.DateType():
                return f"DATE '{(_EPOCH + dt.timedelta(days=value)).date().isoformat()}'"
            case t.TimestampType():
                moment = _EPOCH + dt.timedelta(microseconds=value)
                return f"TIMESTAMP '{moment.isoformat(sep=' ', timespec='microseconds')}Z'"
    except OverflowError:
        return None
    return f"{value}{_SUFFIXES[type(kind)]}"


def _after_widest_gaps(places: list[int], most: int) -> list[int]:
    """Return the indexes that follow the widest gaps between numbers in order."""
    gaps = [(after - before, index) for index, (before, after) in enumerate(pairwise(places), 1)]
    return sorted(index for gap, index in sorted(gaps, reverse=True)[:most] if gap > 1)
