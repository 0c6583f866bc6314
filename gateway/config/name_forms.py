"""The form in which names of recipients are compared for confusion, and names that none can have.

In logs, lists and grants, names that look the same would confuse two recipients. They are
compared after NFKC, without case, and with the letters of other scripts that look like Latin ones replaced.
"""

from __future__ import annotations

import unicodedata

BUILT_IN = ("anonymous", "authorization.bearerToken")
"""Recipients that the server itself makes."""

_NOT_SHOWN = frozenset({"Cc", "Cf", "Co", "Cs", "Cn", "Zl", "Zp"})
"""Categories of characters that are not shown, or that change how others are shown."""
_FILLERS = "\u034f\u115f\u1160\u17b4\u17b5\u2800\u3164\uffa0"
"""Not shown either, though they count as letters, marks or symbols."""
_SELECTORS = "".join(map(chr, (*range(0x180B, 0x1810), *range(0xFE00, 0xFE10), *range(0xE0100, 0xE01F0))))
"""They choose a form of the character before them, which may look the same."""
_JOINERS = "\u200c\u200d"
"""Not shown either, but words of Persian and of many scripts of India are spelled with them."""
_VIRAMA = 9
"""The combining class of the signs behind which a joiner decides how letters are joined."""
_LETTERS = (
    "\u0430\u0435\u043e\u0440\u0441\u0443\u0445\u0456\u0458\u0455\u04bb\u0501\u051b\u051d\u0261\u0131\u0237"
    "\u03b1\u03b9\u03bf\u03bd\u03c1\u03c5\u03ba\u03c7"
    "\u0410\u0412\u0415\u041a\u041c\u041d\u041e\u0420\u0421\u0422\u0423\u0425\u0406\u0408\u0405\u050c\u051a\u051c"
    "\u0391\u0392\u0395\u0396\u0397\u0399\u039a\u039c\u039d\u039f\u03a1\u03a4\u03a5\u03a7"
)
"""Of Cyrillic, Greek and others, small ones first. Some look like a Latin letter as capitals alone."""
_LOOKALIKES = str.maketrans(
    _LETTERS, "aeopcyxijshdqwgijaiovpukxABEKMHOPCTYXIJSGQWABEZHIKMNOPTYX", _JOINERS + _SELECTORS
)


def name_form(name: str) -> str:
    """Return a name as it looks: equal for names that are easily confused."""
    shown = unicodedata.normalize("NFKC", name).translate(_LOOKALIKES)
    return unicodedata.normalize("NFKC", shown.casefold())


def is_built_in(name: str) -> bool:
    """Return whether a name looks like the name of a built-in recipient."""
    return name_form(name) in {name_form(built_in) for built_in in BUILT_IN}


def new_name_problem(name: str) -> str | None:
    """Return why no new recipient can have a name, whatever others there are; None if one can."""
    if has_hidden(name) or not name_form(name):
        return "it has a character that is not shown, or that changes how others are shown"
    if is_built_in(name):
        return "the server itself has a recipient of this name"
    return None


def has_hidden(name: str) -> bool:
    """Return whether a name has a character that is not shown, or that changes how others are shown."""
    hidden = (at for at, character in enumerate(name) if _is_hidden(character))
    return not all(_joins(name, at) for at in hidden)


def _is_hidden(character: str) -> bool:
    return unicodedata.category(character) in _NOT_SHOWN or character in _FILLERS


def _joins(name: str, at: int) -> bool:
    """Return whether a character is a joiner in its place, as RFC 5892 (A.1 and A.2) has them in names."""
    before, joiner, after = name[at - 1 : at], name[at], name[at + 1 : at + 2]
    if joiner not in _JOINERS or not before:
        return False
    is_arabic = all(letter and unicodedata.bidirectional(letter) == "AL" for letter in (before, after))
    return unicodedata.combining(before) == _VIRAMA or (joiner == _JOINERS[0] and is_arabic)
