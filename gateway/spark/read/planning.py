"""Plans a read: lists the files of a version, or of a range of versions, and packs them into partitions.

In: options, and the table's head at the time when the DataFrame or stream was made. Out: partitions that
hold everything a task needs. The driver lists; tasks fetch and decode. The listed files have the version
and the columns that were loaded, or the read fails.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any
from urllib.parse import unquote

import pyarrow as pa
from pyspark.sql import types as t
from pyspark.sql.datasource import InputPartition

from gateway.spark.read.actions import DataFile, TableHead, UnsupportedTable
from gateway.spark.read.client import Page, Query, ShareClient
from gateway.spark.read.decode import FileDecoder, TableShape
from gateway.spark.read.evolution import check_change_data, check_dataframe
from gateway.spark.read.fetch import FileFetcher, Origin
from gateway.spark.read.options import ReadOptions
from gateway.spark.read.tasks import ReadTask, change_tasks, pack, snapshot_tasks
from gateway.spark.read.transport import HttpError
from gateway.spark.read.zones import session_zone

FILE_NAME_FIELD = t.StructField("_file_name", t.StringType())


@dataclass
class SharePartition(InputPartition):
    """The input of one task."""

    origin: Origin
    shape: TableShape
    tasks: tuple[ReadTask, ...]


@dataclass(frozen=True)
class Listing:
    """The listing of a whole answer, over all pages."""

    query: Query
    head: TableHead
    files: tuple[DataFile, ...]
    later_heads: tuple[TableHead, ...] = ()
    refresh_token: str | None = None

    @property
    def heads(self) -> tuple[TableHead, ...]:
        """Return all heads of the answer."""
        return (self.head, *self.later_heads)


def list_all(client: ShareClient, query: Query) -> Listing:
    """List every page."""
    return _listing(query, list(client.pages(query)))


def list_version(options: ReadOptions, version: int) -> Listing:
    """List the files of a version (history sharing)."""
    return list_all(options.client(), Query({"version": version}, max_files=options.max_files_per_page))


def plan_snapshot(options: ReadOptions, loaded: TableHead) -> list[InputPartition]:
    """Plan a read of the version that was loaded.

    Raises SchemaChanged when only a later version can be had, and its columns do not hold the loaded ones.
    """
    listing = _list_loaded(options, loaded)
    if options.expected_version is not None and listing.head.version != options.expected_version:
        raise UnsupportedTable(
            f"the server answered version {listing.head.version}, not {options.expected_version}"
        )
    check_dataframe(loaded, listing.head)
    return partitions_of(options, listing, TableShape.of(listing.head), list(snapshot_tasks(listing.files)))


def plan_changes(options: ReadOptions, loaded: TableHead) -> list[InputPartition]:
    """Plan a read of the change data of a range, which ends at the loaded version at the latest."""
    versions = options.changes()
    if not {"endingVersion", "endingTimestamp"} & versions.keys() and loaded.version is not None:
        versions["endingVersion"] = loaded.version
    listing = list_changes(options, versions)
    for head in listing.heads:
        check_change_data(loaded, head)
    return partitions_of(options, listing, TableShape.of(loaded), list(change_tasks(listing.files)))


def list_changes(options: ReadOptions, versions: dict[str, Any]) -> Listing:
    """List the change data of a range of versions."""
    parameters = {**versions, "includeHistoricalMetadata": True}
    return list_all(options.client(), Query(parameters, True, options.max_files_per_page))


def partitions_of(
    options: ReadOptions, listing: Listing, shape: TableShape, tasks: Sequence[ReadTask]
) -> list[InputPartition]:
    """Pack tasks of a listing."""
    origin = Origin(
        options.profile, options.table, listing.query, listing.head.version, listing.refresh_token
    )
    return [SharePartition(origin, shape, group) for group in pack(tasks, options.partition_bytes)]


def read_partition(partition: InputPartition | None, schema: t.StructType) -> Iterator[pa.RecordBatch]:
    """Yield all rows of one group of files, in the columns of `schema`."""
    if not isinstance(partition, SharePartition):
        return
    decoder = FileDecoder(partition.shape, schema, zone=session_zone())
    owners = [owner for task in partition.tasks for owner in task.owners]
    fetcher = FileFetcher(partition.origin, owners)
    for task in partition.tasks:
        kept = fetcher.vector_rows(task.only) if task.only else None
        deleted = fetcher.vector_rows(task.without) if task.without else []
        if kept is not None:
            dropped = set(deleted)
            kept = [row for row in kept if row not in dropped]
            if not kept:
                continue
        yield from decoder.batches(
            fetcher.source(task.file),
            task.file.partition_values,
            constants=_constants(task),
            rows_deleted=deleted,
            rows_kept=kept,
        )


def _list_loaded(options: ReadOptions, loaded: TableHead) -> Listing:
    """List the loaded version: the latest one by the server's refresh token, an older one by its number."""
    client = options.client()
    hints = options.hints()
    if options.at():
        at = options.at() if loaded.version is None else {"version": loaded.version}
        return list_all(client, Query({**at, **hints}, max_files=options.max_files_per_page))
    latest = Query({**hints, "includeRefreshToken": True}, max_files=options.max_files_per_page)
    pages = client.pages(latest)
    first = next(pages)
    if first.version != loaded.version and loaded.version is not None:
        pinned = Query({**hints, "version": loaded.version}, max_files=options.max_files_per_page)
        try:
            return list_all(client, pinned)
        except HttpError as error:
            # The answer of servers to a version of a table that is shared without history.
            if not error.is_refusal:
                raise
    return _listing(latest, [first, *pages])


def _listing(query: Query, pages: Sequence[Page]) -> Listing:
    return Listing(
        query,
        pages[0].head,
        tuple(file for page in pages for file in page.files),
        tuple(head for page in pages for head in page.later_heads),
        next((page.refresh_token for page in pages if page.refresh_token), None),
    )


def with_version(files: Iterable[DataFile], version: int, timestamp_ms: int | None) -> list[DataFile]:
    """Return the files of a snapshot as if that version had added them all."""
    return [replace(file, version=version, timestamp_ms=timestamp_ms) for file in files]


def _constants(task: ReadTask) -> dict[str, pa.Scalar]:
    """Return the columns that come from the listing. A cdc file has its own `_change_type`."""
    file = task.file
    path = file.url.partition("?")[0]
    constants = {
        "_commit_version": pa.scalar(file.version, pa.int64()),
        "_commit_timestamp": pa.scalar(
            None if file.timestamp_ms is None else file.timestamp_ms * 1000, pa.timestamp("us", tz="UTC")
        ),
        FILE_NAME_FIELD.name: pa.scalar(unquote(path.rpartition("/")[2]), pa.string()),
    }
    if task.change_type is not None:
        constants["_change_type"] = pa.scalar(task.change_type, pa.string())
    return constants
