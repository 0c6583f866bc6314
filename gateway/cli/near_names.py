"""Names that resemble one that does not exist, for messages of commands."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches

SHOWN_NAMES, LEAST_RATIO = 3, 0.85
"""Names of one schema begin alike, so near ones are nearly equal."""


def near_names(name: str, known: Iterable[str]) -> str:
    """Return the end of a message that suggests near names; empty without any."""
    spellings = {spelling.casefold(): spelling for spelling in known}
    near = get_close_matches(name.casefold(), spellings, n=SHOWN_NAMES, cutoff=LEAST_RATIO)
    return f"; did you mean {' or '.join(spellings[name] for name in near)}?" if near else ""
