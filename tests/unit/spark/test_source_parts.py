"""The parts of the source that need no server: decoding, packing, predicates, options, HTTP."""

import datetime as dt
import io
import json
from collections.abc import Iterator
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import types as t
from pyspark.sql.variant_utils import VariantUtils
from support.scripted_server import HEAD, Answers, file_line, listening

from gateway.spark.read.actions import (
    DataFile,
    DeletionVector,
    FileKind,
    UnsupportedTable,
    parse_file,
    parse_head,
)
from gateway.spark.read.client import Query, TableName
from gateway.spark.read.decode import FileDecoder, TableShape
from gateway.spark.read.options import ReadOptions
from gateway.spark.read.profile import Profile, ProfileError
from gateway.spark.read.schema import CHANGE_FIELDS, partition_scalar, shared_schema
from gateway.spark.read.tasks import append_tasks, change_tasks, pack, snapshot_tasks
from gateway.spark.read.transport import HttpError, RangedFile, Transport


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

    def test_partition_values_win_over_the_files_own_column(self) -> None:
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
        answer = decode(head(field("m", kind)), data, rows_gone=[0, 4])
        assert [v if v is None else dict(v) for v in answer.column("m").to_pylist()] == [
            None,
            {},
            {"b": 2, "c": None},
            {"e": 5},
        ]

    def test_rows_gone_and_kept_count_over_row_groups(self) -> None:
        numbers = head(field("a", "long"))
        data = pa.table({"a": list(range(10))})
        assert decode(numbers, data, rows_gone=[0, 3, 4, 9]).column("a").to_pylist() == [1, 2, 5, 6, 7, 8]
        assert decode(numbers, data, rows_kept=[1, 4, 8]).column("a").to_pylist() == [1, 4, 8]
        assert decode(numbers, data, rows_gone=list(range(10))).num_rows == 0

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
        answer = decode(head(field("v", "variant")), pa.table({"v": pa.array(rows, kind)}), rows_gone=[3])
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

    def test_variants_shredded_as_what_they_cannot_be_are_refused(self) -> None:
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
    ],
)
def test_partition_values_of_years_that_python_does_not_know(
    text: str, kind: t.DataType, number: int
) -> None:
    scalar = partition_scalar(text, kind)
    assert pa.array([scalar]).view(
        pa.int32() if isinstance(kind, t.DateType) else pa.int64()
    ).to_pylist() == [number]


@pytest.mark.parametrize("text", ["2024-13-01", "2024-02-30", "soon", "2024-1-1 25:00:00"])
def test_a_partition_value_that_is_none_says_so_without_its_text(text: str) -> None:
    with pytest.raises(UnsupportedTable) as refused:
        partition_scalar(text, t.TimestampType())
    assert text not in str(refused.value)


def listed(kind: FileKind, name: str, version: int, vector: int | None = None, **more: Any) -> DataFile:
    deletion_vector = DeletionVector(f"v{vector}", None, 0, 1, 1, None) if vector is not None else None
    return DataFile(kind, name, "http://x/y", 10, {}, deletion_vector, version, 0, **more)


class TestTasks:
    def test_cdc_files_replace_a_versions_adds_and_removes(self) -> None:
        files = [
            listed(FileKind.ADD, "a", 1),
            listed(FileKind.REMOVE, "b", 2),
            listed(FileKind.CDC, "c", 2),
            listed(FileKind.ADD, "d", 2),
        ]
        assert [(task.file.id, task.change_type) for task in change_tasks(files)] == [
            ("a", "insert"),
            ("c", None),
        ]

    def test_a_changed_deletion_vector_is_the_difference_of_two(self) -> None:
        before, after = listed(FileKind.REMOVE, "a", 3, 1), listed(FileKind.ADD, "a", 3, 2)
        deletes, inserts = change_tasks([after, before])
        assert (deletes.change_type, deletes.only, deletes.without) == ("delete", after, before)
        assert (inserts.change_type, inserts.only, inserts.without) == ("insert", before, after)

    def test_a_first_deletion_vector_deletes_its_rows_only(self) -> None:
        before, after = listed(FileKind.REMOVE, "a", 3), listed(FileKind.ADD, "a", 3, 2)
        (deletes,) = change_tasks([before, after])
        assert (deletes.change_type, deletes.only, deletes.without) == ("delete", after, None)

    def test_rearranged_data_is_no_change(self) -> None:
        files = [
            listed(FileKind.REMOVE, "a", 1, data_change=False),
            listed(FileKind.ADD, "b", 1, data_change=False),
        ]
        assert list(change_tasks(files)) == []
        assert list(append_tasks(files, ignore_deletes=False, skip_change_commits=False)) == []

    def test_rearranged_files_are_rows_of_a_snapshot(self) -> None:
        assert len(list(snapshot_tasks([listed(FileKind.ADD, "b", 1, data_change=False)]))) == 1

    def test_a_stream_stops_at_a_delete_unless_told_otherwise(self) -> None:
        files = [listed(FileKind.ADD, "a", 1), listed(FileKind.REMOVE, "a", 2), listed(FileKind.ADD, "b", 3)]
        with pytest.raises(UnsupportedTable, match="version 2"):
            list(append_tasks(files, ignore_deletes=False, skip_change_commits=False))
        for options in (
            {"ignore_deletes": True, "skip_change_commits": False},
            {"ignore_deletes": False, "skip_change_commits": True},
        ):
            assert [task.file.id for task in append_tasks(files, **options)] == ["a", "b"]

    def test_packing_keeps_every_task_once_and_in_order(self) -> None:
        tasks = list(snapshot_tasks(listed(FileKind.ADD, str(i), 0) for i in range(100)))
        groups = pack(tasks, 20_000_000)
        assert [task for group in groups for task in group] == tasks
        assert 1 < len(groups) < 100
        assert pack([], None) == []


