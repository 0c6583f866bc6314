"""Brings the work table up to date by many changed rows of its source.

In: rows that the rule makes of the source's inserted and deleted rows. Out: commits of the work table that
remove rows by deletion vectors and add files. Rows are a bag: equal rows are interchangeable, so a row needs
no key. Here all copies of a row are removed and as many as remain are added: `few` counts out those of fewer
rows, and writes none again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from delta.tables import DeltaTable
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as f

from gateway.spark import java
from gateway.spark.project.commit_range import CommitRange
from gateway.spark.project.order import in_own_order
from gateway.spark.project.search import all_of, conditions
from gateway.spark.project.table_log import CHANGE_TYPE, DELETE, INSERT, TableLog
from gateway.spark.verify.digest import (
    EMPTY,
    HASHES,
    SEEDS,
    Digest,
    digest_columns,
    quoted,
    row_hash,
    row_hashes,
)

MAX_LISTED_HASHES = 5000
"""More rows to remove are joined with the table instead of listed in the condition."""

Hashes = tuple[int, int]
ROW = "row"
_WANTED = "wanted hash"
"""No column of a projection has a space in its name."""
_WORD = 1 << 64


class Disagreement(Exception):
    """Raised for deleted rows of the source that the projection does not have."""


@dataclass(frozen=True)
class Written:
    """The commits of some changes, and the digests of the rows that these inserted and deleted."""

    commits: CommitRange
    inserted: Digest
    deleted: Digest


def sign() -> Column:
    """Return 1 for an inserted row, and -1 for a deleted one."""
    return f.when(f.col(CHANGE_TYPE) == INSERT, f.lit(1)).otherwise(f.lit(-1))


def net_changes(changed: DataFrame) -> DataFrame:
    """Return the rows whose number changes: their hashes, the difference `n`, and the `row`. Lazy."""
    return _counted(changed, sign()).where(f.col("n") != 0)


def apply_changes(work: TableLog, base: int, net: DataFrame, step: Callable[[str], None]) -> Written:
    """Change the rows of the work table's version `base` by `net_changes`. Raises Disagreement.

    The digests are of rows as they are read from the files and deletion vectors of the versions after `base`.
    """
    _remove(work, net.where(f.col("n") < 0))
    step("removed")
    removal = work.latest().number
    commits = CommitRange(work.actions, base).read_to(removal)
    # To find the removed rows, whole files are read: once, for what is to be added again and for the digest.
    removed = work.changes(base + 1, removal).persist()
    try:
        gone = _counted(removed.where(f.col(CHANGE_TYPE) == DELETE), f.lit(1))
        both = net.unionByName(gone).groupBy(*HASHES)
        _add(work, both.agg(f.sum("n").alias("n"), f.first("row").alias("row")))
        step("added")
        inserted, deleted = signed_digest(removed)
    finally:
        removed.unpersist()
    commits.read_to(work.latest().number)
    of_added = signed_digest(work.changes(removal + 1, commits.last))
    return Written(commits, inserted + of_added[0], deleted + of_added[1])


def signed_digest(changed: DataFrame) -> tuple[Digest, Digest]:
    """Return the digests of the inserted and of the deleted rows. One job."""
    hashed = changed.select(CHANGE_TYPE, *row_hashes(changed.drop(CHANGE_TYPE).schema))
    sums = hashed.groupBy(CHANGE_TYPE).agg(*digest_columns()).collect()
    by_type = {row[CHANGE_TYPE]: Digest.of(row) for row in sums}
    return by_type.get(INSERT, EMPTY), by_type.get(DELETE, EMPTY)


def with_hashes(rows: DataFrame, *beside: Column) -> DataFrame:
    """Return columns `beside` rows, their hashes and the `row`, after `CHANGE_TYPE` if they have one."""
    schema = rows.drop(CHANGE_TYPE).schema
    row = f.struct(*(f.col(quoted(name)) for name in schema.names)).alias(ROW)
    kind = [f.col(CHANGE_TYPE)] if CHANGE_TYPE in rows.columns else []
    return rows.select(*kind, *beside, *row_hashes(schema), row)


def copies(counted: DataFrame) -> DataFrame:
    """Return each `row` as often as its number `n` says, which is positive."""
    repeated = counted.withColumn("copy", f.explode(f.sequence(f.lit(1), f.col("n").cast("int"))))
    return repeated.select(f"{ROW}.*")


def digest_of(numbers: Mapping[Hashes, int]) -> Digest:
    """Return the digest of a bag of rows, given as the numbers of equal ones by their hashes."""
    xors, sums = [0] * len(SEEDS), [0] * len(SEEDS)
    for hashes, number in numbers.items():
        for place, word in enumerate(hashes):
            xors[place] ^= word % _WORD if number % 2 else 0
            sums[place] += number * word
    return Digest(sum(numbers.values()), tuple(xors), tuple(total % _WORD for total in sums))


def is_among(spark: SparkSession, wanted: Iterable[Hashes]) -> Column:
    """Return whether the first hash of a row is that of one of some rows."""
    return java.is_among(spark, f.col(HASHES[0]), {hashes[0] for hashes in wanted})


def _counted(rows: DataFrame, number: Column) -> DataFrame:
    counted = with_hashes(rows, number.alias("_number")).groupBy(*HASHES)
    return counted.agg(f.sum("_number").alias("n"), f.first(ROW).alias(ROW))


def _remove(work: TableLog, rows: DataFrame) -> None:
    """Remove all rows with the first hash of one of `rows`. Another row of that hash is added again later."""
    table = DeltaTable.forPath(work.spark, work.root)
    hashes = rows.select(f.col(HASHES[0]).alias(_WANTED)).distinct()
    listed = [row[0] for row in hashes.limit(MAX_LISTED_HASHES + 1).collect()]
    if not listed:
        return
    version = work.latest()
    own_hash = row_hash(version.schema, SEEDS[0])
    if len(listed) > MAX_LISTED_HASHES:
        table.merge(hashes, own_hash == f.col(_WANTED)).whenMatchedDelete().execute()
        return
    bounds = conditions(rows.select("row.*"), version.partitions)
    table.delete(all_of([*bounds, own_hash.isin(listed)]))


def _add(work: TableLog, counted: DataFrame) -> None:
    """Append as many copies of each row as its number says. Raises Disagreement for a negative one."""
    rows = counted.where(f.col("n") != 0).persist()
    try:
        fewest, number = rows.agg(f.min("n"), f.sum("n")).collect()[0]
        if fewest is None:
            return
        if fewest < 0:
            raise Disagreement
        added = in_own_order(copies(rows), number, work.latest().partitions)
        added.write.format("delta").mode("append").save(work.root)
    finally:
        rows.unpersist()
