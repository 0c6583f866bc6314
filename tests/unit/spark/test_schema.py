"""Schemas of recipients, and partition values by the type of their column."""

import datetime as dt
import json
from decimal import Decimal
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import types as t
from support.scripted_server import HEAD, listening

from gateway.client.actions import TableHead, UnsupportedTable
from gateway.spark.read.schema import named_fields, partition_scalar, shared_schema
from gateway.spark.source import DeltaSharingSource, count_rows

HEAD_OF_NOTHING = (HEAD[0], {"metaData": {"schemaString": json.dumps({"type": "struct", "fields": []})}})


@pytest.mark.parametrize(
    ("columns", "names"),
    [
        ({}, ["a", "b", "_file_name"]),
        ({"columns": "b"}, ["b", "_file_name"]),
        ({"columns": "_FILE_NAME,b"}, ["_file_name", "b"]),
    ],
)
def test_the_name_of_a_file_is_beside_the_columns_that_are_read(
    columns: dict[str, str], names: list[str]
) -> None:
    fields = [{"name": name, "type": "long", "nullable": True, "metadata": {}} for name in "ab"]
    metadata = {"schemaString": json.dumps({"type": "struct", "fields": fields})}
    with listening() as server:
        server.say(HEAD[0], {"metaData": metadata})
        profile = {"shareCredentialsVersion": 1, "endpoint": server.url, "bearerToken": "t"}
        given = {"profile": json.dumps(profile), "path": "s.d.t", "withFileName": "true", **columns}
        assert DeltaSharingSource(given).schema().names == names


@pytest.mark.parametrize("name", ["day", "other"])
def test_a_partition_column_that_is_not_in_the_schema_is_an_error(name: str) -> None:
    """In another case, too, as for Delta: the column Day of such a table was null in all rows."""
    field = {"name": "Day", "type": "string", "nullable": True, "metadata": {}}
    schema = json.dumps({"type": "struct", "fields": [field]})
    with pytest.raises(UnsupportedTable, match=f"lacks the partition column {name}"):
        shared_schema(TableHead(schema, (name,), {}))
    assert shared_schema(TableHead(schema, ("Day",), {})).names == ["Day"]


def test_a_count_refuses_a_column_that_the_table_does_not_have() -> None:
    reading = SimpleNamespace(format=lambda _name: SimpleNamespace(options=lambda **_options: None))
    spark: Any = SimpleNamespace(conf=SimpleNamespace(get=lambda _name: "UTC"), read=reading)
    with listening() as server:
        server.say(*HEAD_OF_NOTHING)
        profile = {"shareCredentialsVersion": 1, "endpoint": server.url, "bearerToken": "t"}
        with pytest.raises(ValueError, match="no column a"):
            count_rows(spark, "s.d.t", profile=json.dumps(profile), columns="a")


@pytest.mark.parametrize(
    ("text", "kind", "value"),
    [
        ("5", t.ByteType(), 5),
        ("-1.50", t.DecimalType(5, 2), Decimal("-1.50")),
        ("NaN", t.StringType(), "NaN"),
        ("", t.StringType(), None),
        (None, t.LongType(), None),
        ("true", t.BooleanType(), True),
        ("2024-02-29", t.DateType(), dt.date(2024, 2, 29)),
        (
            "2024-01-01 01:02:03.5",
            t.TimestampType(),
            dt.datetime(2024, 1, 1, 1, 2, 3, 500_000, dt.UTC),
        ),
        (
            "2024-01-01T01:02:03.000000Z",
            t.TimestampType(),
            dt.datetime(2024, 1, 1, 1, 2, 3, tzinfo=dt.UTC),
        ),
        ("2024-01-01 01:02:03", t.TimestampNTZType(), dt.datetime.fromisoformat("2024-01-01 01:02:03")),
        ("\u0001x", t.BinaryType(), b"\x01x"),
    ],
)
def test_partition_values_are_typed(text: str | None, kind: t.DataType, value: Any) -> None:
    assert partition_scalar(text, kind).as_py() == value


