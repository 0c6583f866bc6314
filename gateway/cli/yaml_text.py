"""Writes documents as YAML."""

from __future__ import annotations

import yaml

LINE_BREAKS = frozenset("\r\x85\u2028\u2029")


def dumped(document: object) -> str:
    """Return a document as YAML that `yaml.safe_load` reads as it was."""
    return yaml.dump(document, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=100)


class _Dumper(yaml.SafeDumper):
    """Writes texts with line breaks other than LF in double quotes: PyYAML folds them in other styles."""


def _text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    style = '"' if LINE_BREAKS & {*text} else None
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)


_Dumper.add_representer(str, _text)
