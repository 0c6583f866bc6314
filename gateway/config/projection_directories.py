"""Where projections may be: apart from their sources, and from other shared directories.

The directory of a projection has rows before their proof. Each message names the table and what to change.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from itertools import chain

from gateway.config.errors import shown
from gateway.config.locations import Location
from gateway.config.projections import RULE_NAME
from gateway.config.roots import DIRECTORY, NamedDirectories, may_contain
from gateway.config.sections import Config


class _RuleDirectories(NamedDirectories):
    """The directories of rules. One beside them is of an earlier rule, whose rows are no longer shared."""

    def _found(self, places: Iterable[Location]) -> str | None:
        return super()._found(chain.from_iterable((place, _any_rule(place)) for place in places))


def _any_rule(location: Location) -> Location:
    base, slash, name = location.key.rpartition("/")
    return replace(location, key=f"{base}{slash}*") if RULE_NAME.fullmatch(name) else location


def within(projection: str) -> str:
    """Return why what lies in the directory of a projection is not shared."""
    return f"it lies within the projection {projection}, which has rows before their proof"


def projection_directories(config: Config) -> NamedDirectories:
    """Return the directories of all projections, by the full names of their tables."""
    roots = _roots(config)
    rules = {_any_rule(root): name for root, name in roots.items()}
    return _RuleDirectories(config, (roots | rules).items())


def _roots(config: Config) -> dict[Location, str]:
    return {table.location: name for _, name, table in config.tables if table.projection is not None}


def projection_problems(config: Config) -> Iterator[str]:
    """Iterate over the reasons why the directories of projections may not be as they are."""
    roots = _roots(config)
    if not roots:
        return
    directories = projection_directories(config)
    for _, name, table in config.tables:
        if table.projection is None:
            continue
        root, source = table.location, table.projection.source
        base = replace(root, key=root.key.rpartition("/")[0])
        if may_contain(config, base, source) or may_contain(config, source, base):
            yield f"{name} cannot be a projection: its location and its source lie within each other"
        if outer := directories.around(source):
            yield (
                f"{name} cannot be a projection: its source lies within the projection {outer}, whose "
                "directory has rows before their proof; let the source be that projection itself"
            )
    yield from _problems_of_others(config, roots, directories)


def _problems_of_others(
    config: Config, roots: dict[Location, str], directories: NamedDirectories
) -> Iterator[str]:
    """Iterate over what else would show files of a projection."""
    for _, name, table in config.tables:
        if DIRECTORY in table.access_modes and (projection := directories.at(table.location)):
            yield f"{name} cannot offer directory access: it is {projection}, with rows before their proof"
    # Tables of a catalog are compared one by one when they are found.
    for discovery in (source.discovery for source in config.sources if source.discovery.discover):
        (place,) = discovery.roots
        if inner := next((name for root, name in roots.items() if may_contain(config, place, root)), None):
            yield (
                f"tables are discovered in a directory that contains the projection {inner}, and would "
                "be found before their proof; move one of them"
            )
    for location in config.locations:
        if outer := (directories.around if location in roots else directories.containing)(location):
            yield (
                f"{shown(location.url)} lies within the projection {outer}, whose directory has rows before "
                "their proof; share the projection itself"
            )
