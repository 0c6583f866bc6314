"""Writes documents as YAML, by libyaml where PyYAML has it, which is ten times faster."""

from __future__ import annotations

from typing import Any

import yaml

_BaseDumper: Any = getattr(yaml, "CSafeDumper", yaml.SafeDumper)
LINE_BREAKS = frozenset("\r\x85\u2028\u2029")


def dumped(document: object) -> str:
    """Return a document as YAML that `yaml.safe_load` reads as it was."""
    return yaml.dump(document, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=100)


class _Dumper(_BaseDumper):  # type: ignore[misc]
    """Writes texts with line breaks other than LF in double quotes: PyYAML folds them in other styles."""


def _text(dumper: Any, text: str) -> yaml.ScalarNode:
    style = '"' if LINE_BREAKS & {*text} else None
    node: yaml.ScalarNode = dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)
    return node


_Dumper.add_representer(str, _text)
