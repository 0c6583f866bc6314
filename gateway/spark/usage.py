"""Who reads what: the gateway's audit log as Delta tables and a page.

Comes in: audit logs (JSON lines, as gateway.audit writes them). Goes out: per recipient, table and day the
requests, files and their bytes, what pruning saved, errors and slow queries. Lines that are no audit records
are counted, not lost.
"""

from dataclasses import dataclass

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as f

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
_QUERIES = ("deltaSharingQueriedTable", "deltaSharingQueriedTableChanges")


@dataclass(frozen=True)
class UsageTables:
    """What is known of a time: usage per recipient, table and day; errors; slow queries."""

    daily: DataFrame
    errors: DataFrame
    slow: DataFrame
    unreadable: int


def read_audit(spark: SparkSession, paths: list[str]) -> DataFrame:
    """All lines of audit logs; files may be compressed. A line that is not JSON is in `_corrupt`."""
    reading = spark.read.schema(AUDIT_SCHEMA).option("columnNameOfCorruptRecord", "_corrupt")
    return reading.json(paths)


def usage(audit: DataFrame, *, slow_ms: int = 5000) -> UsageTables:
    """Sum up. `slow_ms`: a query that took longer is listed."""
    # Spark refuses questions about the corrupt column alone unless the parsed lines are kept.
    audit = audit.cache()
    # A gateway that records before it works writes two lines; the one without a status is the announcement.
    answered = (f.col("serviceName") == SERVICE) & f.col("response.statusCode").isNotNull()
    ours = audit.where(answered).select(
        f.to_date(f.timestamp_millis("timestamp")).alias("day"),
        f.timestamp_millis("timestamp").alias("at"),
        f.coalesce("recipientName", f.lit("(nobody)")).alias("recipient"),
        _table_name().alias("table"),
        f.col("actionName").alias("action"),
        f.col("requestId").alias("request_id"),
        f.col("response.statusCode").alias("status"),
        f.col("response.errorCode").alias("error_code"),
        "response.result.*",
    )
    unreadable = audit.where(f.col("_corrupt").isNotNull() | f.col("serviceName").isNull()).count()
    return UsageTables(_daily(ours), _errors(ours), _slow(ours, slow_ms), unreadable)


def append_usage(tables: UsageTables, location: str) -> None:
    """Write the three tables below a location; days that are written again are replaced."""
    for name in ("daily", "errors", "slow"):
        frame: DataFrame = getattr(tables, name)
        days = [row["day"] for row in frame.select("day").distinct().collect()]
        writing = frame.write.format("delta").mode("overwrite")
        if days:
            quoted = ", ".join(f"DATE'{day.isoformat()}'" for day in days)
            writing = writing.option("replaceWhere", f"day IN ({quoted})")
        writing.save(f"{location.rstrip('/')}/{name}")


def _daily(ours: DataFrame) -> DataFrame:
    is_query = f.col("action").isin(*_QUERIES)
    failed = (f.col("status") >= f.lit(400)) | (f.col("complete") == f.lit(False))
    return (
        ours.groupBy("day", "recipient", "table")
        .agg(
            f.count(f.lit(1)).alias("requests"),
            f.count_if(is_query).alias("queries"),
            f.count_if(failed).alias("errors"),
            f.coalesce(f.sum("returned"), f.lit(0)).alias("files"),
            f.coalesce(f.sum("fileBytes"), f.lit(0)).alias("addressed_bytes"),
            f.coalesce(f.sum(f.col("considered") - f.col("returned")), f.lit(0)).alias("pruned_files"),
            f.max("durationMs").alias("longest_ms"),
        )
        .orderBy("day", "recipient", "table")
    )


def _errors(ours: DataFrame) -> DataFrame:
    return (
        ours.where(f.col("error_code").isNotNull() | (f.col("complete") == f.lit(False)))
        .groupBy("day", "recipient", "table", "status", "error_code")
        .agg(f.count(f.lit(1)).alias("requests"), f.max("at").alias("last_at"))
        .orderBy(f.desc("requests"))
    )


def _slow(ours: DataFrame, slow_ms: int) -> DataFrame:
    chosen = ours.where(f.col("durationMs") >= f.lit(slow_ms))
    return chosen.select("day", "at", "recipient", "table", "request_id", "returned", "durationMs").orderBy(
        f.desc("durationMs")
    )


def _table_name() -> Column:
    parts = [f.col(f"requestParams.{name}") for name in ("share", "schema", "table")]
    return f.concat_ws(".", *parts)
