"""One data file as Arrow batches in the table's own columns.

Comes in: a Parquet file (bytes or a ranged file), the columns wanted, the rows that are gone. Goes out:
record batches of exactly the wanted Arrow schema: physical columns found by name or field id, missing
ones null, narrower types widened, partition columns taken from partitionValues even where the file holds
them too.
"""

from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyspark.sql import types as t

from gateway.spark.actions import TableHead, UnsupportedTable
from gateway.spark.schema import (
    arrow_field,
    arrow_type,
    delta_schema,
    field_id,
    partition_scalar,
    physical_name,
)

BATCH_ROWS = 16_384
_FILE_FIELD_ID = b"PARQUET:field_id"


@dataclass(frozen=True)
class TableShape:
    """How logical columns are found in files: the log's schema, partition columns and column mapping."""

    schema: t.StructType
    partition_columns: frozenset[str]
    by_field_id: bool

    @classmethod
    def of(cls, head: TableHead) -> "TableShape":
        """The shape that a head describes."""
        return cls(delta_schema(head), frozenset(head.partition_columns), head.column_mapping_mode == "id")

    def field(self, name: str) -> t.StructField | None:
        """The log's field for a logical column."""
        return next((field for field in self.schema.fields if field.name == name), None)


class FileDecoder:
    """Reads the `columns` of files of one table.

    `constants` are columns of the answer that no file holds, such as `_commit_version`: name to Arrow scalar.
    """

    def __init__(self, shape: TableShape, columns: t.StructType) -> None:
        self._shape = shape
        self._columns = columns
        self.arrow_schema = pa.schema([arrow_field(field) for field in columns.fields])

    def batches(
        self,
        source: Any,
        partition_values: Mapping[str, str | None],
        *,
        constants: Mapping[str, pa.Scalar] | None = None,
        rows_gone: Sequence[int] = (),
        rows_kept: Sequence[int] | None = None,
    ) -> Iterator[pa.RecordBatch]:
        """All live rows of a file, in its order.

        `rows_gone`: ascending row indexes to leave out. `rows_kept`: if given, only these (ascending).
        """
        with pq.ParquetFile(source, coerce_int96_timestamp_unit="us", pre_buffer=True) as file:
            plan = self._plan(file.schema_arrow, partition_values, constants or {})
            names = [column.file_name for column in plan if isinstance(column, _FromFile)]
            first_row = 0
            for rows, batch in _file_batches(file, names):
                chosen = _choose(first_row, rows, rows_gone, rows_kept)
                first_row += rows
                if chosen is None or len(chosen):
                    yield self._assemble(plan, batch, rows, chosen)

    def _plan(
        self, file: pa.Schema, partition_values: Mapping[str, str | None], constants: Mapping[str, pa.Scalar]
    ) -> "list[_FromFile | _Constant]":
        return [self._column(file, field, partition_values, constants) for field in self._columns.fields]

    def _column(
        self,
        file: pa.Schema,
        wanted: t.StructField,
        partition_values: Mapping[str, str | None],
        constants: Mapping[str, pa.Scalar],
    ) -> "_FromFile | _Constant":
        field = self._shape.field(wanted.name)
        if field is None and wanted.name in constants:
            return _Constant(constants[wanted.name])
        if field is not None and field.name in self._shape.partition_columns:
            return _Constant(partition_scalar(partition_values.get(physical_name(field)), wanted.dataType))
        found = find_field(list(file), field or wanted, by_field_id=self._shape.by_field_id)
        if found is None:
            return _Constant(pa.scalar(None, arrow_type(wanted.dataType)))
        return _FromFile(file.field(found).name, field or wanted, wanted.dataType)

    def _assemble(
        self, plan: "list[_FromFile | _Constant]", batch: Any, rows: int, chosen: Any
    ) -> pa.RecordBatch:
        count = rows if chosen is None else len(chosen)
        arrays = []
        for column in plan:
            if isinstance(column, _Constant):
                arrays.append(pa.repeat(column.value, count))
                continue
            array = batch.column(batch.schema.get_field_index(column.file_name))
            array = array if chosen is None else array.take(chosen)
            arrays.append(
                conform(array, column.field.dataType, column.wanted, by_field_id=self._shape.by_field_id)
            )
        return pa.RecordBatch.from_arrays(arrays, schema=self.arrow_schema)


@dataclass(frozen=True)
class _FromFile:
    file_name: str
    field: t.StructField
    wanted: t.DataType


@dataclass(frozen=True)
class _Constant:
    value: pa.Scalar


def find_field(fields: Sequence[pa.Field], wanted: t.StructField, *, by_field_id: bool) -> int | None:
    """The index of a logical field among a file's fields: by field id, by name, by name in any case."""
    if by_field_id and any(_FILE_FIELD_ID in (field.metadata or {}) for field in fields):
        text = str(field_id(wanted)).encode()
        return next((i for i, f in enumerate(fields) if (f.metadata or {}).get(_FILE_FIELD_ID) == text), None)
    name = physical_name(wanted)
    names = [field.name for field in fields]
    if name in names:
        return names.index(name)
    folded = [other.lower() for other in names]
    return folded.index(name.lower()) if name.lower() in folded else None


