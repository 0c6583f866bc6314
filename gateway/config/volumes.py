"""Which directories may be volumes: those whose credentials read nothing that is shared otherwise.

A credential of a volume reads every file below its directory, without regard to history, deletion vectors or
other grants. A volume therefore shares no file with a table or with another volume, in any share. One
directory may be a volume of several shares. Each message names the volume and the change that resolves it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from gateway.config.directory_access import comparable, is_granted, networks_problem, root_problem
from gateway.config.locations import Location
from gateway.config.networks import parse_networks
from gateway.config.sections import Config

MOVE = "move one of them, or remove the volume"


@dataclass(frozen=True, slots=True)
class Root:
    """The directory of a table or a volume, or one with files of tables, for comparisons."""

    name: str
    location: Location
    is_volume: bool = False
    is_allowed_root: bool = False


class Roots:
    """Directories, found by those that contain them: a configuration may have thousands of tables."""

    def __init__(self, roots: Iterable[Root]) -> None:
        self._at: dict[Location, list[Root]] = {}
        for root in roots:
            self._at.setdefault(root.location, []).append(root)
        volumes = {root.location for found in self._at.values() for root in found if root.is_volume}
        self._below: dict[Location, list[Root]] = {location: [] for location in volumes}
        for location, found in self._at.items():
            for outer in _outer(location):
                if outer in self._below:
                    self._below[outer] += found

    def overlaps(self, volume: Location) -> Iterator[str]:
        """Iterate over what a volume shares files with. The same directory may be several volumes."""
        inner = [*self._below[volume], *(root for root in self._at[volume] if not root.is_volume)]
        yield from (f"the files of {root.name} lie within its directory" for root in inner)
        for outer in _outer(volume):
            for root in self._at.get(outer, ()):
                if not root.is_allowed_root:
                    yield f"its directory lies within that of {root.name}"


def _outer(location: Location) -> Iterator[Location]:
    """Iterate over the directories that contain a location, up to its bucket."""
    key = location.key
    while key:
        key = key.rpartition("/")[0]
        yield replace(location, key=key)


def volume_problem(config: Config) -> str | None:
    """Return why a directory may not be a volume, with what to do; None if all may."""
    return next(_problems(config), None)


def _problems(config: Config) -> Iterator[str]:
    roots = Roots(list(_roots(config)))
    for share in config.shares:
        for schema in share.schemas:
            for volume in schema.volumes:
                name = f"{share.name}.{schema.name}.{volume.name}"
                for problem in _problems_of(config, volume.location, share.name):
                    yield f"the volume {name} cannot be shared: {problem}"
                for problem in roots.overlaps(comparable(config, volume.location)):
                    yield f"the volume {name} cannot be shared: {problem}; {MOVE}"


def _problems_of(config: Config, location: Location, share: str) -> Iterator[str]:
    entry = config.gateway.storage(location)
    if (problem := root_problem(location, entry)) is not None:
        yield problem
    for recipient in config.gateway.recipients:
        problem = networks_problem(location, entry, parse_networks(recipient.networks))
        if problem is not None and is_granted(recipient, share):
            yield (
                f"{problem}, and the recipient {recipient.name} has networks; share the volume with it in "
                "another share"
            )


def _roots(config: Config) -> Iterator[Root]:
    """Iterate over the directories of all tables and volumes, and those of `allowedRoots`."""
    for share in config.shares:
        for schema in share.schemas:
            for table in schema.tables:
                for location in (table.location, *table.auxiliary_locations):
                    full_name = f"{share.name}.{schema.name}.{table.name}"
                    yield Root(full_name, comparable(config, location))
            for volume in schema.volumes:
                full_name = f"{share.name}.{schema.name}.{volume.name}"
                yield Root(full_name, comparable(config, volume.location), is_volume=True)
    for location in config.gateway.allowed_roots:
        yield Root("gateway.allowedRoots", comparable(config, location), is_allowed_root=True)
