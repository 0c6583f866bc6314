"""A Spark data source for Delta Sharing: `spark.read.format("delta-sharing")`.

Comes in: a profile, `share.schema.table`, options. Goes out: the table, a past version of it, its change
data, or a stream, as Arrow batches. The driver lists by pages; tasks fetch and decode the files. Any
server of the protocol will do. Options are told in `ReadOptions`.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any
from urllib.parse import unquote

import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql import types as t
from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    Filter,
    InputPartition,
)

from gateway.spark.actions import DataFile, TableHead, UnsupportedTable
from gateway.spark.client import Query, ShareClient, TableName
from gateway.spark.decode import FileDecoder, TableShape
from gateway.spark.fetch import FileFetcher, Origin
from gateway.spark.predicates import json_predicate_hint
from gateway.spark.profile import Profile
from gateway.spark.schema import CHANGE_FIELDS, shared_schema
from gateway.spark.tasks import ReadTask, append_tasks, change_tasks, pack, snapshot_tasks

FORMAT = "delta-sharing"
FILE_NAME_FIELD = t.StructField("_file_name", t.StringType())
_PUSHDOWN = "spark.sql.python.filterPushdown.enabled"


@dataclass(frozen=True)
class ReadOptions:
    """Options of a read, by the names they have in Spark.

    profile               path of the profile file, or its JSON text
    path                  `share.schema.table` (what `load` takes), or `profile#share.schema.table`
    versionAsOf           a version            timestampAsOf    ISO-8601, UTC
    columns               comma-separated; the rest is neither fetched nor decoded
    readChangeFeed        true: rows with _change_type, _commit_version, _commit_timestamp, from
                          startingVersion or startingTimestamp to endingVersion or endingTimestamp
    skipChangeCommits     streaming: leave out versions that remove or rewrite rows
    ignoreDeletes         streaming: leave out versions that only remove rows
    maxFilesPerPage       how many files to ask for at once
    partitionBytes        about how many bytes of files make a Spark partition
    expectedVersion       fail when the server answers another version (for tables without history)
    withFileName          true: a column `_file_name`, the name of the data file a row is in
    """

    profile: Profile
    table: TableName
    version_as_of: int | None = None
    timestamp_as_of: str | None = None
    columns: tuple[str, ...] | None = None
    read_change_feed: bool = False
    starting_version: int | None = None
    starting_timestamp: str | None = None
    ending_version: int | None = None
    ending_timestamp: str | None = None
    skip_change_commits: bool = False
    ignore_deletes: bool = False
    max_files_per_page: int = 20_000
    partition_bytes: int | None = None
    expected_version: int | None = None
    with_file_name: bool = False

    @classmethod
    def parse(cls, options: dict[str, str]) -> "ReadOptions":
        """Check what Spark hands over (names in any case). Raises ValueError naming the option."""
        given = {name.lower(): value for name, value in options.items()}
        profile, _, table = given.get("path", "").rpartition("#")
        profile = profile or given.get("profile", "")
        if not profile or not table:
            raise ValueError('say .option("profile", path) and .load("share.schema.table")')
        columns = given.get("columns")
        parsed = cls(
            profile=Profile.load(profile),
            table=TableName.parse(table),
            version_as_of=_whole(given, "versionAsOf"),
            timestamp_as_of=given.get("timestampasof"),
            columns=tuple(name.strip() for name in columns.split(",")) if columns is not None else None,
            read_change_feed=_flag(given, "readChangeFeed"),
            starting_version=_whole(given, "startingVersion"),
            starting_timestamp=given.get("startingtimestamp"),
            ending_version=_whole(given, "endingVersion"),
            ending_timestamp=given.get("endingtimestamp"),
            skip_change_commits=_flag(given, "skipChangeCommits"),
            ignore_deletes=_flag(given, "ignoreDeletes"),
            max_files_per_page=_whole(given, "maxFilesPerPage") or cls.max_files_per_page,
            partition_bytes=_whole(given, "partitionBytes"),
            expected_version=_whole(given, "expectedVersion"),
            with_file_name=_flag(given, "withFileName"),
        )
        if parsed.version_as_of is not None and parsed.timestamp_as_of is not None:
            raise ValueError("versionAsOf and timestampAsOf exclude each other")
        return parsed

    def client(self) -> ShareClient:
        """A client for the table."""
        return ShareClient(self.profile, self.table)

    def at(self) -> dict[str, Any]:
        """The protocol's words for the version that is asked for."""
        words = {"version": self.version_as_of, "timestamp": self.timestamp_as_of}
        return {name: value for name, value in words.items() if value is not None}

    def changes(self) -> dict[str, Any]:
        """The protocol's words for the range of change data."""
        words = {
            "startingVersion": self.starting_version,
            "startingTimestamp": self.starting_timestamp,
            "endingVersion": self.ending_version,
            "endingTimestamp": self.ending_timestamp,
        }
        return {name: value for name, value in words.items() if value is not None}


