"""Order-free digests of DataFrames, built from Spark's own functions only, so all of it is generated code.

In: a DataFrame. Out: the number of its rows, and per seed the exclusive or and the sum of its rows' 64-bit
hashes: equal for equal bags of rows in any order or partitioning, and different otherwise (except by
chance). Values that differ: null and a missing or empty value, 0.0 and -0.0, one row and the same row
twice, [1],[2] and [1,2],[]. Values that are equal: all NaNs, a map in any order of its entries. Column
names and order are not part of the digest: compare schemas as well.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce

from pyspark.sql import Column, DataFrame, Row
from pyspark.sql import functions as f
from pyspark.sql import types as t

# Any two different numbers work; a change of them changes all stored digests.
SEEDS = (0x5EED0001, 0x5EED0002)
HASHES = tuple(f"_hash_{i}" for i in range(len(SEEDS)))
_BITMAP_BITS = 62
# Arrays that mix types of one text, such as a date and its text, differ down to this depth.
_VARIANT_LEVELS = 5
_WORD = 1 << 64


@dataclass(frozen=True)
class Digest:
    """The digest of a bag of rows. `xors` and `sums` are unsigned 64-bit numbers, one per seed."""

    rows: int
    xors: tuple[int, ...]
    sums: tuple[int, ...]

    @classmethod
    def of(cls, row: Row) -> "Digest":
        """Read the result of `digest_columns`."""
        return cls(
            rows=row["rows"],
            xors=tuple((row[f"xor_{i}"] or 0) % _WORD for i in range(len(SEEDS))),
            sums=tuple(
                ((row[f"high_{i}"] or 0) * (1 << 32) + (row[f"low_{i}"] or 0)) % _WORD
                for i in range(len(SEEDS))
            ),
        )

    def __add__(self, other: "Digest") -> "Digest":
        """Return the digest of both bags together."""
        return Digest(
            self.rows + other.rows,
            tuple(a ^ b for a, b in zip(self.xors, other.xors, strict=True)),
            tuple((a + b) % _WORD for a, b in zip(self.sums, other.sums, strict=True)),
        )

    def __sub__(self, other: "Digest") -> "Digest":
        """Return the digest that gives this one with the other. Its number of rows may be negative."""
        return Digest(
            self.rows - other.rows,
            tuple(a ^ b for a, b in zip(self.xors, other.xors, strict=True)),
            tuple((a - b) % _WORD for a, b in zip(self.sums, other.sums, strict=True)),
        )

    def __str__(self) -> str:
        """Return a short text for reports."""
        return f"{self.rows}:{self.xors[0] ^ self.sums[1]:016x}"


EMPTY = Digest(0, (0,) * len(SEEDS), (0,) * len(SEEDS))


def digest(df: DataFrame) -> Digest:
    """Digest all rows. One job."""
    (row,) = df.select(*row_hashes(df.schema)).agg(*digest_columns()).collect()
    return Digest.of(row)


def digests(
    frames: Sequence[DataFrame], parts: Sequence[Column] = (), *, in_one_task: bool = False
) -> list[Digest]:
    """Digest all rows of each DataFrame, then the rows of the first one for which each of `parts` is true.

    All DataFrames have the same columns. One job reads each of them once. The rows are hashed above their
    union: planned apart, each digest costs more than a few rows do. No part becomes a filter of the first
    DataFrame, so its source leaves out no rows by it. `in_one_task`: for rows that cost less than tasks.
    """
    number = new_name(frames[0].columns)
    whole, *rest = frames
    marks = [f.when(part, f.lit(len(frames) + index)) for index, part in enumerate(parts)]
    first = f.explode(f.array_compact(f.array(f.lit(0), *marks))) if parts else f.lit(0)
    numbered = [whole.withColumn(number, first)]
    numbered += [frame.withColumn(number, f.lit(index)) for index, frame in enumerate(rest, 1)]
    rows = reduce(DataFrame.unionByName, numbered)
    rows = rows.coalesce(1) if in_one_task else rows
    united = rows.select(f.col(number).alias("_number"), *row_hashes(whole.schema))
    digests = united.groupBy("_number").agg(*digest_columns()).collect()
    by_number = {row["_number"]: Digest.of(row) for row in digests}
    return [by_number.get(index, EMPTY) for index in range(len(frames) + len(parts))]


def new_name(names: Sequence[str]) -> str:
    taken, name = {name.lower() for name in names}, "_number"
    while name in taken:
        name += "_"
    return name


def digest_by(df: DataFrame, keys: Sequence[Column]) -> DataFrame:
    """Return a digest per group: the keys, then `digest_columns`. Lazy.

    The keys need names; they may be columns of `df`, which stay part of the digest.
    """
    hashed = df.select(*keys, *row_hashes(df.schema))
    names = hashed.columns[: len(keys)]
    return hashed.groupBy(*(f.col(quoted(name)) for name in names)).agg(*digest_columns())


def halves(word: Column) -> tuple[Column, Column]:
    """Return the signed and the unsigned half of a 64-bit hash.

    A sum of hashes would overflow, which is an error under ANSI rules: the halves are summed apart.
    """
    return f.shiftright(word, 32), word.bitwiseAND(f.lit(0xFFFFFFFF))


def digest_columns() -> list[Column]:
    """Return the aggregates over row hashes."""
    columns = [f.count(f.lit(1)).alias("rows")]
    for i, word in enumerate(map(f.col, HASHES)):
        high, low = halves(word)
        columns += [
            f.bit_xor(word).alias(f"xor_{i}"),
            f.sum(high).alias(f"high_{i}"),
            f.sum(low).alias(f"low_{i}"),
        ]
    return columns


def row_hashes(schema: t.StructType) -> list[Column]:
    """Return a row's hash per seed, with the names `HASHES`."""
    return [row_hash(schema, seed).alias(name) for name, seed in zip(HASHES, SEEDS, strict=True)]


