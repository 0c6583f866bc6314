"""Compares the statistics that a server sends of files with the rows of these files.

In: a version of a table's own log, its columns, and the statistics in an answer. Out: descriptions of
differences, without values. Recipients skip files by statistics, so false ones lose rows, also where the
log itself has them. A few files are drawn.

Statistics are held to what Delta's protocol lets a reader rely on. Bounds need not be values of rows: texts
are cut, times are cut to milliseconds, and where a deletion vector was added they may be those of removed
rows as well. `numRecords` counts removed rows. A number of nulls says something to readers if it is zero or
that of all rows. Floats that are NaN have no place between bounds.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from pyspark.sql import Column
from pyspark.sql import functions as f
from pyspark.sql import types as t

from gateway.client.actions import TableHead
from gateway.spark import java
from gateway.spark.project.table_log import TableLog
from gateway.spark.read.schema import delta_schema, physical_name
from gateway.spark.session import session_like
from gateway.spark.verify.digest import quoted
from gateway.spark.verify.errors import NotCompared
from gateway.spark.verify.files import FileFacts, Part

_FILES = 20
_FILE, _STATED, _NUMBER, _DELETED, _ROWS = "name of a file", "is stated", "number", "deleted", "rows"
_KINDS = ("minValues", "maxValues", "nullCount")
_ORDERED = (
    t.NumericType,
    t.StringType,
    t.DateType,
    t.TimestampType,
    t.TimestampNTZType,
    t.BooleanType,
)
_WIDENED, _LENGTH = "delta.typeChanges", "__CHAR_VARCHAR_TYPE_STRING"
_AS_STORED = {"spark.sql.readSideCharPadding": "false"}
_MILLISECOND = "INTERVAL 1 MILLISECOND"
_BINARY = t.StringType()
_WHOLE = t.DecimalType(38, 0)
"""Also of numbers in scientific notation, as facts of files have them."""


def bound_differences(
    log: TableLog, head: TableHead, part: Part, seed: int, served: Iterable[FileFacts]
) -> list[str]:
    """Describe columns whose rows are not within what is stated of their files. Raises NotCompared."""
    fields = delta_schema(head).fields
    columns = [field for field in fields if field.name not in head.partition_columns and _is_compared(field)]
    if any(_is_char(column) for column in columns):
        # Spark pads what it reads to the length of CHAR. Files, and so their bounds, have what was written.
        log = TableLog(session_like(log.spark, _AS_STORED), log.root)
    stated = dict(_stated(served))
    version = head.version or 0
    files = java.frame(log.snapshot(version).allFiles().toDF(), log.spark)
    drawn = files.where(f.col("size") % part.of == part.number).orderBy(f.xxhash64("path", f.lit(seed)))
    actions = [row.asDict(recursive=True) for row in drawn.limit(_FILES).collect()]
    if not actions or not stated:
        return []
    maps = ", ".join(f"`{kind}` MAP<STRING, STRING>" for kind in _KINDS)
    layout = f"`{_FILE}` STRING, `{_STATED}` BOOLEAN, {maps}, numRecords STRING, `{_DELETED}` BIGINT"
    bounds = log.spark.createDataFrame([(name, True, *values) for name, values in stated.items()], layout)
    rows = log.rows(version, actions)
    located = rows.withColumn(_FILE, rows.metadataColumn("_metadata").getField("file_name"))
    outside = [f.bool_or(_is_outside(column)).alias(str(place)) for place, column in enumerate(columns)]
    number = f.first(f.col("numRecords").try_cast(_WHOLE)).alias(_NUMBER)
    of_file = located.join(f.broadcast(bounds), _FILE, "left").groupBy(_FILE)
    counted = of_file.agg(
        f.first(_STATED).alias(_STATED),
        number,
        f.first(_DELETED).alias(_DELETED),
        f.count(f.lit(1)).alias(_ROWS),
        *outside,
    ).collect()
    if counted and not any(row[_STATED] for row in counted):
        raise NotCompared("none of the drawn files is listed with statistics")
    lines = [
        f"the statistics of a file do not hold for its rows in column {column.name}"
        for place, column in enumerate(columns)
        if any(row[str(place)] for row in counted)
    ]
    if any(row[_NUMBER] not in (None, row[_ROWS] + row[_DELETED]) for row in counted if row[_STATED]):
        lines.append("the statistics of a file state another number of rows than it has")
    return lines


def _is_compared(field: t.StructField) -> bool:
    """Return whether bounds of a column can be compared with its values in Spark."""
    # Bounds are in the order of bytes, whatever a collation says. Those of a float that became a double are
    # rounded, as readers know.
    has_order = isinstance(field.dataType, _ORDERED) and _WIDENED not in field.metadata
    return has_order and (field.dataType == _BINARY or not isinstance(field.dataType, t.StringType))


def _is_char(field: t.StructField) -> bool:
    return str(field.metadata.get(_LENGTH, "")).lower().startswith("char")


def _stated(served: Iterable[FileFacts]) -> Iterator[tuple[str, tuple[Any, ...]]]:
    """Yield what is stated of each file by its name, which must be that of one file."""
    known = list(served)
    names = Counter(file.name for file in known)
    for file in known:
        if names[file.name] > 1 or not file.statistics.startswith("{"):
            continue
        values = json.loads(file.statistics)
        deleted = 0 if file.deletion_vector is None else file.deletion_vector[2]
        texts = [_texts(values, kind) for kind in _KINDS]
        number = None if "numRecords" not in values else _text(values["numRecords"])
        yield file.name, (*texts, number, deleted)


def _is_outside(column: t.StructField) -> Column:
    """Return whether a value is not within what is stated of its file."""
    value, name = f.col(quoted(column.name)), f.lit(physical_name(column))
    least, most, nulls = (f.col(kind)[name] for kind in _KINDS)
    is_whole = isinstance(column.dataType, t.IntegralType)
    kind = _WHOLE if is_whole else column.dataType
    least, most = least.try_cast(kind), most.try_cast(kind)
    if isinstance(column.dataType, (t.TimestampType, t.TimestampNTZType)):
        most = most + f.expr(_MILLISECOND)
    outside = (value < least) | (value > most)
    if isinstance(column.dataType, (t.DoubleType, t.FloatType)):
        outside &= ~f.isnan(value)
    wrong = f.when(value.isNull(), nulls == "0").otherwise(nulls == f.col("numRecords"))
    return f.coalesce(outside, f.lit(False)) | f.coalesce(wrong, f.lit(False))


def _texts(stated: Mapping[str, Any], kind: str) -> dict[str, str]:
    values = stated.get(kind) or {}
    return {name: _text(value) for name, value in values.items() if not isinstance(value, dict)}


def _text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
