"""The plain form of `rust/core/src/variant.rs`, row by row, which tests compare with it.

In: the struct of `metadata`, `value` and `typed_value` as Arrow reads it. Out: whole variants, encoded by
the Parquet specification of variants.
"""

import struct
from collections.abc import Mapping, Sequence
from decimal import Context, Decimal
from itertools import pairwise

import pyarrow as pa

from gateway.client.actions import UnsupportedTable

_OBJECT, _ARRAY = 2, 3
_SHORT_STRING_BYTES = 63
_SMALL_COUNT = 255
_NULL = b"\x00"
_TYPES = {
    "int8": (3, "<b"),
    "int16": (4, "<h"),
    "int32": (5, "<i"),
    "int64": (6, "<q"),
    "double": (7, "<d"),
    "float": (14, "<f"),
}
_DATE, _TIMESTAMP, _TIMESTAMP_NTZ, _BINARY, _STRING = 11, 12, 13, 15, 16
_WIDE = Context(prec=40)
# Maximum precision, type and width of decimals.
_DECIMALS = ((9, 8, 4), (18, 9, 8), (38, 10, 16))


def whole_variants(array: pa.StructArray) -> tuple[pa.Array, pa.Array]:
    """Return the values and the metadata of an array of shredded variants; a null row is null in both.

    Raises UnsupportedTable for a shredded type that variants do not have.
    """
    metadata = array.field("metadata").cast(pa.binary()).to_pylist()
    value, typed = _child(array, "value"), _child(array, "typed_value")
    valid = array.is_valid().to_pylist()
    values: list[bytes | None] = []
    for row, is_there in enumerate(valid):
        if not is_there:
            values.append(None)
            metadata[row] = None
            continue
        names = Names(metadata[row])
        # A top-level variant that is missing is, by the specification, read as null.
        values.append(_assembled(_scalar(value, row), typed, row, names) or _NULL)
    return pa.array(values, pa.binary()), pa.array(metadata, pa.binary())


class Names:
    """The dictionary of names in a variant's metadata."""

    def __init__(self, metadata: bytes) -> None:
        width = (metadata[0] >> 6) + 1
        count = int.from_bytes(metadata[1 : 1 + width], "little")
        ends = 1 + width + (count + 1) * width
        offsets = _numbers(metadata[1 + width : ends], width)
        names = (metadata[ends + start : ends + end] for start, end in pairwise(offsets))
        self.by_id = list(names)
        self.ids = {name: number for number, name in enumerate(self.by_id)}


def _assembled(value: bytes | None, typed: pa.Array | None, row: int, names: Names) -> bytes | None:
    """Return one variant from its two halves; None if both are missing."""
    if typed is None or not typed[row].is_valid:
        return value
    kind = typed.type
    if pa.types.is_struct(kind):
        fields = dict(_object_fields(value, names)) if value is not None else {}
        for index in range(kind.num_fields):
            found = _shredded(typed.field(index), row, names)
            if found is not None:
                fields[kind.field(index).name.encode()] = found
        return encoded_object(fields, names)
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        elements = typed[row].values
        return _array([_shredded(elements, place, names) or _NULL for place in range(len(elements))])
    return _primitive(typed[row], kind)


def _shredded(group: pa.StructArray, row: int, names: Names) -> bytes | None:
    return _assembled(_scalar(_child(group, "value"), row), _child(group, "typed_value"), row, names)


def _child(array: pa.StructArray, name: str) -> pa.Array | None:
    return array.field(name) if array.type.get_field_index(name) >= 0 else None


def _scalar(array: pa.Array | None, row: int) -> bytes | None:
    return None if array is None else array[row].as_py()


