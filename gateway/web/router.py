"""Finds the route for a method and a path.

In: the route table, then the methods and paths of requests. Out: a `Match` with the decoded names of the
path. A path or method without a route matches a route that raises the error. Literal segments are case-
sensitive, and a name is never empty.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import NamedTuple

from aiohttp import web

from gateway.errors import MethodNotAllowed, NoSuchPath
from gateway.web.context import RequestContext, Route

CACHED_PATHS, CACHED_PATH_LENGTH = 1024, 512
UNKNOWN = "unknown"


class Match(NamedTuple):
    """The route of a request, and the names in its path."""

    route: Route
    names: Mapping[str, str]
    methods: tuple[str, ...] = ()
    """The methods of the path."""


@dataclass(slots=True)
class _Node:
    """A node of the tree of paths."""

    words: dict[str, _Node] = field(default_factory=dict)
    name: tuple[str, _Node] | None = None
    """The name of the next segment, if it is not a literal."""
    rest: tuple[str, _Node] | None = None
    """The name of all following segments."""
    routes: dict[str, Route] = field(default_factory=dict)
    """The routes of this path, by method."""


class Router:
    """The route table as a tree of segments."""

    def __init__(self, routes: Iterable[Route], *, prefixes: Iterable[str] = ("",)) -> None:
        """A client whose endpoint ends in `/` sends two slashes after its prefix."""
        self._root = _Node()
        self._prefixes = tuple(f"{prefix}/" for prefix in prefixes)
        for route in routes:
            self._add(route)
        # Clients request the same few tables.
        self._found = lru_cache(CACHED_PATHS)(self._find)

    def find(self, method: str, path: str) -> Match:
        """Return the route of a method and of a path that is decoded but for `%2F` and `%25`."""
        find = self._found if len(path) <= CACHED_PATH_LENGTH else self._find
        return find(method, path)

    def _add(self, route: Route) -> None:
        node = self._root
        for segment in route.path.split("/")[1:]:
            if not segment.startswith("{"):
                node = node.words.setdefault(segment, _Node())
            elif segment.endswith(":.+}"):
                node.rest = node.rest or (segment[1:-4], _Node())
                node = node.rest[1]
            else:
                node.name = node.name or (segment[1:-1], _Node())
                node = node.name[1]
        node.routes[route.method] = route
        if route.method == "GET":
            node.routes.setdefault("HEAD", route)

    def _find(self, method: str, path: str) -> Match:
        for prefix in self._prefixes:
            if path.startswith(f"{prefix}/"):
                path = prefix + path[len(prefix) :].lstrip("/")
        node, names = self._root, {}
        first, *segments = path.split("/")
        while segments and node.rest is None:
            segment = segments.pop(0)
            if segment in node.words:
                node = node.words[segment]
            elif "#" in segment and (word := segment[: segment.index("#") + 1]) in node.words:
                node = node.words[word]
            elif node.name is not None and segment:
                names[node.name[0]] = _decoded(segment)
                node = node.name[1]
            else:
                return Match(_NO_SUCH_PATH, {})
        if node.rest is not None and any(segments):
            names[node.rest[0]] = _decoded("/".join(segments))
            node = node.rest[1]
        if first or not node.routes:
            return Match(_NO_SUCH_PATH, {})
        methods = tuple(sorted(node.routes))
        return Match(node.routes.get(method) or _not_allowed(method, methods), names, methods)


def _decoded(segment: str) -> str:
    return segment.replace("%2F", "/").replace("%25", "%") if "%" in segment else segment


async def _no_such_path(_context: RequestContext) -> web.StreamResponse:
    raise NoSuchPath("; append a route such as /shares to the endpoint of the profile")


_NO_SUCH_PATH = Route("", "", _no_such_path, is_public=True, name=UNKNOWN)


def _not_allowed(method: str, methods: Iterable[str]) -> Route:
    async def not_allowed(_context: RequestContext) -> web.StreamResponse:
        raise MethodNotAllowed(method, *methods)

    return Route(method, "", not_allowed, is_public=True, name=UNKNOWN)