class DeltaSharingSource(DataSource):
    """Reads shared tables: `spark.dataSource.register(DeltaSharingSource)`."""

    @classmethod
    def name(cls) -> str:
        """Return the word for `format`: `delta-sharing`."""
        return FORMAT

    def schema(self) -> t.StructType:
        """The table's schema, with the columns of the change feed where that is asked for."""
        options = ReadOptions.parse(self.options)
        schema = shared_schema(options.client().head(options.at()))
        fields = list(schema.fields)
        if options.read_change_feed:
            fields += CHANGE_FIELDS
        if options.with_file_name:
            fields.append(FILE_NAME_FIELD)
        return t.StructType(_pruned(fields, options.columns))

    def reader(self, schema: t.StructType) -> DataSourceReader:
        """A batch reader."""
        return ShareReader(ReadOptions.parse(self.options), schema)

    def streamReader(self, schema: t.StructType) -> DataSourceStreamReader:  # noqa: N802 - Spark's name
        """A streaming reader."""
        return ShareStreamReader(ReadOptions.parse(self.options), schema)


def register(spark: SparkSession) -> None:
    """Make the format known to a session and let Spark push filters into Python sources."""
    spark.conf.set(_PUSHDOWN, "true")
    spark.dataSource.register(DeltaSharingSource)


@dataclass
class SharePartition(InputPartition):
    """What one task reads."""

    origin: Origin
    shape: TableShape
    tasks: tuple[ReadTask, ...]


class _Pushable:
    """`pushFilters` of a reader that works with Spark's filter pushdown both on and off.

    Spark refuses a reader that overrides `pushFilters` while its (by default switched off) configuration
    key is off, and decides by this attribute whether it does.
    """

    def __init__(self, push: Any) -> None:
        self._push = push
        self.__func__ = DataSourceReader.pushFilters

    def __call__(self, filters: list[Filter]) -> Iterable[Filter]:
        return self._push(filters)  # type: ignore[no-any-return]


