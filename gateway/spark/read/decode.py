"""Decodes one data file as Arrow batches in the columns of the table.

In: a Parquet file (bytes or a ranged file), the requested columns, the deleted rows. Out: record batches
with exactly the requested Arrow schema: physical columns are found by name or field id, missing ones are
null, narrower types are widened, old calendars are rebased, and partition columns are taken from
partitionValues even if the file holds them too. Memory holds one batch and the part of a row group that it
comes from.
"""

from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyspark.sql import types as t

from gateway.client.actions import TableHead, UnsupportedTable
from gateway.spark.read.calendars import FileCalendar
from gateway.spark.read.column_chunks import ColumnChunkFile, chunk_ranges
from gateway.spark.read.plain_arrays import plain_array, with_children, with_entries
from gateway.spark.read.row_groups import CheckedColumn, statistics_json
from gateway.spark.read.schema import (
    CHANGE_TYPE,
    arrow_field,
    arrow_type,
    delta_schema,
    field_id,
    partition_scalar,
    physical_name,
)
from gateway.spark.read.variants import whole_variants
from gateway.spark.read.zones import local_zone

BATCH_ROWS = 16_384
# A batch holds fewer rows where rows are large. A small row group is fetched at once, a large one by pieces.
BATCH_BYTES = 16 << 20
_FETCHED_BYTES = 32 << 20
_LEAST_PIECE_BYTES = 64 << 10
_FEW_COLUMNS_PART = 4
_FILE_FIELD_ID = b"PARQUET:field_id"


@dataclass(frozen=True)
class TableShape:
    """The mapping of logical columns to files: the log's schema, partition columns and column mapping."""

    schema: t.StructType
    partition_columns: frozenset[str]
    column_mapping_mode: str

    @classmethod
    def of(cls, head: TableHead) -> "TableShape":
        return cls(delta_schema(head), frozenset(head.partition_columns), head.column_mapping_mode)

    @property
    def by_field_id(self) -> bool:
        """Whether files are read by field ids."""
        return self.column_mapping_mode == "id"

    def field(self, name: str) -> t.StructField | None:
        """Return the log's field of a logical column."""
        return self._by_name.get(name)

    @cached_property
    def _by_name(self) -> dict[str, t.StructField]:
        return {field.name: field for field in reversed(self.schema.fields)}

    def partition_text(self, field: t.StructField, values: Mapping[str, str | None]) -> str | None:
        """Return the value of a partition column in `values`, which are by the names of the log."""
        name = physical_name(field)
        if self.column_mapping_mode == "none" and name not in values:
            # Spark looks for the name that an earlier mapping has left behind, Delta Kernel for the column's.
            name = field.name
        return values.get(name)


