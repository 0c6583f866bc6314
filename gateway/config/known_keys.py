"""The keys of sections: dataclasses whose fields are read from YAML."""

from __future__ import annotations

import dataclasses
import functools
import typing
from collections.abc import Mapping
from typing import Any


def camel_case(field: str) -> str:
    """Return the YAML key of a field: `page_size_limit` is `pageSizeLimit`."""
    head, *rest = field.split("_")
    return head + "".join(word.capitalize() for word in rest)


types_of = functools.cache(typing.get_type_hints)
"""The types of a section's fields, evaluated once: a file may have thousands of tables."""


@functools.cache
def known_keys(section: type) -> Mapping[str, dataclasses.Field[Any]]:
    """Map the YAML keys of a section to its fields."""
    fields = dataclasses.fields(section)
    return {camel_case(field.name): field for field in fields if not field.metadata.get("found")}
