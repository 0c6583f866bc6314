"""Decoding of data files: column mapping, deletion vectors, types, calendars."""

import datetime as dt
import io
import json
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import types as t
from pyspark.sql.variant_utils import VariantUtils

from gateway.client.actions import (
    UnsupportedTable,
    parse_head,
)
from gateway.spark.read import decode as decoding
from gateway.spark.read.decode import BATCH_ROWS, FieldIndex, FileDecoder, TableShape
from gateway.spark.read.schema import CHANGE_FIELDS, shared_schema


def field(name: str, kind: Any, **metadata: Any) -> dict[str, Any]:
    return {"name": name, "type": kind, "nullable": True, "metadata": metadata}


def mapped(name: str, kind: Any, number: int) -> dict[str, Any]:
    keys = {"delta.columnMapping.id": number, "delta.columnMapping.physicalName": f"col-{number}"}
    return field(name, kind, **keys)


def head(*fields: Any, partition_columns: Any = (), **configuration: str) -> Any:
    schema = json.dumps({"type": "struct", "fields": fields})
    metadata = {
        "schemaString": schema,
        "partitionColumns": list(partition_columns),
        "configuration": configuration,
    }
    return parse_head({"minReaderVersion": 1}, metadata, 0)


def decode(table_head: Any, data: pa.Table, values: Any = None, **chosen: Any) -> pa.Table:
    sink = io.BytesIO()
    pq.write_table(data, sink, row_group_size=4)
    decoder = FileDecoder(TableShape.of(table_head), shared_schema(table_head))
    batches = decoder.batches(pa.BufferReader(sink.getvalue()), values or {}, **chosen)
    return pa.Table.from_batches(list(batches), decoder.arrow_schema)


