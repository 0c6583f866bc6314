"""Makes untrusted text safe to display: every character is visible and allowed in HTML and XML."""

import os
import re

_FORBIDDEN = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff\ufdd0-\ufdef\ufffe\uffff]"
)
_CONTROL_PICTURES = 0x2400
_SPACE = 0x20
_DELETE = 0x7F


def printable(text: str) -> str:
    """Text with a symbol such as `\N{SYMBOL FOR NULL}` for each control character.

    U+FFFD replaces lone surrogates, noncharacters, and characters that reorder the text after them, with
    which a name could look like another one. Line breaks and tabs are unchanged.
    """
    return _FORBIDDEN.sub(_picture, text)


def escaped(text: str) -> str:
    r"""Text on one line, with an escape such as `\x00` for each character that is not printable."""
    return "".join(character if character.isprintable() else ascii(character)[1:-1] for character in text)


def shortened(text: str, most: int) -> str:
    """Text on one line of at most `most` characters, without its middle: long names differ at their ends."""
    line = " ".join(printable(text).split())
    if len(line) <= most:
        return line
    head = (most - 1) // 2
    return f"{line[:head]}\N{HORIZONTAL ELLIPSIS}{line[len(line) - (most - 1 - head) :]}"


def _picture(match: re.Match[str]) -> str:
    code = ord(match[0])
    if code < _SPACE:
        return chr(_CONTROL_PICTURES + code)
    return "\N{SYMBOL FOR DELETE}" if code == _DELETE else "\N{REPLACEMENT CHARACTER}"


def system_error_text(error: OSError) -> str:
    """Return an error of the system after the file that it names, without its number."""
    if error.strerror is None:
        return str(error)
    place = "" if error.filename is None else f"{os.fsdecode(error.filename)}: "
    return f"{place}{error.strerror}"
