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

from gateway.spark import java
from gateway.spark.verify.compare import quoted
from gateway.spark.verify.digest import row_hash

_SEED = 0x5EED0003
FILE_BYTES = 128 << 20
"""Of rows in Spark's memory, by its estimate of the columns' sizes."""

_ORDER = "row order"
"""No column of a projection has a space in its name."""


def in_own_order(rows: DataFrame, number: int, partitions: Sequence[str], pieces: int = 0) -> DataFrame:
    """Return rows, `number` of them, in the order and the files of a table that has `partitions`. Lazy.

    With `pieces` a partition has at most so many files: its rows come together by their order.
    """
    files = math.ceil(number * java.row_bytes(rows) / FILE_BYTES) or 1
    order, names = f.col(quoted(_ORDER)), list(map(quoted, partitions))
    together = [*names, f.pmod(order, f.lit(pieces))] if pieces and names else [order]
    cut = rows.withColumn(_ORDER, row_hash(rows.schema, _SEED)).repartition(files, *together)
    # Sorted as Delta's writer needs it: it would sort by the partitions in an order of its own.
    return cut.sortWithinPartitions(*names, order).drop(_ORDER)
