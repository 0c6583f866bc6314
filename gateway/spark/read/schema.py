"""Converts Delta schemas to Spark and Arrow types, and partition values to typed scalars.

In: a `TableHead`. Out: the schema for the recipient (without column-mapping metadata), the physical field
for each logical one, the Arrow type that Spark expects, and partition values parsed as Delta writes them.
"""

import datetime as dt
import json
import re
from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import Any

import pyarrow as pa
from pyspark.sql import types as t

from gateway.client.actions import TableHead, UnsupportedTable
from gateway.spark.read.calendars import days_of
from gateway.spark.read.zones import zone_of

_PHYSICAL_NAME = "delta.columnMapping.physicalName"
_FIELD_ID = "delta.columnMapping.id"
_COLUMN_MAPPING = "delta.columnMapping."
_INTERNAL_METADATA = (
    _COLUMN_MAPPING,
    "delta.typeChanges",
    "delta.identity.",
    "delta.generationExpression",
)

CHANGE_TYPE = "_change_type"
CHANGE_FIELDS = (
    t.StructField(CHANGE_TYPE, t.StringType()),
    t.StructField("_commit_version", t.LongType()),
    t.StructField("_commit_timestamp", t.TimestampType()),
)


def delta_schema(head: TableHead) -> t.StructType:
    """Return the schema of the log. Raises UnsupportedTable for types that Spark does not have.

    Some writers leave physical names behind when they switch column mapping off. Files do not have these
    names then; partition values may.
    """
    try:
        schema = t.StructType.fromJson(json.loads(head.schema_json))
    except Exception as error:  # PySpark raises its own and built-in errors for unknown types
        raise UnsupportedTable(f"the table's schema cannot be read: {error}") from error
    unknown = [name for name in head.partition_columns if name not in schema.names]
    if unknown and schema.names:
        # Its values are in no file, and would be null.
        raise UnsupportedTable(f"the table's schema lacks the partition column {unknown[0]}")
    if head.column_mapping_mode == "none":
        for column in schema.fields:
            if column.name not in head.partition_columns:
                _forget_mapping(column)
    return schema


def shared_schema(head: TableHead) -> t.StructType:
    """Return the schema for the recipient, without the log's internal metadata.

    Everything is nullable: Spark's code reads nulls where a server says that there are none as an error of
    its own, or as other values.
    """
    return _without_internals(delta_schema(head))


def named_fields(fields: Sequence[t.StructField], names: Sequence[str]) -> list[t.StructField]:
    """Return fields by their names, in any case where no field has the very name. Raises ValueError."""
    by_name = {field.name.lower(): field for field in fields} | {field.name: field for field in fields}
    unknown = [name for name in names if not {name, name.lower()} & by_name.keys()]
    if unknown:
        raise ValueError(f"the table has no column {', '.join(unknown)}")
    chosen = [by_name.get(name) or by_name[name.lower()] for name in names]
    taken = [field.name for field in chosen]
    twice = [name for name in taken if taken.count(name) > 1]
    if twice:
        raise ValueError(f"columns names {twice[0]} twice")
    return chosen


def physical_name(field: t.StructField) -> str:
    """Return the name of a column in data files and in partitionValues."""
    name = (field.metadata or {}).get(_PHYSICAL_NAME)
    return name if isinstance(name, str) else field.name


def field_id(field: t.StructField) -> int | None:
    """Return the Parquet field id of a column, if column mapping gave it one."""
    return (field.metadata or {}).get(_FIELD_ID)


def arrow_type(data_type: t.DataType) -> pa.DataType:
    """Return the Arrow type that Spark expects for its type."""
    if isinstance(data_type, t.StructType):
        return pa.struct([arrow_field(field) for field in data_type.fields])
    if isinstance(data_type, t.ArrayType):
        return pa.list_(pa.field("element", arrow_type(data_type.elementType), nullable=True))
    if isinstance(data_type, t.MapType):
        return pa.map_(arrow_type(data_type.keyType), arrow_type(data_type.valueType))
    if isinstance(data_type, t.VariantType):
        metadata = pa.field("metadata", pa.binary(), nullable=False, metadata={b"variant": b"true"})
        return pa.struct([pa.field("value", pa.binary(), nullable=False), metadata])
    leaf = _ARROW_LEAVES.get(type(data_type))
    if leaf is not None:
        return leaf
    if isinstance(data_type, t.DecimalType):
        return pa.decimal128(data_type.precision, data_type.scale)
    raise UnsupportedTable(f"columns of type {data_type.simpleString()} cannot be read")


def arrow_field(field: t.StructField) -> pa.Field:
    """Return a logical field in Arrow. It is always nullable: older files do not have the column."""
    return pa.field(field.name, arrow_type(field.dataType), nullable=True)


def partition_scalar(text: str | None, data_type: t.DataType, zone: str = "UTC") -> pa.Scalar:
    """Parse a value of partitionValues. An empty string is null for every type (Delta's own rule).

    `zone`: the time zone of timestamps that name none, which is the session's. Raises UnsupportedTable.
    """
    wanted = arrow_type(data_type)
    if text is None or text == "":
        return pa.scalar(None, wanted)
    parse = _PARTITION_PARSERS.get(type(data_type))
    if parse is None:
        raise UnsupportedTable(f"partition columns of type {data_type.simpleString()} cannot be read")
    try:
        return pa.scalar(parse(text, zone) if parse is _instant else parse(text), wanted)
    except (ValueError, ArithmeticError, pa.ArrowException) as error:
        raise UnsupportedTable(f"a partition value is no {data_type.simpleString()}") from error


