"""Reads one partition in a task: fetches files ahead of the one that is decoded.

In: a partition, and the requested columns. Out: Arrow batches with the live or changed rows of its files, in
order. Memory holds the file that is decoded and at most `_AHEAD_BYTES` of following ones.
"""

from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from functools import partial
from types import MappingProxyType
from typing import Any
from urllib.parse import unquote

import pyarrow as pa
from pyspark.sql import types as t
from pyspark.sql.datasource import InputPartition

from gateway.client.actions import DataFile, TableHead, UnsupportedTable
from gateway.client.files import FileFetcher, Origin, page_again
from gateway.spark.read.column_chunks import CONNECTIONS, ColumnChunkFile, connections
from gateway.spark.read.decode import FileDecoder, TableShape
from gateway.spark.read.ranges import range_again
from gateway.spark.read.row_groups import row_group_filter
from gateway.spark.read.tasks import ReadTask, appended_tasks, change_tasks, snapshot_tasks, with_version
from gateway.spark.read.worker_process import prepare_next_task
from gateway.spark.read.zones import session_zone

FILE_NAME_FIELD = t.StructField("_file_name", t.StringType())
_AHEAD_BYTES = 32 << 20
# Up to this size a file is fetched by one request.
WHOLE_FILE_BYTES = 16 << 20
# The same where few of its columns are read: their ranges cost two more round trips.
_WHOLE_FILE_OF_FEW_COLUMNS_BYTES = 2 << 20


@dataclass
class SharePartition(InputPartition):
    """The input of one task. What is equal for all tasks, such as the schema, is not part of it."""

    origin: Origin
    tasks: tuple[ReadTask, ...]


@dataclass
class PagePartition(InputPartition):
    """The input of one task: files of one page of a listing, which the task asks for again.

    The page has a number and a mark of its files, of which those from `first` to before `last` are read.
    """

    origin: Origin
    number: int
    mark: str
    first: int
    last: int
    inserted: tuple[int, int | None] | None = None
    """The version and the time of inserts that these files are in change data."""

    def listed(self) -> SharePartition:
        """Return the files, listed again."""
        page = page_again(self.origin, self.number, self.mark)
        files = page.parsed(self.first, self.last)
        if self.inserted is None:
            return SharePartition(self.origin, tuple(snapshot_tasks(files)))
        files = with_version(files, *self.inserted)
        return SharePartition(self.origin, tuple(snapshot_tasks(files, "insert")))


@dataclass
class RangePartition(InputPartition):
    """The input of one task: files of some versions, which the task lists again.

    The versions have a mark. Of one version with many files, a task reads those of one bucket.
    """

    origin: Origin
    mark: int
    bucket: int
    buckets: int

    def listed(self) -> SharePartition:
        """Return the files, listed again."""
        files = range_again(self.origin, self.mark, self.bucket, self.buckets)
        tasks = change_tasks(files) if self.origin.query.changes else appended_tasks(files)
        return SharePartition(self.origin, tuple(tasks))


@dataclass(frozen=True)
class _Opened:
    """What a task needs of the store: the file, its deleted rows, and the only rows to read if not None."""

    source: Any
    deleted: Sequence[int]
    kept: Sequence[int] | None


