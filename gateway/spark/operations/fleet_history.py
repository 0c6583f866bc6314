"""The surveys of a fleet in a Delta table, for the trends of its page.

In: the `TableHealth` of each table. Out: a row for each in the table, and the sums of each survey.
"""

import datetime as dt
from collections.abc import Sequence
from dataclasses import dataclass

from pyspark.sql import SparkSession
from pyspark.sql import functions as f

from gateway.spark.operations.fleet import TableHealth
from gateway.spark.verify.history import latest_runs


@dataclass(frozen=True)
class Survey:
    """The sums of one survey over its readable tables."""

    run_at: dt.datetime
    tables: int
    unreadable: int
    files: int
    bytes: int
    small_files: int
    tombstones: int
    longest_listing_seconds: float


_RESULT_SCHEMA = (
    "run_at TIMESTAMP, table STRING, error STRING, version BIGINT, files BIGINT, bytes BIGINT, small_files "
    "BIGINT, files_without_stats BIGINT, files_with_vectors BIGINT, tombstones BIGINT, "
    "commits_since_checkpoint BIGINT, listing_seconds DOUBLE"
)


def append_results(
    spark: SparkSession, tables: Sequence[TableHealth], location: str, run_at: dt.datetime
) -> None:
    """Append a survey to a Delta table, which is created if it does not exist."""
    names = [column.split()[0] for column in _RESULT_SCHEMA.split(", ")[1:]]
    rows = [(run_at, *(getattr(table, name) for name in names)) for table in tables]
    frame = spark.createDataFrame(rows, _RESULT_SCHEMA)
    frame.write.format("delta").mode("append").save(location)


def surveys(spark: SparkSession, location: str) -> list[Survey]:
    """Return the last surveys of a table that `append_results` has written, the oldest first."""
    sums = ("files", "bytes", "small_files", "tombstones")
    per_run = (
        spark.read.format("delta")
        .load(location)
        .groupBy("run_at")
        .agg(
            f.count(f.lit(1)).alias("tables"),
            f.count("error").alias("unreadable"),
            *(f.sum(name).alias(name) for name in sums),
            f.max("listing_seconds").alias("longest"),
        )
    )
    return [
        Survey(
            at,
            tables=row["tables"],
            unreadable=row["unreadable"],
            longest_listing_seconds=row["longest"],
            **{name: row[name] for name in sums},
        )
        for at, row in latest_runs(per_run)
    ]
