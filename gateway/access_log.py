"""One structured line of JSON for every request: who, what, how it ended, how long it took.

The path stands there, the query string and headers do not: they may hold tokens and signatures.
"""

from __future__ import annotations

import logging
import time
from typing import Any

import orjson
from aiohttp import web
from aiohttp.typedefs import Handler

from gateway.auth import RECIPIENT
from gateway.errors import CLIENT_CLOSED_REQUEST, request_id

log = logging.getLogger("gateway.access")

FACTS: web.RequestKey[dict[str, Any]] = web.RequestKey("facts", dict)


@web.middleware
async def access_log_middleware(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Time a request and log it when it is over, also when its client left."""
    started_ns = time.perf_counter_ns()
    facts = request[FACTS] = {}
    response: web.StreamResponse | None = None
    try:
        response = await handler(request)
        return response
    finally:
        if log.isEnabledFor(logging.INFO):
            log.info(line(request, response, facts, time.perf_counter_ns() - started_ns))


def line(
    request: web.Request, response: web.StreamResponse | None, facts: dict[str, Any], elapsed_ns: int
) -> str:
    """The line. Without a response the request was cut off."""
    recipient = request.get(RECIPIENT)
    fields = {
        "time_ms": time.time_ns() // 1_000_000,
        "request": request_id(request),
        "method": request.method,
        "path": request.path,
        "status": CLIENT_CLOSED_REQUEST if response is None else response.status,
        "recipient": recipient.name if recipient else None,
        "remote": request.remote,
        "duration_ms": round(elapsed_ns / 1e6, 3),
        "bytes": _bytes(response),
        **facts,
    }
    return orjson.dumps({key: value for key, value in fields.items() if value is not None}).decode()


def _bytes(response: web.StreamResponse | None) -> int | None:
    """How long the body is: of a whole answer before it is sent, of a stream after."""
    if isinstance(response, web.Response):
        return response.content_length
    return (response.body_length or None) if response is not None else None
