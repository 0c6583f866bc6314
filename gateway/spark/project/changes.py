"""Brings the work table up to date by the changed rows of its source.

In: rows that the rule makes of the source's inserted and deleted rows. Out: commits of the work table that
remove rows by deletion vectors and add files. Rows are a bag: equal rows are interchangeable, so a row needs
no key, and all copies of a row are removed and as many as remain are added.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from delta.tables import DeltaTable
from pyspark.sql import functions as f

from gateway.spark.project.table_log import CHANGE_TYPE
from gateway.spark.verify.compare import quoted
from gateway.spark.verify.digest import EMPTY, SEEDS, Digest, digest_columns, row_hash

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql import types as t

    from gateway.spark.project.table_log import TableLog

MAX_LISTED_HASHES = 5000
"""More rows to remove are joined with the table instead of listed in the condition."""

_HASHES = ("_hash_0", "_hash_1")


class Disagreement(Exception):
    """Raised for deleted rows of the source that the projection does not have."""


def net_changes(changed: DataFrame) -> DataFrame:
    """Return the rows whose number changes: their hashes, the difference `n`, and the `row`. Lazy."""
    sign = f.when(f.col(CHANGE_TYPE) == "insert", f.lit(1)).otherwise(f.lit(-1))
    return _counted(changed, sign).where(f.col("n") != 0)


def apply_changes(spark: SparkSession, work: TableLog, net: DataFrame, step: Callable[[str], None]) -> None:
    """Change the rows of the work table by `net_changes`. Raises Disagreement."""
    base = work.latest()
    removed = net.where(f.col("n") < 0).select(_HASHES[0]).distinct()
    _remove(spark, work, base.schema, removed)
    step("removed")
    rows = net
    now = work.latest().number
    if now > base.number:
        gone = work.changes(base.number + 1, now).where(f.col(CHANGE_TYPE) == "delete")
        both = net.unionByName(_counted(gone, f.lit(1))).groupBy(*_HASHES)
        rows = both.agg(f.sum("n").alias("n"), f.first("row").alias("row"))
    rows = rows.where(f.col("n") != 0).persist()
    try:
        fewest = rows.agg(f.min("n")).collect()[0][0]
        if fewest is not None and fewest < 0:
            raise Disagreement
        if fewest is not None:
            copies = rows.withColumn("copy", f.explode(f.sequence(f.lit(1), f.col("n").cast("int"))))
            copies.select("row.*").write.format("delta").mode("append").save(work.root)
    finally:
        rows.unpersist()
    step("added")


def signed_digest(changed: DataFrame) -> tuple[Digest, Digest]:
    """Return the digests of the inserted and of the deleted rows. One job."""
    rows = changed.drop(CHANGE_TYPE)
    hashes = [row_hash(rows.schema, seed).alias(f"_hash_{i}") for i, seed in enumerate(SEEDS)]
    found = changed.select(f.col(CHANGE_TYPE), *hashes).groupBy(CHANGE_TYPE).agg(*digest_columns()).collect()
    by_type = {row[CHANGE_TYPE]: Digest.of(row) for row in found}
    return by_type.get("insert", EMPTY), by_type.get("delete", EMPTY)


def _counted(rows: DataFrame, number: Column) -> DataFrame:
    """Return each different row with the sum of a number."""
    names: Sequence[str] = [name for name in rows.columns if name != CHANGE_TYPE]
    plain = rows.select(*(f.col(quoted(name)) for name in names))
    beside = [number.alias("_number"), f.struct(*(f.col(quoted(name)) for name in names)).alias("_row")]
    hashes = [row_hash(plain.schema, seed).alias(name) for name, seed in zip(_HASHES, SEEDS, strict=True)]
    counted = rows.select(*hashes, *beside).groupBy(*_HASHES)
    return counted.agg(f.sum("_number").alias("n"), f.first("_row").alias("row"))


def _remove(spark: SparkSession, work: TableLog, schema: t.StructType, hashes: DataFrame) -> None:
    """Remove all rows with one of the hashes. Another row with such a hash is added again afterwards."""
    table = DeltaTable.forPath(spark, work.root)
    listed = [row[0] for row in hashes.limit(MAX_LISTED_HASHES + 1).collect()]
    if not listed:
        return
    if len(listed) <= MAX_LISTED_HASHES:
        table.delete(row_hash(schema, SEEDS[0]).isin(listed))
        return
    same = row_hash(schema, SEEDS[0]) == f.col(_HASHES[0])
    table.merge(hashes, same).whenMatchedDelete().execute()
