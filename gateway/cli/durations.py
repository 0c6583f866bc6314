"""Durations on the command line: `90d`, `12h`, `30m`, `45s`, `2w`."""

from __future__ import annotations

import argparse
import re
from collections.abc import Mapping

from gateway.governance.recipient_records import DEFAULT_LIFE_SECONDS, MAX_LIFE_SECONDS
from gateway.times import DAY_SECONDS, HOUR_SECONDS

NEVER = "never"
"""In place of a lifetime: no end."""
_NO_END = 0
_LENGTH = re.compile(r"([0-9]{1,12})([smhdw])")
_SECONDS: Mapping[str, int] = {"s": 1, "m": 60, "h": HOUR_SECONDS, "d": DAY_SECONDS, "w": 7 * DAY_SECONDS}


def seconds(text: str) -> int:
    """Parse a duration in seconds, as a type of argparse. Raises ArgumentTypeError."""
    match = _LENGTH.fullmatch(text)
    if match is None:
        raise argparse.ArgumentTypeError(f"'{text}' is not a duration; accepted: 90d, 12h, 30m, 45s, 2w")
    length = int(match.group(1)) * _SECONDS[match.group(2)]
    if length > MAX_LIFE_SECONDS:
        most = MAX_LIFE_SECONDS // DAY_SECONDS
        raise argparse.ArgumentTypeError(f"'{text}' is too long; accepted: up to {most}d")
    return length


def life(text: str) -> int:
    """Parse the lifetime of a token, a duration of at least a second."""
    length = seconds(text)
    if length == 0:
        raise argparse.ArgumentTypeError(f"'{text}' is not a token lifetime; accepted: 1s and more")
    return length


def add_expires(parser: argparse.ArgumentParser, of: str) -> None:
    """Declare `--expires`, which `lifetime` reads."""
    parser.add_argument(
        "--expires",
        dest="expires_in_seconds",
        type=lambda text: _NO_END if text == NEVER else life(text),
        metavar="DURATION",
        help=f"lifetime of {of}, such as 30d, or `{NEVER}` for no end; "
        f"default {DEFAULT_LIFE_SECONDS // DAY_SECONDS}d",
    )


def lifetime(expires: int | None) -> int | None:
    """Return the seconds of an `--expires`; None for no end."""
    if expires is None:
        return DEFAULT_LIFE_SECONDS
    return expires or None
