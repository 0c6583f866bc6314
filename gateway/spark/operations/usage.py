"""Sums up the gateway's audit log as Delta tables and a page: the use per recipient and table.

In: audit logs (JSON lines, as gateway.audit writes them). Out: requests, files and their bytes, pruned
files, errors and slow queries, per recipient, table and day. Lines that are no audit records are counted
and skipped.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from urllib.parse import unquote

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame, Row, SparkSession
from pyspark.sql import functions as f

from gateway.spark.verify.history import existing

# A field that a line does not have is null: logs of older gateways are read too.
AUDIT_SCHEMA = """
    version STRING, timestamp BIGINT, serviceName STRING, actionName STRING, requestId STRING,
    recipientName STRING, sourceIPAddress STRING, userAgent STRING,
    requestParams STRUCT<share: STRING, schema: STRING, table: STRING>,
    response STRUCT<statusCode: INT, errorCode: STRING, result: STRUCT<
        version: BIGINT, returned: BIGINT, format: STRING, complete: BOOLEAN, considered: BIGINT,
        fileBytes: BIGINT, durationMs: BIGINT>>,
    _corrupt STRING
"""
SERVICE = "deltaSharingGateway"
_COMPRESSED = (".gz", ".bz2", ".zst", ".lz4", ".snappy", ".deflate")
SLOW_MS = 5000
"""A query that took longer is listed."""
_QUERIES = ("deltaSharingQueriedTable", "deltaSharingQueriedTableChanges")


@dataclass(frozen=True)
class UsageTables:
    """The usage of a period: sums per recipient, table and day; errors; slow queries.

    `answered`: the requests, one row each, with the day and the source file of its line.
    """

    answered: DataFrame
    unreadable: int

    @property
    def daily(self) -> DataFrame:
        """Return the sums per day, recipient and table."""
        return _daily(self.answered).orderBy("day", "recipient", "table")

    @property
    def errors(self) -> DataFrame:
        """Return the failed requests per day, recipient, table and kind of error, the most frequent first."""
        return _errors(self.answered).orderBy(f.desc("requests"))

    @property
    def slow(self) -> DataFrame:
        """Return the slow queries, the slowest first."""
        return _slow(self.answered).orderBy(f.desc("durationMs"))


def readable(spark: SparkSession, paths: list[str]) -> tuple[list[str], list[str]]:
    """Return the files of audit logs, and the compressed ones that cannot be read to their end."""
    files, torn = [], []
    for name in spark.read.text(paths).inputFiles():
        path = _plain(name)
        try:
            if name.endswith(_COMPRESSED):
                spark.read.text(path).count()
            files.append(path)
        except (PySparkException, Py4JJavaError):
            torn.append(unquote(name))
    return files, torn


def read_audit(spark: SparkSession, paths: list[str]) -> DataFrame:
    """Read all lines of audit logs; files may be compressed. A line that is not JSON is in `_corrupt`.

    `source` names the file a line is in by the SHA-256 of the file's first line: a log that grows, is renamed
    or is compressed later is the same source. Of several files of one source the longest is read: the others
    are earlier copies of it.
    """
    path = f.col("_metadata.file_path").alias("path")
    reading = spark.read.schema(AUDIT_SCHEMA).option("columnNameOfCorruptRecord", "_corrupt")
    # Within a block Spark numbers lines in their order.
    lines = spark.read.text(paths).where(f.col("_metadata.file_block_start") == f.lit(0))
    numbered = lines.select(path, "value", f.monotonically_increasing_id().alias("number"))
    sources = numbered.groupBy("path").agg(f.sha2(f.min_by("value", "number"), 256).alias("source"))
    records = reading.json(paths).select("*", path).join(f.broadcast(sources), "path", "left")
    copies = _copies(spark, sources)
    return (records.where(~f.col("path").isin(copies)) if copies else records).drop("path")


def _copies(spark: SparkSession, sources: DataFrame) -> list[str]:
    """Return the paths of files that are shorter copies of another file of their source."""
    of_source: dict[str, list[str]] = {}
    for row in sources.collect():
        of_source.setdefault(row["source"], []).append(row["path"])
    groups = [paths for paths in of_source.values() if len(paths) > 1]
    if not groups:
        return []
    path = f.col("_metadata.file_path").alias("path")
    reading = spark.read.text([_plain(file) for paths in groups for file in paths])
    lines = {row["path"]: row["count"] for row in reading.select(path).groupBy("path").count().collect()}
    return [file for paths in groups for file in sorted(paths, key=lambda file: (lines[file], file))[:-1]]


def _plain(name: str) -> str:
    """Return the path that reads one file, of its URI."""
    return re.sub(r"([\\{}\[\]*?])", r"\\\1", unquote(name))


def usage(audit: DataFrame) -> UsageTables:
    """Sum up audit records."""
    # Spark refuses a query of the corrupt column alone unless the parsed lines are cached.
    audit = audit.cache()
    # A gateway with `failClosed` writes two lines for a request; the first one has no status.
    answered = (f.col("serviceName") == SERVICE) & f.col("response.statusCode").isNotNull()
    requests = audit.where(answered & f.col("timestamp").isNotNull()).select(
        f.to_date(f.timestamp_millis("timestamp")).alias("day"),
        "source",
        f.timestamp_millis("timestamp").alias("at"),
        f.coalesce("recipientName", f.lit("(no recipient)")).alias("recipient"),
        _table_name().alias("table"),
        f.col("actionName").alias("action"),
        f.col("requestId").alias("request_id"),
        f.col("response.statusCode").alias("status"),
        f.col("response.errorCode").alias("error_code"),
        "response.result.*",
    )
    unreadable = audit.where(f.col("_corrupt").isNotNull() | f.col("serviceName").isNull()).count()
    return UsageTables(requests, unreadable)


def upsert_usage(tables: UsageTables, location: str) -> None:
    """Write the three tables below a location, with a row per source file.

    What was written before of the same day and the same source file is replaced, all else stays. A table
    without such rows gets no version where there are none to write, as mostly of errors and slow queries.
    """
    days = _days_of_sources(tables)
    condition = _condition([(row["source"], row["day"]) for row in days])
    frames = {
        "daily": _daily(tables.answered, "source"),
        "errors": _errors(tables.answered, "source"),
        "slow": _slow(tables.answered, "source"),
    }
    for name, frame in frames.items():
        place = f"{location.rstrip('/')}/{name}"
        writing, before = frame.write.format("delta"), existing(frame.sparkSession, place)
        if before is None:
            writing.mode("append").save(place)
        elif condition is not None and (any(row[name] for row in days) or before.where(condition).take(1)):
            writing.mode("overwrite").option("replaceWhere", condition).save(place)


def _days_of_sources(tables: UsageTables) -> list[Row]:
    """Return the days and source files of the lines, with how many of them each table is made of."""
    numbers = {"daily": f.lit(True), "errors": _is_error(), "slow": _is_slow()}
    day = f.col("day").cast("string").alias("day")
    counts = (f.count_if(counted).alias(name) for name, counted in numbers.items())
    return tables.answered.groupBy("source", day).agg(*counts).collect()


def _condition(found: Sequence[tuple[str, str]]) -> str | None:
    """Return a condition for days of source files; None without any."""
    days: dict[str, list[str]] = {}
    for source, day in found:
        days.setdefault(source, []).append(day)
    conditions = []
    for source, of_source in sorted(days.items()):
        listed = ", ".join(f"DATE'{day}'" for day in sorted(of_source))
        conditions.append(f"(source = '{source}' AND day IN ({listed}))")
    return " OR ".join(conditions) or None


def _daily(answered: DataFrame, *keys: str) -> DataFrame:
    is_query = f.col("action").isin(*_QUERIES)
    is_cut = f.coalesce(f.col("complete") == f.lit(False), f.lit(False))
    failed = (f.col("status") >= f.lit(400)) | is_cut
    # An answer that was cut off leaves out files that were not pruned.
    pruned = f.when(~is_cut, f.col("considered") - f.col("returned"))
    return answered.groupBy("day", *keys, "recipient", "table").agg(
        f.count(f.lit(1)).alias("requests"),
        f.count_if(is_query).alias("queries"),
        f.count_if(failed).alias("errors"),
        f.coalesce(f.sum("returned"), f.lit(0)).alias("files"),
        f.coalesce(f.sum("fileBytes"), f.lit(0)).alias("addressed_bytes"),
        f.coalesce(f.sum(pruned), f.lit(0)).alias("pruned_files"),
        f.max("durationMs").alias("longest_ms"),
    )


def _errors(answered: DataFrame, *keys: str) -> DataFrame:
    return (
        answered.where(_is_error())
        .groupBy("day", *keys, "recipient", "table", "status", "error_code")
        .agg(f.count(f.lit(1)).alias("requests"), f.max("at").alias("last_at"))
    )


def _slow(answered: DataFrame, *keys: str) -> DataFrame:
    chosen = answered.where(_is_slow())
    return chosen.select("day", *keys, "at", "recipient", "table", "request_id", "returned", "durationMs")


def _is_error() -> Column:
    return f.col("error_code").isNotNull() | (f.col("complete") == f.lit(False))


def _is_slow() -> Column:
    return f.col("durationMs") >= f.lit(SLOW_MS)


def _table_name() -> Column:
    parts = [f.col(f"requestParams.{name}") for name in ("share", "schema", "table")]
    return f.concat_ws(".", *parts)
