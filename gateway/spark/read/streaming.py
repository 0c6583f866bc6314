"""Reads a shared table as a stream of micro-batches.

In: options, and the table's head at the start of the stream. Out: partitions per batch. An offset holds the
position of the stream: `{"version": 7, "index": 3, "snapshot": false}` is after the versions before 7 and
the first four files of 7; without an index all of 7 is read. In a snapshot, `index` counts the files of the
table at that version. Stored offsets have the id of the table as well: the versions of another table that
has the same name now do not continue the stream. Without a startingVersion a stream starts with the snapshot;
a stream of change data starts with it as inserts. A listing serves batches during the first half of its URLs'
lifetime.
"""

import logging
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import groupby, islice
from typing import Any

import pyarrow as pa
from pyspark.sql import types as t
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition

from gateway.client.actions import TableHead
from gateway.client.pages import Query
from gateway.client.transport import HttpError
from gateway.spark.read.evolution import check_stream, check_stream_partitions, check_stream_table
from gateway.spark.read.options import ReadOptions
from gateway.spark.read.planning import Listing, list_range, list_version, partitions_of
from gateway.spark.read.ranges import VersionOutline
from gateway.spark.read.reading import read_partition
from gateway.spark.read.tasks import (
    ReadTask,
    append_tasks,
    appends,
    change_tasks,
    snapshot_tasks,
    with_version,
)
from gateway.times import epoch_ms


@dataclass(frozen=True)
class Offset:
    """The position of a stream. `index` is None when all of the version is read."""

    version: int
    index: int | None = None
    snapshot: bool = False

    @classmethod
    def of(cls, document: dict[str, Any]) -> "Offset":
        """Parse an offset in the form that Spark stores."""
        return cls(document["version"], document.get("index"), document.get("snapshot", False))

    @property
    def document(self) -> dict[str, Any]:
        """Return the offset in the form that Spark stores."""
        index = {} if self.index is None else {"index": self.index}
        return {"version": self.version, **index, "snapshot": self.snapshot}

    @property
    def is_whole(self) -> bool:
        """Return whether all of the version is read."""
        return self.index is None and not self.snapshot


_log = logging.getLogger(__name__)
_TABLE = "table"
"""The id of the table in a stored offset. Those of earlier releases have none."""
# For servers that send no expiration. Tasks renew a URL that expires earlier.
_UNKNOWN_LIFETIME_MS = 1_200_000
_MOST_LISTED_VERSIONS = 1000
# Before the snapshot, whose version is not chosen yet.
_UNREAD = Offset(-1, snapshot=True)


@dataclass(frozen=True)
class _Task:
    task: ReadTask
    after: Offset


@dataclass(frozen=True)
class _Piece:
    """The tasks of one listing, of a snapshot or of a range of versions, in the order of reading."""

    versions: tuple[int, int] | int
    listed_ms: int
    listing: Listing
    tasks: tuple[_Task, ...]
    inserted: tuple[int, int | None] | None = None
    """The version and the time of the inserts that a snapshot's files are in change data."""

    def holds(self, versions: tuple[int, int] | int) -> bool:
        """Return whether it is of this snapshot, or contains this range."""
        if not isinstance(self.versions, tuple) or not isinstance(versions, tuple):
            return self.versions == versions
        return self.versions[0] <= versions[0] and versions[1] <= self.versions[1]

    def between(self, first: Offset, last: Offset) -> Sequence[_Task]:
        """Return the tasks after `first` and not after `last`, without a look at each of a long backlog."""
        start, end = (
            bisect_right(self.tasks, _order(mark), key=lambda task: _order(task.after))
            for mark in (first, last)
        )
        return self.tasks[start:end]

    @cached_property
    def _ends_ms(self) -> int:
        ends = (entry.task.file.expires_ms for entry in self.tasks)
        known = (end for end in ends if end is not None)
        return min(known, default=self.listed_ms + _UNKNOWN_LIFETIME_MS)

    def is_fresh(self, now_ms: int) -> bool:
        """Return whether a batch may begin with these URLs."""
        return now_ms - self.listed_ms < self._ends_ms - now_ms


