"""The form in which names of recipients are compared for confusion, and names that none can have.

Names that look the same would let one recipient be taken for another in logs, lists and grants. They are
compared after NFKC, without case, and with the letters of other scripts that look like Latin ones replaced.
"""

from __future__ import annotations

import unicodedata

BUILT_IN = ("anonymous", "authorization.bearerToken")
"""Recipients that the server itself makes."""

_NOT_SHOWN = frozenset({"Cc", "Cf", "Co", "Cs", "Cn", "Zl", "Zp"})
"""Categories of characters that are not shown, or that change how others are shown."""
_LOOKALIKES = str.maketrans(
    "\u0430\u0435\u043e\u0440\u0441\u0443\u0445\u0456\u0458\u0455\u04bb\u0501\u051b\u051d\u0261\u0131\u0237"
    "\u03b1\u03b9\u03bf\u03bd\u03c1\u03c5\u03ba\u03c7\u0432\u043a\u043c\u043d\u0442",
    "aeopcyxijshdqwgijaiovpukxbkmht",
)
"""Small letters of Cyrillic, Greek and others that look like Latin ones, small or capital."""


def name_form(name: str) -> str:
    """Return a name as it looks: equal for names that are easily confused."""
    folded = unicodedata.normalize("NFKC", name).casefold()
    return unicodedata.normalize("NFKC", folded).translate(_LOOKALIKES)


def is_built_in(name: str) -> bool:
    """Return whether a name is taken for that of a recipient that the server itself makes."""
    return name_form(name) in {name_form(built_in) for built_in in BUILT_IN}


def new_name_problem(name: str) -> str | None:
    """Return why no new recipient can have a name, whatever others there are; None if one can."""
    if any(unicodedata.category(character) in _NOT_SHOWN for character in name):
        return "it has a character that is not shown, or that changes how others are shown"
    if is_built_in(name):
        return "the server itself has a recipient of this name"
    return None
