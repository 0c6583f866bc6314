"""A Spark data source for Delta Sharing: `spark.read.format("delta-sharing")`.

In: a profile, `share.schema.table`, options. Out: the table, a past version of it, its change data, or a
stream, as Arrow batches. The driver lists by pages; tasks fetch and decode the files. It works with any
server of the protocol. The options are described in `ReadOptions`.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import pyarrow as pa
from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import types as t
from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.utils import to_str

from gateway.client.actions import TableHead
from gateway.client.pages import Query
from gateway.client.transport import HttpError
from gateway.spark.read.directory import table_directory
from gateway.spark.read.options import ReadOptions
from gateway.spark.read.planning import count_snapshot, plan_changes, plan_snapshot
from gateway.spark.read.reading import FILE_NAME_FIELD, read_partition
from gateway.spark.read.schema import CHANGE_FIELDS, named_fields, shared_schema
from gateway.spark.read.streaming import ShareStreamReader
from gateway.spark.read.worker_process import prepare_next_task

FORMAT = "delta-sharing"

_AS_TEXTS = "spark.sql.legacy.typeCoercion.datetimeToString.enabled"
_OWN_READINGS = (
    ("${", "spark.sql.variable.substitute"),
    ("\\", "spark.sql.parser.escapedStringLiterals"),
    ('"', "spark.sql.ansi.doubleQuotedIdentifiers"),
    # Days and times are compared with texts as texts: 2024-01-05 10:00:00 is before 2024-01-05T00:00:00Z.
    ("'", _AS_TEXTS),
    ('"', _AS_TEXTS),
)
"""Parts of a condition, and the settings with which Spark reads them as no server does."""


class DeltaSharingSource(DataSource):
    """Reads shared tables: `spark.dataSource.register(DeltaSharingSource)`.

    Spark keeps one instance per DataFrame, in the state after `schema`: the version and the columns of the
    table are those of that moment.
    """

    _head: TableHead | None = None

    @classmethod
    def name(cls) -> str:
        """Return the word for `format`: `delta-sharing`."""
        return FORMAT

    def schema(self) -> t.StructType:
        """Return the table's schema, with the columns of the change feed if it is read."""
        options = ReadOptions.parse(self.options)
        schema = t.StructType(_fields(options, self._loaded(options)))
        prepare_next_task()
        return schema

    def reader(self, schema: t.StructType) -> DataSourceReader:
        """Return a batch reader. Raises ValueError for invalid options and unknown columns."""
        options = self._checked(schema, ReadOptions.check_batch)
        return ShareReader(options, schema, self._loaded(options))

    def streamReader(self, schema: t.StructType) -> DataSourceStreamReader:  # noqa: N802 - Spark's name
        """Return a streaming reader. Raises ValueError for invalid options and unknown columns."""
        options = self._checked(schema, ReadOptions.check_stream)
        return ShareStreamReader(options, schema, self._loaded(options))

    def _checked(self, schema: t.StructType, check: Callable[[ReadOptions], None]) -> ReadOptions:
        options = ReadOptions.parse(self.options)
        check(options)
        _check_columns(schema, _fields(options, self._loaded(options)))
        return options

    def _loaded(self, options: ReadOptions) -> TableHead:
        if self._head is None:
            self._head = _load(options)
        return self._head


def register(spark: SparkSession) -> None:
    # Spark looks for a format of the same name in the active session, whichever it registers the format in.
    active: AbstractContextManager[None] = nullcontext()
    if hasattr(spark, "_jsparkSession"):
        from gateway.spark import java  # noqa: PLC0415 - a session of Spark Connect has none, nor need tasks any

        active = java.active(spark)
    try:
        with active:
            spark.dataSource.register(DeltaSharingSource)
    except AnalysisException as error:
        # The format is registered in the session already.
        if error.getCondition() != "DATA_SOURCE_ALREADY_EXISTS":
            raise


def read_where(spark: SparkSession, table: str, condition: str, **options: Any) -> DataFrame:
    """Return the rows of `share.schema.table` for which an SQL condition is true.

    The condition goes to the server, which leaves out files without such rows, and Spark filters by it again.
    `options` are those of the format, `profile` among them.
    """
    # A DataFrameReader keeps its options, so the caller's reader would send the hint with later loads.
    reading = spark.read.format(FORMAT).options(**_with_zone(spark, options))
    if not any(part in condition and _is_on(spark, name) for part, name in _OWN_READINGS):
        reading = reading.option("predicateHints", condition)
    return reading.load(table).where(condition)


def count_rows(spark: SparkSession, table: str, **options: Any) -> int:
    """Return the number of rows of `share.schema.table`, without its files where the server sends their rows.

    `options` are those of the format. `count` of a DataFrame reads every column, since PySpark tells a source
    neither the columns nor the aggregate. Raises ValueError for hints, which leave rows out.
    """
    options = _with_zone(spark, options)
    frame = spark.read.format(FORMAT).options(**options)
    parsed = _parsed(table, options)
    parsed.check_batch()
    if parsed.hints():
        raise ValueError("a hint does not say which rows are counted: count the rows of read_where")
    counted = None
    if not parsed.read_change_feed:
        head = _load(parsed)
        _fields(parsed, head)  # refuses unknown columns
        counted = count_snapshot(parsed, head)
    return frame.load(table).count() if counted is None else counted