def read_partition(
    partition: InputPartition | None,
    schema: t.StructType,
    loaded: TableHead,
    hints: Mapping[str, Any] = MappingProxyType({}),
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of one group of files of a table, in the columns of `schema`."""
    try:
        if isinstance(partition, (PagePartition, RangePartition)):
            partition = partition.listed()
        if isinstance(partition, SharePartition):
            row_filter = row_group_filter(loaded, hints)
            decoder = FileDecoder(TableShape.of(loaded), schema, zone=session_zone(), row_filter=row_filter)
            yield from _read(partition, decoder)
    finally:
        prepare_next_task()


def _read(partition: SharePartition, decoder: FileDecoder) -> Iterator[pa.RecordBatch]:
    tasks = []
    for task in partition.tasks:
        rows = task.file.live_rows if task.only is None and decoder.data_columns() == 0 else None
        if rows is None:
            tasks.append(task)
        else:
            yield from decoder.constant_batches(rows, task.file.partition_values, _constants(task))
    fetcher = FileFetcher(partition.origin, [owner for task in tasks for owner in task.owners])
    for task, opened in _fetched_ahead(fetcher, tasks, few_columns=decoder.reads_few_columns()):
        if opened is not None:
            try:
                yield from decoder.batches(
                    opened.source,
                    task.file.partition_values,
                    constants=_constants(task),
                    rows_deleted=opened.deleted,
                    rows_kept=opened.kept,
                )
            except UnsupportedTable as error:
                raise UnsupportedTable(f"{error} (file {_file_name(task.file)})") from error


def _fetched_ahead(
    fetcher: FileFetcher, tasks: Sequence[ReadTask], *, few_columns: bool
) -> Iterator[tuple[ReadTask, _Opened | None]]:
    """Yield the tasks in order with what was fetched of them, while the following ones are fetched."""
    following = deque(tasks)
    ahead: deque[tuple[ReadTask, Future[_Opened | None]]] = deque()
    try:
        while following or ahead:
            while following and (not ahead or _has_room(ahead, following[0])):
                task = following.popleft()
                ahead.append((task, connections().submit(_open, fetcher, task, few_columns=few_columns)))
            task, future = ahead.popleft()
            yield task, future.result()
    finally:
        for _, future in ahead:
            future.cancel()


def _has_room(ahead: Sequence[tuple[ReadTask, Any]], task: ReadTask) -> bool:
    held = sum(_held_bytes(batch) for batch, _ in ahead)
    return len(ahead) < CONNECTIONS and held + _held_bytes(task) <= _AHEAD_BYTES


def _held_bytes(task: ReadTask) -> int:
    """Return the memory of a fetched file: a larger one is fetched when it is decoded."""
    return task.file.size_bytes if task.file.size_bytes <= WHOLE_FILE_BYTES else 0


def _open(fetcher: FileFetcher, task: ReadTask, *, few_columns: bool) -> _Opened | None:
    """Fetch a small file, and the deletion vectors. None if no row is left to read."""
    kept = fetcher.vector_rows(task.only) if task.only else None
    deleted = fetcher.vector_rows(task.without) if task.without else []
    if kept is not None:
        dropped = set(deleted)
        kept = [row for row in kept if row not in dropped]
        if not kept:
            return None
    return _Opened(parquet_source(fetcher, task.file, few_columns=few_columns), deleted, kept)


def parquet_source(fetcher: FileFetcher, file: DataFile, *, few_columns: bool = False) -> Any:
    """Return a Parquet source: the whole file in memory if it is small, else a file that reads ranges."""
    if file.size_bytes <= (_WHOLE_FILE_OF_FEW_COLUMNS_BYTES if few_columns else WHOLE_FILE_BYTES):
        return pa.BufferReader(fetcher.whole(file))
    return ColumnChunkFile(partial(fetcher.range, file), file.size_bytes, connections())


def _constants(task: ReadTask) -> dict[str, pa.Scalar]:
    """Return the columns that come from the listing. A cdc file has its own `_change_type`."""
    file = task.file
    constants = {
        "_commit_version": pa.scalar(file.version, pa.int64()),
        "_commit_timestamp": pa.scalar(
            None if file.timestamp_ms is None else file.timestamp_ms * 1000, pa.timestamp("us", tz="UTC")
        ),
        FILE_NAME_FIELD.name: pa.scalar(_file_name(file), pa.string()),
    }
    if task.change_type is not None:
        constants["_change_type"] = pa.scalar(task.change_type, pa.string())
    return constants


def _file_name(file: DataFile) -> str:
    """Return the name of a data file, without its directory and the signature of its URL."""
    return unquote(file.url.partition("?")[0].rpartition("/")[2])
