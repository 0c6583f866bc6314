"""Finds the few rows that files which are written anew do not have in common with those they replace.

In: the rows of the removed and of the added files of a source, and what its change data feed states of them,
if it has one. Out: a small DataFrame of rows whose difference is the same. The rows of the files decide: what
the feed states is taken only if it has their digest. No row goes through a shuffle: equal rows of both sides
cancel out in sums over their hashes, so what is left of one of many sums tells which rows differ.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from functools import reduce

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame, Row
from pyspark.sql import functions as f

from gateway.spark import java
from gateway.spark.project.changes import ROW, Hashes, digest_of, sign, signed_digest
from gateway.spark.project.table_log import CHANGE_TYPE, DELETE, INSERT
from gateway.spark.verify.digest import HASHES, SEEDS, Digest, halves, quoted, row_hash, row_hashes

_SUMS = 1 << 16
"""Of so many sums each row of both sides is part of one."""

_WORDS = 1 << 64
_HALF = 1 << 32
_PARTS = ("high", "low")
_WORD = "word"
_XOR = "xor"

_FEED_ROWS = 4
"""Rows that a feed may have for each that may differ: two are of an update, and rows change repeatedly."""


Kept = tuple[DataFrame, Digest]
"""Few rows that Spark keeps, and the digest of the inserted ones without the deleted ones."""


def reduced(
    rows: DataFrame, stated: DataFrame | None, names: Sequence[str], *, most: int
) -> DataFrame | None:
    """Return few rows with the same difference as all `rows`, persisted; None if more than `most` differ.

    Rows have `CHANGE_TYPE`: `insert`, or else the row is deleted. They are equal where columns `names` are.
    `stated`: rows that may have that difference.
    """
    if stated is not None:
        # Some feeds that are there cannot be read, such as over a rename.
        with suppress(PySparkException, Py4JJavaError):
            found = _stated(stated, names, most)
            if found is not None and _is_kept(found[0], lambda: found[1] == _digest(rows, names)):
                return found[0]
    sums = _sums(_compared(rows, names)).limit(most + 1).collect()
    # So many rows differ at least.
    if len(sums) > most or sum(abs(total["n"]) for total in sums) > most:
        return None
    kept = _kept(_net(rows.where(_is_in(_compared(rows, names), sums)), names, most), names, most)
    if kept is None:
        return None
    few, digest = kept
    # Had a sum been taken for that of one row by mistake, rows would be missing.
    return few if _is_kept(few, lambda: (digest.rows, digest.sums[0]) == _total(sums)) else None


def _stated(stated: DataFrame, names: Sequence[str], most: int) -> Kept | None:
    """Return the rows of a feed whose number changes; None if the feed or they are too many."""
    # All rows of a large feed would go through a shuffle.
    few = _kept(stated, names, _FEED_ROWS * most)
    if few is None:
        return None
    try:
        return _kept(_net(few[0], names, most), names, most)
    finally:
        few[0].unpersist()


def _is_kept(rows: DataFrame, is_right: Callable[[], bool]) -> bool:
    """Return whether kept rows are right. Others are let go of, also after an error."""
    is_kept = False
    try:
        is_kept = is_right()
    finally:
        if not is_kept:
            rows.unpersist()
    return is_kept


def _digest(rows: DataFrame, names: Sequence[str]) -> Digest:
    inserted, deleted = signed_digest(_compared(rows, names))
    return inserted - deleted


def _compared(rows: DataFrame, names: Sequence[str]) -> DataFrame:
    return rows.select(CHANGE_TYPE, *map(quoted, names))


def _net(rows: DataFrame, names: Sequence[str], most: int) -> DataFrame:
    """Return the rows whose number changes, each as often as it does, by one of the equal rows. Lazy.

    One whose number changes by more than `most` is there once more than that.
    """
    columns = [quoted(name) for name in rows.columns if name != CHANGE_TYPE]
    hashed = rows.select(sign().alias("sign"), f.struct(*columns).alias(ROW), *_hashes(rows, names))
    counted = hashed.groupBy(*HASHES).agg(f.sum("sign").alias("n"), f.first(ROW).alias(ROW)).where("n <> 0")
    kind = f.when(f.col("n") > 0, INSERT).otherwise(DELETE).alias(CHANGE_TYPE)
    times = f.least(f.abs(f.col("n")), f.lit(most + 1)).cast("int")
    copy = f.explode(f.sequence(f.lit(1), times))
    return counted.withColumn("copy", copy).select(kind, f"{ROW}.*")


def _kept(rows: DataFrame, names: Sequence[str], most: int) -> Kept | None:
    """Return rows to read again, or None if there are more of them."""
    few = rows.limit(most + 1).persist()
    numbers: Counter[Hashes] = Counter()

    def are_few() -> bool:
        hashed = _compared(few, names).select(sign().alias("sign"), *_hashes(few, names)).collect()
        for direction, *hashes in hashed:
            numbers[hashes[0], hashes[1]] += direction
        return len(hashed) <= most

    return (few, digest_of(numbers)) if _is_kept(few, are_few) else None


def _sums(rows: DataFrame) -> DataFrame:
    """Return the sums that differ: their `place`, the number of rows, and the halves of the first hash.

    Beside them is the exclusive or of the hash, in which equal rows of both sides cancel out, too.
    """
    signed = rows.select(sign().alias("sign"), _hash(rows).alias(_WORD))
    n, word = f.col("sign"), f.col(_WORD)
    halved = [(n * half).alias(name) for name, half in zip(_PARTS, halves(word), strict=True)]
    columns = [_place(word).alias("place"), n.alias("n"), word.alias(_XOR), *halved]
    summed = [
        f.sum("n").alias("n"),
        f.bit_xor(_XOR).alias(_XOR),
        *(f.sum(part).alias(part) for part in _PARTS),
    ]
    # A row costs less to add to a sum than to hand on through a union, whose sums are few.
    apart = [branch.select(*columns).groupBy("place").agg(*summed) for branch in java.branches(signed)]
    places = reduce(DataFrame.union, apart).groupBy("place").agg(*summed)
    return places.where(" OR ".join(f"{name} <> 0" for name in ("n", *_PARTS)))


def _hashes(rows: DataFrame, names: Sequence[str]) -> list[Column]:
    return row_hashes(_compared(rows, names).drop(CHANGE_TYPE).schema)


def _hash(rows: DataFrame) -> Column:
    return row_hash(rows.drop(CHANGE_TYPE).schema, SEEDS[0])


def _place(word: Column) -> Column:
    return word.bitwiseAND(f.lit(_SUMS - 1))


def _is_in(sides: DataFrame, sums: Iterable[Row]) -> Column:
    """Return whether a row may be one of those that make sums differ.

    A sum that one row makes differ has its hash, and so has the exclusive or. Otherwise all rows of the sum
    may be such.
    """
    single: set[int] = set()
    shared: set[int] = set()
    places: set[int] = set()
    for total in sums:
        place, number = total["place"], total["n"]
        word = _signed(number * (total["high"] * _HALF + total["low"]))
        places.add(place)
        if abs(number) == 1 and word == total[_XOR]:
            single.add(word)
        else:
            shared.add(place)

    def is_among(column: Column, numbers: set[int]) -> Column:
        return java.is_among(sides.sparkSession, column, numbers)

    hashed = _hash(sides)
    # Most rows are left out by the first part, and hashed once.
    return is_among(_place(hashed), places) & (is_among(hashed, single) | is_among(_place(hashed), shared))


def _signed(word: int) -> int:
    """Return a sum of hashes as a number of 64 bits."""
    return (word + _WORDS // 2) % _WORDS - _WORDS // 2


def _total(sums: Iterable[Row]) -> tuple[int, int]:
    words = sum(total["high"] * _HALF + total["low"] for total in sums)
    return sum(total["n"] for total in sums), words % _WORDS