class FileDecoder:
    """Reads the `columns` of files of one table.

    `constants` are columns of the answer that no file holds, such as `_commit_version`: name to Arrow scalar.
    `zone`: the session's time zone, for values without a zone. `row_filter` leaves out row groups in which no
    row can fulfil the conditions of a read.
    """

    def __init__(
        self,
        shape: TableShape,
        columns: t.StructType,
        *,
        zone: str = "UTC",
        row_filter: Any = None,
    ) -> None:
        self._shape = shape
        self._columns = columns
        self._zone = zone
        self._filter = row_filter
        self.arrow_schema = pa.schema([arrow_field(field) for field in columns.fields])

    def data_columns(self) -> int:
        """Return how many of the columns may be in data files: the others come from the answer."""
        fields = ((column.name, self._shape.field(column.name)) for column in self._columns.fields)
        return sum(
            name == CHANGE_TYPE if field is None else name not in self._shape.partition_columns
            for name, field in fields
        )

    def reads_few_columns(self) -> bool:
        """Return whether the columns are a small part of the table's."""
        return self.data_columns() * _FEW_COLUMNS_PART <= len(self._shape.schema.fields)

    def batches(
        self,
        source: Any,
        partition_values: Mapping[str, str | None] | None,
        *,
        constants: Mapping[str, pa.Scalar] | None = None,
        rows_deleted: Sequence[int] = (),
        rows_kept: Sequence[int] | None = None,
    ) -> Iterator[pa.RecordBatch]:
        """Yield the live rows of a file, in its order: all of them without conditions.

        `rows_deleted`: ascending row indexes to leave out. `rows_kept`: if given, only these (ascending).
        """
        with pq.ParquetFile(source, coerce_int96_timestamp_unit="us", pre_buffer=True) as file:
            plan = self._plan(file.schema_arrow, partition_values, constants or {})
            # Java's default zone, which Spark uses for writers that name none.
            calendar = FileCalendar.of(file.metadata.metadata, local_zone())
            reading = _Conform(self._shape.by_field_id, calendar)
            names = [column.file_name for column in plan if isinstance(column, _FromFile)]
            checked = self._checked_columns(file.schema_arrow)

            def is_read(first_row: int, group: pq.RowGroupMetaData) -> bool:
                here = first_row, group.num_rows
                if rows_kept is not None and not _between(rows_kept, *here):
                    return False
                if len(_between(rows_deleted, *here)) == group.num_rows:
                    return False
                if self._filter is None or not checked:
                    return True
                stated = statistics_json(group, checked, calendar, file.metadata.created_by or "")
                may_match: bool = self._filter.may_match(stated)
                return may_match

            for first_row, rows, batch in _file_batches(source, file, names, is_read):
                chosen = _choose(first_row, rows, rows_deleted, rows_kept)
                if chosen is None or len(chosen):
                    yield self._assemble(plan, batch, rows, chosen, reading)

    def _checked_columns(self, file: pa.Schema) -> dict[str, CheckedColumn]:
        """Return the columns of the conditions that have statistics in a file, by their paths in it."""
        if self._filter is None:
            return {}
        columns, names = {}, FieldIndex(file)
        for path in self._filter.columns:
            field = next(
                (candidate for candidate in self._shape.schema.fields if [physical_name(candidate)] == path),
                None,
            )
            if field is None or field.name in self._shape.partition_columns:
                continue
            index = names.find(field, by_field_id=self._shape.by_field_id)
            # The path of a name with dots may be that of a nested field as well.
            if index is not None and "." not in file.field(index).name:
                in_file = file.field(index)
                columns[in_file.name] = CheckedColumn(path[0], in_file.type, field.dataType)
        return columns

    def constant_batches(
        self, rows: int, partition_values: Mapping[str, str | None] | None, constants: Mapping[str, pa.Scalar]
    ) -> Iterator[pa.RecordBatch]:
        """Yield rows of which no column is in a data file, without opening the file."""
        plan = self._plan(pa.schema([]), partition_values, constants)
        values = [column.value for column in plan if isinstance(column, _Constant)]
        for start in range(0, rows, BATCH_ROWS):
            arrays = [pa.repeat(value, min(BATCH_ROWS, rows - start)) for value in values]
            yield pa.RecordBatch.from_arrays(arrays, schema=self.arrow_schema)

    def _plan(
        self,
        file: pa.Schema,
        partition_values: Mapping[str, str | None] | None,
        constants: Mapping[str, pa.Scalar],
    ) -> "list[_FromFile | _Constant]":
        names = FieldIndex(file)
        return [self._column(names, field, partition_values, constants) for field in self._columns.fields]

    def _column(
        self,
        file: "FieldIndex",
        wanted: t.StructField,
        partition_values: Mapping[str, str | None] | None,
        constants: Mapping[str, pa.Scalar],
    ) -> "_FromFile | _Constant":
        field = self._shape.field(wanted.name)
        if field is None:
            return self._change_column(file, wanted, constants)
        if field.name in self._shape.partition_columns:
            if partition_values is None:
                raise UnsupportedTable("the table's log does not say the partition values of a removed file")
            text = self._shape.partition_text(field, partition_values)
            return _Constant(partition_scalar(text, wanted.dataType, self._zone))
        source = file.find(field, by_field_id=self._shape.by_field_id)
        if source is None:
            return _Constant(pa.scalar(None, arrow_type(wanted.dataType)))
        return _FromFile(file.names[source], field, wanted.dataType)

    def _change_column(
        self, file: "FieldIndex", wanted: t.StructField, constants: Mapping[str, pa.Scalar]
    ) -> "_FromFile | _Constant":
        """Return a column that the table does not have: from the answer, or `_change_type` of a cdc file."""
        if wanted.name in constants:
            return _Constant(constants[wanted.name])
        # It has no field id, even if the table's columns are mapped by id.
        source = file.find(wanted, by_field_id=False)
        if wanted.name != CHANGE_TYPE or source is None:
            raise UnsupportedTable(f"neither the table nor its files have a column {wanted.name}")
        return _FromFile(file.names[source], wanted, wanted.dataType)

    def _assemble(
        self, plan: "list[_FromFile | _Constant]", batch: Any, rows: int, chosen: Any, reading: "_Conform"
    ) -> pa.RecordBatch:
        count = rows if chosen is None else len(chosen)
        arrays = []
        for column in plan:
            if isinstance(column, _Constant):
                arrays.append(pa.repeat(column.value, count))
                continue
            try:
                # By the name, since the index of one that the file has twice is that of the last column.
                array = plain_array(batch.column(column.file_name))
                array = array if chosen is None else array.take(chosen)
                arrays.append(reading.conform(array, column.field.dataType, column.wanted))
            except (KeyError, pa.ArrowException):
                # Its text has the value.
                kind = column.wanted.simpleString()
                raise UnsupportedTable(f"column {column.field.name} cannot be read as {kind}") from None
        return pa.RecordBatch.from_arrays(arrays, schema=self.arrow_schema)


