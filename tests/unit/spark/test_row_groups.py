"""Row groups that conditions leave out: none with a matching row, and the others with their own rows."""

import datetime as dt
import io
from decimal import Decimal
from typing import Any

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import types as t
from support.false_null_counts import with_null_counts
from unit.spark.test_decode import field, head, mapped

from gateway.spark.read.column_chunks import ColumnChunkFile, connections
from gateway.spark.read.decode import FileDecoder, TableShape
from gateway.spark.read.row_groups import row_group_filter
from gateway.spark.read.schema import shared_schema

GROUP_ROWS = 4
OLD_WRITER = {"org.apache.spark.version": "2.4.8", "org.apache.spark.timeZone": "UTC"}


def parquet(data: pa.Table, **chosen: Any) -> bytes:
    sink = io.BytesIO()
    pq.write_table(data, sink, row_group_size=GROUP_ROWS, **chosen)
    return sink.getvalue()


def read(table_head: Any, file: Any, hints: dict[str, Any], values: Any = None, **chosen: Any) -> pa.Table:
    row_filter = row_group_filter(table_head, hints)
    decoder = FileDecoder(TableShape.of(table_head), shared_schema(table_head), row_filter=row_filter)
    source = pa.BufferReader(file) if isinstance(file, bytes) else file
    return pa.Table.from_batches(list(decoder.batches(source, values or {}, **chosen)), decoder.arrow_schema)