class TestDecoding:
    def test_columns_a_file_does_not_know_are_null(self) -> None:
        answer = decode(head(field("a", "long"), field("b", "string")), pa.table({"a": [1, 2]}))
        assert answer.to_pylist() == [{"a": 1, "b": None}, {"a": 2, "b": None}]

    def test_a_column_that_a_file_has_twice_is_an_error(self) -> None:
        data = pa.Table.from_arrays([pa.array([1]), pa.array([2]), pa.array([3])], ["a", "a", "b"])
        with pytest.raises(UnsupportedTable, match="column a cannot be read as bigint"):
            decode(head(field("a", "long"), field("b", "long")), data)
        assert decode(head(field("b", "long")), data).to_pylist() == [{"b": 3}]

    @pytest.mark.parametrize("mode", ["none", "name", "id"])
    def test_the_columns_of_a_wide_file_are_looked_at_once(
        self, monkeypatch: pytest.MonkeyPatch, mode: str
    ) -> None:
        made = []
        monkeypatch.setattr(decoding, "FieldIndex", lambda fields: made.append(1) or FieldIndex(fields))
        fields = [mapped(f"c{number}", "long", number) for number in range(50)]
        table = head(*fields, **{"delta.columnMapping.mode": mode})
        name = "c" if mode == "none" else "col-"
        numbers = [
            pa.field(f"{name}{n}", pa.int64(), metadata={"PARQUET:field_id": str(n)}) for n in range(50)
        ]
        data = pa.table([[n] for n in range(50)], schema=pa.schema(numbers))
        assert list(decode(table, data).to_pylist()[0].values()) == list(range(50))
        assert len(made) == 1

    def test_rows_without_a_column_of_the_file_come_in_batches(self) -> None:
        table = head(field("p", "string"), field("b", "long"), partition_columns=["p"])
        sink = io.BytesIO()
        pq.write_table(pa.table({"a": range(2 * BATCH_ROWS + 1)}), sink)
        decoder = FileDecoder(TableShape.of(table), shared_schema(table))
        deleted = [0, BATCH_ROWS, 2 * BATCH_ROWS]
        batches = decoder.batches(pa.BufferReader(sink.getvalue()), {"p": "x"}, rows_deleted=deleted)
        assert [batch.num_rows for batch in batches] == [BATCH_ROWS - 1, BATCH_ROWS - 1]

    def test_texts_that_are_no_utf8_are_read_as_they_are(self) -> None:
        (chunk,) = decode(head(field("a", "string")), pa.table({"a": [b"\xffa"]})).column("a").chunks
        assert chunk.view(pa.binary()).to_pylist() == [b"\xffa"]

    def test_a_value_that_cannot_be_read_ends_with_the_name_of_its_column(self) -> None:
        with pytest.raises(UnsupportedTable, match="column a cannot be read as bigint") as refused:
            decode(head(field("a", "long")), pa.table({"a": ["a secret"]}))
        assert "secret" not in str(refused.value)

    def test_narrow_types_of_old_files_are_widened(self) -> None:
        old = pa.table(
            {
                "a": pa.array([1], pa.int8()),
                "b": pa.array([1.5], pa.float32()),
                "c": pa.array([Decimal("1.5")], pa.decimal128(5, 1)),
                "d": pa.array([dt.date(2024, 1, 2)], pa.date32()),
                "e": pa.array([7], pa.int32()),
            }
        )
        wide = head(
            field("a", "long"),
            field("b", "double"),
            field("c", "decimal(10,3)"),
            field("d", "timestamp_ntz"),
            field("e", "decimal(12,2)"),
        )
        assert decode(wide, old).to_pylist() == [
            {
                "a": 1,
                "b": 1.5,
                "c": Decimal("1.500"),
                "d": dt.datetime.fromisoformat("2024-01-02"),
                "e": Decimal("7.00"),
            }
        ]

    def test_partition_values_override_the_column_of_the_file(self) -> None:
        answer = decode(
            head(field("p", "integer"), field("a", "long"), partition_columns=["p"]),
            pa.table({"p": [0, 0], "a": [1, 2]}),
            {"p": "5"},
        )
        assert answer.column("p").to_pylist() == [5, 5]

    def test_a_file_of_partition_columns_only_has_its_rows(self) -> None:
        only = head(field("p", "string"), partition_columns=["p"])
        assert decode(only, pa.table({"x": [1, 2, 3]}), {"p": "v"}).to_pylist() == [{"p": "v"}] * 3

    @pytest.mark.parametrize("mode", ["name", "id"])
    def test_mapped_columns_are_found_also_inside_of_others(self, mode: str) -> None:
        inner = {"type": "struct", "fields": [mapped("x", "long", 3), mapped("new", "string", 4)]}
        listed = {"type": "array", "elementType": inner, "containsNull": True}
        table = head(mapped("s", inner, 1), mapped("l", listed, 2), **{"delta.columnMapping.mode": mode})

        def physical(name: str, number: int, kind: pa.DataType) -> pa.Field:
            by_id = mode == "id"
            metadata = {b"PARQUET:field_id": str(number).encode()} if by_id else None
            return pa.field(f"other-{number}" if by_id else name, kind, metadata=metadata)

        struct = pa.struct([physical("col-3", 3, pa.int32())])
        name = {"id": "other", "name": "col"}[mode]
        rows = [{f"{name}-3": 1}, None, {f"{name}-3": None}]
        file_schema = pa.schema([physical("col-1", 1, struct), physical("col-2", 2, pa.list_(struct))])
        data = pa.Table.from_arrays(
            [pa.array(rows, struct), pa.array([rows, None, []], pa.list_(struct))], schema=file_schema
        )
        first, second, third = decode(table, data).to_pylist()
        assert first == {
            "s": {"x": 1, "new": None},
            "l": [{"x": 1, "new": None}, None, {"x": None, "new": None}],
        }
        assert second == {"s": None, "l": None}
        assert third == {"s": {"x": None, "new": None}, "l": []}

    @pytest.mark.parametrize("properties", [{}, {"delta.columnMapping.mode": "none"}])
    def test_names_that_a_mapping_left_behind_are_not_those_of_files(
        self, properties: dict[str, str]
    ) -> None:
        inner = {"type": "struct", "fields": [mapped("x", "long", 3)]}
        listed = {"type": "array", "elementType": inner, "containsNull": True}
        entries = {"type": "map", "keyType": "string", "valueType": inner, "valueContainsNull": True}
        fields = [mapped("a", "long", 1), mapped("s", inner, 2), mapped("l", listed, 4)]
        fields += [mapped("m", entries, 5), mapped("p", "string", 6)]
        table = head(*fields, partition_columns=["p"], **properties)
        struct = pa.struct([("x", pa.int64())])
        rows = {"a": 1, "s": {"x": 2}, "l": [{"x": 3}], "m": [("k", {"x": 4})]}
        kinds = {"a": pa.int64(), "s": struct, "l": pa.list_(struct), "m": pa.map_(pa.string(), struct)}
        data = pa.table({name: pa.array([rows[name]], kind) for name, kind in kinds.items()})
        for values in ({"p": "v"}, {"col-6": "v"}):
            assert decode(table, data, values).to_pylist() == [{**rows, "p": "v"}]

    def test_of_mapped_columns_the_value_of_a_partition_is_not_found_by_another_name(self) -> None:
        table = head(
            mapped("p", "string", 1), partition_columns=["p"], **{"delta.columnMapping.mode": "name"}
        )
        assert decode(table, pa.table({"x": [1]}), {"p": "v"}).to_pylist() == [{"p": None}]

    @pytest.mark.parametrize("mode", ["name", "id"])
    def test_the_kind_of_a_change_is_found_by_its_name_where_columns_are_found_by_id(self, mode: str) -> None:
        table = head(mapped("x", "long", 1), **{"delta.columnMapping.mode": mode})
        number = pa.field("col-1", pa.int64(), metadata={b"PARQUET:field_id": b"1"})
        schema = pa.schema([number, pa.field("_change_type", pa.string())])
        data = pa.Table.from_arrays([pa.array([1, 2]), pa.array(["insert", "delete"])], schema=schema)
        columns = t.StructType([*shared_schema(table).fields, CHANGE_FIELDS[0]])
        sink = io.BytesIO()
        pq.write_table(data, sink)
        decoder = FileDecoder(TableShape.of(table), columns)
        (batch,) = decoder.batches(pa.BufferReader(sink.getvalue()), {})
        assert batch.to_pylist() == [{"x": 1, "_change_type": "insert"}, {"x": 2, "_change_type": "delete"}]

    def test_a_column_that_neither_table_nor_file_has_is_an_error_and_not_null(self) -> None:
        table = head(field("a", "long"))
        columns = t.StructType([*shared_schema(table).fields, t.StructField("b", t.LongType())])
        sink = io.BytesIO()
        pq.write_table(pa.table({"a": [1], "b": [2]}), sink)
        decoder = FileDecoder(TableShape.of(table), columns)
        with pytest.raises(UnsupportedTable, match="column b"):
            list(decoder.batches(pa.BufferReader(sink.getvalue()), {}))

    def test_maps_keep_their_entries_when_rows_are_taken(self) -> None:
        kind = {"type": "map", "keyType": "string", "valueType": "long", "valueContainsNull": True}
        values = [{"a": 1}, None, {}, {"b": 2, "c": None}, {"d": 4}, {"e": 5}]
        entries = [None if value is None else list(value.items()) for value in values]
        data = pa.table({"m": pa.array(entries, pa.map_(pa.string(), pa.int32()))})
        answer = decode(head(field("m", kind)), data, rows_deleted=[0, 4])
        assert [v if v is None else dict(v) for v in answer.column("m").to_pylist()] == [
            None,
            {},
            {"b": 2, "c": None},
            {"e": 5},
        ]

    @pytest.mark.parametrize("deleted", [[], [0, 5]])
    @pytest.mark.parametrize(
        "kind",
        [
            # Those of Polars.
            pa.large_list(pa.string_view()),
            pa.list_(pa.string_view(), 2),
            # Those of pandas and deltalake.
            pa.large_list(pa.large_string()),
            pa.list_(pa.string_view()),
            pa.list_(pa.dictionary(pa.int8(), pa.string())),
            pa.list_view(pa.string()),
            pa.large_list_view(pa.large_string()),
        ],
        ids=str,
    )
    def test_lists_of_every_kind_of_a_writer_are_read_at_every_depth(
        self, kind: pa.DataType, deleted: list[int]
    ) -> None:
        values = [["a", "b"], None, ["c", None], ["d", "e"], ["f", "g"], None, ["h", "i"]]
        lists = pa.array(values, kind)
        nested = pa.StructArray.from_arrays([lists], ["l"])
        entries = [[(f"k{number}", value)] for number, value in enumerate(values)]
        data = pa.table({"l": lists, "s": nested, "m": pa.array(entries, pa.map_(pa.string_view(), kind))})
        listed = {"type": "array", "elementType": "string", "containsNull": True}
        struct = {"type": "struct", "fields": [field("l", listed)]}
        mapping = {"type": "map", "keyType": "string", "valueType": listed, "valueContainsNull": True}
        table = head(field("l", listed), field("s", struct), field("m", mapping))
        answer = decode(table, data, rows_deleted=deleted)
        answer.validate(full=True)
        assert answer.to_pylist() == [
            {"l": value, "s": {"l": value}, "m": entries[row]}
            for row, value in enumerate(values)
            if row not in deleted
        ]

    @pytest.mark.parametrize("kind", [pa.large_list(pa.string_view()), pa.list_view(pa.large_string())])
    def test_lists_of_different_lengths_are_read(self, kind: pa.DataType) -> None:
        values = [["a"], [], None, ["b", "c", None]]
        listed = {"type": "array", "elementType": "string", "containsNull": True}
        answer = decode(head(field("l", listed)), pa.table({"l": pa.array(values, kind)}))
        answer.validate(full=True)
        assert answer.column("l").to_pylist() == values

    @pytest.mark.parametrize(
        ("name", "kind", "values"),
        [("string", pa.string_view(), ["a", None, "c"]), ("binary", pa.binary_view(), [b"a", None, b"\xff"])],
    )
    def test_rows_of_views_are_deleted(self, name: str, kind: pa.DataType, values: list[Any]) -> None:
        data = pa.table({"a": pa.array(values, kind)})
        assert decode(head(field("a", name)), data, rows_deleted=[0]).column("a").to_pylist() == values[1:]

    @pytest.mark.parametrize("deleted", [[], [0]])
    def test_extensions_of_arrow_are_read_as_what_they_store(self, deleted: list[int]) -> None:
        texts, keys = pa.array(["{}", None, "[]"], pa.string_view()), pa.array([b"0" * 16, None, b"1" * 16])
        json_texts = pa.ExtensionArray.from_storage(pa.json_(pa.string_view()), texts)
        uuids = pa.ExtensionArray.from_storage(pa.uuid(), keys.cast(pa.binary(16)))
        data = pa.table({"a": json_texts, "s": pa.StructArray.from_arrays([uuids], ["u"])})
        struct = {"type": "struct", "fields": [field("u", "binary")]}
        answer = decode(head(field("a", "string"), field("s", struct)), data, rows_deleted=deleted)
        expected = [{"a": a, "s": {"u": u}} for a, u in zip(texts.to_pylist(), keys.to_pylist(), strict=True)]
        assert answer.to_pylist() == expected[len(deleted) :]

    def test_a_column_without_a_type_in_the_file_is_null(self) -> None:
        listed = {"type": "array", "elementType": "string", "containsNull": True}
        data = pa.table({"l": pa.nulls(2), "a": [1, 2]})
        assert decode(head(field("l", listed)), data).to_pylist() == [{"l": None}] * 2

    def test_rows_deleted_and_kept_count_over_row_groups(self) -> None:
        numbers = head(field("a", "long"))
        data = pa.table({"a": list(range(10))})
        assert decode(numbers, data, rows_deleted=[0, 3, 4, 9]).column("a").to_pylist() == [1, 2, 5, 6, 7, 8]
        assert decode(numbers, data, rows_kept=[1, 4, 8]).column("a").to_pylist() == [1, 4, 8]
        assert decode(numbers, data, rows_deleted=list(range(10))).num_rows == 0

    def test_ancient_int96_timestamps_survive(self) -> None:
        sink = io.BytesIO()
        when = dt.datetime(1600, 1, 1, tzinfo=dt.UTC)
        data = pa.table({"a": pa.array([when], pa.timestamp("us", tz="UTC"))})
        pq.write_table(data, sink, use_deprecated_int96_timestamps=True)
        table = head(field("a", "timestamp"))
        decoder = FileDecoder(TableShape.of(table), shared_schema(table))
        (batch,) = decoder.batches(pa.BufferReader(sink.getvalue()), {})
        assert batch.column(0).to_pylist() == [when]

    def test_whole_variants_are_read_as_they_are(self) -> None:
        whole = {"metadata": b"\x01\x00\x00", "value": b"\x0c\x01"}
        answer = decode(head(field("v", "variant")), pa.table({"v": [whole]}))
        assert answer.to_pylist() == [{"v": whole}]

    def test_shredded_variants_are_put_together(self) -> None:
        _, metadata = VariantUtils.parse_json('{"a": 1, "b": "x", "c": [1], "z": true}')
        text, _ = VariantUtils.parse_json('"not a number"')
        only_z = b"\x02\x01\x03\x00\x01\x04"

        def row(value: bytes | None = None, **typed: Any) -> dict[str, Any]:
            fields = {name: {"value": None, "typed_value": None} | typed.get(name, {}) for name in "abc"}
            return {"metadata": metadata, "value": value, "typed_value": fields if typed else None}

        items = [{"value": None, "typed_value": 1}, {"value": text, "typed_value": None}]
        full = {"a": {"typed_value": 1}, "b": {"typed_value": "x"}, "c": {"typed_value": items}}
        rows = [
            row(**full),
            row(only_z, a={"value": text}),
            row(text),
            row(),
            None,
            row(b={"typed_value": "y" * 70}),
        ]
        element = pa.struct([("value", pa.binary()), ("typed_value", pa.int64())])

        def shredded(kind: pa.DataType) -> pa.DataType:
            return pa.struct([("value", pa.binary()), ("typed_value", kind)])

        typed = pa.struct(
            [("a", shredded(pa.int64())), ("b", shredded(pa.string())), ("c", shredded(pa.list_(element)))]
        )
        kind = pa.struct([("metadata", pa.binary()), ("value", pa.binary()), ("typed_value", typed)])
        answer = decode(head(field("v", "variant")), pa.table({"v": pa.array(rows, kind)}), rows_deleted=[3])
        found = [
            None if one is None else VariantUtils.to_python(one["value"], one["metadata"])
            for one in answer.column("v").to_pylist()
        ]
        assert found == [
            {"a": 1, "b": "x", "c": [1, "not a number"]},
            {"a": "not a number", "z": True},
            "not a number",
            None,
            {"b": "y" * 70},
        ]

    @pytest.mark.parametrize(
        "value",
        [
            True,
            5,
            -(2**40),
            1.5,
            Decimal("-12.345"),
            Decimal("1e-30"),
            dt.date(2024, 2, 29),
            b"bytes",
            "text",
        ],
    )
    def test_values_of_each_type_are_put_together(self, value: Any) -> None:
        _, metadata = VariantUtils.parse_json("1")
        data = pa.table({"v": [{"metadata": metadata, "value": None, "typed_value": value}]})
        (one,) = decode(head(field("v", "variant")), data).column("v").to_pylist()
        assert VariantUtils.to_python(one["value"], one["metadata"]) == value

    def test_variants_shredded_to_impossible_types_are_refused(self) -> None:
        data = pa.table({"v": [{"metadata": b"\x01\x00\x00", "value": None, "typed_value": dt.time(1)}]})
        with pytest.raises(UnsupportedTable, match="shredded"):
            decode(head(field("v", "variant")), data)

    def test_void_columns_are_null(self) -> None:
        answer = decode(head(field("a", "long"), field("nothing", "void")), pa.table({"a": [1]}))
        assert answer.to_pylist() == [{"a": 1, "nothing": None}]

    def test_internal_metadata_is_not_shared(self) -> None:
        table = head(mapped("a", "long", 1), field("c", "string", comment="kept"))
        assert shared_schema(table) == t.StructType(
            [
                t.StructField("a", t.LongType()),
                t.StructField("c", t.StringType(), metadata={"comment": "kept"}),
            ]
        )
