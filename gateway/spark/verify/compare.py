"""Compares two DataFrames as bags of rows, and finds the groups and rows that differ.

In: the shared rows and the direct ones, and columns to group by. Out: the groups that differ, and
the rows that differ. Only digests and the requested number of rows reach the driver.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import reduce

from pyspark.sql import Column, DataFrame, Row
from pyspark.sql import functions as f
from pyspark.sql import types as t

from gateway.spark.verify.digest import SEEDS, Digest, digest_by, quoted, row_hash

_DIGEST_WORDS = ("rows", *(f"{part}_{i}" for i in range(len(SEEDS)) for part in ("xor", "high", "low")))
_MOST_GROUPS = 100
_LONGEST_ROW_CHARACTERS = 600


@dataclass(frozen=True)
class GroupDifference:
    """One group whose digests differ; a side without the group is empty."""

    key: tuple[str | None, ...]
    shared: Digest
    direct: Digest

    def __str__(self) -> str:
        """Describe the row counts of both sides."""
        if self.shared.rows == self.direct.rows:
            return f"{self.shared.rows} rows on both sides, but not the same rows"
        return f"{self.shared.rows} rows shared, {self.direct.rows} in the table"


@dataclass
class Comparison:
    """The number of groups, and those that differ (the first hundred; `differing` counts all)."""

    groups: int = 0
    differing: int = 0
    differences: list[GroupDifference] = field(default_factory=list)


def compare_groups(shared: DataFrame, direct: DataFrame, keys: Sequence[str]) -> Comparison:
    """Digest both sides per group and compare, in Spark. One pass over each side."""
    sides = [
        digest_by(frame, [f.col(quoted(key)).alias(f"_key_{i}") for i, key in enumerate(keys)]).withColumn(
            "_side", f.lit(side)
        )
        for side, frame in enumerate((shared, direct))
    ]
    names = [f"_key_{i}" for i in range(len(keys))]
    both = sides[0].unionByName(sides[1]).groupBy(*names).pivot("_side", [0, 1])
    pairs = both.agg(*(f.first(word).alias(word) for word in _DIGEST_WORDS))
    # As text, because Python supports fewer dates and times than Spark.
    pairs = pairs.withColumns({name: key_text(f.col(name)) for name in names})
    differ = reduce(
        Column.__or__, (~f.col(f"0_{word}").eqNullSafe(f.col(f"1_{word}")) for word in _DIGEST_WORDS)
    )
    pairs = pairs.persist()
    try:
        groups, differing = pairs.agg(f.count(f.lit(1)), f.count_if(differ)).collect()[0]
        rows = pairs.where(differ).limit(_MOST_GROUPS).collect() if differing else []
    finally:
        pairs.unpersist()
    differences = [
        GroupDifference(tuple(row[name] for name in names), _side(row, "0"), _side(row, "1")) for row in rows
    ]
    return Comparison(groups, differing, differences)


def compare_schemas(shared: t.StructType, direct: t.StructType) -> list[str]:
    """Describe the differences of columns in name, position and type. Comments and nullability may differ."""
    differences = []
    of_share, of_table = _types(shared), _types(direct)
    differences += [f"column {name} is not shared" for name in of_table if name not in of_share]
    differences += [
        f"column {name} is shared but not in the table" for name in of_share if name not in of_table
    ]
    differences += [
        f"column {name} is shared as {kind}, the table has {of_table[name]}"
        for name, kind in of_share.items()
        if name in of_table and kind != of_table[name]
    ]
    if not differences and list(of_share) != list(of_table):
        differences.append("the columns are in another order")
    return differences


@dataclass(frozen=True)
class RowDifference:
    """One row (as JSON, shortened if long) and its number on each side."""

    row: str
    shared: int
    direct: int

    def __str__(self) -> str:
        """Return the counts, then the row."""
        return f"shared {self.shared} times, in the table {self.direct} times: {self.row}"


def differing_rows(shared: DataFrame, direct: DataFrame, most: int) -> list[RowDifference]:
    """Return the rows that one side has more often. Shuffles all rows: narrow both sides first."""
    if most <= 0:
        return []
    sides = [
        frame.select(
            row_hash(frame.schema, SEEDS[0]).alias("_hash"),
            f.substring(f.to_json(_whole_row(frame)), 1, _LONGEST_ROW_CHARACTERS).alias("_row"),
            f.lit(side).alias("_side"),
        )
        for side, frame in enumerate((shared, direct))
    ]
    counted = (
        sides[0]
        .unionByName(sides[1])
        .groupBy("_hash")
        .agg(
            f.first("_row").alias("row"),
            f.count_if(f.col("_side") == 0).alias("shared"),
            f.count_if(f.col("_side") == 1).alias("direct"),
        )
    )
    rows = counted.where("shared <> direct").orderBy("row").limit(most).collect()
    return [RowDifference(row["row"], row["shared"], row["direct"]) for row in rows]


def key_text(key: Column) -> Column:
    """Return a group's key as text, null for null."""
    return f.when(key.isNotNull(), key.cast("string"))


def in_groups(frame: DataFrame, keys: Sequence[str], groups: Sequence[tuple[str | None, ...]]) -> DataFrame:
    """Return the rows of some groups, nulls included."""
    if not keys:
        return frame
    wanted: Column = f.lit(False)
    for group in groups:
        same: Column = f.lit(True)
        for key, value in zip(keys, group, strict=True):
            same = same & key_text(f.col(quoted(key))).eqNullSafe(f.lit(value))
        wanted = wanted | same
    return frame.where(wanted)


def _side(row: Row, side: str) -> Digest:
    words = {word: row[f"{side}_{word}"] for word in _DIGEST_WORDS}
    return Digest.of(Row(**{**words, "rows": words["rows"] or 0}))


def _whole_row(frame: DataFrame) -> Column:
    return f.struct(*(f.col(quoted(name)) for name in frame.columns))


def _types(schema: t.StructType) -> dict[str, str]:
    return {field.name: field.dataType.simpleString() for field in schema.fields}
