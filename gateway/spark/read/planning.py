"""Plans a read: lists the files of a version, or of a range of versions, and packs them into partitions.

In: options, and the table's head at the time when the DataFrame or stream was made. Out: partitions that
hold everything a task needs. The driver lists; tasks read (`reading`). The listed files have the version
and the columns that were loaded, or the read fails.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from pyspark.sql.datasource import InputPartition

from gateway.client.actions import DataFile, TableHead, UnsupportedTable
from gateway.client.files import Origin
from gateway.client.pages import Page, Query, ShareClient
from gateway.client.transport import HttpError
from gateway.spark.read.decode import TableShape
from gateway.spark.read.evolution import check_change_data, check_dataframe
from gateway.spark.read.options import ReadOptions
from gateway.spark.read.reading import SharePartition
from gateway.spark.read.row_groups import Conditions
from gateway.spark.read.tasks import ReadTask, change_tasks, pack, snapshot_tasks


class NothingNew(UnsupportedTable):
    """Raised for change data from a version on that the table does not have yet."""


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

    Raises UnsupportedTable when only a later version can be had.
    """
    listing = _checked_snapshot(options, loaded)
    return partitions_of(options, listing, TableShape.of(listing.head), list(snapshot_tasks(listing.files)))


def _checked_snapshot(options: ReadOptions, loaded: TableHead) -> Listing:
    listing = _list_loaded(options, loaded)
    if options.expected_version is not None and listing.head.version != options.expected_version:
        raise UnsupportedTable(
            f"the server answered version {listing.head.version}, not {options.expected_version}"
        )
    check_dataframe(loaded, listing.head)
    if loaded.version is not None and listing.head.version != loaded.version:
        # Another use of the DataFrame, perhaps in the same query, has read the loaded one.
        raise UnsupportedTable(
            f"version {loaded.version} was loaded, and the server gives version {listing.head.version} of "
            "this table, which is shared without history: make the DataFrame again"
        )
    return listing


def count_snapshot(options: ReadOptions, loaded: TableHead) -> int | None:
    """Return the number of rows of the loaded version; None if the server does not send it for each file."""
    rows = [file.live_rows for file in _checked_snapshot(options, loaded).files]
    known = [count for count in rows if count is not None]
    return sum(known) if len(known) == len(rows) else None


def plan_changes(options: ReadOptions, loaded: TableHead) -> list[InputPartition]:
    """Plan a read of the change data of a range, which ends at the loaded version at the latest.

    Raises NothingNew for one that would begin after it, unless `allowNoVersions` is given.
    """
    versions, start = options.changes(), options.starting_version
    if not {"endingVersion", "endingTimestamp"} & versions.keys() and loaded.version is not None:
        if start is not None and start > loaded.version:
            if options.allow_no_versions:
                return []
            raise NothingNew(
                f"startingVersion {start} is after version {loaded.version}, the latest one: nothing is new. "
                "With allowNoVersions there are no rows then"
            )
        versions["endingVersion"] = loaded.version
    listing = list_changes(options, versions)
    is_loaded = versions.get("endingVersion") == loaded.version
    for head in listing.heads:
        check_change_data(loaded, head, is_end=is_loaded and head is listing.heads[-1])
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
    conditions = Conditions.of(listing.head, options.hints())
    return [
        SharePartition(origin, shape, group, conditions) for group in pack(tasks, options.partition_bytes)
    ]


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
