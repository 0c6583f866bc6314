"""Reads YAML by libyaml where PyYAML has it, which is six times faster than PyYAML alone.

Nodes are composed in Python: libyaml's own composer ends the process on a text of many brackets.
"""

from __future__ import annotations

import re
from contextlib import suppress
from itertools import chain
from pathlib import Path
from typing import Any

import yaml
from yaml.composer import Composer
from yaml.constructor import ConstructorError, SafeConstructor
from yaml.reader import ReaderError

MERGE_KEY = "tag:yaml.org,2002:merge"
"""The tag of a key `<<` without quotes."""

_DIFFERENT = re.compile("[\t\ufeff]|(?<![^\\s\\[\\]{},:?-])!")
"""Where libyaml reads what PyYAML refuses, or reads otherwise: tabs, byte order marks, tags of one `!`."""


def _loader(fast: Any) -> Any:
    """Return the loader with PyYAML's composer, whose bases have it where `fast` is absent."""
    if fast is None:
        return yaml.SafeLoader

    class Loader(Composer, fast):  # type: ignore[misc]
        def __init__(self, text: str) -> None:
            fast.__init__(self, text)
            Composer.__init__(self)

    return Loader


_Loader = _loader(getattr(yaml, "CSafeLoader", None))


def compose(text: str) -> yaml.Node | None:
    """Return the root of the one document of a text, None without any.

    Raises yaml.YAMLError, and RecursionError for a text of many brackets.
    """
    if not _DIFFERENT.search(text):
        # PyYAML names the line of a fault: libyaml's is beyond the end where something is missing there.
        with suppress(yaml.YAMLError, UnicodeEncodeError):
            return yaml.compose(text, Loader=_Loader)
    try:
        return yaml.compose(text, Loader=yaml.SafeLoader)
    except ValueError as error:
        # An escape of a character beyond the last one.
        raise yaml.YAMLError(str(error)) from None


class _Constructor(SafeConstructor):
    """Makes values of nodes; what is none of its kind, as the day 2026-02-30, is an error of YAML."""

    def construct_object(self, node: yaml.Node, deep: bool = False) -> Any:
        try:
            return super().construct_object(node, deep)
        except (ValueError, LookupError, AttributeError):
            raise ConstructorError(None, None, f"no value of the tag {node.tag}", node.start_mark) from None


def loaded(text: str) -> Any:
    """Return the one document of a text as `yaml.safe_load` does, None without any. Raises as `compose`.

    A key that a map has twice is an error: the last value would take the place of the others.
    """
    root = compose(text)
    if root is None:
        return None
    _check_keys(root)
    return _Constructor().construct_document(root)


def _check_keys(root: yaml.Node) -> None:
    """Raise ConstructorError for a key that a map has twice. Aliases make one node part of several."""
    nodes, checked = [root], set[int]()
    while nodes:
        node = nodes.pop()
        if isinstance(node, yaml.ScalarNode) or id(node) in checked:
            continue
        checked.add(id(node))
        pairs = node.value if isinstance(node, yaml.MappingNode) else []
        names = set[tuple[str, str]]()
        for key in (key for key, _ in pairs if isinstance(key, yaml.ScalarNode)):
            if (key.tag, key.value) in names and key.tag != MERGE_KEY:
                raise ConstructorError(None, None, "found a key twice", key.start_mark)
            names.add((key.tag, key.value))
        nodes += chain.from_iterable(pairs) if pairs else node.value


def read_document(path: Path) -> Any:
    """Return the one document of a file. Raises OSError, and ValueError that names the file and the fault."""
    try:
        return loaded(path.read_text(encoding="utf-8"))
    except UnicodeDecodeError:
        raise ValueError(f"{path} is not UTF-8 text") from None
    except (yaml.YAMLError, RecursionError) as error:
        line, said = fault(error)
        raise ValueError(f"{path if line is None else f'{path}:{line}'} {said}") from None


def fault(error: Exception) -> tuple[int | None, str]:
    """Return the line of an error of `compose` or `loaded`, None where it has none, and what is said of it.

    The name of an alias or of a tag may be a secret without its quotes, and is left out.
    """
    if isinstance(error, ReaderError):
        name, number = f"U+{error.character:04X}", error.position + 1
        return None, f"is not YAML: {name}, its character {number}, is not allowed"
    if not isinstance(error, yaml.MarkedYAMLError):
        return None, f"is not YAML ({type(error).__name__})"
    mark = error.problem_mark
    problem = re.sub(r" '[^'<]{3,}'", "", (error.problem or "").removeprefix("but "))
    return None if mark is None else mark.line + 1, f"is not YAML: {problem}"
