"""Leaves out row groups of a data file without matching rows, by the statistics of its footer.

In: the hints of a read, the table's head, and a file's footer. Out: whether a row group may hold a row for
which the hints are true. The native module decides, as it does for whole files in the gateway. Statistics
that are unknown, or of another order or form than the rows that are read, exclude nothing.
"""

import datetime as dt
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import types as t

from gateway.client.actions import TableHead
from gateway.spark.read.calendars import FileCalendar

_EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
_MICROS = {"us": 1, "ms": 1000}
_POLARS = "Polars"
_TEXTS = (pa.string(), pa.large_string(), pa.string_view())


def row_group_filter(head: TableHead, hints: Mapping[str, Any]) -> Any:
    """Return the native filter by the conditions in the parameters of a query.

    None where it leaves nothing out, or where there is no native module.
    """
    sql, json_hint = tuple(hints.get("predicateHints") or ()), hints.get("jsonPredicateHints")
    if not sql and json_hint is None:
        return None
    try:
        from gateway import _native  # noqa: PLC0415 - executors without it read all row groups
    except ImportError:
        return None
    made = _native.RowGroupFilter(
        head.schema_json,
        partition_columns=head.partition_columns,
        column_mapping_mode=head.column_mapping_mode,
        predicate_hints=sql,
        json_predicate_hint=json_hint,
    )
    return made if made.columns else None


@dataclass(frozen=True)
class CheckedColumn:
    """A column of the conditions: its name in the log's statistics, its type in a file, and the table's."""

    physical_name: str
    file_type: pa.DataType
    wanted: t.DataType


def statistics_json(
    group: pq.RowGroupMetaData, columns: Mapping[str, CheckedColumn], calendar: FileCalendar, writer: str
) -> str:
    """Return the statistics of a row group's `columns`, by their paths, in the form of the log's `stats`.

    `writer` is what the file was created by.
    """
    least: dict[str, Any] = {}
    greatest: dict[str, Any] = {}
    nulls: dict[str, int] = {}
    for index in range(group.num_columns):
        chunk = group.column(index)
        column = columns.get(chunk.path_in_schema)
        statistics = None if column is None else chunk.statistics
        if column is None or statistics is None:
            continue
        name = column.physical_name
        if statistics.has_null_count and _may_count(statistics, column, group.num_rows, writer):
            nulls[name] = statistics.null_count
        bounds = _bounds(statistics, column, calendar) if statistics.has_min_max else None
        if bounds is not None and not _is_of_unsigned_bytes(statistics, column, writer):
            least[name], greatest[name] = bounds
    counts = {"numRecords": group.num_rows, "nullCount": nulls}
    return json.dumps({**counts, "minValues": least, "maxValues": greatest}, allow_nan=False)


def _may_count(statistics: pq.Statistics, column: CheckedColumn, rows: int, writer: str) -> bool:
    """Return whether the number of nulls is right: some releases of Polars multiply it by that of pages.

    A bound is a value. Without one, a column of numbers with a point may have NaN in place of nulls.
    """
    if statistics.null_count > rows - statistics.has_min_max:
        return False
    may_be_nan = pa.types.is_floating(column.file_type) and not statistics.has_min_max
    return not (may_be_nan and statistics.null_count and writer.startswith(_POLARS))


def _is_of_unsigned_bytes(statistics: pq.Statistics, column: CheckedColumn, writer: str) -> bool:
    """Return whether bounds of pages may have been compared without the signs of their decimals.

    Some releases of Polars do (issue 29347): the bounds of a page of -5 and 3 and one of 1 and 2 are 1 and 3.
    """
    is_in_bytes = pa.types.is_decimal(column.file_type) and statistics.physical_type.endswith("BYTE_ARRAY")
    return is_in_bytes and writer.startswith(_POLARS)


def _bounds(
    statistics: pq.Statistics, column: CheckedColumn, calendar: FileCalendar
) -> tuple[Any, Any] | None:
    """Return the least and the greatest value in JSON; None where those of the rows may be others."""
    in_file = column.file_type.value_type if pa.types.is_dictionary(column.file_type) else column.file_type
    if pa.types.is_temporal(in_file) and calendar != FileCalendar():
        return None
    try:
        bounds = [_value(statistics, in_file, column.wanted, is_least) for is_least in (True, False)]
    except (ValueError, OverflowError):
        # A string that a writer has cut within a character, an infinite number, a time beyond the year 9999.
        return None
    return None if None in bounds else (bounds[0], bounds[1])


def _value(statistics: pq.Statistics, in_file: pa.DataType, wanted: t.DataType, is_least: bool) -> Any:
    """Return a bound in JSON; None for types whose order or conversion differs from that of statistics."""
    raw = statistics.min_raw if is_least else statistics.max_raw
    match wanted:
        case t.ByteType() | t.ShortType() | t.IntegerType() | t.LongType():
            return raw if pa.types.is_signed_integer(in_file) else None
        case t.FloatType() | t.DoubleType():
            return _finite(raw) if pa.types.is_float32(in_file) or in_file == pa.float64() else None
        case t.StringType() if in_file in _TEXTS:
            return raw.decode()
        case t.DecimalType() if pa.types.is_decimal(in_file):
            return f"{statistics.min if is_least else statistics.max:f}"
        case t.DateType() if pa.types.is_date32(in_file):
            return (_EPOCH + dt.timedelta(days=raw)).date().isoformat()
        case t.TimestampType() | t.TimestampNTZType() if pa.types.is_timestamp(in_file):
            micros = _MICROS.get(in_file.unit)
            return None if micros is None else _time(raw * micros)
    return None


def _finite(number: float) -> float:
    if not math.isfinite(number):
        raise ValueError("not a number of JSON")
    return number


def _time(micros: int) -> str:
    return (_EPOCH + dt.timedelta(microseconds=micros)).replace(tzinfo=None).isoformat() + "Z"