@pytest.mark.parametrize(
    ("text", "zone", "utc"),
    [
        ("2024-07-01 12:00:00", "America/Los_Angeles", "2024-07-01T19:00:00+00:00"),
        ("2024-01-01 12:00:00", "America/Los_Angeles", "2024-01-01T20:00:00+00:00"),
        ("2024-07-01 12:00:00", "+05:30", "2024-07-01T06:30:00+00:00"),
        ("2024-07-01 12:00:00", "GMT-3", "2024-07-01T15:00:00+00:00"),
        ("2024-07-01T12:00:00.000000Z", "America/Los_Angeles", "2024-07-01T12:00:00+00:00"),
        ("2024-07-01 12:00:00+02:00", "America/Los_Angeles", "2024-07-01T10:00:00+00:00"),
        # In the hour that summer time leaves out, and in the one that comes twice, as Java takes them.
        ("2024-03-10 02:30:00", "America/Los_Angeles", "2024-03-10T10:30:00+00:00"),
        ("2024-11-03 01:30:00", "America/Los_Angeles", "2024-11-03T08:30:00+00:00"),
    ],
)
def test_a_partition_time_without_a_zone_is_of_the_sessions(text: str, zone: str, utc: str) -> None:
    assert partition_scalar(text, t.TimestampType(), zone).as_py() == dt.datetime.fromisoformat(utc)


@pytest.mark.parametrize(
    ("text", "kind", "number"),
    [
        ("+10000-01-01", t.DateType(), 2932897),
        ("10000-01-01", t.DateType(), 2932897),
        ("-0001-12-31", t.DateType(), -719529),
        ("+10000-01-01 00:00:00", t.TimestampType(), 2932897 * 86_400_000_000),
        ("+294247-01-10 04:00:54.775807", t.TimestampNTZType(), 2**63 - 1),
        # The first day of the year 1 in UTC, by the local mean time of the zone.
        ("0000-12-31 16:07:02", t.TimestampType(), -719162 * 86_400_000_000),
    ],
)
def test_partition_values_of_years_that_python_does_not_know(
    text: str, kind: t.DataType, number: int
) -> None:
    scalar = partition_scalar(text, kind, "UTC" if text[0] in "+-1" else "America/Los_Angeles")
    assert pa.array([scalar]).view(
        pa.int32() if isinstance(kind, t.DateType) else pa.int64()
    ).to_pylist() == [number]


@pytest.mark.parametrize("text", ["2024-13-01", "2024-02-30", "soon", "2024-1-1 25:00:00"])
def test_the_error_of_an_invalid_partition_value_omits_the_value(text: str) -> None:
    with pytest.raises(UnsupportedTable) as refused:
        partition_scalar(text, t.TimestampType())
    assert text not in str(refused.value)


def test_a_server_does_not_say_that_there_are_no_nulls() -> None:
    inner = t.StructType([t.StructField("a", t.IntegerType(), nullable=False)])
    stated = t.StructType(
        [
            t.StructField("id", t.LongType(), nullable=False),
            t.StructField("nested", inner, nullable=False),
            t.StructField("list", t.ArrayType(inner, containsNull=False), nullable=False),
            t.StructField("map", t.MapType(t.StringType(), inner, valueContainsNull=False), nullable=False),
        ]
    )
    loose = t.StructType([t.StructField("a", t.IntegerType())])
    assert shared_schema(TableHead(stated.json(), (), {})) == t.StructType(
        [
            t.StructField("id", t.LongType()),
            t.StructField("nested", loose),
            t.StructField("list", t.ArrayType(loose)),
            t.StructField("map", t.MapType(t.StringType(), loose)),
        ]
    )


def test_a_column_is_taken_by_its_very_name_first() -> None:
    fields = [t.StructField(name, t.LongType()) for name in ("a", "A", "other")]
    assert [field.name for field in named_fields(fields, ["a", "A", "OTHER"])] == ["a", "A", "other"]
    with pytest.raises(ValueError, match="no column b"):
        named_fields(fields, ["b"])
    with pytest.raises(ValueError, match="names other twice"):
        named_fields(fields, ["other", "Other"])