class ShareReader(DataSourceReader):
    """A snapshot, or a range of change data."""

    def __init__(self, options: ReadOptions, schema: t.StructType) -> None:
        self._options = options
        self._schema = schema
        self._hint: str | None = None
        self.pushFilters = _Pushable(self._push)  # type: ignore[method-assign]

    def _push(self, filters: list[Filter]) -> Iterable[Filter]:
        """Keep the filters as hints; all are given back, for Spark to apply."""
        if not self._options.read_change_feed:
            table_fields = [field for field in self._schema.fields if field != FILE_NAME_FIELD]
            self._hint = json_predicate_hint(filters, t.StructType(table_fields))
        return filters

    def partitions(self) -> Sequence[InputPartition]:
        """List the files and pack them."""
        if self._options.read_change_feed:
            return plan_changes(self._options, self._options.changes())
        return plan_snapshot(self._options, self._hint)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Fetch and decode one group of files."""
        return read_partition(partition, self._schema)


class ShareStreamReader(DataSourceStreamReader):
    """Versions as they come. An offset is the last version that is fully read; -1 is before the first.

    Without startingVersion the first batch is the table as it is (this needs history sharing, as does all
    that follows), then come the rows of later versions. With readChangeFeed, batches are change data.
    """

    def __init__(self, options: ReadOptions, schema: t.StructType) -> None:
        self._options = options
        self._schema = schema

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802 - Spark's name
        """Just before the first version to read."""
        start = self._options.starting_version
        if start is None and self._options.starting_timestamp is not None:
            start = self._options.client().version(self._options.starting_timestamp)
        return (
            {"version": -1, "snapshot": True} if start is None else {"version": start - 1, "snapshot": False}
        )

    def latestOffset(self) -> dict[str, Any]:  # noqa: N802 - Spark's name
        """The table's latest version, never past an endingVersion."""
        latest = self._options.client().version()
        ending = self._options.ending_version
        return {"version": latest if ending is None else min(latest, ending), "snapshot": False}

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """List what happened after `start`, up to `end`."""
        first, last = start["version"] + 1, end["version"]
        if first > last:
            return []
        if start["snapshot"] and not self._options.read_change_feed:
            return plan_snapshot(replace(self._options, version_as_of=last), None)
        versions = {"startingVersion": first, "endingVersion": last}
        if self._options.read_change_feed:
            return plan_changes(self._options, versions)
        return plan_appends(self._options, versions)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Fetch and decode one group of files."""
        return read_partition(partition, self._schema)


def plan_snapshot(options: ReadOptions, hint: str | None) -> list[InputPartition]:
    """List a version's files. Without a version asked for, the server's refresh token keeps them readable."""
    parameters = {**options.at(), "jsonPredicateHints": hint}
    if not options.at():
        parameters["includeRefreshToken"] = True
    query = Query(parameters, max_files=options.max_files_per_page)
    return _plan(options, query, snapshot_tasks)


def plan_changes(options: ReadOptions, versions: dict[str, Any]) -> list[InputPartition]:
    """List the change data of a range of versions."""
    parameters = {**versions, "includeHistoricalMetadata": True}
    return _plan(options, Query(parameters, True, options.max_files_per_page), change_tasks)


def plan_appends(options: ReadOptions, versions: dict[str, Any]) -> list[InputPartition]:
    """List the files that a range of versions added."""

    def tasks(files: Iterable[DataFile]) -> Iterator[ReadTask]:
        return append_tasks(
            files, ignore_deletes=options.ignore_deletes, skip_change_commits=options.skip_change_commits
        )

    return _plan(options, Query(versions, max_files=options.max_files_per_page), tasks)


def read_partition(partition: InputPartition | None, schema: t.StructType) -> Iterator[pa.RecordBatch]:
    """All rows of one group of files, in the columns of `schema`."""
    if not isinstance(partition, SharePartition):
        return
    decoder = FileDecoder(partition.shape, schema)
    owners = [owner for task in partition.tasks for owner in task.owners]
    fetcher = FileFetcher(partition.origin, owners)
    for task in partition.tasks:
        kept = fetcher.vector_rows(task.only) if task.only else None
        gone = fetcher.vector_rows(task.without) if task.without else []
        if kept is not None:
            dropped = set(gone)
            kept = [row for row in kept if row not in dropped]
            if not kept:
                continue
        yield from decoder.batches(
            fetcher.source(task.file),
            task.file.partition_values,
            constants=_constants(task),
            rows_gone=gone,
            rows_kept=kept,
        )


def _plan(options: ReadOptions, query: Query, tasks_of: Any) -> list[InputPartition]:
    head: TableHead | None = None
    refresh_token = version = None
    files: list[DataFile] = []
    client = options.client()
    for page in client.pages(query):
        head, version = page.head, page.version
        refresh_token = refresh_token or page.refresh_token
        files.extend(page.files)
    if options.expected_version is not None and version != options.expected_version:
        raise UnsupportedTable(f"the server answered version {version}, not {options.expected_version}")
    if head is None:
        return []
    if query.changes or "startingVersion" in query.parameters:
        # The answer is headed by the metadata of its first version; the reader's columns are the latest ones.
        head = client.head()
    origin = Origin(options.profile, options.table, query, version, refresh_token)
    shape = TableShape.of(head)
    return [
        SharePartition(origin, shape, group) for group in pack(list(tasks_of(files)), options.partition_bytes)
    ]


def _constants(task: ReadTask) -> dict[str, pa.Scalar]:
    """Columns that come from the listing. A cdc file has its own `_change_type`."""
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


def _pruned(fields: list[t.StructField], columns: tuple[str, ...] | None) -> list[t.StructField]:
    if columns is None:
        return fields
    by_name = {field.name.lower(): field for field in fields}
    unknown = [name for name in columns if name.lower() not in by_name]
    if unknown:
        raise ValueError(f"the table has no column {', '.join(unknown)}")
    return [by_name[name.lower()] for name in columns]


def _whole(given: dict[str, str], name: str) -> int | None:
    text = given.get(name.lower())
    if text is None:
        return None
    if not text.strip().isdecimal():
        raise ValueError(f"{name} is a whole number, not {text!r}")
    return int(text)


def _flag(given: dict[str, str], name: str) -> bool:
    text = given.get(name.lower(), "false").strip().lower()
    if text not in {"true", "false"}:
        raise ValueError(f"{name} is true or false, not {text!r}")
    return text == "true"
