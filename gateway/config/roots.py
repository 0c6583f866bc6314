"""The directories of tables and volumes, and which of them have files in common.

A credential reads every file below its directory, without regard to history, deletion vectors or grants. So
the directory of a credential, of a table with `dir` or of a volume, has no files that are shared otherwise.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import chain
from typing import Literal

from gateway.config.locations import Location
from gateway.config.sections import Config

DIRECTORY = "dir"

Holder = tuple[bool, str]
"""Whether it is a volume, and the full name of the table or the volume: both can have one name."""

_ANY_BUCKET = "*"
_ANY_ALIAS = "*-s3alias"


@dataclass(frozen=True, slots=True)
class Root:
    """A directory of a table or a volume, the source of a projection, or one that `allowedRoots` names.

    Attributes:
        name: full name of the table or the volume.
        share: the share of the table or the volume.
        location: in the form for comparisons.
        kind: `auxiliary` for a directory of a table beside its location.
        is_readable: recipients get credentials for the directory.

    """

    name: str
    share: str
    location: Location
    kind: Literal["table", "auxiliary", "volume", "source", "allowed"]
    is_readable: bool

    @property
    def holder(self) -> Holder:
        """Identify the table or the volume."""
        return (self.kind == "volume", self.name)

    @property
    def shown(self) -> str:
        """Return the name for messages."""
        return f"{self.name}{' (by the alias of an access point)' if self.location.is_access_point else ''}"


class Roots:
    """All directories of a configuration, found by those that contain them.

    The index takes time and memory in proportion to the directories: there may be thousands.
    """

    def __init__(self, config: Config) -> None:
        self._roots = list(_roots(config))
        self._at: dict[Location, list[Root]] = {}
        self._below: dict[Location, list[Root]] = {
            view: [] for root in self._roots if root.is_readable for view in _views(root.location)
        }
        if not self._below:
            return
        for root in self._roots:
            place = _placed(root.location)
            self._at.setdefault(place, []).append(root)
            for outer in place.outer():
                if outer in self._below:
                    self._below[outer].append(root)

    def overlaps(self, holder: Holder, locations: Collection[Location]) -> Iterator[str]:
        """Iterate over the directories that share files with the directories of a table or a volume.

        The same directory may be several tables, several volumes, or an auxiliary location of several tables.
        """
        roots = [
            root for at in dict.fromkeys(locations) for root in self._at.get(at, ()) if root.holder == holder
        ]
        for root in roots:
            for inner in self._found(self._below, [root.location]):
                if inner.holder != holder and inner.location not in locations:
                    yield f"the files of {inner.shown} lie within its directory"
            same = list(self._found(self._at, [root.location]))
            for other in same:
                if other.holder != holder and not _may_coincide(root, other, same):
                    advice = (
                        f": offer them by dir in the share {root.share}, too"
                        if root.kind == "auxiliary"
                        else ""
                    )
                    yield f"the files of {other.shown} lie within its directory{advice}"
            for outer in self._found(self._at, root.location.outer()):
                if outer.kind != "allowed" and outer.holder != holder and outer.location not in locations:
                    yield f"its directory lies within that of {outer.shown}"

    @staticmethod
    def _found(index: dict[Location, list[Root]], locations: Iterable[Location]) -> Iterator[Root]:
        views = (view for location in locations for view in _views(location))
        return chain.from_iterable(index.get(view, ()) for view in views)


class NamedDirectories:
    """Directories with names, found by locations that share files with them, in whatever form."""

    def __init__(self, config: Config, names: Iterable[tuple[Location, str]]) -> None:
        """Of two names of one directory the first counts."""
        self._config = config
        self._names: dict[Location, str] = {}
        self._inner: dict[Location, str] = {}
        """A directory below each location."""
        for location, name in names:
            place = comparable(config, location)
            # Those in buckets are compared with all aliases.
            for view in (_placed(place), *([_aliased(place)] if place.kind == "s3" else [])):
                self._names.setdefault(view, name)
                for outer in view.outer():
                    self._inner.setdefault(outer, name)

    def __bool__(self) -> bool:
        """Return whether there are any."""
        return bool(self._names)

    def at(self, location: Location) -> str | None:
        """Return the name of the directory that a location is; None without one."""
        return self._found([comparable(self._config, location)])

    def around(self, location: Location) -> str | None:
        """Return the name of a directory that contains a location and is another one; None without one."""
        return self._found(comparable(self._config, location).outer())

    def containing(self, location: Location) -> str | None:
        """Return the name of the directory that a location is or lies within; None without one."""
        return self.at(location) or self.around(location)

    def overlapping(self, location: Location) -> str | None:
        """Return the name of a directory below a location, or of one that it is or lies within."""
        if not self._names:
            return None
        views = _all_views(comparable(self._config, location))
        inner = next((self._inner[view] for view in views if view in self._inner), None)
        return inner or self.containing(location)

    def _found(self, places: Iterable[Location]) -> str | None:
        views = (view for place in places for view in _all_views(place))
        return next((self._names[view] for view in views if view in self._names), None)


def may_contain(config: Config, outer: Location, inner: Location) -> bool:
    """Return whether a location is another one or lies below it, in whatever form both are written."""
    container, candidate = comparable(config, outer), comparable(config, inner)
    if container.kind == candidate.kind == "s3" and (container.is_access_point or candidate.is_access_point):
        candidate = replace(candidate, bucket=container.bucket)
    return container.contains(candidate)


def comparable(config: Config, location: Location) -> Location:
    """Return a location for comparisons: the API of S3 reaches buckets of Google, too."""
    return config.gateway.storage(location).comparable(location)


def readable_directories(config: Config) -> Iterator[tuple[Location, str]]:
    """Iterate over the directories for which recipients get credentials, each with its name."""
    for _, name, table in config.tables:
        if DIRECTORY in table.access_modes:
            for location in table.roots:
                yield location, name
    for _, name, volume in config.volumes:
        yield volume.location, f"the volume {name}"


def _may_coincide(first: Root, second: Root, same: Iterable[Root]) -> bool:
    """Return whether two roots may be one directory. `same` are all roots there."""
    if "volume" in (first.kind, second.kind):
        return first.kind == second.kind
    if first.kind == "table" or second.kind not in {"table", "source"}:
        return True
    # The source of a shallow clone: its recipients may have no grant for the source.
    return any(root.kind == "table" and root.is_readable and root.share == first.share for root in same)


def _roots(config: Config) -> Iterator[Root]:
    """Iterate over the directories of tables and volumes, sources of projections, and `allowedRoots`."""
    for share, name, table in config.tables:
        is_readable = DIRECTORY in table.access_modes
        yield Root(name, share.name, comparable(config, table.location), "table", is_readable)
        for location in table.auxiliary_locations:
            yield Root(name, share.name, comparable(config, location), "auxiliary", is_readable)
        if table.projection is not None:
            source = comparable(config, table.projection.source)
            yield Root(f"the source of {name}", share.name, source, "source", is_readable=False)
    for share, name, volume in config.volumes:
        yield Root(name, share.name, comparable(config, volume.location), "volume", is_readable=True)
    for location in config.gateway.allowed_roots:
        yield Root("gateway.allowedRoots", "", comparable(config, location), "allowed", is_readable=False)


def _placed(location: Location) -> Location:
    """Return a location in the index. The bucket of an alias is unknown, and has the same keys."""
    return replace(location, bucket=_ANY_BUCKET) if location.is_access_point else location


def _views(location: Location) -> Iterator[Location]:
    """Iterate over the places of a directory in the index: below its bucket, and below aliases."""
    yield location
    if location.kind == "s3":
        yield replace(location, bucket=_ANY_BUCKET)


def _all_views(location: Location) -> Iterator[Location]:
    """Iterate over these places, and below any alias for a location by an alias."""
    yield from _views(location)
    if location.is_access_point:
        yield _aliased(location)


def _aliased(location: Location) -> Location:
    """Return a location below any alias of an access point."""
    return replace(location, bucket=_ANY_ALIAS)