@dataclass(frozen=True)
class _FromFile:
    file_name: str
    field: t.StructField
    wanted: t.DataType


@dataclass(frozen=True)
class _Constant:
    value: pa.Scalar


class FieldIndex:
    """The fields of a file, or of a struct in it, by field ids, names, and names in any case."""

    def __init__(self, fields: Iterable[pa.Field]) -> None:
        # The first one of a name is the last one that a dictionary gets.
        numbered = [*enumerate(fields)][::-1]
        ids = ((index, (field.metadata or {}).get(_FILE_FIELD_ID)) for index, field in numbered)
        self.names = {index: field.name for index, field in numbered}
        self._by_id = {text: index for index, text in ids if text is not None}
        self._by_name = {name: index for index, name in self.names.items()}
        self._by_folded = {name.lower(): index for index, name in self.names.items()}

    def find(self, wanted: t.StructField, *, by_field_id: bool) -> int | None:
        """Return the index of a logical field."""
        if by_field_id and self._by_id:
            return self._by_id.get(str(field_id(wanted)).encode())
        name = physical_name(wanted)
        index = self._by_name.get(name)
        return self._by_folded.get(name.lower()) if index is None else index


@dataclass(frozen=True)
class _Conform:
    """Converts plain arrays of one file to the requested types. `logged` types have the log's metadata."""

    by_field_id: bool
    calendar: FileCalendar

    def conform(self, array: pa.Array, logged: t.DataType, wanted: t.DataType) -> pa.Array:
        """Convert an array of a file to the requested type."""
        if pa.types.is_null(array.type):
            return pa.nulls(len(array), arrow_type(wanted))
        if isinstance(wanted, t.StructType):
            assert isinstance(logged, t.StructType)
            return self._struct(array, logged, wanted)
        if isinstance(wanted, t.ArrayType):
            assert isinstance(logged, t.ArrayType)
            elements = self.conform(array.values, logged.elementType, wanted.elementType)
            return with_children(array, arrow_type(wanted), [elements])
        if isinstance(wanted, t.MapType):
            assert isinstance(logged, t.MapType)
            return self._map(array, logged, wanted)
        if isinstance(wanted, t.VariantType):
            return _conform_variant(array)
        if isinstance(wanted, t.NullType):
            return pa.nulls(len(array))
        return self._leaf(array, wanted)

    def _leaf(self, array: pa.Array, wanted: t.DataType) -> pa.Array:
        target = arrow_type(wanted)
        if pa.types.is_dictionary(array.type):
            array = array.dictionary_decode()
        if pa.types.is_date32(array.type):
            array = self.calendar.dates(array)
        elif pa.types.is_timestamp(array.type) and isinstance(wanted, t.TimestampType):
            array = self.calendar.times(array.cast(pa.timestamp("us", array.type.tz), safe=False))
        # Spark takes texts as they are: those of some writers are no UTF-8.
        return array if array.type == target else array.cast(target, safe=not pa.types.is_binary(array.type))

    def _struct(self, array: pa.Array, logged: t.StructType, wanted: t.StructType) -> pa.Array:
        fields = FieldIndex(array.type)
        children = []
        for field in wanted.fields:
            source = next((candidate for candidate in logged.fields if candidate.name == field.name), field)
            index = fields.find(source, by_field_id=self.by_field_id)
            if index is None:
                children.append(pa.nulls(len(array), arrow_type(field.dataType)))
                continue
            children.append(self.conform(array.field(index), source.dataType, field.dataType))
        target = [arrow_field(field) for field in wanted.fields]
        if not target:
            return pa.nulls(len(array), pa.struct([]))
        return pa.StructArray.from_arrays(children, fields=target, mask=array.is_null())

    def _map(self, array: pa.Array, logged: t.MapType, wanted: t.MapType) -> pa.Array:
        keys = self.conform(array.keys, logged.keyType, wanted.keyType)
        items = self.conform(array.items, logged.valueType, wanted.valueType)
        return with_entries(array, arrow_type(wanted), keys, items)


