"""Encodes JSON for bodies, logs and files."""

from typing import Any

import orjson

_LINE_BREAKS = ((b"\xc2\x85", rb"\u0085"), (b"\xe2\x80\xa8", rb"\u2028"), (b"\xe2\x80\xa9", rb"\u2029"))


def json_bytes(value: Any) -> bytes:
    """Return a value as JSON on one line, for every reader."""
    return one_line(orjson.dumps(value))


def json_members(value: dict[str, Any]) -> bytes:
    """Return the members of a JSON object on one line, without its braces."""
    return json_bytes(value)[1:-1]


def json_line(value: Any) -> bytes:
    """Return a value as a line of JSON, with its end."""
    return json_bytes(value) + b"\n"


def one_line(json: bytes) -> bytes:
    """Return JSON without raw U+0085, U+2028 and U+2029.

    Python's `splitlines`, by which clients read answers, breaks lines at them.
    """
    if not json.isascii():
        for raw, escaped in _LINE_BREAKS:
            json = json.replace(raw, escaped)
    return json
