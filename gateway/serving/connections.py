"""Connections whose every answer is the protocol's, also to what is no HTTP request.

In: an application. Out: a runner like aiohttp's own, but for what never reaches the application: a head that
cannot be parsed is answered by the JSON of all errors, and logged by the kind of its fault alone, because
such a head may hold a token.
"""

from __future__ import annotations

import logging

from aiohttp import web
from aiohttp.http_exceptions import LineTooLong

from gateway.errors import MalformedRequest, answer, request_id

log = logging.getLogger("gateway.serving")

SERVER_FAULT = 500


class Runner(web.AppRunner):
    """Runs an application."""

    async def _make_server(self) -> web.Server:
        made = await super()._make_server()
        return _Server(
            made.request_handler,
            request_factory=made.request_factory,
            handler_cancellation=made.handler_cancellation,
            **made._kwargs,  # noqa: SLF001 - what an application hands to its connections has no other name
        )


class _Server(web.Server):
    def __call__(self) -> web.RequestHandler:
        return _Connection(self, loop=self._loop, **self._kwargs)


class _Connection(web.RequestHandler):
    __slots__ = ()

    def handle_error(
        self,
        request: web.BaseRequest,
        status: int = SERVER_FAULT,
        exc: BaseException | None = None,
        message: str | None = None,  # noqa: ARG002 - it quotes the request
    ) -> web.StreamResponse:
        if request.writer.output_size > 0:
            raise ConnectionError("the answer has begun, so its connection is cut")
        if status >= SERVER_FAULT:
            error = exc or RuntimeError("a handler ended without an answer")
        else:
            log.info("request refused: %s from %s", type(exc).__name__, request.remote)
            error = MalformedRequest(_fault(exc))
        response = answer(error, request_id(request)).response()
        response.force_close()
        return response


def _fault(error: BaseException | None) -> str:
    if isinstance(error, LineTooLong):
        return "a request line or header field is too long; up to 8190 bytes are accepted"
    return "this is no valid HTTP request"