def read_directory(spark: SparkSession, table: str, **options: Any) -> DataFrame:
    """Return `share.schema.table` as delta-spark reads its directory, with temporary credentials.

    The version is that of the call. The DataFrame can be read until the credentials expire. `options` are
    `profile`, `versionAsOf`, `timestampAsOf`, `columns` and `expectedVersion`. Needs Hadoop's client of S3;
    the session has the store's endpoint and region.

    Raises NoDirectoryAccess, ValueError for other options and unknown columns, and HttpError.
    """
    parsed = _parsed(table, _with_zone(spark, options))
    directory = table_directory(parsed)
    frame = spark.read.format("delta").options(**directory.options).load(directory.location)
    if parsed.columns is None:
        return frame
    chosen = named_fields(frame.schema.fields, parsed.columns)
    return frame.select(*(f"`{field.name.replace('`', '``')}`" for field in chosen))


def run_available_now(
    spark: SparkSession, table: str, start: Callable[[DataFrame], StreamingQuery], **options: Any
) -> StreamingQuery:
    """Stream the versions that `share.schema.table` has at the call, in batches, and return the ended query.

    `start` gets the stream and returns the query that it starts, without a trigger or with a processing time.
    The query continues where its checkpoint ends. `options` are those of the format. This is
    `Trigger.AvailableNow` for sources whose limits Spark does not know, which are all of PySpark's.

    Raises ValueError for a query that ends after one batch, and Spark's StreamingQueryException.
    """
    options = _with_zone(spark, options)
    parsed = _parsed(table, options)
    parsed.check_stream()
    if parsed.ending_version is None:
        # A stream may start after the latest version, but not end before its start.
        options["endingVersion"] = max(parsed.client().version(), parsed.starting_version or 0)
    query = start(spark.readStream.format(FORMAT).options(**options).load(table))
    try:
        query.processAllAvailable()
        has_ended = not query.isActive
    finally:
        query.stop()
    if has_ended and query.lastProgress is not None:
        raise ValueError(
            "the query ended by itself, perhaps with unread files: start it without a trigger that ends it"
        )
    return query


def _is_on(spark: SparkSession, name: str) -> bool:
    # Spark keeps the text that was set.
    return str(spark.conf.get(name)).strip().lower() == "true"


def _with_zone(spark: SparkSession, options: Mapping[str, Any]) -> dict[str, Any]:
    """Return options with the session's time zone for times without one, which Spark gives no data source."""
    is_given = any(name.lower() == "timezone" for name in options)
    return {**options} if is_given else {**options, "timeZone": spark.conf.get("spark.sql.session.timeZone")}


def _parsed(table: str, options: Mapping[str, Any]) -> ReadOptions:
    """Parse options as a reader passes them to the format."""
    texts = {name: text for name, value in options.items() if (text := to_str(value)) is not None}
    return ReadOptions.parse({**texts, "path": table})


class ShareReader(DataSourceReader):
    """Reads a snapshot, or a range of change data.

    `pushFilters` is not overridden: PySpark plans all uses of a DataFrame by one and the same reader, so the
    filter of one use would decide which files another one reads.
    """

    def __init__(self, options: ReadOptions, schema: t.StructType, loaded: TableHead) -> None:
        self._options = options
        self._schema = schema
        self._loaded = loaded

    def partitions(self) -> Sequence[InputPartition]:
        """List the files and pack them."""
        plan = plan_changes if self._options.read_change_feed else plan_snapshot
        partitions = plan(self._options, self._loaded)
        prepare_next_task()
        return partitions

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Fetch and decode one group of files."""
        return read_partition(partition, self._schema, self._loaded, self._options.hints())


def _load(options: ReadOptions) -> TableHead:
    """Return the table's head at the requested version, or at the latest.

    Of change data of mapped tables, Delta reads the columns at the end of the range.
    """
    client = options.client()
    head = client.head(options.at())
    if options.version_as_of not in {None, head.version}:
        # Servers that do not know the version of this request answer the latest one, but not to a query.
        head = next(client.pages(Query(options.at(), max_files=options.max_files_per_page))).head
    end, time = options.ending_version, options.ending_timestamp
    if not options.read_change_feed or head.column_mapping_mode == "none":
        return head
    if end is not None and (head.version is None or end < head.version):
        return client.head({"version": end})
    try:
        return head if time is None else client.head({"timestamp": time})
    except HttpError as error:
        # The range ends at the latest version: the time is after it.
        if not error.is_refusal:
            raise
        return head


def _fields(options: ReadOptions, head: TableHead) -> list[t.StructField]:
    """Return the columns of a read. Raises ValueError for unknown ones, and for added ones that are taken."""
    fields = list(shared_schema(head).fields)
    added = [*(CHANGE_FIELDS if options.read_change_feed else ())]
    added += [FILE_NAME_FIELD] if options.with_file_name else []
    names = {field.name.lower() for field in fields}
    taken = [field.name for field in added if field.name.lower() in names]
    if taken:
        raise ValueError(f"the table has a column {taken[0]} of its own")
    fields += added
    chosen = fields if options.columns is None else named_fields(fields, options.columns)
    is_added = not options.with_file_name or FILE_NAME_FIELD in chosen
    return chosen if is_added else [*chosen, FILE_NAME_FIELD]


def _check_columns(schema: t.StructType, fields: list[t.StructField]) -> None:
    """Check the schema of the user. Raises ValueError that names the column."""
    types = {field.name: field.dataType.simpleString() for field in fields}
    for field in schema.fields:
        if field.name not in types:
            raise ValueError(f"the schema has a column {field.name}, which the table does not have")
        if field.dataType.simpleString() != types[field.name]:
            raise ValueError(
                f"the schema has a column {field.name} of type {field.dataType.simpleString()}: in the table "
                f"it is {types[field.name]}"
            )
