"""Compares the statistics that a server sends of files with the rows of these files.

In: a version of a table's own log, its columns, and the statistics in an answer. Out: descriptions of
differences, without values. Recipients skip files by statistics, so false ones lose rows, also where the
log itself has them. A few files are drawn, and of their columns those that are not nested or widened.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from pyspark.sql import functions as f
from pyspark.sql import types as t

from gateway.spark import java
from gateway.spark.read.schema import delta_schema, physical_name
from gateway.spark.verify.compare import quoted
from gateway.spark.verify.errors import NotCompared

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from pyspark.sql import Column

    from gateway.client.actions import TableHead
    from gateway.spark.project.table_log import TableLog
    from gateway.spark.verify.files import FileFacts, Part

_FILES = 20
_FILE, _MATCHED, _ROWS = "name of a file", "matched", "rows"
_KINDS = ("minValues", "maxValues", "nullCount")
_ORDERED = (
    t.NumericType,
    t.StringType,
    t.DateType,
    t.TimestampType,
    t.TimestampNTZType,
    t.BooleanType,
)
_WIDENED = "delta.typeChanges"
_MILLISECOND = "INTERVAL 1 MILLISECOND"
"""Writers cut times to milliseconds."""


def bound_differences(
    log: TableLog, head: TableHead, part: Part, seed: int, served: Iterable[FileFacts]
) -> list[str]:
    """Describe columns whose rows are not within what is stated of their files. Raises NotCompared."""
    columns = [
        one
        for one in delta_schema(head).fields
        if one.name not in head.partition_columns
        and isinstance(one.dataType, _ORDERED)
        # Of a float that became a double, statistics are rounded, as readers know.
        and _WIDENED not in one.metadata
    ]
    stated = {one.name: json.loads(one.statistics) for one in served if one.statistics.startswith("{")}
    version = head.version or 0
    files = java.frame(log.snapshot(version).allFiles().toDF(), log.spark)
    drawn = files.where(f.col("size") % part.of == part.number).orderBy(f.xxhash64("path", f.lit(seed)))
    actions = [row.asDict(recursive=True) for row in drawn.limit(_FILES).collect()]
    if not columns or not actions or not stated:
        return []
    texts = [
        (name, *(_texts(found, kind) for kind in _KINDS), _text(found.get("numRecords")))
        for name, found in stated.items()
    ]
    maps = ", ".join(f"`{kind}` MAP<STRING, STRING>" for kind in _KINDS)
    bounds = log.spark.createDataFrame(texts, f"`{_FILE}` STRING, {maps}, numRecords STRING")
    rows = log.rows(version, actions)
    located = rows.withColumn(_FILE, rows.metadataColumn("_metadata").getField("file_name"))
    false = [f.bool_or(_is_outside(one)).alias(str(place)) for place, one in enumerate(columns)]
    counts = f.count(_KINDS[0]).alias(_MATCHED), f.count(f.lit(1)).alias(_ROWS)
    (found,) = located.join(f.broadcast(bounds), _FILE, "left").agg(*counts, *false).collect()
    if found[_ROWS] and not found[_MATCHED]:
        raise NotCompared("none of the drawn files is listed")
    return [
        f"the statistics of a file do not hold for its rows in column {one.name}"
        for place, one in enumerate(columns)
        if found[str(place)]
    ]


def _is_outside(column: t.StructField) -> Column:
    """Return whether a value is not within what is stated of its file."""
    value, name = f.col(quoted(column.name)), f.lit(physical_name(column))
    least, most, nulls = (f.col(kind)[name] for kind in _KINDS)
    # Numbers may be in a form that is cast to decimals alone.
    is_whole = isinstance(column.dataType, t.IntegralType)
    kind = t.DecimalType(38, 0) if is_whole else column.dataType
    least, most = least.try_cast(kind), most.try_cast(kind)
    if isinstance(column.dataType, (t.TimestampType, t.TimestampNTZType)):
        most = most + f.expr(_MILLISECOND)
    outside = (value < least) | (value > most)
    if isinstance(column.dataType, (t.DoubleType, t.FloatType)):
        outside &= ~f.isnan(value)
    # By the number of nulls recipients skip where it is none, or all rows.
    wrong = f.when(value.isNull(), nulls == "0").otherwise(nulls == f.col("numRecords"))
    return f.coalesce(outside, f.lit(False)) | f.coalesce(wrong, f.lit(False))


def _texts(stated: Mapping[str, Any], kind: str) -> dict[str, str]:
    values = stated.get(kind) or {}
    return {name: _text(value) for name, value in values.items() if not isinstance(value, dict)}


def _text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
