"""Finds the few rows that files which are written anew do not have in common with those they replace.

In: the rows of the removed and of the added files of a source, and what its change data feed states of them,
if it has one. Out: a small DataFrame of rows whose difference is the same. The rows of the files decide: what
the feed states is taken only if it has their digest. No row goes through a shuffle: equal rows of both sides
cancel out in sums over their hashes, so what is left of one of many sums tells which rows differ.
"""

from __future__ import annotations

from collections import Counter
from contextlib import suppress
from typing import TYPE_CHECKING

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import functions as f

from gateway.spark import java
from gateway.spark.project.changes import HASHES, ROW, signed_digest
from gateway.spark.project.record import difference
from gateway.spark.project.table_log import CHANGE_TYPE
from gateway.spark.verify.compare import quoted
from gateway.spark.verify.digest import SEEDS, row_hash

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from pyspark.sql import Column, DataFrame, Row

    from gateway.spark.verify.digest import Digest

_SUMS = 1 << 16
"""Of so many sums each row of both sides is part of one."""

_WORD = 1 << 64
_HALF = 1 << 32
_PARTS = ("high_0", "low_0", "high_1", "low_1")


def reduced(
    rows: DataFrame, stated: DataFrame | None, names: Sequence[str], *, most: int
) -> DataFrame | None:
    """Return few rows with the same difference as all `rows`, persisted; None if more than `most` differ.

    Rows have `_change_type`: `insert`, or else the row is deleted. They are equal where columns `names` are.
    `stated`: rows that may have that difference.
    """
    if stated is not None:
        # Some feeds that are there cannot be read, such as over a rename.
        with suppress(PySparkException, Py4JJavaError):
            kept = _kept(_net(stated, names), most)
            if kept is not None:
                if _digest(kept, names) == difference(*signed_digest(_compared(rows, names))):
                    return kept
                kept.unpersist()
    sums = _sums(_compared(rows, names)).limit(most + 1).collect()
    if len(sums) > most:
        return None
    kept = _kept(_net(rows.where(_is_in(_compared(rows, names), sums)), names), most)
    if kept is None:
        return None
    # Had a sum been taken for that of one row by mistake, rows would be missing.
    found = _digest(kept, names)
    if (found.rows, *found.sums) == _total(sums):
        return kept
    kept.unpersist()
    return None


def _compared(rows: DataFrame, names: Sequence[str]) -> DataFrame:
    return rows.select(CHANGE_TYPE, *map(quoted, names))


def _sign() -> Column:
    return f.when(f.col(CHANGE_TYPE) == "insert", f.lit(1)).otherwise(f.lit(-1)).alias("sign")


def _net(rows: DataFrame, names: Sequence[str]) -> DataFrame:
    """Return the rows whose number changes, each as often as it does, by one of the equal rows. Lazy."""
    hashes = [_hash(_compared(rows, names), number).alias(name) for number, name in enumerate(HASHES)]
    columns = [quoted(name) for name in rows.columns if name != CHANGE_TYPE]
    hashed = rows.select(_sign(), f.struct(*columns).alias(ROW), *hashes)
    counted = hashed.groupBy(*HASHES).agg(f.sum("sign").alias("n"), f.first(ROW).alias(ROW)).where("n <> 0")
    kind = f.when(f.col("n") > 0, "insert").otherwise("delete").alias(CHANGE_TYPE)
    copy = f.explode(f.sequence(f.lit(1), f.abs(f.col("n")).cast("int")))
    return counted.withColumn("copy", copy).select(kind, f"{ROW}.*")


def _kept(rows: DataFrame, most: int) -> DataFrame | None:
    """Return rows to read again, or None if there are more of them."""
    kept = rows.limit(most + 1).persist()
    if kept.count() <= most:
        return kept
    kept.unpersist()
    return None


def _digest(kept: DataFrame, names: Sequence[str]) -> Digest:
    return difference(*signed_digest(_compared(kept, names)))


def _sums(rows: DataFrame) -> DataFrame:
    """Return the sums that differ: their `place`, the number of rows, and the halves of the hashes."""
    hashes = [_hash(rows, number).alias(name) for number, name in enumerate(HASHES)]
    signed = rows.select(_sign(), *hashes)
    words = [f.col(name) for name in HASHES]
    halves = [half for word in words for half in (f.shiftright(word, 32), word.bitwiseAND(f.lit(_HALF - 1)))]
    summed = [f.sum(f.col("sign") * half).alias(name) for name, half in zip(_PARTS, halves, strict=True)]
    places = signed.groupBy(_place(words[0]).alias("place")).agg(f.sum("sign").alias("n"), *summed)
    return places.where(" OR ".join(f"{name} <> 0" for name in ("n", *_PARTS)))


def _hash(rows: DataFrame, number: int) -> Column:
    return row_hash(rows.drop(CHANGE_TYPE).schema, SEEDS[number])


def _place(word: Column) -> Column:
    return word.bitwiseAND(f.lit(_SUMS - 1))


def _is_in(sides: DataFrame, sums: Iterable[Row]) -> Column:
    """Return whether a row may be one of those that make sums differ.

    A sum that one row makes differ has its hash. Otherwise all rows of the sum may be such.
    """
    single: set[int] = set()
    shared: set[int] = set()
    places: set[int] = set()
    for one in sums:
        place, number = one["place"], one["n"]
        word = _signed(number * (one["high_0"] * _HALF + one["low_0"]))
        places.add(place)
        if abs(number) == 1 and word & (_SUMS - 1) == place:
            single.add(word)
        else:
            shared.add(place)

    def is_among(column: Column, numbers: set[int]) -> Column:
        return java.is_among(sides.sparkSession, column, numbers)

    hashed = _hash(sides, 0)
    # Most rows are left out by the first part, and hashed once.
    return is_among(_place(hashed), places) & (is_among(hashed, single) | is_among(_place(hashed), shared))


def _signed(word: int) -> int:
    """Return a sum of hashes as a number of 64 bits."""
    return (word + _WORD // 2) % _WORD - _WORD // 2


def _total(sums: Iterable[Row]) -> tuple[int, ...]:
    total: Counter[str] = Counter()
    for one in sums:
        total.update(one.asDict())
    halves = (total[name] for name in _PARTS)
    return total["n"], *((high * _HALF + low) % _WORD for high, low in zip(halves, halves, strict=True))
