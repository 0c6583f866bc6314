"""Plans a read: lists the files of a version, or of a range of versions, and packs them into partitions.

In: options, and the table's head at the time when the DataFrame or stream was made. Out: partitions that
hold everything a task needs. The driver lists; tasks read (`reading`). The listed files have the version
and the columns that were loaded, or the read fails.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain, pairwise
from typing import Any

from pyspark.sql.datasource import InputPartition

from gateway.client.actions import DataFile, TableHead, UnsupportedTable
from gateway.client.files import Origin
from gateway.client.pages import Outline, Page, Query, RawPage, ShareClient
from gateway.client.transport import HttpError
from gateway.spark.read.decode import TableShape
from gateway.spark.read.evolution import check_change_data, check_dataframe
from gateway.spark.read.options import ReadOptions
from gateway.spark.read.ranges import MARKS, VersionOutline, add_outlines
from gateway.spark.read.reading import PagePartition, RangePartition, SharePartition
from gateway.spark.read.tasks import (
    OPEN_COST_BYTES,
    ReadTask,
    change_tasks,
    pack,
    piece_bytes,
    snapshot_tasks,
)

_MOST_KEPT_FILES = 50_000
"""Files that a driver keeps of a snapshot; tasks list the pages after them again."""

_MOST_PIECES = 16
"""Of a page."""


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
    more: tuple[Outline, ...] = ()
    """The pages after those with `files`."""
    first_page: int = 0
    """The number of the first one of `more`."""
    versions: Mapping[int, VersionOutline] = field(default_factory=dict)
    """In place of all files, of a range with very many. One without files is not to be read."""

    @property
    def heads(self) -> tuple[TableHead, ...]:
        return (self.head, *self.later_heads)

    @property
    def last_version(self) -> int:
        """Return the last version that the answer to a range has something of."""
        listed = [file.version for file in self.files] + [head.version for head in self.later_heads]
        return max((*filter(None, listed), *self.versions), default=0)


def list_version(options: ReadOptions, version: int, *, whole: bool) -> Listing:
    """List the files of a version (history sharing), or outlines of many ones if all are read at once."""
    client, query = options.client(), Query({"version": version}, max_files=options.max_files_per_page)
    pages = client.pages(query)
    listing = _listing_of_many(client, query, pages) if whole else _listing(query, list(pages))
    check_version(listing.head, version)
    return listing


def check_version(answered: TableHead, *wanted: int | None) -> None:
    """Raise UnsupportedTable if a server answered another version than one that is wanted."""
    for version in wanted:
        if version not in {None, answered.version}:
            raise UnsupportedTable(f"the server answered version {answered.version}, not {version}")


def plan_snapshot(options: ReadOptions, loaded: TableHead) -> list[InputPartition]:
    """Plan a read of the version that was loaded.

    Raises UnsupportedTable when only a later version can be had.
    """
    client = options.client()
    listing = _listing_of_many(client, *_loaded_pages(client, options, loaded))
    if TableShape.of(listing.head) != TableShape.of(loaded):
        raise UnsupportedTable("the table changed since this DataFrame was made: make it again")
    return partitions_of(options, listing, list(snapshot_tasks(listing.files)))


def count_snapshot(options: ReadOptions, loaded: TableHead) -> int | None:
    """Return the number of rows of the loaded version; None if the server does not send it for each file."""
    _, pages = _loaded_pages(options.client(), options, loaded)
    rows = 0
    for file in chain.from_iterable(page.files for page in pages):
        if file.live_rows is None:
            return None
        rows += file.live_rows
    return rows


def plan_changes(options: ReadOptions, loaded: TableHead) -> list[InputPartition]:
    """Plan a read of the change data of a range, which ends at the loaded version at the latest.

    Raises NothingNew for one that would begin after it, unless `allowNoVersions` is given.
    """
    versions, start, latest = options.changes(), options.starting_version, loaded.version
    listing = None
    if latest is not None and "endingTimestamp" in versions:
        listing = list_range(options, versions, changes=True)
        if listing.last_version > latest:
            # The time is after the load, and another use of the DataFrame may have read fewer versions.
            listing = None
            del versions["endingTimestamp"]
    if latest is not None and "endingTimestamp" not in versions:
        if start is not None and start > latest:
            if options.allow_no_versions:
                return []
            raise NothingNew(
                f"startingVersion {start} is after version {latest}, the latest one: nothing is new. "
                "With allowNoVersions there are no rows then"
            )
        versions["endingVersion"] = min(versions.get("endingVersion", latest), latest)
    listing = listing or list_range(options, versions, changes=True)
    is_loaded = listing.query.parameters.get("endingVersion") == latest
    for head in listing.heads:
        check_change_data(loaded, head, is_end=is_loaded and head is listing.heads[-1])
    return partitions_of(options, listing, list(change_tasks(listing.files)))


def list_range(
    options: ReadOptions, range_of: Mapping[str, Any], *, changes: bool, whole: bool = True
) -> Listing:
    """List a range of versions: its change data, or its files. If all are read at once, of many outlines."""
    query = Query({**range_of, "includeHistoricalMetadata": True}, changes, options.max_files_per_page)
    last = range_of.get("endingVersion")

    def is_in_range(version: int | None) -> bool:
        # The end is a hint to the server, which may answer later versions, too.
        return last is None or version is None or version <= last

    outlines: dict[int, VersionOutline] = {}
    pages: list[RawPage] = []
    pending: list[RawPage] = []
    for page in options.client().raw_pages(query):
        pages.append(replace(page, lines=[]))
        pending.append(page)
        if whole and (outlines or sum(len(raw.lines) for raw in pending) > _MOST_KEPT_FILES):
            for raw in pending:
                add_outlines(outlines, raw.lines)
            pending = []
    files = tuple(file for raw in pending for file in raw.parsed() if is_in_range(file.version))
    listing = _listing(query, pages)
    return replace(
        listing,
        files=_once(query, files),
        later_heads=tuple(head for head in listing.later_heads if is_in_range(head.version)),
        versions={version: outline for version, outline in outlines.items() if is_in_range(version)},
    )


def partitions_of(
    options: ReadOptions,
    listing: Listing,
    tasks: Sequence[ReadTask],
    inserted: tuple[int, int | None] | None = None,
) -> list[InputPartition]:
    """Pack tasks of a listing, and cut its further pages, or its versions."""
    origin = Origin(
        options.profile, options.table, listing.query, listing.head.version, listing.refresh_token
    )
    target = options.partition_bytes
    if listing.more:
        outlined = sum(outline.bytes + outline.files * OPEN_COST_BYTES for outline in listing.more)
        target = target or piece_bytes(outlined)
    packed = [SharePartition(origin, group) for group in pack(tasks, target)]
    cut = [
        PagePartition(
            replace(origin, page_token=outline.page_token), number, outline.mark, first, last, inserted
        )
        for number, outline in enumerate(listing.more, listing.first_page)
        for first, last in pairwise(_cuts(outline, target or 0))
    ]
    target = target or piece_bytes(sum(outline.cost for outline in listing.versions.values()))
    ranges = [
        piece for group in _groups(listing.versions, target) for piece in _pieces(origin, group, target)
    ]
    return [*packed, *cut, *ranges]


def _cuts(page: Outline, target: int) -> list[int]:
    """Return the places between the pieces of a page. Each piece is another request for the page."""
    pieces = _number_of_pieces(page.bytes + page.files * OPEN_COST_BYTES, page.files, target)
    return [page.files * number // pieces for number in range(pieces + 1)]


def _number_of_pieces(cost: int, files: int, target: int) -> int:
    return min(_MOST_PIECES, max(1, round(cost / target)), max(1, files))


def _groups(
    versions: Mapping[int, VersionOutline], target: int
) -> Iterator[list[tuple[int, VersionOutline]]]:
    """Yield versions to list together, which have none between them that is not to be read."""
    group: list[tuple[int, VersionOutline]] = []
    filled = 0
    for version, outline in sorted(versions.items()):
        if group and (not outline.files or filled + outline.cost > target):
            yield group
            group, filled = [], 0
        if outline.files:
            group.append((version, outline))
            filled += outline.cost
    if group:
        yield group


def _pieces(origin: Origin, group: list[tuple[int, VersionOutline]], target: int) -> Iterator[RangePartition]:
    """Yield the partitions of some versions. Each is another request for all of them."""
    outlines = [outline for _, outline in group]
    buckets = _number_of_pieces(
        sum(outline.cost for outline in outlines), sum(outline.files for outline in outlines), target
    )
    mark = sum(outline.mark for outline in outlines) % MARKS
    parameters = {"startingVersion": group[0][0], "endingVersion": group[-1][0]}
    mine = replace(origin, query=replace(origin.query, parameters=parameters))
    return (RangePartition(mine, mark, bucket, buckets) for bucket in range(buckets))


def _loaded_pages(
    client: ShareClient, options: ReadOptions, loaded: TableHead
) -> tuple[Query, Iterator[Page]]:
    """List the loaded version: the latest by the server's refresh token, an older one as it was asked for.

    Raises UnsupportedTable when only a later version can be had.
    """

    def opened(parameters: Mapping[str, Any]) -> tuple[Query, Page, Iterator[Page]]:
        query = Query({**options.hints(), **parameters}, max_files=options.max_files_per_page)
        pages = client.pages(query)
        return query, next(pages), pages

    number = {} if loaded.version is None else {"version": loaded.version}
    if options.at():
        # Not by the number of the load: not all servers know a version or a time of metadata.
        query, first, pages = opened(options.at())
    else:
        query, first, pages = opened({"includeRefreshToken": True})
        if number and first.version != loaded.version:
            try:
                query, first, pages = opened(number)
            except HttpError as error:
                # The answer of servers to a version of a table that is shared without history.
                if not error.is_refusal:
                    raise
    check_version(first.head, options.expected_version, options.version_as_of)
    if options.timestamp_as_of is not None and first.version != loaded.version:
        raise UnsupportedTable(
            f"at that time the server answers version {first.version}, and the metadata of version "
            f"{loaded.version}: give versionAsOf"
        )
    check_dataframe(loaded, first.head)
    if number and first.version != loaded.version:
        # Another use of the DataFrame, perhaps in the same query, has read the loaded one.
        raise UnsupportedTable(
            f"version {loaded.version} was loaded, and the server gives version {first.version} of "
            "this table, which is shared without history: make the DataFrame again"
        )
    return query, chain([first], pages)


def _listing_of_many(client: ShareClient, query: Query, pages: Iterator[Page]) -> Listing:
    """List a snapshot. Of the pages after the first files the driver keeps outlines alone."""
    listed: list[Page] = []
    for page in pages:
        listed.append(page)
        if sum(len(listed_page.files) for listed_page in listed) >= _MOST_KEPT_FILES:
            break
    more = tuple(client.outlines(query, listed[-1]))
    listing = _listing(query, listed)
    tokens = (listed_page.refresh_token for listed_page in more if listed_page.refresh_token)
    return replace(
        listing,
        more=more,
        first_page=len(listed),
        refresh_token=listing.refresh_token or next(tokens, None),
    )


def _listing(query: Query, pages: Sequence[Page]) -> Listing:
    return Listing(
        query,
        pages[0].head,
        _once(query, tuple(file for page in pages for file in page.files)),
        tuple(head for page in pages for head in page.later_heads),
        next((page.refresh_token for page in pages if page.refresh_token), None),
    )


def _once(query: Query, files: tuple[DataFile, ...]) -> tuple[DataFile, ...]:
    """Return the files. Raises UnsupportedTable for one that is listed twice, whose rows would be, too."""
    # A version has a file with one deletion vector at most, which is the last part of the key.
    if len({query.key(file)[:-1] for file in files}) < len(files):
        raise UnsupportedTable("the server lists a file twice")
    return files
