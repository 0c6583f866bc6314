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
from gateway.spark.project.changes import HASHES, ROW, sign, signed_digest
from gateway.spark.project.record import difference
from gateway.spark.project.table_log import CHANGE_TYPE, DELETE, INSERT
from gateway.spark.verify.compare import quoted
from gateway.spark.verify.digest import SEEDS, halves, row_hash

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from pyspark.sql import Column, DataFrame, Row

    from gateway.spark.verify.digest import Digest

_SUMS = 1 << 16
"""Of so many sums each row of both sides is part of one."""

_WORD = 1 << 64
_HALF = 1 << 32
_PARTS = ("high_0", "low_0", "high_1", "low_1")
_XOR = "xor"

_FEED_ROWS = 4
"""Rows that a feed may have for each that may differ: two are of an update, and rows change repeatedly."""


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
            kept = _stated(stated, names, most)
            if kept is not None and _is_kept(kept, lambda few: _digest(few, names) == _digest(rows, names)):
                return kept
    sums = _sums(_compared(rows, names)).limit(most + 1).collect()
    # So many rows differ at least.
    if len(sums) > most or sum(abs(one["n"]) for one in sums) > most:
        return None
    kept = _kept(_net(rows.where(_is_in(_compared(rows, names), sums)), names, most), most)
    # Had a sum been taken for that of one row by mistake, rows would be missing.
    if kept is not None and _is_kept(kept, lambda few: _sums_of(_digest(few, names)) == _total(sums)):
        return kept
    return None


def _stated(stated: DataFrame, names: Sequence[str], most: int) -> DataFrame | None:
    """Return the rows of a feed whose number changes; None if the feed or they are too many."""
    # All rows of a large feed would go through a shuffle.
    few = _kept(stated, _FEED_ROWS * most)
    if few is None:
        return None
    try:
        return _kept(_net(few, names, most), most)
    finally:
        few.unpersist()


def _is_kept(kept: DataFrame, is_right: Callable[[DataFrame], bool]) -> bool:
    """Return whether kept rows are right. Others are let go of, also after an error."""
    is_kept = False
    try:
        is_kept = is_right(kept)
    finally:
        if not is_kept:
            kept.unpersist()
    return is_kept


def _digest(rows: DataFrame, names: Sequence[str]) -> Digest:
    return difference(*signed_digest(_compared(rows, names)))


def _compared(rows: DataFrame, names: Sequence[str]) -> DataFrame:
    return rows.select(CHANGE_TYPE, *map(quoted, names))


def _net(rows: DataFrame, names: Sequence[str], most: int) -> DataFrame:
    """Return the rows whose number changes, each as often as it does, by one of the equal rows. Lazy.

    One whose number changes by more than `most` is there once more than that.
    """
    hashes = [_hash(_compared(rows, names), number).alias(name) for number, name in enumerate(HASHES)]
    columns = [quoted(name) for name in rows.columns if name != CHANGE_TYPE]
    hashed = rows.select(sign().alias("sign"), f.struct(*columns).alias(ROW), *hashes)
    counted = hashed.groupBy(*HASHES).agg(f.sum("sign").alias("n"), f.first(ROW).alias(ROW)).where("n <> 0")
    kind = f.when(f.col("n") > 0, INSERT).otherwise(DELETE).alias(CHANGE_TYPE)
    times = f.least(f.abs(f.col("n")), f.lit(most + 1)).cast("int")
    copy = f.explode(f.sequence(f.lit(1), times))
    return counted.withColumn("copy", copy).select(kind, f"{ROW}.*")


def _kept(rows: DataFrame, most: int) -> DataFrame | None:
    """Return rows to read again, or None if there are more of them."""
    kept = rows.limit(most + 1).persist()
    return kept if _is_kept(kept, lambda found: found.count() <= most) else None


def _sums(rows: DataFrame) -> DataFrame:
    """Return the sums that differ: their `place`, the number of rows, and the halves of the hashes.

    Beside them is the exclusive or of the first hash, in which equal rows of both sides cancel out, too.
    """
    hashes = [_hash(rows, number).alias(name) for number, name in enumerate(HASHES)]
    signed = rows.select(sign().alias("sign"), *hashes)
    words = [f.col(name) for name in HASHES]
    parts = [half for word in words for half in halves(word)]
    summed = [f.sum(f.col("sign") * part).alias(name) for name, part in zip(_PARTS, parts, strict=True)]
    places = signed.groupBy(_place(words[0]).alias("place")).agg(
        f.sum("sign").alias("n"), f.bit_xor(words[0]).alias(_XOR), *summed
    )
    return places.where(" OR ".join(f"{name} <> 0" for name in ("n", *_PARTS)))


def _hash(rows: DataFrame, number: int) -> Column:
    return row_hash(rows.drop(CHANGE_TYPE).schema, SEEDS[number])


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
    for one in sums:
        place, number = one["place"], one["n"]
        word = _signed(number * (one["high_0"] * _HALF + one["low_0"]))
        places.add(place)
        if abs(number) == 1 and word == one[_XOR]:
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


def _sums_of(found: Digest) -> tuple[int, ...]:
    return found.rows, *found.sums


def _total(sums: Iterable[Row]) -> tuple[int, ...]:
    total: Counter[str] = Counter()
    for one in sums:
        total.update(one.asDict())
    parts = (total[name] for name in _PARTS)
    return total["n"], *((high * _HALF + low) % _WORD for high, low in zip(parts, parts, strict=True))