def _conform_variant(array: pa.Array) -> pa.Array:
    target = arrow_type(t.VariantType())
    # The feature only allows shredding: many tables that have it hold whole values.
    if any(field.name == "typed_value" for field in array.type):
        children = list(whole_variants(array))
    else:
        children = [array.field(name).cast(pa.binary()) for name in ("value", "metadata")]
    return pa.StructArray.from_arrays(children, fields=list(target), mask=array.is_null())


def _file_batches(
    source: Any,
    file: pq.ParquetFile,
    names: list[str],
    is_read: Callable[[int, pq.RowGroupMetaData], bool],
) -> Iterator[tuple[int, int, pa.RecordBatch | None]]:
    """Yield the batches of a file with their first row and number of rows.

    `is_read` selects row groups by their first row and metadata. Memory never holds more than one.
    """
    if not names:
        rows = file.metadata.num_rows
        yield from ((first, min(BATCH_ROWS, rows - first), None) for first in range(0, rows, BATCH_ROWS))
        return
    wanted = set(names)
    by_pieces: pq.ParquetFile | None = None
    end = 0
    for index in range(file.metadata.num_row_groups):
        group = file.metadata.row_group(index)
        first_row, end = end, end + group.num_rows
        if not is_read(first_row, group):
            continue
        fetched_bytes, columns, batch_rows = _size_of(group, wanted)
        reading = file
        if fetched_bytes > _FETCHED_BYTES:
            by_pieces = by_pieces or pq.ParquetFile(
                source,
                metadata=file.metadata,
                coerce_int96_timestamp_unit="us",
                pre_buffer=False,
                buffer_size=max(_FETCHED_BYTES // columns, _LEAST_PIECE_BYTES),
            )
            reading = by_pieces
        elif isinstance(source, ColumnChunkFile):
            source.fetch(chunk_ranges(group, lambda path: _top(path, wanted)))
        for batch in reading.iter_batches(batch_size=batch_rows, row_groups=[index], columns=names):
            yield first_row, batch.num_rows, batch
            first_row += batch.num_rows


def _size_of(group: pq.RowGroupMetaData, names: set[str]) -> tuple[int, int, int]:
    """Return the compressed bytes and the number of some columns of a row group, and the rows of a batch."""
    chunks = [group.column(index) for index in range(group.num_columns)]
    chunks = [chunk for chunk in chunks if _top(chunk.path_in_schema, names)]
    decoded = sum(chunk.total_uncompressed_size for chunk in chunks)
    row_bytes = max(decoded // max(group.num_rows, 1), 1)
    fetched = sum(chunk.total_compressed_size for chunk in chunks)
    return fetched, max(len(chunks), 1), max(min(BATCH_ROWS, BATCH_BYTES // row_bytes), 1)


def _top(path: str, names: set[str]) -> bool:
    """Return whether a leaf's path starts with one of the names, which may contain dots."""
    return path in names or any(path[:at] in names for at, char in enumerate(path) if char == ".")


def _choose(first_row: int, rows: int, deleted: Sequence[int], kept: Sequence[int] | None) -> Any:
    """Return the indexes of the selected rows of a batch; None for all."""
    if kept is not None:
        return pa.array([row - first_row for row in _between(kept, first_row, rows)], pa.int64())
    here = _between(deleted, first_row, rows)
    if not len(here):
        return None
    alive = bytearray(b"\x01" * rows)
    for row in here:
        alive[row - first_row] = 0
    return pc.indices_nonzero(pa.Array.from_buffers(pa.uint8(), rows, [None, pa.py_buffer(bytes(alive))]))


def _between(rows: Sequence[int], first_row: int, count: int) -> Sequence[int]:
    return rows[bisect_left(rows, first_row) : bisect_left(rows, first_row + count)]