def _primitive(scalar: pa.Scalar, kind: pa.DataType) -> bytes:
    if pa.types.is_boolean(kind):
        return bytes([(1 if scalar.as_py() else 2) << 2])
    known = _TYPES.get(str(kind))
    if known is not None:
        return bytes([known[0] << 2]) + struct.pack(known[1], scalar.as_py())
    if pa.types.is_decimal(kind):
        return _decimal(scalar.as_py(), kind)
    if pa.types.is_date32(kind):
        return bytes([_DATE << 2]) + struct.pack("<i", scalar.cast(pa.int32()).as_py())
    if pa.types.is_timestamp(kind) and kind.unit == "us":
        number = _TIMESTAMP_NTZ if kind.tz is None else _TIMESTAMP
        return bytes([number << 2]) + struct.pack("<q", scalar.cast(pa.int64()).as_py())
    if pa.types.is_binary(kind) or pa.types.is_large_binary(kind):
        data: bytes = scalar.as_py()
        return bytes([_BINARY << 2]) + struct.pack("<I", len(data)) + data
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        text: bytes = scalar.as_py().encode()
        if len(text) <= _SHORT_STRING_BYTES:
            return bytes([len(text) << 2 | 1]) + text
        return bytes([_STRING << 2]) + struct.pack("<I", len(text)) + text
    raise UnsupportedTable(f"variants that are shredded as {kind} cannot be read")


def _decimal(value: Decimal, kind: pa.DataType) -> bytes:
    unscaled = int(value.scaleb(kind.scale, _WIDE))
    number, width = next((number, width) for most, number, width in _DECIMALS if kind.precision <= most)
    return bytes([number << 2, kind.scale]) + unscaled.to_bytes(width, "little", signed=True)


def encoded_object(fields: Mapping[bytes, bytes], names: Names) -> bytes:
    ordered = sorted(fields)
    unknown = [name for name in ordered if name not in names.ids]
    if unknown:
        raise UnsupportedTable("a shredded variant has a field that its metadata does not name")
    ids = [names.ids[name] for name in ordered]
    offsets, body = _joined([fields[name] for name in ordered])
    id_width, width = least_width(max(ids, default=0)), least_width(offsets[-1])
    is_large = len(ordered) > _SMALL_COUNT
    header = (is_large << 4 | (id_width - 1) << 2 | (width - 1)) << 2 | _OBJECT
    return b"".join(
        [
            bytes([header]),
            _count(len(ordered), is_large=is_large),
            _packed(ids, id_width),
            _packed(offsets, width),
            body,
        ]
    )


def _array(elements: Sequence[bytes]) -> bytes:
    offsets, body = _joined(elements)
    width, is_large = least_width(offsets[-1]), len(elements) > _SMALL_COUNT
    header = (is_large << 2 | (width - 1)) << 2 | _ARRAY
    return bytes([header]) + _count(len(elements), is_large=is_large) + _packed(offsets, width) + body


def _object_fields(value: bytes, names: Names) -> list[tuple[bytes, bytes]]:
    """Return the fields of an object that are not shredded."""
    if value[0] & 3 != _OBJECT:
        raise UnsupportedTable("a shredded variant is an object and another value at once")
    header = value[0] >> 2
    width, id_width = (header & 3) + 1, (header >> 2 & 3) + 1
    count_width = 4 if header >> 4 & 1 else 1
    count = int.from_bytes(value[1 : 1 + count_width], "little")
    ids_at = 1 + count_width
    offsets_at = ids_at + count * id_width
    body = value[offsets_at + (count + 1) * width :]
    ids = _numbers(value[ids_at:offsets_at], id_width)
    offsets = _numbers(value[offsets_at : offsets_at + (count + 1) * width], width)
    # Values may have another order than their names: each one ends at the start of the next one in the body.
    ends = dict(zip(sorted(offsets), sorted(offsets)[1:], strict=False))
    return [
        (names.by_id[number], body[start : ends[start]]) for number, start in zip(ids, offsets, strict=False)
    ]


def _joined(parts: Sequence[bytes]) -> tuple[list[int], bytes]:
    offsets = [0]
    for part in parts:
        offsets.append(offsets[-1] + len(part))
    return offsets, b"".join(parts)


def _numbers(data: bytes, width: int) -> list[int]:
    return [int.from_bytes(data[at : at + width], "little") for at in range(0, len(data), width)]


def _packed(numbers: Sequence[int], width: int) -> bytes:
    return b"".join(number.to_bytes(width, "little") for number in numbers)


def _count(count: int, *, is_large: bool) -> bytes:
    return count.to_bytes(4 if is_large else 1, "little")


def least_width(largest: int) -> int:
    return max((largest.bit_length() + 7) // 8, 1)
