"""The rule of a projection as Spark evaluates it.

In: rows of the source. Out: the projection's columns of the rows for which the condition is true. A rule is
a pure function of one row: what depends on the time, the user, other tables or chance is refused, because a
version could not be proved later.
"""

from __future__ import annotations

import hashlib
from typing import Any

from pyspark.errors import AnalysisException
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f
from pyspark.sql import types as t

from gateway.config.projections import ProjectedColumn, Projection
from gateway.spark import java
from gateway.spark.project.condition import resolved
from gateway.spark.project.errors import InvalidRule
from gateway.spark.project.evaluation import SALT_PREFIX, Evaluation
from gateway.spark.verify.digest import quoted

_HASHABLE = (
    t.StringType,
    t.BinaryType,
    t.BooleanType,
    t.IntegralType,
    t.DecimalType,
    t.DateType,
    t.TimestampType,
    t.TimestampNTZType,
)


def projected(frame: DataFrame, projection: Projection, *, beside: tuple[str, ...] = ()) -> DataFrame:
    """Return the projection of rows of the source, with columns `beside` it. Raises InvalidRule.

    The condition is evaluated on all rows: no statistics of the source decide.
    """
    # The files' footers have the metadata of the columns that Spark writes, so they get none.
    columns = [
        _column(frame, column, projection).alias(column.name, metadata={}) for column in projection.columns
    ]
    if projection.where is not None:
        frame = _filtered(frame, f.expr(projection.where))
    return frame.select(*(f.col(quoted(name)) for name in beside), *columns)


def chosen(frame: DataFrame, projection: Projection, *, beside: tuple[str, ...] = ()) -> DataFrame:
    """Return the rows of the source that a projection has, by all columns of which it is made. Lazy."""
    names = {name.casefold() for name in (*beside, *plain_columns(projection))}
    if projection.where is not None:
        condition = f.expr(projection.where)
        references = java.condition_of(frame.where(condition)).references().toSeq()
        names |= {reference.name().casefold() for reference in java.as_list(frame.sparkSession, references)}
        frame = _filtered(frame, condition)
    return frame.select(*(f.col(quoted(name)) for name in frame.columns if name.casefold() in names))


def plain_columns(projection: Projection) -> list[str]:
    """Return the columns of the source whose values a projection shows: where they are equal, it is."""
    return list({column.source.casefold(): column.source for column in projection.columns}.values())


def clean_schema(schema: t.StructType) -> t.StructType:
    """Return a schema without what the source says about its columns: comments, defaults, constraints."""

    def clean(node: Any) -> Any:
        if isinstance(node, dict):
            return {
                name: {} if name == "metadata" else True if name == "nullable" else clean(value)
                for name, value in node.items()
            }
        return [clean(item) for item in node] if isinstance(node, list) else node

    return t.StructType.fromJson(clean(schema.jsonValue()))


def check_rule(frame: DataFrame, projection: Projection) -> Evaluation:
    """Return how a rule is evaluated over the columns of a source.

    Raises InvalidRule for a rule that they do not fit, or that is not pure.
    """
    condition = None if projection.where is None else resolved(frame, projection.where)
    try:
        projected(frame, projection).schema  # noqa: B018 - resolves all names
    except AnalysisException as error:
        # The text of an analysis has the rule and names of columns, and no rows.
        raise InvalidRule(f"columns: {str(error).strip().splitlines()[0]}") from None
    return Evaluation.of(frame.sparkSession, projection, condition)


def _filtered(frame: DataFrame, condition: Column) -> DataFrame:
    """Return the rows for which a condition is true.

    Nothing can be derived from a hash: Delta skips no file by its statistics, and Parquet no page. Spark can
    still evaluate it where the rows are read, below the union of a source's added and removed files.
    """
    true = f.lit(True)
    # Anything has a hash: that of an AND is a hash of a boolean.
    return frame.where(f.xxhash64(condition & true) == f.xxhash64(true))


def _column(frame: DataFrame, one: ProjectedColumn, projection: Projection) -> Column:
    fields = {field.name.casefold(): field for field in frame.schema.fields}
    field = fields.get(one.source.casefold())
    if field is None:
        raise InvalidRule(f"columns: the source has no column '{one.source}'")
    value, kind = f.col(quoted(field.name)), field.dataType

    def require(*kinds: type[t.DataType]) -> None:
        if not isinstance(kind, kinds):
            raise InvalidRule(f"columns: {one.function} is not for '{one.source}', a {kind.simpleString()}")

    match one.function:
        case None:
            cleaned = clean_schema(t.StructType([field])).fields[0].dataType
            return value if cleaned == kind else value.cast(cleaned)
        case "sha256":
            require(*_HASHABLE)
            return _hashed(value, kind, _salt(projection))
        case "prefix":
            require(t.StringType)
            return f.substring(value, 1, one.length or 0)
        case "floor":
            require(t.IntegralType, t.DecimalType)
            # Below the smallest number of its type there is no multiple: null, where an error would show it.
            return f.try_subtract(value, f.pmod(value, f.lit(one.step))).try_cast(kind)
        case "month" | "year":
            require(t.DateType, t.TimestampType, t.TimestampNTZType)
            return f.trunc(value.cast("date"), one.function)


def _hashed(value: Column, kind: t.DataType, salt: str) -> Column:
    """Return the SHA-256 of a value's text after the salt, hashed twice: no hash is part of another one."""
    text = value if isinstance(kind, t.BinaryType) else value.cast("string").cast("binary")
    inner = f.sha2(f.concat(f.lit(salt).cast("binary"), text), 256)
    return f.sha2(f.concat(f.lit(salt), inner), 256)


def _salt(projection: Projection) -> str:
    """Return the salt as a text that Spark keeps out of its logs, whatever its characters are."""
    if projection.salt is None:
        raise InvalidRule("salt must be given for the function sha256")
    return SALT_PREFIX + hashlib.sha256(projection.salt.reveal().encode()).hexdigest()
