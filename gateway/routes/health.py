"""Liveness and readiness."""

from __future__ import annotations

from gateway.errors import Unavailable
from gateway.web.context import RequestContext
from gateway.web.response import WholeResponse

TEXT = {"Content-Type": "text/plain; charset=utf-8"}


async def alive(_context: RequestContext) -> WholeResponse:
    """`GET /healthz`: the event loop runs."""
    return WholeResponse(b"ok\n", TEXT)


async def ready(context: RequestContext) -> WholeResponse:
    """`GET /readyz`: the server accepts requests; 503 while it drains or has no memory for queries."""
    if context.draining:
        raise Unavailable("the server is shutting down")
    if context.memory_exhausted:
        raise Unavailable("the server is above its memory limit")
    return WholeResponse(b"ok\n", TEXT)
