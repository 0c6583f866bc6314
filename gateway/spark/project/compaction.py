"""Puts small files of a work table together, and writes files with removed rows anew.

In: a version of the work table. Out: a commit that replaces files by others with the same rows, in the order
of the published rows alone: OPTIMIZE keeps rows that came by one version beside each other.
"""

from __future__ import annotations

import json
from collections import defaultdict

from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from gateway.spark import java
from gateway.spark.project.actions import Action
from gateway.spark.project.order import FILE_BYTES, files_of, in_own_order
from gateway.spark.project.table_log import TableLog
from gateway.spark.project.transaction import Transaction


def compact(work: TableLog) -> None:
    """Replace files of the latest version. Without any to replace there is no other version."""
    version = work.latest()
    row_bytes = java.row_bytes(work.rows(version.number, ()))
    files = _scattered(_small(work, version.number, FILE_BYTES // 2 // row_bytes), row_bytes)
    if not files:
        return
    number = sum(file["rows"] for file in files)
    rows = in_own_order(work.rows(version.number, files), number, version.partitions)
    transaction = Transaction(work)
    transaction.replace(files, rows)
    transaction.commit()


def _small(work: TableLog, number: int, most_rows: int) -> DataFrame:
    """Return the files of a version that have few rows, or removed ones."""
    files = java.frame(work.snapshot(number).allFiles().toDF(), work.spark)
    rows = f.coalesce(f.get_json_object("stats", "$.numRecords").cast("long"), f.lit(0)).alias("rows")
    files_with_rows = files.select(
        "path", "size", "partitionValues", "deletionVector", "modificationTime", rows
    )
    return files_with_rows.where((f.col("rows") < most_rows) | f.col("deletionVector").isNotNull())


def _scattered(small: DataFrame, row_bytes: int) -> list[Action]:
    """Return the files of partitions that have fewer files, or none with removed rows, when they are anew."""
    by_partition: defaultdict[str, list[Action]] = defaultdict(list)
    for row in small.collect():
        action = row.asDict(recursive=True)
        by_partition[json.dumps(action["partitionValues"], sort_keys=True)].append(action)
    scattered: list[Action] = []
    for actions in by_partition.values():
        rows = sum(file["rows"] for file in actions)
        if files_of(rows, row_bytes) < len(actions) or any(file["deletionVector"] for file in actions):
            scattered += actions
    return scattered
