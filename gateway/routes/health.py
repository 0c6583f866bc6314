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
    """`GET /readyz`: the server accepts requests; 503 while it drains, or would refuse all requests."""
    reason = context.not_ready()
    if reason is not None:
        raise Unavailable(reason)
    return WholeResponse(b"ok\n", TEXT)
