"""One operation of the admin API: its route, and the types that its handler reads and returns."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, get_type_hints

from aiohttp import web
from msgspec import Struct

from gateway.admin.call import Call, seen_by
from gateway.admin.codec import decode_body, decode_query, encode
from gateway.protocol.headers import JSON_CONTENT_TYPE
from gateway.web.request_body import read_body

MAX_BODY_BYTES = 64 * 1024
BODY_SECONDS = 30.0
"""The time in which the body of a request has to arrive."""

_NAME = re.compile(r"{(\w+)}")

Handler = Callable[..., Awaitable[Struct | web.Response]]


class NoFields(Struct, frozen=True, forbid_unknown_fields=True):
    """What a change without a body or query has there: one that is ignored may be meant as a limit of it."""


@dataclass(frozen=True)
class Operation:
    """A route of the admin API."""

    method: str
    path: str
    handler: Handler
    status: int = 200
    """The status of an answer without an error."""
    errors: tuple[int, ...] = (400, 401, 404, 503)
    """The statuses of errors, beside 413 for a change, whose body is always read."""

    @cached_property
    def types(self) -> dict[str, Any]:
        """Return the types of the handler's `body` and `query`, if any, and of its answer (`return`)."""
        hints = get_type_hints(self.handler, include_extras=True)
        return {name: kind for name, kind in hints.items() if name in {"body", "query", "return"}}

    async def respond(self, request: web.Request) -> web.Response:
        """Decode the request, run the handler and encode its answer."""
        kinds = {} if self.method == "GET" else {"body": NoFields, "query": NoFields}
        kinds |= self.types
        sent = {}
        if "body" in kinds:
            sent["body"] = decode_body(await read_body(request, BODY_SECONDS, MAX_BODY_BYTES), kinds["body"])
        if "query" in kinds:
            sent["query"] = decode_query(request.query, kinds["query"])
        arguments = {name: value for name, value in sent.items() if name in self.types}
        call = Call(request, seen=seen_by(request.headers, "If-Match"))
        answer = await self.handler(call, **arguments)
        if isinstance(answer, web.Response):
            return answer
        headers = {"Content-Type": JSON_CONTENT_TYPE, "Cache-Control": "no-store", **call.headers}
        # Lists are as long as there are recipients.
        body = await asyncio.to_thread(encode, answer)
        return web.Response(body=body, status=self.status, headers=headers)


def any_name(path: str) -> str:
    """Return the path of a route for names with any character. By default aiohttp takes none with a brace."""
    return _NAME.sub(r"{\1:[^/]+}", path)
