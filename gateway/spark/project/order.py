"""The order in which rows are written: a function of the published rows alone.

In: rows of a projection as the source's files hold them. Out: the same rows, cut into files and sorted by a
hash of all their columns. The order of a source, its files and its partitions tell values of columns that
the projection does not show.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from pyspark.sql import DataFrame
from pyspark.sql import functions as f
from pyspark.sql import types as t

from gateway.spark import java
from gateway.spark.project.search import all_of
from gateway.spark.verify.digest import quoted, row_hash

_SEED = 0x5EED0003
FILE_BYTES = 128 << 20
"""Of rows in Spark's memory, by its estimate of the columns' sizes."""
_TASK_ROWS = 10_000
"""Rows of a task where all rows need one file: partitions can be many, and to open a file takes long."""

_ORDER, _FILES = "row order", "files of the partition"
"""No column of a projection has a space in its name."""


def in_own_order(rows: DataFrame, number: int, partitions: Sequence[str]) -> DataFrame:
    """Return rows, `number` of them, in the order and the files of a table that has `partitions`. Lazy.

    A partition has as many files as its rows need, however many the table has. To know that, rows of several
    files are counted by their partition when they are read.
    """
    row_bytes = java.row_bytes(rows)
    files = files_of(number, row_bytes)
    order, names = f.col(quoted(_ORDER)), list(map(quoted, partitions))
    # -0.0 and 0.0 are equal for Spark and two partitions for Delta: the writer begins a file at each change.
    texts = [f.col(quoted(name)).cast("string") for name in partitions if _is_floating(rows.schema[name])]
    hashed = rows.withColumn(_ORDER, row_hash(rows.schema, _SEED))
    if not names:
        cut = hashed.repartition(files, order)
    elif files == 1:
        parallelism = rows.sparkSession.sparkContext.defaultParallelism
        cut = hashed.repartition(max(1, min(parallelism, number // _TASK_ROWS)), *names)
    else:
        keys = [f.col(name) for name in names] + texts
        needed = f.ceil(f.count(f.lit(1)) * row_bytes / FILE_BYTES).alias(_FILES)
        counts = rows.groupBy(*(key.alias(f"partition key {i}") for i, key in enumerate(keys))).agg(needed)
        same = [key.eqNullSafe(f.col(name)) for key, name in zip(keys, counts.columns, strict=False)]
        counted = hashed.join(f.broadcast(counts), all_of(same))
        # Files of one partition are of different tasks. A hash of their number could bring them together.
        task = f.pmod(f.hash(*names) + f.pmod(order, f.col(_FILES)), f.lit(files))
        cut = counted.repartitionById(files, task.cast("int")).drop(*counts.columns)
    # Sorted as Delta's writer needs it: it would sort by the partitions in an order of its own.
    return cut.sortWithinPartitions(*names, *texts, order).drop(_ORDER)


def _is_floating(field: t.StructField) -> bool:
    return isinstance(field.dataType, t.FloatType | t.DoubleType)


def files_of(rows: int, row_bytes: int) -> int:
    """Return how many files some rows of a partition are divided into."""
    return math.ceil(rows * row_bytes / FILE_BYTES) or 1
