"""Where projections may be: apart from their sources, and from what is shared otherwise.

The directory of a projection has rows before their proof. Each message names the table and what to change.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

from gateway.config.errors import shown
from gateway.config.locations import Location
from gateway.config.sections import Config


def projection_problem(config: Config) -> str | None:
    """Return why the directories of projections may not be as they are; None if they may."""
    return next(_problems(config), None)


def containing_projection(location: Location, roots: Mapping[Location, str]) -> str | None:
    """Return the name of the projection whose directory is a location or contains it; None without one."""
    return next((roots[one] for one in (location, *_outer(location)) if one in roots), None)


def projection_roots(config: Config) -> dict[Location, str]:
    """Return the names of all projections by their directories."""
    return {
        table.location: f"{share.name}.{schema.name}.{table.name}"
        for share in config.shares
        for schema in share.schemas
        for table in schema.tables
        if table.projection is not None
    }


def _problems(config: Config) -> Iterator[str]:
    projections = [
        (table.location, f"{share.name}.{schema.name}.{table.name}", table.projection)
        for share in config.shares
        for schema in share.schemas
        for table in schema.tables
        if table.projection is not None
    ]
    roots = {root: name for root, name, _ in projections}
    for root, name, projection in projections:
        base = replace(root, key=root.key.rpartition("/")[0])
        if base.contains(projection.source) or projection.source.contains(base):
            yield f"{name} cannot be a projection: its location and its source lie within each other"
        outer = next((roots[one] for one in _outer(projection.source) if one in roots), None)
        if outer is not None:
            yield (
                f"{name} cannot be a projection: its source lies within the projection {outer}, whose "
                "directory has rows before their proof; let the source be that projection itself"
            )
    if projections:
        yield from _problems_of_others(config, roots)


def _problems_of_others(config: Config, roots: Mapping[Location, str]) -> Iterator[str]:
    """Iterate over what else would show files of a projection. `roots`: their names by their directories."""
    tables = ((share, table) for share in config.shares for one in share.schemas for table in one.tables)
    for share, table in tables:
        if "dir" in table.access_modes and table.location in roots:
            yield (
                f"{share.name}.{table.name} cannot offer directory access: it is the projection "
                f"{roots[table.location]}, whose directory has rows before their proof"
            )
    # Tables of a catalog are compared one by one when they are found.
    templates = [one for one in (source.discovery.discover for source in config.sources) if one is not None]
    for template in templates:
        inner = [name for root, name in roots.items() if template.root.contains(root)]
        if inner:
            yield (
                f"tables are discovered in a directory that contains the projection {inner[0]}, and would "
                "be found before their proof; move one of them"
            )
    for location in config.locations:
        for outer in _outer(location):
            if outer in roots:
                yield (
                    f"{shown(location.url)} lies within the projection {roots[outer]}, whose directory has "
                    "rows before their proof; share the projection itself"
                )


def _outer(location: Location) -> Iterator[Location]:
    """Iterate over the directories that contain a location."""
    key = location.key
    while "/" in key.strip("/"):
        key = key.rpartition("/")[0]
        yield replace(location, key=key)
