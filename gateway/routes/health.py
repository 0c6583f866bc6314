"""Is the process alive, and should it be sent requests."""

from __future__ import annotations

from aiohttp import web

from gateway.errors import Unavailable
from gateway.sharing import CURRENT


async def alive(_request: web.Request) -> web.Response:
    """`GET /healthz`: the event loop answers."""
    return web.Response(text="ok\n")


async def ready(request: web.Request) -> web.Response:
    """`GET /readyz`: new requests are welcome; not so while the server drains."""
    if request.app[CURRENT].draining:
        raise Unavailable("the server is shutting down")
    return web.Response(text="ok\n")
