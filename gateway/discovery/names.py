"""Which names of directories and catalogs can be names of shared schemas and tables."""

from __future__ import annotations

from gateway.config.checks import MAX_NAME_LENGTH
from gateway.config.name_forms import has_hidden

TOO_LONG = f"its name is longer than {MAX_NAME_LENGTH} characters"


def name_problem(name: str) -> str | None:
    """Return why a schema or a table cannot have a name; None if it can."""
    if name in ("", ".", ".."):
        return "its name is not valid"
    if len(name) > MAX_NAME_LENGTH:
        return TOO_LONG
    if "/" in name or has_hidden(name):
        return "its name has a control character, or one that is not shown"
    return None
