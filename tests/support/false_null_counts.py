"""Parquet footers whose numbers of nulls are too high, as some releases of Polars write them."""

import struct

TAIL_BYTES = 8
NULL_COUNT = (b"\x16", b"\x36")
"""The field of `Statistics` in Thrift's compact protocol, with and without the older bounds before it."""
MAX_VALUE = b"\x28"
"""The field behind it: the column has a bound, and so a value."""


def with_null_counts(content: bytes, nulls: int, stated: int) -> bytes:
    """Return a file that states another number of nulls for columns with a value and `nulls` nulls.

    Both numbers are below 64, so that each is one byte.
    """
    (length,) = struct.unpack("<I", content[-TAIL_BYTES:-4])
    start = len(content) - TAIL_BYTES - length
    data, footer = content[:start], content[start:]
    wrong = footer
    for field in NULL_COUNT:
        wrong = wrong.replace(field + bytes([2 * nulls]) + MAX_VALUE, field + bytes([2 * stated]) + MAX_VALUE)
    assert wrong != footer, "no column has so many nulls"
    return data + wrong