class TestOptions:
    PROFILE = '{"endpoint": "http://h/p/", "bearerToken": "secret"}'

    def test_names_are_taken_in_any_case(self) -> None:
        options = ReadOptions.parse(
            {"PROFILE": self.PROFILE, "path": "sh.are.schema.table", "VERSIONASOF": "3", "columns": "a, b"}
        )
        assert options.table == TableName("sh.are", "schema", "table")
        assert (options.version_as_of, options.columns) == (3, ("a", "b"))

    def test_the_token_is_not_shown(self) -> None:
        options = ReadOptions.parse({"profile": self.PROFILE, "path": "a.b.c"})
        assert "secret" not in repr(options)

    @pytest.mark.parametrize(
        "wrong",
        [
            {"path": "a.b.c"},
            {"profile": PROFILE, "path": "a.b"},
            {"profile": PROFILE, "path": "a.b.c", "versionAsOf": "new"},
            {
                "profile": PROFILE,
                "path": "a.b.c",
                "versionAsOf": "1",
                "timestampAsOf": "2024-01-01T00:00:00Z",
            },
            {"profile": PROFILE, "path": "a.b.c", "readChangeFeed": "yes"},
            {"profile": PROFILE, "path": "a.b.c", "columns": "id,id"},
            {"profile": PROFILE, "path": "a.b.c", "columns": "id,ID"},
            {"profile": PROFILE, "path": "a.b.c", "columns": "id,,n"},
            {"profile": PROFILE, "path": "a.b.c", "versionAsof1": "1"},
            {"profile": PROFILE, "path": "a.b.c", "maxFilesPerPage": "0"},
            {"profile": PROFILE, "path": "a.b.c", "startingVersion": "3", "endingVersion": "2"},
            {"profile": PROFILE, "path": "a.b.c", "startingVersion": "3", "startingTimestamp": "2024-01-01"},
            {"profile": PROFILE, "path": "a.b.c", "readChangeFeed": "true", "versionAsOf": "2"},
            {"profile": PROFILE, "path": "a.b.c", "readChangeFeed": "true", "predicateHints": "a = 1"},
            {"profile": PROFILE, "path": "other#a.b.c"},
        ],
    )
    def test_wrong_options_say_so(self, wrong: dict[str, str]) -> None:
        with pytest.raises(ValueError, match=r".+"):
            ReadOptions.parse(wrong)

    @pytest.mark.parametrize(
        ("given", "batch", "stream"),
        [
            ({}, None, None),
            ({"startingVersion": "1"}, "startingVersion needs readChangeFeed", None),
            ({"endingVersion": "1"}, "endingVersion needs readChangeFeed", None),
            ({"readChangeFeed": "true"}, "readChangeFeed needs startingVersion", None),
            ({"maxFilesPerTrigger": "1"}, "maxFilesPerTrigger is of streams", None),
            ({"ignoreDeletes": "true"}, "ignoreDeletes is of streams", None),
            ({"versionAsOf": "1"}, None, "versionAsOf is of batch reads"),
            ({"predicateHints": "a = 1"}, None, "predicateHints is of batch reads"),
            ({"expectedVersion": "1"}, None, "expectedVersion is of batch reads"),
            (
                {"endingTimestamp": "2024-01-01T00:00:00Z"},
                "needs readChangeFeed",
                "endingTimestamp is of batch",
            ),
        ],
    )
    def test_options_without_effect_say_so(
        self, given: dict[str, str], batch: str | None, stream: str | None
    ) -> None:
        options = ReadOptions.parse({"profile": self.PROFILE, "path": "a.b.c", **given})
        for check, said in ((options.check_batch, batch), (options.check_stream, stream)):
            if said is None:
                check()
                continue
            with pytest.raises(ValueError, match=said):
                check()

    def test_a_profile_without_a_token_says_so(self) -> None:
        with pytest.raises(ProfileError, match="bearerToken"):
            Profile.load('{"endpoint": "x"}')