def _forget_mapping(field: t.StructField) -> None:
    """Remove the metadata of column mapping at every depth."""
    metadata = field.metadata or {}
    field.metadata = {key: value for key, value in metadata.items() if not key.startswith(_COLUMN_MAPPING)}
    types = [field.dataType]
    while types:
        match types.pop():
            case t.StructType() as struct:
                for inner in struct.fields:
                    _forget_mapping(inner)
            case t.ArrayType() as array:
                types.append(array.elementType)
            case t.MapType() as entries:
                types += [entries.keyType, entries.valueType]


def _without_internals(schema: t.StructType) -> t.StructType:
    return t.StructType(
        [
            t.StructField(
                field.name, _clean(field.dataType), nullable=True, metadata=_clean_metadata(field.metadata)
            )
            for field in schema.fields
        ]
    )


def _clean(data_type: t.DataType) -> t.DataType:
    if isinstance(data_type, t.StructType):
        return _without_internals(data_type)
    if isinstance(data_type, t.ArrayType):
        return t.ArrayType(_clean(data_type.elementType))
    if isinstance(data_type, t.MapType):
        return t.MapType(_clean(data_type.keyType), _clean(data_type.valueType))
    return data_type


def _clean_metadata(metadata: Mapping[str, Any] | None) -> dict[str, Any]:
    return {key: value for key, value in (metadata or {}).items() if not key.startswith(_INTERNAL_METADATA)}


_ARROW_LEAVES: dict[type[t.DataType], pa.DataType] = {
    t.StringType: pa.string(),
    t.VarcharType: pa.string(),
    t.CharType: pa.string(),
    t.BinaryType: pa.binary(),
    t.BooleanType: pa.bool_(),
    t.ByteType: pa.int8(),
    t.ShortType: pa.int16(),
    t.IntegerType: pa.int32(),
    t.LongType: pa.int64(),
    t.FloatType: pa.float32(),
    t.DoubleType: pa.float64(),
    t.DateType: pa.date32(),
    t.TimestampType: pa.timestamp("us", tz="UTC"),
    t.TimestampNTZType: pa.timestamp("us"),
    t.NullType: pa.null(),
}


def _boolean(text: str) -> bool:
    if text.lower() not in {"true", "false"}:
        raise UnsupportedTable("a boolean partition value is neither true nor false")
    return text.lower() == "true"


# Years have more digits than four beyond 9999, and a sign.
_TIME = re.compile(
    r"([+-]?\d{4,7})-(\d{1,2})-(\d{1,2})"
    r"(?:[ T](\d{1,2}):(\d{2})(?::(\d{2})(?:\.(\d{1,9}))?)?)? ?([A-Za-z+-].*)?"
)
_CYCLE_YEARS = 400
_MICROSECOND = dt.timedelta(microseconds=1)
_DAY_MICROS = dt.timedelta(days=1) // _MICROSECOND


def _day(text: str) -> int:
    """Return the days since 1970 of `[+-]yyyy-mm-dd`, of any year: Python's dates end in 9999."""
    return _local(text) // _DAY_MICROS


def _instant(text: str, zone: str) -> int:
    """Return the microseconds since 1970 of a time with a zone, or else in `zone`."""
    micros, alike, named = _parsed_time(text)
    offset = alike.replace(tzinfo=zone_of(named or zone)).utcoffset() or dt.timedelta()
    return micros - offset // _MICROSECOND


def _local(text: str) -> int:
    """Return the microseconds since 1970 of a time without a zone."""
    return _parsed_time(text)[0]


def _parsed_time(text: str) -> tuple[int, dt.datetime, str | None]:
    """Return the microseconds since 1970 of a local time of any year, and its zone.

    Between them is the same time in a year that Python supports, with the same calendar.
    """
    match = _TIME.fullmatch(text.strip())
    if match is None:
        raise ValueError("not a date or time")
    year, month, day = int(match[1]), int(match[2]), int(match[3])
    # The calendar repeats every 400 years, with its days of the week, which summer time goes by. Before the
    # year 1 zones have their local mean time.
    known_year = (
        year if 1 <= year <= dt.MAXYEAR else (2000 if year > 0 else _CYCLE_YEARS) + year % _CYCLE_YEARS
    )
    midnight = dt.datetime(known_year, month, day)  # noqa: DTZ001 - the zone is kept beside it
    alike = midnight.replace(
        hour=int(match[4] or 0), minute=int(match[5] or 0), second=int(match[6] or 0),
        microsecond=int((match[7] or "").ljust(6, "0")[:6]),
    )  # fmt: skip
    return days_of(year, month, day) * _DAY_MICROS + (alike - midnight) // _MICROSECOND, alike, match[8]


_PARTITION_PARSERS: dict[type[t.DataType], Any] = {
    t.StringType: str,
    t.VarcharType: str,
    t.CharType: str,
    t.BinaryType: lambda text: text.encode(),
    t.BooleanType: _boolean,
    t.ByteType: int,
    t.ShortType: int,
    t.IntegerType: int,
    t.LongType: int,
    t.FloatType: float,
    t.DoubleType: float,
    t.DecimalType: Decimal,
    t.DateType: _day,
    t.TimestampType: _instant,
    t.TimestampNTZType: _local,
}
