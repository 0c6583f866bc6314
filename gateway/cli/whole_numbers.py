"""Whole numbers on the command line, as types of argparse, which raise ArgumentTypeError."""

from __future__ import annotations

import argparse
import re

MOST_PROCESSES = 9999
_NUMBER = re.compile("[0-9]{1,18}")
"""Those that native code takes."""


def whole_number(text: str) -> int:
    """Parse a number of 0 or more."""
    if _NUMBER.fullmatch(text) is None:
        raise argparse.ArgumentTypeError(f"'{text}' is not a whole number of 0 or more")
    return int(text)


def process_count(text: str) -> int:
    """Parse a number of servers or workers."""
    if _NUMBER.fullmatch(text) is None or not 1 <= int(text) <= MOST_PROCESSES:
        raise argparse.ArgumentTypeError(f"'{text}' is not a number from 1 to {MOST_PROCESSES}")
    return int(text)
