"""Shredded variants, put together as by the plain form of the same."""

import datetime as dt
import random
from decimal import Context, Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import settings
from support import assembled_variants
from support.assembled_variants import Names, encoded_object, least_width

from gateway.client.actions import UnsupportedTable
from gateway.spark.read.variants import whole_variants

SEED = 20261123
ROWS, DICTIONARIES = 3 * settings().max_examples, 2 * settings().max_examples


def shredded(kind: pa.DataType | None) -> pa.DataType:
    fields = [("value", pa.binary())] + ([("typed_value", kind)] if kind is not None else [])
    return pa.struct(fields)


# Names are in no order, and one begins as another does.
LEAVES: dict[str, pa.DataType] = {
    "zeta": pa.bool_(),
    "b": pa.int8(),
    "short": pa.int16(),
    "whole": pa.int32(),
    "long": pa.int64(),
    "f": pa.float32(),
    "ff": pa.float64(),
    "day": pa.date32(),
    "at": pa.timestamp("us", "UTC"),
    "local": pa.timestamp("us"),
    "small": pa.decimal128(9, 2),
    "middle": pa.decimal128(18, 4),
    "large": pa.decimal128(38, 10),
    "bytes": pa.binary(),
    "wide bytes": pa.large_binary(),
    "text": pa.string(),
    "wide text é": pa.large_string(),
}
INNER = pa.struct([("long", shredded(pa.int64())), ("text", shredded(pa.string()))])
NESTED = {
    "object": INNER,
    "list": pa.list_(pa.field("element", shredded(pa.int64()))),
    "objects": pa.large_list(pa.field("element", shredded(INNER))),
    "untyped": None,
}
TYPES: dict[str, pa.DataType | None] = {**LEAVES, **NESTED}
OTHERS = [f"other {number}" for number in range(400)]
SCALARS = [b"\x00", b"\x04", b"\x0c\x07", b"\x11text", b"\x03\x00\x00"]


def metadata(names: list[str]) -> bytes:
    """The dictionary of names."""
    texts = [name.encode() for name in names]
    ends = [sum(map(len, texts[:count])) for count in range(len(texts) + 1)]
    width = least_width(max(ends[-1], len(texts)))
    numbers = b"".join(number.to_bytes(width, "little") for number in [len(texts), *ends])
    return bytes([1 | (width - 1) << 6]) + numbers + b"".join(texts)


def leaf(chance: random.Random, kind: pa.DataType) -> Any:
    if pa.types.is_boolean(kind):
        return chance.random() < 0.5
    if pa.types.is_floating(kind):
        return chance.choice([0.0, -0.0, 1.5, float("inf"), float("nan")])
    if pa.types.is_decimal(kind):
        digits = chance.choice([0, 1, -1, 10 ** (kind.precision - 1), -(10**kind.precision) + 1])
        return Decimal(digits).scaleb(-kind.scale, Context(prec=40))
    if pa.types.is_date32(kind):
        return dt.date(chance.randint(1, 9999), 2, 3)
    if pa.types.is_timestamp(kind) or pa.types.is_integer(kind):
        bits = 60 if pa.types.is_timestamp(kind) else kind.bit_width
        return chance.choice([0, 1, -1, 2 ** (bits - 1) - 1, -(2 ** (bits - 1))])
    text = "é" * chance.choice([0, 1, 31, 32, 200])
    return text.encode() if pa.types.is_binary(kind) or pa.types.is_large_binary(kind) else text


def variant(chance: random.Random, kind: pa.DataType | None, names: Names) -> dict[str, Any]:
    """Both halves of a variant."""
    if kind is None or chance.random() < 0.3:
        return {"value": chance.choice([None, *SCALARS]), "typed_value": None}
    if pa.types.is_struct(kind):
        fields = {
            one.name: {"value": None, "typed_value": None}
            if chance.random() < 0.3
            else variant(chance, typed_of(one.type), names)
            for one in kind
        }
        value = None
        if chance.random() < 0.5:
            left = chance.sample(OTHERS, chance.choice([0, 1, 5, 300]))
            parts = {name.encode(): chance.choice(SCALARS) for name in left}
            value = encoded_object({**parts, b"text": SCALARS[1]} if chance.random() < 0.3 else parts, names)
        return {"value": value, "typed_value": fields}
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        count = chance.choice([0, 1, 3, 300]) if chance.random() < 0.1 else chance.choice([0, 1, 3])
        items = [variant(chance, typed_of(kind.value_type), names) for _ in range(count)]
        return {"value": None, "typed_value": items}
    return {"value": None, "typed_value": leaf(chance, kind)}


def typed_of(group: pa.DataType) -> pa.DataType | None:
    index = group.get_field_index("typed_value")
    return None if index < 0 else group.field(index).type


# Drawn as of a property, more of it at night.
@pytest.mark.hypothesis
@pytest.mark.parametrize("top", ["object", *TYPES])
def test_the_native_form_is_the_plain_one(top: str) -> None:
    chance = random.Random(f"{SEED} {top}")
    whole = pa.struct([(name, shredded(kind)) for name, kind in TYPES.items()])
    kind = whole if top == "object" else TYPES[top]
    names = [*TYPES, *OTHERS]
    dictionaries = []
    for _ in range(DICTIONARIES):
        chance.shuffle(names)
        dictionaries.append(metadata(names))
    rows: list[Any] = []
    for _ in range(ROWS):
        dictionary = chance.choice(dictionaries)
        halves = variant(chance, kind, Names(dictionary))
        rows.append(None if chance.random() < 0.1 else {"metadata": dictionary, **halves})
    group = shredded(kind)
    array = pa.array(rows, pa.struct([("metadata", pa.binary()), *group]))
    for part in (array, array.slice(7, 50), array.slice(3, 0)):
        values, dictionary = whole_variants(part)
        expected, expected_dictionary = assembled_variants.whole_variants(part)
        assert [one or None for one in values.to_pylist()] == expected.to_pylist()
        assert [one or None for one in dictionary.to_pylist()] == expected_dictionary.to_pylist()


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        ({"metadata": metadata(["a"]), "value": b"\x02\x01\x00\x00"}, "ends too early"),
        ({"metadata": metadata(["b"]), "value": None}, "does not name"),
        ({"metadata": b"", "value": None}, "no dictionary"),
    ],
)
def test_what_is_no_variant_is_refused(row: dict[str, Any], reason: str) -> None:
    typed = {"a": {"value": None, "typed_value": 1}}
    with pytest.raises(UnsupportedTable, match=reason):
        whole_variants(pa.array([{**row, "typed_value": typed}]).cast(TYPED_ROW))


TYPED_ROW = pa.struct(
    [
        ("metadata", pa.binary()),
        ("value", pa.binary()),
        ("typed_value", pa.struct([("a", shredded(pa.int64()))])),
    ]
)
