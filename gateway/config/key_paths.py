"""The paths of all keys below a section, for keys that are given on the wrong level."""

from __future__ import annotations

import dataclasses
import difflib
import functools
import typing
from collections.abc import Iterator, Mapping
from typing import Any

from gateway.config.known_keys import known_keys, types_of

LEAST_RATIO = 0.85
"""Of a key and a surely misspelt one: among all keys, one that has little to do with it is near."""

KeyPaths = Mapping[str, tuple[tuple[str, bool], ...]]
"""The paths of each key in lower case, with whether the key protects."""


@functools.cache
def key_paths(section: type) -> KeyPaths:
    by_name: dict[str, list[tuple[str, bool]]] = {}
    # The shallowest first.
    for path, name, protects in sorted(
        dict.fromkeys(_walk(section, "", ())), key=lambda entry: entry[0].count(".")
    ):
        by_name.setdefault(name.lower(), []).append((path, protects))
    return {name: tuple(paths) for name, paths in by_name.items()}


def right_paths(section: type, name: str) -> tuple[str, bool]:
    """Return where a key belongs that is unknown where it stands, and whether it protects there.

    Empty if no key has that name. Several levels may have it.
    """
    paths = key_paths(section).get(name.lower(), ())
    return ", ".join(path for path, _ in paths), bool(paths) and all(protects for _, protects in paths)


def nearest_paths(section: type, name: str) -> str:
    """Return the paths of the key whose name is nearest; empty if none is near."""
    near = difflib.get_close_matches(name.lower(), key_paths(section), n=1, cutoff=LEAST_RATIO)
    return right_paths(section, near[0])[0] if near else ""


def _walk(section: type, prefix: str, above: tuple[type, ...]) -> Iterator[tuple[str, str, bool]]:
    hints = types_of(section)
    for name, field in known_keys(section).items():
        path = f"{prefix}{name}"
        yield path, name, bool(field.metadata.get("protects"))
        for kind in _sections(hints[field.name]):
            if kind is not section and kind not in above:
                is_list = tuple in _kinds(hints[field.name])
                yield from _walk(kind, f"{path}{'[]' if is_list else ''}.", (*above, section))


def _sections(hint: Any) -> Iterator[type]:
    kinds = (kind for kind in _kinds(hint) if isinstance(kind, type) and dataclasses.is_dataclass(kind))
    # A location is one text, and its parts are no keys.
    return (kind for kind in kinds if not hasattr(kind, "parse"))


def _kinds(hint: Any) -> Iterator[Any]:
    """Iterate over a type, the options of a union and the items of a list."""
    origin = typing.get_origin(hint)
    yield hint if origin is None else origin
    if origin is not typing.Literal:
        for argument in typing.get_args(hint):
            yield from _kinds(argument)
