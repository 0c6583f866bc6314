"""Numbers of servers and workers on the command line."""

from __future__ import annotations

import argparse
import re

MOST = 9999
_NUMBER = re.compile("[1-9][0-9]{0,3}")


def process_count(text: str) -> int:
    """Parse a number of processes, as a type of argparse. Raises ArgumentTypeError."""
    if _NUMBER.fullmatch(text) is None:
        raise argparse.ArgumentTypeError(f"'{text}' is not a number from 1 to {MOST}")
    return int(text)
