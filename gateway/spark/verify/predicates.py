"""Draws filters on the columns of a table, with values from its rows.

In: a DataFrame and a seed. Out: filters as Spark's conditions and as hints to a server.
"""

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f
from pyspark.sql import types as t

from gateway.spark.verify.digest import quoted

_SAMPLE_ROWS = 100


@dataclass(frozen=True)
class Predicate:
    """A filter as text, as a Spark condition, and as a hint to the server if it can be expressed."""

    text: str
    field: str
    column: Column
    hint: str | None = None


_PREDICATE_TYPES = (
    t.BooleanType,
    t.ByteType,
    t.ShortType,
    t.IntegerType,
    t.LongType,
    t.FloatType,
    t.DoubleType,
    t.DecimalType,
    t.StringType,
    t.DateType,
    t.TimestampType,
    t.TimestampNTZType,
)
_OPERATORS: dict[str, Callable[[Column, Column], Column]] = {
    "=": lambda a, b: a == b,
    "<": lambda a, b: a < b,
    "<=": lambda a, b: a <= b,
    ">": lambda a, b: a > b,
    ">=": lambda a, b: a >= b,
    "<>": lambda a, b: a != b,
}


def draw_predicates(
    frame: DataFrame, count: int, seed: int, *, first_on: Sequence[str] = ()
) -> list[Predicate]:
    """Return filters on columns of `frame`, with values from its rows. The same seed gives the same filters.

    The first one is on one of the columns `first_on`, by which files are left out most of all.
    """
    fields = [field for field in frame.schema.fields if isinstance(field.dataType, _PREDICATE_TYPES)]
    if count <= 0 or not fields:
        return []
    # Values are handled as text: Python supports fewer dates and times than Spark.
    texts = [f.col(quoted(field.name)).cast("string").alias(str(index)) for index, field in enumerate(fields)]
    rows = frame.select(*texts).limit(_SAMPLE_ROWS).collect()
    chance = random.Random(seed)  # noqa: S311 - a choice of samples, not a secret
    places = list(range(len(fields)))
    foremost = [place for place in places if fields[place].name in first_on] or places
    return [_draw(chance, fields, rows, places if number else foremost) for number in range(count)]


def _draw(
    chance: random.Random, fields: Sequence[t.StructField], rows: Sequence[Any], places: Sequence[int]
) -> Predicate:
    index = chance.choice(places)
    field = fields[index]
    name = quoted(field.name)
    column = f.col(name)
    values = [row[index] for row in rows if row[index] is not None]
    if not values or chance.random() < 1 / 8:
        return Predicate(f"{field.name} IS NULL", field.name, column.isNull(), f"{name} IS NULL")
    if chance.random() < 1 / 4:
        chosen = chance.sample(values, min(len(values), 3))
        literals = [f.lit(value).cast(field.dataType) for value in chosen]
        text = f"{field.name} IN ({', '.join(map(repr, chosen))})"
        return Predicate(text, field.name, column.isin(*literals), _hint(field, "IN", chosen))
    operator, value = chance.choice(list(_OPERATORS)), chance.choice(values)
    compared = _OPERATORS[operator](column, f.lit(value).cast(field.dataType))
    return Predicate(
        f"{field.name} {operator} {value!r}", field.name, compared, _hint(field, operator, [value])
    )


def _hint(field: t.StructField, operator: str, values: Sequence[str]) -> str | None:
    """Return a comparison as SQL; None if a value's text is not exact."""
    if isinstance(field.dataType, t.TimestampType) and not all(value[:1].isdigit() for value in values):
        return None
    literals = [_literal(field.dataType, value) for value in values]
    right = f"({', '.join(literals)})" if operator == "IN" else literals[0]
    return f"{quoted(field.name)} {operator} {right}"


def _literal(data_type: t.DataType, value: str) -> str:
    if isinstance(data_type, t.IntegralType):
        return value
    escaped = value.replace("\\", r"\\").replace("'", r"\'")
    text = f"'{escaped}Z'" if isinstance(data_type, t.TimestampType) else f"'{escaped}'"
    if isinstance(data_type, t.StringType):
        return text
    return f"CAST({text} AS {data_type.simpleString()})"