@pytest.fixture
def answers() -> Iterator[Answers]:
    with listening() as mine:
        yield mine


class TestClient:
    def test_pages_are_followed_with_the_same_query(self, answers: Answers) -> None:
        answers.say(*HEAD, file_line("a"), {"endStreamAction": {"nextPageToken": "n", "refreshToken": "r"}})
        answers.say(*HEAD, file_line("b"), {"endStreamAction": {"nextPageToken": ""}})
        query = Query({"version": 1, "includeRefreshToken": True}, max_files=1)
        pages = list(answers.client().pages(query))
        assert [file.id for page in pages for file in page.files] == ["a", "b"]
        assert pages[0].refresh_token == "r"
        assert json.loads(answers.asked[1][1]) == {"version": 1, "pageToken": "n", "maxFiles": 1}

    def test_an_error_in_the_last_line_is_an_error(self, answers: Answers) -> None:
        for _ in range(3):
            answers.say(*HEAD, {"endStreamAction": {"errorMessage": "lost", "httpStatusErrorCode": 503}})
        with pytest.raises(HttpError, match="lost"):
            list(answers.client().pages(Query()))

    def test_an_announced_last_line_that_is_missing_is_asked_for_again(self, answers: Answers) -> None:
        announced = {"delta-sharing-capabilities": "responseformat=delta;includeendstreamaction=true"}
        answers.say(*HEAD, file_line("a"), **announced)
        answers.say(*HEAD, file_line("a"), file_line("b"), {"endStreamAction": {}}, **announced)
        (page,) = answers.client().pages(Query())
        assert len(page.files) == 2

    def test_a_cut_body_is_asked_for_again(self, answers: Answers) -> None:
        answers.say(*HEAD, **{"Content-Length": "1000"})
        answers.say(*HEAD, file_line("a"))
        (page,) = answers.client().pages(Query())
        assert len(page.files) == 1

    def test_a_refusal_is_not_repeated(self, answers: Answers) -> None:
        answers.say({"errorCode": "X", "message": "not yours"}, status=404)
        with pytest.raises(HttpError, match="not yours") as caught:
            answers.client().version()
        assert caught.value.status == 404
        assert len(answers.asked) == 1

    def test_a_busy_server_is_asked_again(self, answers: Answers) -> None:
        answers.say(status=429, **{"Retry-After": "1"})
        answers.say()
        assert answers.client().version() == 1

    def test_unknown_reader_features_are_refused_by_name(self, answers: Answers) -> None:
        protocol = {"protocol": {"deltaProtocol": {"minReaderVersion": 3, "readerFeatures": ["warpDrive"]}}}
        answers.say(protocol, {"metaData": {"deltaMetadata": {"schemaString": "{}"}}})
        with pytest.raises(UnsupportedTable, match="warpDrive"):
            list(answers.client().pages(Query()))

    def test_signed_urls_are_not_shown(self, answers: Answers) -> None:
        answers.say(*HEAD, file_line("a"))
        (page,) = answers.client().pages(Query())
        assert "secret" not in repr(page)
        answers.say(status=403)
        with pytest.raises(HttpError) as caught:
            Transport().fetch(f"{answers.url}/f?signature=secret")
        assert "secret" not in str(caught.value)


def test_a_removed_file_of_unknown_size_is_refused_with_its_reason() -> None:
    line = {"file": {"id": "f", "deltaSingleAction": {"remove": {"path": "http://h/f", "dataChange": True}}}}
    with pytest.raises(UnsupportedTable, match="does not say the size"):
        parse_file(line)


def test_a_ranged_file_reads_parquet_piece_by_piece() -> None:
    sink = io.BytesIO()
    pq.write_table(pa.table({"a": list(range(1000)), "b": ["x" * 100] * 1000}), sink, compression="none")
    data = sink.getvalue()
    asked = 0

    def read_range(start: int, length: int) -> bytes:
        nonlocal asked
        asked += length
        return data[start : start + length]

    file = pq.ParquetFile(pa.PythonFile(RangedFile(read_range, len(data)), mode="r"), pre_buffer=True)
    assert file.read(columns=["a"]).column("a").to_pylist() == list(range(1000))
    assert asked < 2 * len(data)
