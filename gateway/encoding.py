"""Encodes JSON for bodies, logs and files."""

from typing import Any

import msgspec

_LINE_BREAKS = ((b"\xc2\x85", rb"\u0085"), (b"\xe2\x80\xa8", rb"\u2028"), (b"\xe2\x80\xa9", rb"\u2029"))


def json_bytes(value: Any) -> bytes:
    """Return a value as JSON on one line, for every reader.

    U+0085, U+2028 and U+2029 are escaped: Python's `splitlines`, by which clients read answers, breaks
    lines at them.
    """
    text = msgspec.json.encode(value)
    if not text.isascii():
        for raw, escaped in _LINE_BREAKS:
            text = text.replace(raw, escaped)
    return text


def json_line(value: Any) -> bytes:
    """Return a value as a line of JSON, with its end."""
    return json_bytes(value) + b"\n"
