"""From a method and a path to the route that answers it.

In: the route table, then methods and paths as requests bring them. Out: a `Match`, whose names are decoded
once. A path that nothing answers is a match as well: of a route that raises what is wrong. Words are compared
with case, and a name is never empty.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

from gateway.errors import MethodNotAllowed, NoSuchPath
from gateway.web.context import Route

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from aiohttp import web

    from gateway.web.context import RequestContext

REMEMBERED_PATHS = 1024
UNKNOWN = "unknown"


class Match(NamedTuple):
    """The route that answers a request, and what its path names."""

    route: Route
    names: Mapping[str, str]
    methods: tuple[str, ...] = ()
    """Those that the path answers."""


@dataclass(slots=True)
class _Place:
    """Where a path has come to after some of its segments."""

    words: dict[str, _Place] = field(default_factory=dict)
    name: tuple[str, _Place] | None = None
    """What the next segment is the name of, where it is none of the words."""
    rest: tuple[str, _Place] | None = None
    """The same for all that follows."""
    routes: dict[str, Route] = field(default_factory=dict)
    """What is answered here, by method."""


class Router:
    """The route table, ready to be looked up."""

    def __init__(self, routes: Iterable[Route], *, prefix: str = "") -> None:
        """`prefix`: after it a client that was given an endpoint with `/` at its end sends two of them."""
        self._root = _Place()
        self._prefix = prefix + "/"
        for route in routes:
            self._add(route)
        # Clients ask for the same few tables again and again.
        self.find = lru_cache(REMEMBERED_PATHS)(self._find)

    def _add(self, route: Route) -> None:
        place = self._root
        for segment in route.path.split("/")[1:]:
            if not segment.startswith("{"):
                place = place.words.setdefault(segment, _Place())
            elif segment.endswith(":.+}"):
                place.rest = place.rest or (segment[1:-4], _Place())
                place = place.rest[1]
            else:
                place.name = place.name or (segment[1:-1], _Place())
                place = place.name[1]
        place.routes[route.method] = route
        if route.method == "GET":
            place.routes.setdefault("HEAD", route)

    def _find(self, method: str, path: str) -> Match:
        """The route of a method and of a path that is decoded but for `%2F` and `%25`."""
        if path.startswith(self._prefix + "/"):
            path = self._prefix + path[len(self._prefix) :].lstrip("/")
        place, names = self._root, {}
        first, *segments = path.split("/")
        while segments and place.rest is None:
            segment = segments.pop(0)
            if segment in place.words:
                place = place.words[segment]
            elif place.name is not None and segment:
                names[place.name[0]] = _decoded(segment)
                place = place.name[1]
            else:
                return Match(_NO_SUCH_PATH, {})
        if place.rest is not None and any(segments):
            names[place.rest[0]] = _decoded("/".join(segments))
            place = place.rest[1]
        if first or not place.routes:
            return Match(_NO_SUCH_PATH, {})
        methods = tuple(sorted(place.routes))
        return Match(place.routes.get(method) or _not_allowed(method, methods), names, methods)


def _decoded(segment: str) -> str:
    return segment.replace("%2F", "/").replace("%25", "%") if "%" in segment else segment


async def _no_such_path(_context: RequestContext) -> web.StreamResponse:
    raise NoSuchPath


_NO_SUCH_PATH = Route("", "", _no_such_path, is_public=True, name=UNKNOWN)


def _not_allowed(method: str, methods: Iterable[str]) -> Route:
    allow = ", ".join(methods)

    async def not_allowed(_context: RequestContext) -> web.StreamResponse:
        raise MethodNotAllowed(f"method {method} is not allowed here, {allow} is", allow=allow)

    return Route(method, "", not_allowed, is_public=True, name=UNKNOWN)
