"""Encodes JSON for bodies, logs and files, and says which texts can be sent."""

import re
from typing import Any

import orjson

_CONTROLS = re.compile(rb"\x7f|\xc2[\x80-\x9f]|\xe2\x80[\xa8-\xae]|\xe2\x81[\xa6-\xa9]")
"""The UTF-8 of U+007F to U+009F, of U+2028 to U+202E, and of U+2066 to U+2069."""
_DELETE = 0x7F
_MAX_CHARACTER_BYTES = 6
"""Of a character that has an escape."""


def json_bytes(value: Any) -> bytes:
    """Return a value as JSON on one line, for every reader."""
    return one_line(orjson.dumps(value))


def json_members(value: dict[str, Any]) -> bytes:
    """Return the members of a JSON object on one line, without its braces."""
    return json_bytes(value)[1:-1]


def json_line(value: Any) -> bytes:
    """Return a value as a line of JSON, with its end."""
    return json_bytes(value) + b"\n"


def begin_of(text: str, most_bytes: int) -> str:
    """Return the begin of a text that has at most that many bytes as JSON, without the quotes."""
    while len(text) * _MAX_CHARACTER_BYTES > most_bytes:
        excess = len(json_bytes(text)) - len('""') - most_bytes
        if excess <= 0:
            break
        text = text[: -max(1, excess // _MAX_CHARACTER_BYTES)]
    return text


def one_line(json: bytes) -> bytes:
    """Return JSON without raw control characters. JSON itself requires escapes only below U+0020.

    Python's `splitlines`, by which clients read answers, breaks lines at some of them. Terminals, which show
    logs, take others as commands, or show the text behind them in another order.
    """
    # A number is found in bytes ten times as fast as bytes of its length.
    return json if json.isascii() and _DELETE not in json else _CONTROLS.sub(_escaped, json)


def is_utf_8(text: str) -> bool:
    """Return whether a text can be sent: escapes and bytes of variables may be half of a character."""
    try:
        return text.isascii() or bool(text.encode())
    except UnicodeEncodeError:
        return False


def is_header_token(text: str) -> bool:
    """Return whether a header can have a text: visible characters of ASCII alone."""
    return text.isascii() and text.isprintable() and " " not in text


def _escaped(control: re.Match[bytes]) -> bytes:
    return b"\\u%04x" % ord(control[0].decode())
