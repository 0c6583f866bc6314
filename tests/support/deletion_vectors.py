"""Deletion vectors in plain Python: the slow reference for `_native` (PROTOCOL, Deletion Vector Format)."""

import struct
import uuid
import zlib
from collections.abc import Iterable, Iterator
from itertools import groupby

MAGIC = 1681511377
NO_RUN_COOKIE, RUN_COOKIE = 12346, 12347
LARGEST_ARRAY = 4096
UUID_CHARACTERS = 20
Z85 = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#"


def encode(rows: Iterable[int]) -> bytes:
    """The serialized vector: a roaring bitmap for each 2^32 rows."""
    bitmaps = [(key, list(group)) for key, group in groupby(sorted(set(rows)), key=lambda row: row >> 32)]
    encoded = b"".join(struct.pack("<I", key) + encode_bitmap(group) for key, group in bitmaps)
    return struct.pack("<IQ", MAGIC, len(bitmaps)) + encoded


def encode_bitmap(rows: list[int]) -> bytes:
    """RoaringFormatSpec without runs."""
    containers = [
        (key, [row & 0xFFFF for row in group])
        for key, group in groupby(rows, key=lambda row: row >> 16 & 0xFFFF)
    ]
    header = struct.pack("<II", NO_RUN_COOKIE, len(containers))
    header += b"".join(struct.pack("<HH", key, len(values) - 1) for key, values in containers)
    bodies = [encode_container(values) for _, values in containers]
    at = len(header) + 4 * len(containers)
    for body in bodies:
        header += struct.pack("<I", at)
        at += len(body)
    return header + b"".join(bodies)


def encode_container(values: list[int]) -> bytes:
    """An array, or a bitmap where there are many values."""
    if len(values) <= LARGEST_ARRAY:
        return struct.pack(f"<{len(values)}H", *values)
    bits = bytearray(8192)
    for value in values:
        bits[value >> 3] |= 1 << (value & 7)
    return bytes(bits)


def file_of(vector: bytes) -> bytes:
    """A deletion vector file with one vector at offset 1."""
    return b"\x01" + struct.pack(">I", len(vector)) + vector + struct.pack(">I", zlib.crc32(vector))


def decode(vector: bytes) -> list[int]:
    """Rows of a serialized vector."""
    magic, count = struct.unpack_from("<IQ", vector)
    assert magic == MAGIC
    rows: list[int] = []
    at = 12
    for _ in range(count):
        (key,) = struct.unpack_from("<I", vector, at)
        found, at = decode_bitmap(vector, at + 4)
        rows += [key << 32 | row for row in found]
    return rows


def decode_bitmap(data: bytes, start: int) -> tuple[list[int], int]:
    """One roaring bitmap and where it ends."""
    (cookie,) = struct.unpack_from("<I", data, start)
    at = start + 4
    if cookie & 0xFFFF == RUN_COOKIE:
        count = (cookie >> 16) + 1
        flags = data[at : at + (count + 7) // 8]
        at += len(flags)
    else:
        assert cookie == NO_RUN_COOKIE
        (count,) = struct.unpack_from("<I", data, at)
        flags = bytes(count)
        at += 4
    headers = [struct.unpack_from("<HH", data, at + 4 * place) for place in range(count)]
    at += 4 * count
    if cookie & 0xFFFF == NO_RUN_COOKIE or count >= 4:
        at += 4 * count
    rows: list[int] = []
    for place, (key, last) in enumerate(headers):
        found, at = decode_container(data, at, last + 1, is_run=bool(flags[place >> 3] >> (place & 7) & 1))
        rows += [key << 16 | value for value in found]
    return rows, at


def decode_container(data: bytes, at: int, cardinality: int, *, is_run: bool) -> tuple[list[int], int]:
    """The values of one container and where it ends."""
    if is_run:
        (runs,) = struct.unpack_from("<H", data, at)
        pairs = [struct.unpack_from("<HH", data, at + 2 + 4 * place) for place in range(runs)]
        return [value for start, more in pairs for value in range(start, start + more + 1)], at + 2 + 4 * runs
    if cardinality <= LARGEST_ARRAY:
        return list(struct.unpack_from(f"<{cardinality}H", data, at)), at + 2 * cardinality
    return list(bits_of(data[at : at + 8192])), at + 8192


def bits_of(bits: bytes) -> Iterator[int]:
    """Places of the set bits."""
    for place, byte in enumerate(bits):
        yield from (place << 3 | bit for bit in range(8) if byte >> bit & 1)


def from_z85(text: str) -> bytes:
    """Decodes ZeroMQ's base 85."""
    words = [text[at : at + 5] for at in range(0, len(text), 5)]
    numbers = [sum(Z85.index(char) * 85 ** (4 - place) for place, char in enumerate(word)) for word in words]
    return b"".join(number.to_bytes(4, "big") for number in numbers)


def to_z85(content: bytes) -> str:
    """Encodes ZeroMQ's base 85."""
    words = [int.from_bytes(content[at : at + 4], "big") for at in range(0, len(content), 4)]
    return "".join(Z85[word // 85**place % 85] for word in words for place in (4, 3, 2, 1, 0))


def file_name(text: str) -> str:
    """The path of a vector's file that a descriptor of type `u` names: a prefix and a UUID in base 85."""
    prefix, name = text[:-UUID_CHARACTERS], from_z85(text[-UUID_CHARACTERS:])
    return f"{prefix}{'/' if prefix else ''}deletion_vector_{uuid.UUID(bytes=name)}.bin"
