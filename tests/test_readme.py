"""The README's tables against the code: every configuration key, every route, every error."""

import dataclasses
import re
import typing
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from gateway.app import routes
from gateway.config import Config, Location
from gateway.config.reader import known_keys
from gateway.config.sections import RecipientEntry
from gateway.errors import STATUS_OF

README = (Path(__file__).resolve().parents[1] / "README.md").read_text(encoding="utf-8")
PREFIX = "{endpoint}"


def section(title: str) -> str:
    return README.split(f"\n## {title}\n")[1].split("\n## ")[0]


def first_cells(title: str) -> Iterator[str]:
    for row in section(title).splitlines():
        if row.startswith("| `"):
            yield row.split("|")[1]


def keys(kind: type, prefix: str = "") -> Iterator[str]:
    """Every key of a section and of those below it, as the README writes them."""
    hints = typing.get_type_hints(kind)
    for name, field in known_keys(kind).items():
        hint = hints[field.name]
        inner = [a for a in typing.get_args(hint) if a not in (type(None), Ellipsis)] or [hint]
        listed = typing.get_origin(hint) is tuple
        if (
            dataclasses.is_dataclass(inner[0])
            and inner[0] is not Location
            and not is_same_as_limits(kind, name)
        ):
            yield from keys(typing.cast("type[Any]", inner[0]), f"{prefix}{name}{'[]' if listed else ''}.")
        else:
            yield f"{prefix}{name}"


def is_same_as_limits(kind: type, name: str) -> bool:
    """A recipient's own limits have the keys of the general ones."""
    return kind is RecipientEntry and name == "limits"


def test_every_configuration_key_is_told_and_every_told_key_is_known() -> None:
    told = [key for cell in first_cells("Configuration") for key in re.findall(r"`([^`]+)`", cell)]
    assert len(told) == len(set(told))
    assert set(told) == set(keys(Config))


def test_every_route_is_told_and_every_told_route_is_there() -> None:
    told = {found for cell in first_cells("Routes") for found in re.findall(r"`([A-Z]+ [^`]+)`", cell)}
    there = {f"{route.method} {route.path.replace(':.+', '')}" for route in routes(PREFIX)}
    assert told == there


def test_every_error_is_told() -> None:
    told = {
        (int(status), code)
        for statuses, code in re.findall(r"\| ([\d, ]+) \| `([A-Z_]+)` \|", section("Errors"))
        for status in statuses.split(",")
    }
    assert told == {(status, code) for status, code in STATUS_OF.values()}
