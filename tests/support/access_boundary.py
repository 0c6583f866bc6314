"""Credential access boundaries of Google for tests: conditions in the part of CEL that they use.

The condition is parsed, so that a quote of a key that ends a literal early changes what it permits, or makes
it invalid.
"""

import re
from dataclasses import dataclass
from typing import Any

_LITERAL = r"""'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*\""""
_TOKEN = re.compile(rf"\s*({_LITERAL}|\|\||&&|[().,]|[\w.]+)")
_ESCAPE = re.compile(r"\\(u[0-9a-fA-F]{4}|U[0-9a-fA-F]{8}|.)", re.DOTALL)
_LIST_PREFIX = "storage.googleapis.com/objectListPrefix"
_ROLE = "inRole:roles/storage.objectViewer"


@dataclass(frozen=True)
class Boundary:
    """One rule: a bucket, and prefixes of resource names and of listings."""

    bucket: str
    names: tuple[str, ...]
    listings: tuple[str, ...]

    @staticmethod
    def parse(options: Any) -> "Boundary":
        """Parses a boundary. Raises ValueError, KeyError and TypeError."""
        (rule,) = options["accessBoundary"]["accessBoundaryRules"]
        if rule["availablePermissions"] != [_ROLE]:
            raise ValueError("permissions")
        bucket = rule["availableResource"].removeprefix("//storage.googleapis.com/projects/_/buckets/")
        if not re.fullmatch(r"[a-z0-9._-]+", bucket):
            raise ValueError("bucket")
        names, listings = [], []
        for term in _split(_tokens(rule["availabilityCondition"]["expression"])):
            match term:
                case ["resource.name.startsWith", "(", prefix, ")"]:
                    names.append(_text(prefix))
                case ["api.getAttribute", "(", name, ",", default, ")", ".startsWith", "(", prefix, ")"]:
                    if (_text(name), _text(default)) != (_LIST_PREFIX, ""):
                        raise ValueError(name)
                    listings.append(_text(prefix))
                case _:
                    raise ValueError("condition")
        return Boundary(bucket, tuple(names), tuple(listings))

    def permits(self, bucket: str, key: str, listed: str | None) -> bool:
        """Whether an object may be read, or a prefix be listed."""
        if bucket != self.bucket:
            return False
        name = (
            f"projects/_/buckets/{bucket}/objects/{key}" if listed is None else f"projects/_/buckets/{bucket}"
        )
        return name.startswith(self.names) or (listed is not None and listed.startswith(self.listings))


def _tokens(expression: str) -> list[str]:
    found, at = [], 0
    while at < len(expression):
        match = _TOKEN.match(expression, at)
        if match is None:
            raise ValueError(f"at {at}")
        found.append(match[1])
        at = match.end()
    return _joined(found)


def _joined(tokens: list[str]) -> list[str]:
    """Make one word of a dot and the name of a method after it."""
    joined: list[str] = []
    for token in tokens:
        if joined and joined[-1] == ".":
            joined[-1] += token
        else:
            joined.append(token)
    return joined


def _split(tokens: list[str]) -> list[list[str]]:
    terms: list[list[str]] = [[]]
    for token in tokens:
        if token == "||":
            terms.append([])
        else:
            terms[-1].append(token)
    return terms


def _text(literal: str) -> str:
    if literal[:1] not in {"'", '"'}:
        raise ValueError(literal)

    def character(match: re.Match[str]) -> str:
        code = match[1]
        if code[0] in "uU" and len(code) > 1:
            return chr(int(code[1:], 16))
        if code not in "\\'\"`?":
            raise ValueError(code)
        return code

    return _ESCAPE.sub(character, literal[1:-1])
