"""Is the process alive, and should it be sent requests."""

from __future__ import annotations

from gateway.errors import Unavailable
from gateway.web.context import Exchange
from gateway.web.response import WholeResponse

TEXT = {"Content-Type": "text/plain; charset=utf-8"}


async def alive(_exchange: Exchange) -> WholeResponse:
    """`GET /healthz`: the event loop answers."""
    return WholeResponse(b"ok\n", TEXT)


async def ready(exchange: Exchange) -> WholeResponse:
    """`GET /readyz`: new requests are welcome; not so while the server drains."""
    if exchange.draining:
        raise Unavailable("the server is shutting down")
    return WholeResponse(b"ok\n", TEXT)