class ShareStreamReader(DataSourceStreamReader):
    """Reads new versions of a table, which must be shared with history."""

    def __init__(
        self,
        options: ReadOptions,
        schema: t.StructType,
        loaded: TableHead,
        *,
        now_ms: Callable[[], int] = epoch_ms,
    ) -> None:
        self._options = options
        self._schema = schema
        self._loaded = loaded
        self._now_ms = now_ms
        self._reached: Offset | None = None
        self._is_start_checked = False
        self._kept: _Piece | None = None

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802 - Spark's name
        """Return the offset before the first version to read."""
        start, latest = self._options.starting_version, self._loaded.version
        if start is not None and latest is not None and start > latest:
            _log.warning("the stream waits for version %d: the table has version %d", start, latest)
        return self._stored(self._first())

    def latestOffset(self) -> dict[str, Any]:  # noqa: N802 - Spark's name
        """Return the end of the next batch, limited by endingVersion and the limits of a trigger."""
        reached = self._reached or self._first()
        latest = self._options.client().version()
        if self._options.ending_version is not None:
            latest = min(latest, self._options.ending_version)
        return self._stored(self._next(reached, latest))

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """List the files after `start`, up to `end`. Raises SchemaChanged for an offset of another table."""
        check_stream_table(self._loaded, start.get(_TABLE))
        first, last = Offset.of(start), Offset.of(end)
        # Spark calls this with the position of a restarted stream as well.
        self._reached = last
        planned: list[InputPartition] = []
        if first == last:
            return planned
        self._check_start(first)
        for piece in self._pieces(first, last, as_listed=True):
            tasks = [entry.task for entry in piece.between(first, last)]
            planned += partitions_of(self._options, piece.listing, tasks, piece.inserted)
        return planned

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Fetch and decode one group of files."""
        return read_partition(partition, self._schema, self._loaded)

    def _stored(self, offset: Offset) -> dict[str, Any]:
        table_id = self._loaded.table_id
        return offset.document | ({} if table_id is None else {_TABLE: table_id})

    def _first(self) -> Offset:
        start = self._options.starting_version
        if start is None and self._options.starting_timestamp is not None:
            start = self._options.client().version(self._options.starting_timestamp)
        return _UNREAD if start is None else Offset(start - 1)

    def _next(self, reached: Offset, latest: int) -> Offset:
        """Return the end offset of a batch that starts after `reached`."""
        most = self._options.max_files_per_trigger
        if reached.snapshot:
            version = latest if reached.version < 0 else reached.version
            end = Offset(version)
        else:
            if reached.is_whole and latest <= reached.version:
                return reached
            versions = self._options.max_versions_per_trigger
            if versions is not None:
                read = reached.version if reached.is_whole else reached.version - 1
                latest = min(latest, read + versions)
            if most is not None:
                # All of a backlog would be listed to find the end of one batch.
                latest = min(latest, reached.version + max(most, _MOST_LISTED_VERSIONS))
                latest = min(latest, self._listed_end(reached, latest))
            end = Offset(max(latest, reached.version))
        if most is None:
            return end
        for piece in self._pieces(reached, end):
            left = piece.between(reached, end)
            if len(left) > most:
                return _boundary(left, most)
        return end

    def _listed_end(self, reached: Offset, latest: int) -> int:
        """Return the end of the last listing while it has versions to read, else `latest`.

        A backlog that is read in steps is not listed again for each commit of the table.
        """
        listing = self._kept
        if listing is None or not isinstance(listing.versions, tuple) or listing.versions[1] >= latest:
            return latest
        first, last = listing.versions
        start = reached.version + (1 if reached.is_whole else 0)
        if first <= start <= last and listing.is_fresh(self._now_ms()):
            return last
        return latest

    def _pieces(self, first: Offset, last: Offset, *, as_listed: bool = False) -> Iterator[_Piece]:
        """Yield the listings for the offsets between two: a snapshot, a range of versions, or both.

        With `as_listed` the last listing serves if it contains these, whatever the age of its URLs.
        """
        after = first.version
        # What a batch reads as a whole, its tasks can list.
        whole = self._options.max_files_per_trigger is None and first.index is last.index is None
        if first.snapshot:
            after = last.version if first.version < 0 else first.version
            yield self._piece(after, as_listed=as_listed, whole=whole)
            if last.snapshot:
                return
        start = after + (1 if first.is_whole or first.snapshot else 0)
        if start <= last.version:
            yield self._piece((start, last.version), as_listed=as_listed, whole=whole)

    def _piece(self, versions: tuple[int, int] | int, *, as_listed: bool, whole: bool) -> _Piece:
        """List a snapshot or a range. The listing that found a batch's end is kept to plan the batch."""
        now_ms = self._now_ms()
        last = self._kept
        if last is None or not last.holds(versions) or not (as_listed or last.is_fresh(now_ms)):
            # Never two listings in memory.
            self._kept = last = None
            self._kept = last = self._list(versions, now_ms, whole=whole)
        return last

    def _list(self, versions: tuple[int, int] | int, now_ms: int, *, whole: bool) -> _Piece:
        if isinstance(versions, int):
            return self._list_snapshot(versions, now_ms, whole=whole)
        words = {"startingVersion": versions[0], "endingVersion": versions[1]}
        is_feed = self._options.read_change_feed
        listing = list_range(self._options, words, changes=is_feed, whole=whole)
        rule = {
            "ignore_deletes": self._options.ignore_deletes,
            "skip_change_commits": self._options.skip_change_commits,
        }
        tasks = list(change_tasks(listing.files) if is_feed else append_tasks(listing.files, **rule))
        if not is_feed:
            outlines = listing.versions.items()
            read = {
                at: outline if appends(at, outline.removes, **rule) else VersionOutline()
                for at, outline in outlines
            }
            listing = replace(listing, versions=read)
        self._check(listing, versions[1])
        return _Piece(versions, now_ms, listing, tuple(_in_versions(tasks, whole=is_feed)))

    def _list_snapshot(self, version: int, now_ms: int, *, whole: bool) -> _Piece:
        listing = list_version(self._options, version, whole=whole)
        self._check(listing, version)
        files, inserted = listing.files, None
        if self._options.read_change_feed:
            inserted = (version, self._timestamp_ms(listing, version))
            files = tuple(with_version(files, *inserted))
        tasks = sorted(snapshot_tasks(files, "insert" if inserted else None), key=lambda task: task.file.id)
        placed = [_Task(task, Offset(version, index, snapshot=True)) for index, task in enumerate(tasks)]
        if placed:
            placed[-1] = _Task(placed[-1].task, Offset(version))
        return _Piece(version, now_ms, listing, tuple(placed), inserted)

    def _timestamp_ms(self, listing: Listing, version: int) -> int | None:
        """Return the time of a version; None if the server does not send it."""
        times = (file.timestamp_ms for file in listing.files if file.version == version and file.timestamp_ms)
        time_ms = next(times, None)
        if time_ms is not None:
            return time_ms
        words = {"startingVersion": version, "endingVersion": version}
        query = Query(words, changes=True, max_files=self._options.max_files_per_page)
        page = next(self._options.client().pages(query))
        return next((file.timestamp_ms for file in page.files), None)

    def _check_start(self, start: Offset) -> None:
        """Check the columns of versions that an earlier run has read. Raises SchemaChanged, as Delta does."""
        if self._is_start_checked or start.version < 0 or start == self._first():
            return
        self._is_start_checked = True
        try:
            head = self._options.client().head({"version": start.version})
        except HttpError as error:
            if not error.is_refusal:
                raise
            return  # the version is no longer kept
        check_stream(self._loaded, head)

    def _check(self, listing: Listing, last: int) -> None:
        """Check all heads of a range. Raises SchemaChanged."""
        heads = list(listing.heads)
        if last != self._loaded.version and not listing.later_heads:
            # A server that does not send the heads of a range still answers the head of its end.
            heads.append(self._options.client().head({"version": last}))
        for head in heads:
            check_stream(self._loaded, head)
            check_stream_partitions(self._loaded, head)


def _in_versions(tasks: Sequence[ReadTask], *, whole: bool) -> Iterator[_Task]:
    """Yield the tasks of a range by version and file. With `whole`, only whole versions are offsets."""
    ordered = sorted(tasks, key=lambda task: (task.file.version or 0, task.file.id, task.change_type or ""))
    for version, group in groupby(ordered, lambda task: task.file.version or 0):
        tasks = list(group)
        for place, task in enumerate(tasks, 1):
            is_end = whole or place == len(tasks)
            yield _Task(task, Offset(version) if is_end else Offset(version, place - 1))


def _boundary(left: Sequence[_Task], most: int) -> Offset:
    """Return the offset after at most `most` tasks that leaves no task of the same offset unread."""
    end = left[most - 1].after
    before = [entry.after for entry in islice(left, most) if entry.after != end]
    if left[most].after != end:
        return end
    return before[-1] if before else end


def _order(offset: Offset) -> tuple[int, int, float]:
    """Return a sort key for the order of reading: a version's snapshot, then the versions after it."""
    index = float("inf") if offset.index is None else offset.index
    if offset.snapshot:
        return (offset.version, 0, -1 if offset.index is None else index)
    return (offset.version, 1, index)