def groups(kind: str, values: pa.Array, sql: str, **written: Any) -> list[int]:
    """The row groups that are read of a column `x`."""
    numbers = pa.array(range(len(values)), pa.int64())
    file = parquet(pa.table({"n": numbers, "x": values}), **written)
    answer = read(head(field("n", "long"), field("x", kind)), file, {"predicateHints": [sql]})
    read_rows: list[Any] = answer.column("n").to_pylist()
    found = sorted({row // GROUP_ROWS for row in read_rows})
    assert read_rows == [row for row in range(len(values)) if row // GROUP_ROWS in found]
    return found


def micros(*texts: str) -> list[int]:
    epoch = dt.datetime.fromisoformat("1970-01-01")
    return [(dt.datetime.fromisoformat(text) - epoch) // dt.timedelta(microseconds=1) for text in texts]


TIMES = micros("2024-01-01T00:00:00", "2024-02-01T00:00:00", "2024-03-01T00:00:00.000999")
MANY = [number for start in (0, 100, 200) for number in range(start, start + GROUP_ROWS)]


def each(values: list[Any], kind: pa.DataType) -> pa.Array:
    """A row group for each value."""
    return pa.array([value for value in values for _ in range(GROUP_ROWS)], kind)


@pytest.mark.parametrize(
    ("kind", "values", "sql", "expected"),
    [
        ("long", pa.array(MANY), "x = 101", [1]),
        ("long", pa.array(MANY), "x > 3 AND x < 100", []),
        ("long", pa.array(MANY), "x BETWEEN 2 AND 100", [0, 1]),
        ("long", pa.array(MANY), "NOT (x < 200)", [2]),
        ("long", pa.array(MANY), "x % 2 = 1", [0, 1, 2]),
        ("long", pa.array(MANY), "x = 101 OR unknown = 1", [0, 1, 2]),
        ("short", pa.array(MANY, pa.int16()), "x < 100", [0]),
        ("long", pa.array(MANY, pa.int32()), "x = 200", [2]),
        ("long", pa.array(MANY, pa.uint32()), "x = 200", [0, 1, 2]),
        ("long", each([1, None, 3], pa.int64()), "x IS NULL", [1]),
        ("long", each([1, None, 3], pa.int64()), "x IS NOT NULL", [0, 2]),
        ("long", each([1, None, 3], pa.int64()), "x <=> 3", [2]),
        ("long", each([1, None, 3], pa.int64()), "x > 0", [0, 2]),
        ("string", each(["a", "é", "z" * 100], pa.string()), "x >= 'é'", [1]),
        ("string", each(["a", "é", "z" * 100], pa.string()), "x LIKE 'zzz%'", [2]),
        ("string", each(["a", "b", "c"], pa.large_string()), "x = 'b'", [1]),
        ("string", each(["a", "b", "c"], pa.string_view()), "x = 'b'", [1]),
        ("string", each(["a", "b", "c"], pa.dictionary(pa.int32(), pa.string())), "x = 'b'", [1]),
        ("string", each([b"a", b"b"], pa.binary()), "x = 'b'", [0, 1]),
        ("binary", each([b"a", b"b"], pa.binary()), "x IS NULL", []),
        ("boolean", each([True, False, None], pa.bool_()), "x IS NULL", [2]),
        ("date", each([dt.date(1, 1, 1), dt.date(2024, 5, 1)], pa.date32()), "x < '1582-10-15'", [0]),
        ("date", each([0, 5_000_000], pa.date32()), "x < DATE '1960-01-01'", [1]),
        ("timestamp", each(TIMES, pa.timestamp("us", "UTC")), "x = TIMESTAMP '2024-02-01 00:00:00Z'", [1]),
        ("timestamp", each(TIMES, pa.timestamp("us", "UTC")), "x > '2024-03-01 00:00:00Z'", [2]),
        ("timestamp", each([t // 1000 for t in TIMES], pa.timestamp("ms", "UTC")), "x < '2024-01-10'", [0]),
        ("timestamp_ntz", each(TIMES, pa.timestamp("us")), "x < TIMESTAMP_NTZ '2024-01-10'", [0]),
        ("timestamp", each([2**62, *TIMES], pa.timestamp("us", "UTC")), "x < '2024-01-10 00:00:00Z'", [0, 1]),
        ("decimal(7,2)", each([Decimal("1.20"), Decimal(-3)], pa.decimal128(7, 2)), "x = 1.2", [0]),
        ("decimal(9,4)", each([Decimal("1.20"), Decimal(-3)], pa.decimal128(7, 2)), "x < 0", [1]),
        ("decimal(38,2)", each([Decimal(10) ** 30, Decimal(-3)], pa.decimal128(38, 2)), "x > 5", [0]),
        # Another calendar, order or conversion than that of the statistics.
        ("timestamp_ntz", each([dt.date(2024, 1, 1)], pa.date32()), "x > '2025-01-01'", [0]),
        ("decimal(12,2)", each([7], pa.int32()), "x > 9", [0]),
    ],
)  # fmt: skip
def test_a_row_group_is_read_unless_its_statistics_exclude_the_condition(
    kind: str, values: pa.Array, sql: str, expected: list[int]
) -> None:
    assert groups(kind, values, sql) == expected


@pytest.mark.parametrize("form", [{"store_decimal_as_integer": True}, {"store_decimal_as_integer": False}])
@pytest.mark.parametrize("precision", [7, 15, 30])
def test_decimals_of_each_form_are_compared_as_numbers(form: dict[str, bool], precision: int) -> None:
    values = each([Decimal("-2.50"), Decimal("0.00"), Decimal("99999.99")], pa.decimal128(precision, 2))
    assert groups(f"decimal({precision},2)", values, "x < -1", **form) == [0]
    assert groups(f"decimal({precision},2)", values, "x >= 0.00", **form) == [1, 2]


@pytest.mark.parametrize(("kind", "arrow"), [("float", pa.float32()), ("double", pa.float64())])
def test_nan_which_statistics_leave_out_is_the_greatest_number(kind: str, arrow: pa.DataType) -> None:
    nan, infinity = float("nan"), float("inf")
    values = pa.array([1.0, nan, 2.0, 3.0, nan, nan, nan, nan, 5.0, 6.0, 7.0, infinity], arrow)
    assert groups(kind, values, "x > 10") == [0, 1, 2]
    assert groups(kind, values, "x = 'NaN'") == [0, 1, 2]
    # Without numbers, and with an infinite one, a row group has no bounds.
    assert groups(kind, values, "x < 0.5") == [1, 2]
    assert groups(kind, values, "x < 1.5") == [0, 1, 2]


def test_zeros_of_both_signs_are_equal() -> None:
    values = each([-0.0, 0.0, 1.0], pa.float64())
    for sql in ("x = 0", "x = -0.0", "x >= 0.0 AND x <= -0.0"):
        assert groups("double", values, sql) == [0, 1]


def test_a_bound_that_is_no_text_keeps_the_row_group() -> None:
    """Writers cut long bounds, some of them within a character."""
    cut = pa.array([b"\xc3"] * GROUP_ROWS, pa.binary())
    values = pa.StringArray.from_buffers(GROUP_ROWS, *cut.buffers()[1:])
    file = parquet(pa.table({"x": values}))
    statistics = pq.ParquetFile(io.BytesIO(file)).metadata.row_group(0).column(0).statistics
    assert statistics.min_raw == b"\xc3"
    table_head = head(field("x", "string"))
    assert read(table_head, file, {"predicateHints": ["x = 'a'"]}).num_rows == GROUP_ROWS


@pytest.mark.parametrize(
    ("kind", "value", "sql"),
    [
        ("long", 1, "x = 1"),
        ("string", "a", "x LIKE 'a%'"),
        ("long", 1, "x IS NOT NULL"),
        # Without bounds for conditions.
        ("timestamp", dt.datetime(9999, 12, 31, 23, 59, 59, 999999, dt.UTC), "x > '2024-01-01 00:00:00Z'"),
    ],
)
def test_a_number_of_nulls_that_a_bound_contradicts_keeps_the_row_group(
    kind: str, value: Any, sql: str
) -> None:
    file = parquet(pa.table({"x": pa.array([None, value, None, None])}))
    table_head = head(field("x", kind))
    for stated in (3, 4, 6):
        stated_file = file if stated == 3 else with_null_counts(file, 3, stated)
        assert read(table_head, stated_file, {"predicateHints": [sql]}).num_rows == GROUP_ROWS, stated
    all_null = parquet(pa.table({"x": pa.array([None] * GROUP_ROWS, pa.int64())}))
    assert read(head(field("x", "long")), all_null, {"predicateHints": ["x = 1"]}).num_rows == 0


def test_a_number_of_nulls_of_polars_hides_no_nan() -> None:
    file = parquet(pa.table({"x": pa.array([float("nan"), None] * 2)}))
    data, _, footer = file.rpartition(b"\x36\x04\x00")
    counted = data + b"\x36\x08\x00" + footer
    created_by = pq.read_metadata(io.BytesIO(file)).created_by.encode()
    of_polars = counted.replace(created_by, b"Polars (python)".ljust(len(created_by)))
    assert pq.read_metadata(io.BytesIO(of_polars)).row_group(0).column(0).statistics.null_count == GROUP_ROWS
    for sql in ("x > 1", "x IS NOT NULL"):
        hints = {"predicateHints": [sql]}
        assert read(head(field("x", "double")), of_polars, hints).num_rows == GROUP_ROWS
        assert read(head(field("x", "double")), counted, hints).num_rows == 0


@pytest.mark.parametrize("precision", [7, 15, 24])
def test_decimals_in_bytes_of_polars_are_not_compared(precision: int) -> None:
    kind = pa.decimal128(precision, 2)
    data = pa.table({"x": each([Decimal(1), Decimal(3)], kind)})
    table_head = head(field("x", f"decimal({precision},2)"))
    sink = io.BytesIO()
    pl.DataFrame(data).write_parquet(sink, row_group_size=GROUP_ROWS)
    is_in_bytes = precision > 18
    found = read(table_head, sink.getvalue(), {"predicateHints": ["x < 2"]})
    assert found.num_rows == (2 if is_in_bytes else 1) * GROUP_ROWS


def test_times_of_old_writers_are_not_compared() -> None:
    """Day 1582-10-04 of the hybrid calendar is written as the number of the Gregorian 1582-10-14."""
    days = each([-141_428, 20_000], pa.date32())
    micros_of_days = [day * 86_400_000_000 for day in days.cast(pa.int32()).to_pylist()]
    times = pa.array(micros_of_days, pa.timestamp("us", "UTC"))
    data = pa.table({"d": days, "t": times}).replace_schema_metadata(OLD_WRITER)
    table_head = head(field("d", "date"), field("t", "timestamp"))
    file = parquet(data)
    for sql in ("d = DATE '1582-10-04'", "t < '1582-10-05 00:00:00Z'"):
        found = read(table_head, file, {"predicateHints": [sql]}).column("d").to_pylist()
        assert dt.date(1582, 10, 4) in found, sql
    as_int96 = parquet(data, use_deprecated_int96_timestamps=True)
    assert (
        read(table_head, as_int96, {"predicateHints": ["t > '2100-01-01 00:00:00Z'"]}).num_rows
        == 2 * GROUP_ROWS
    )


def test_rows_keep_their_numbers_where_row_groups_are_left_out() -> None:
    table_head = head(field("x", "long"))
    file = parquet(pa.table({"x": MANY}))
    hints = {"predicateHints": ["x >= 100"]}
    deleted = read(table_head, file, hints, rows_deleted=[0, 5, 8, 9, 10, 11])
    assert deleted.column("x").to_pylist() == [100, 102, 103]
    kept = read(table_head, file, hints, rows_deleted=[], rows_kept=[1, 4, 11])
    assert kept.column("x").to_pylist() == [100, 203]


@pytest.mark.parametrize("mode", ["name", "id"])
def test_mapped_columns_have_their_own_statistics(mode: str) -> None:
    """Each column has the name that the other one had."""
    fields = (mapped("a", "long", 1), mapped("b", "long", 2))
    table_head = head(*fields, **{"delta.columnMapping.mode": mode})
    names = {"name": ("col-1", "col-2"), "id": ("b", "a")}[mode]
    schema = pa.schema(
        [pa.field(name, pa.int64(), metadata={b"PARQUET:field_id": str(number).encode()})
         for number, name in enumerate(names, 1)]
    )  # fmt: skip
    file = parquet(pa.Table.from_arrays([pa.array(MANY), pa.array(MANY[::-1])], schema=schema))
    assert read(table_head, file, {"predicateHints": ["a < 100"]}).column("a").to_pylist() == MANY[:4]
    assert read(table_head, file, {"predicateHints": ["b < 100"]}).column("a").to_pylist() == MANY[8:]


def test_a_name_with_a_dot_is_no_path() -> None:
    inner = {"type": "struct", "fields": [field("b", "long")]}
    table_head = head(field("a.b", "long"), field("a", inner), field("p", "long"), partition_columns=["p"])
    data = pa.table({"a.b": MANY, "a": [{"b": number} for number in MANY[::-1]], "p": MANY})
    for sql in ("`a.b` = 1", "a.b = 1", "p = 7", "a IS NULL"):
        found = read(table_head, parquet(data), {"predicateHints": [sql]}, {"p": "7"})
        assert found.num_rows == len(MANY), sql


def test_a_column_that_is_not_read_decides_too_and_all_hints_hold() -> None:
    table_head = head(field("x", "long"), field("y", "long"))
    file = parquet(pa.table({"x": MANY, "y": MANY[::-1]}))
    columns = t.StructType(shared_schema(table_head).fields[:1])
    tree = '{"op":"lessThan","children":[{"op":"column","name":"y","valueType":"long"},{"op":"literal","value":"100","valueType":"long"}]}'  # noqa: E501
    for hints, found in (
        ({"predicateHints": ["y < 100"]}, MANY[8:]),
        ({"jsonPredicateHints": tree}, MANY[8:]),
        ({"predicateHints": ["y < 100", "x < 100"]}, []),
        ({"predicateHints": ["no condition"]}, MANY),
        ({"limitHint": 1}, MANY),
    ):
        row_filter = row_group_filter(table_head, hints)
        decoder = FileDecoder(TableShape.of(table_head), columns, row_filter=row_filter)
        batches = decoder.batches(pa.BufferReader(file), {})
        assert [row["x"] for batch in batches for row in batch.to_pylist()] == found, hints


def test_what_is_left_out_is_not_fetched() -> None:
    rows = 100_000
    sink = io.BytesIO()
    pq.write_table(
        pa.table({"x": range(rows)}),
        sink,
        row_group_size=rows // 10,
        compression="none",
        use_dictionary=False,
    )
    file, fetched = sink.getvalue(), []

    def read_range(start: int, length: int) -> bytes:
        fetched.append(length)
        return file[start : start + length]

    table_head = head(field("x", "long"))
    wanted = {"predicateHints": [f"x = {rows // 2}"]}
    source = ColumnChunkFile(read_range, len(file), connections())
    assert read(table_head, source, wanted).num_rows == rows // 10
    assert sum(fetched) < len(file) / 5
    fetched.clear()
    source = ColumnChunkFile(read_range, len(file), connections())
    kept = read(table_head, source, {}, rows_kept=[rows - 1], rows_deleted=range(rows // 2))
    assert kept.column("x").to_pylist() == [rows - 1]
    assert sum(fetched) < len(file) / 5
