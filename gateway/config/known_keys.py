"""The keys of sections: dataclasses whose fields are read from YAML."""

from __future__ import annotations

import dataclasses
import functools
import types
import typing
from collections.abc import Mapping
from typing import Any


def camel_case(field: str) -> str:
    """Return the YAML key of a field: `page_size_limit` is `pageSizeLimit`."""
    head, *rest = field.split("_")
    return head + "".join(word.capitalize() for word in rest)


def forms_of(section: Any) -> tuple[Any, ...]:
    """Return the classes of a section: of a union the one that its forms have in common, and the forms."""
    is_union = typing.get_origin(section) in (typing.Union, types.UnionType)
    return (
        tuple(form for form in typing.get_args(section) if form is not type(None)) if is_union else (section,)
    )


@functools.cache
def types_of(section: Any) -> Mapping[str, Any]:
    """Map the fields of a section to their types, evaluated once: a file may have thousands of tables."""
    return {name: hint for form in forms_of(section) for name, hint in typing.get_type_hints(form).items()}


@functools.cache
def known_keys(section: Any) -> Mapping[str, dataclasses.Field[Any]]:
    """Map the YAML keys of a section to its fields."""
    fields = (field for form in forms_of(section) for field in dataclasses.fields(form))
    return {camel_case(field.name): field for field in fields if not field.metadata.get("found")}