def conform(array: pa.Array, logged: t.DataType, wanted: t.DataType, *, by_field_id: bool) -> pa.Array:
    """An array of a file as the type that is wanted. `logged` is the same type with the log's metadata."""
    if isinstance(array, pa.ExtensionArray):
        array = array.storage
    if isinstance(wanted, t.StructType):
        assert isinstance(logged, t.StructType)
        return _conform_struct(array, logged, wanted, by_field_id=by_field_id)
    if isinstance(wanted, t.ArrayType):
        assert isinstance(logged, t.ArrayType)
        return _conform_list(array, logged, wanted, by_field_id=by_field_id)
    if isinstance(wanted, t.MapType):
        assert isinstance(logged, t.MapType)
        return _conform_map(array, logged, wanted, by_field_id=by_field_id)
    if isinstance(wanted, t.VariantType):
        return _conform_variant(array)
    if isinstance(wanted, t.NullType):
        return pa.nulls(len(array))
    target = arrow_type(wanted)
    if array.type == target:
        return array
    if pa.types.is_dictionary(array.type):
        array = array.dictionary_decode()
    return array.cast(target)


def _conform_struct(
    array: pa.Array, logged: t.StructType, wanted: t.StructType, *, by_field_id: bool
) -> pa.Array:
    fields = [array.type.field(index) for index in range(array.type.num_fields)]
    children = []
    for field in wanted.fields:
        source = next((one for one in logged.fields if one.name == field.name), field)
        index = find_field(fields, source, by_field_id=by_field_id)
        if index is None:
            children.append(pa.nulls(len(array), arrow_type(field.dataType)))
            continue
        children.append(conform(array.field(index), source.dataType, field.dataType, by_field_id=by_field_id))
    target = [arrow_field(field) for field in wanted.fields]
    if not target:
        return pa.nulls(len(array), pa.struct([]))
    return pa.StructArray.from_arrays(children, fields=target, mask=array.is_null())


def _conform_list(
    array: pa.Array, logged: t.ArrayType, wanted: t.ArrayType, *, by_field_id: bool
) -> pa.Array:
    elements = conform(array.values, logged.elementType, wanted.elementType, by_field_id=by_field_id)
    return _nested(array, arrow_type(wanted), [elements])


def _conform_map(array: pa.Array, logged: t.MapType, wanted: t.MapType, *, by_field_id: bool) -> pa.Array:
    keys = conform(array.keys, logged.keyType, wanted.keyType, by_field_id=by_field_id)
    items = conform(array.items, logged.valueType, wanted.valueType, by_field_id=by_field_id)
    target = arrow_type(wanted)
    entries = pa.StructArray.from_arrays([keys, items], fields=[target.key_field, target.item_field])
    return _nested(array, target, [entries])


def _nested(array: pa.Array, target: pa.DataType, children: list[pa.Array]) -> pa.Array:
    """The same lists (validity, offsets and slice) over other children: nothing is copied."""
    validity, offsets = array.buffers()[:2]
    return pa.Array.from_buffers(
        target, len(array), [validity, offsets], array.null_count, array.offset, children
    )


def _conform_variant(array: pa.Array) -> pa.Array:
    # The feature only allows shredding: many tables that have it hold whole values.
    if any(field.name == "typed_value" for field in array.type):
        raise UnsupportedTable("a file has shredded variants, which cannot be put together here")
    target = arrow_type(t.VariantType())
    children = [array.field(name).cast(pa.binary()) for name in ("value", "metadata")]
    return pa.StructArray.from_arrays(children, fields=list(target), mask=array.is_null())


def _file_batches(file: pq.ParquetFile, names: list[str]) -> Iterator[tuple[int, pa.RecordBatch | None]]:
    if not names:
        yield file.metadata.num_rows, None
        return
    for batch in file.iter_batches(batch_size=BATCH_ROWS, columns=names):
        yield batch.num_rows, batch


def _choose(first_row: int, rows: int, gone: Sequence[int], kept: Sequence[int] | None) -> Any:
    """The rows of a batch that are wanted, as indexes within it; None for all."""
    if kept is not None:
        return pa.array([row - first_row for row in _between(kept, first_row, rows)], pa.int64())
    here = _between(gone, first_row, rows)
    if not len(here):
        return None
    alive = bytearray(b"\x01" * rows)
    for row in here:
        alive[row - first_row] = 0
    return pc.indices_nonzero(pa.Array.from_buffers(pa.uint8(), rows, [None, pa.py_buffer(bytes(alive))]))


def _between(rows: Sequence[int], first_row: int, count: int) -> Sequence[int]:
    return rows[bisect_left(rows, first_row) : bisect_left(rows, first_row + count)]