def row_hash(schema: t.StructType, seed: int) -> Column:
    """Return a row's 64-bit hash, a pure function of its values and the seed."""
    words = [
        word
        for field in schema.fields
        for word in _words(f.col(quoted(field.name)), field.dataType, nullable=True, seed=seed)
    ]
    return _hash(words, seed)


@dataclass(frozen=True)
class _Word:
    """A hashable column. xxhash64 skips nulls, so a separate bitmap marks them."""

    value: Column | None
    null: Column | None


def _hash(words: Sequence[_Word], seed: int) -> Column:
    flags = [word.null for word in words if word.null is not None]
    bitmaps = [
        reduce(
            Column.bitwiseOR, (_bit(flag, place) for place, flag in enumerate(flags[start:][:_BITMAP_BITS]))
        )
        for start in range(0, len(flags), _BITMAP_BITS)
    ]
    return f.xxhash64(f.lit(seed), *bitmaps, *(word.value for word in words if word.value is not None))


def _bit(flag: Column, place: int) -> Column:
    return f.when(flag, f.lit(1 << place).cast("bigint")).otherwise(f.lit(0).cast("bigint"))


def _words(value: Column, data_type: t.DataType, *, nullable: bool, seed: int) -> list[_Word]:
    """Return the hashed parts of a value: the fields of a struct, or the value itself."""
    null = f.isnull(value) if nullable else None
    if isinstance(data_type, t.StructType):
        inner = [
            word
            for field in data_type.fields
            for word in _words(value.getField(field.name), field.dataType, nullable=True, seed=seed)
        ]
        return [_Word(None, null), *inner]
    if isinstance(data_type, t.ArrayType):
        return [_Word(f.size(value), null), _Word(_element_hashes(value, data_type.elementType, seed), None)]
    if isinstance(data_type, t.MapType):
        return [_Word(f.size(value), null), _Word(_entry_hashes(value, data_type, seed), None)]
    if isinstance(data_type, t.VariantType):
        # Equal text and equal types: 1 and 1.0 are different variants with the same JSON.
        return [_Word(f.to_json(value), null), _Word(_variant_types(value, _VARIANT_LEVELS), None)]
    if isinstance(data_type, t.NullType):
        return []
    return [_Word(_canonical(value, data_type), null)]


def _variant_types(value: Column, levels: int) -> Column:
    """Return the types of all values in a variant as a text.

    Spark's schema of an array is one type that fits all of its elements, so these are looked at one by one.
    """
    schema = f.schema_of_variant(value)
    if levels == 0:
        return schema
    elements = f.try_variant_get(value, "$", "array<variant>")
    fields = f.map_values(f.try_variant_get(value, "$", "map<string, variant>"))
    inner = f.transform(
        f.coalesce(elements, fields), lambda inner_value: _variant_types(inner_value, levels - 1)
    )
    return f.when(f.contains(schema, f.lit("ARRAY")), f.concat_ws(";", schema, inner)).otherwise(schema)


def _element_hashes(array: Column, element: t.DataType, seed: int) -> Column:
    return f.transform(array, lambda value: _hash(_words(value, element, nullable=True, seed=seed), seed))


def _entry_hashes(entries: Column, data_type: t.MapType, seed: int) -> Column:
    def entry(pair: Column) -> Column:
        key = _words(pair.getField("key"), data_type.keyType, nullable=False, seed=seed)
        return _hash(
            [*key, *_words(pair.getField("value"), data_type.valueType, nullable=True, seed=seed)], seed
        )

    return f.array_sort(f.transform(f.map_entries(entries), entry))


def _canonical(value: Column, data_type: t.DataType) -> Column:
    """Return the value, with -0.0 made different from 0.0: for xxhash64 they are equal (as all NaNs are)."""
    if isinstance(data_type, t.FloatType | t.DoubleType):
        zero = f.lit(0).cast(data_type)
        # The only built-in function that shows the sign of a zero: the power -1 is an infinity of that sign.
        negative_zero = (value == zero) & (f.pow(value.cast("double"), f.lit(-1.0)) < 0)
        marker = f.lit(_NEGATIVE_ZERO[type(data_type)]).cast(data_type)
        return f.when(negative_zero, marker).otherwise(value)
    return value


# Replacements of -0.0: subnormal numbers that do not occur in real tables.
_NEGATIVE_ZERO: dict[type[t.DataType], float] = {t.FloatType: -7.006e-45, t.DoubleType: -2.5e-323}


def quoted(name: str) -> str:
    """Return a column's name in backquotes."""
    return "`" + name.replace("`", "``") + "`"
