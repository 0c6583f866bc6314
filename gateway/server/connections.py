"""Connections on which every answer follows the protocol and is sent completely.

In: a request handler. Out: a runner like aiohttp's, with three differences. A request head that cannot be
parsed is answered with the JSON of all errors, and logged by the kind of its error only, because it may hold
a token. Bodies are passed as they were sent, still in their content coding. And a caller can wait until the
kernel has taken all written bytes.
"""

from __future__ import annotations

import asyncio
import logging
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from aiohttp import HttpVersion10, HttpVersion11, web
from aiohttp.http_exceptions import LineTooLong

from gateway.errors import GatewayError, MalformedRequest, UnsupportedHttpVersion, UnsupportedTransferCoding
from gateway.web.context import next_id
from gateway.web.error_response import SERVER_FAULT, error_answer

log = logging.getLogger("gateway.serving")

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    Handler = Callable[[web.BaseRequest], Awaitable[web.StreamResponse]]


class OpenConnections:
    """Connections that are open, or closed with unsent bytes."""

    def __init__(self) -> None:
        self._connections: set[web.RequestHandler] = set()
        self._none = asyncio.Event()
        self._none.set()

    def made(self, connection: web.RequestHandler) -> None:
        """Add a connection."""
        self._connections.add(connection)
        self._none.clear()

    def lost(self, connection: web.RequestHandler) -> None:
        """Remove a connection without unsent bytes."""
        self._connections.discard(connection)
        if not self._connections:
            self._none.set()

    async def none(self) -> None:
        """Wait until there are none."""
        await self._none.wait()


class Runner(web.ServerRunner):
    """Runs a request handler."""

    def __init__(self, handler: Handler, **options: Any) -> None:
        """`options` are those of aiohttp's connections. Call it on the event loop."""
        self._open_connections = OpenConnections()
        self._connections = _Server(self._open_connections, handler, access_log=None, **options)
        super().__init__(self._connections)

    def close_idle_after(self, seconds: float) -> None:
        """Close later connections when they are idle for that long."""
        self._connections.idle_seconds = seconds

    async def drain(self, seconds: float) -> None:
        """Accept no more connections, and wait at most that long for running requests."""
        self._shutdown_timeout = seconds
        await self.cleanup()

    async def sent(self, seconds: float) -> None:
        """Wait at most that long until all answers are sent.

        A handler may have ended, and its connection be closed, while a buffer of its answer waits for a slow
        reader. A process that ended then would cut a complete answer.
        """
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._open_connections.none()


class AppRunner(web.AppRunner):
    """Runs an aiohttp application over such connections."""

    async def _make_server(self) -> web.Server:
        server = await super()._make_server()
        return _Server(
            OpenConnections(),
            server.request_handler,
            request_factory=server.request_factory,
            **server._kwargs,  # noqa: SLF001 - aiohttp has no public name for the options of connections
        )


class _Server(web.Server):
    def __init__(self, open_connections: OpenConnections, handler: Handler, **options: Any) -> None:
        super().__init__(_supported(handler), **options)
        self.open_connections = open_connections
        self.idle_seconds: float | None = None

    def __call__(self) -> web.RequestHandler:
        options = self._kwargs
        if self.idle_seconds is not None:
            options = options | {"keepalive_timeout": self.idle_seconds}
        return _Connection(self, loop=self._loop, **options)


class _Connection(web.RequestHandler):
    __slots__ = ("_open_connections",)

    def __init__(self, manager: _Server, **options: Any) -> None:
        # A body is decoded when it is read, by an authenticated request, and not while it is skipped.
        super().__init__(manager, auto_decompress=False, **options)
        self._open_connections = manager.open_connections

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._open_connections.made(self)
        super().connection_made(transport)

    def connection_lost(self, exc: BaseException | None) -> None:
        self._open_connections.lost(self)
        super().connection_lost(exc)

    def resume_reading(self, resume_parser: bool = True) -> None:
        # aiohttp resumes after each body, and parses again, even if reading was not paused.
        if self._reading_paused:
            super().resume_reading(resume_parser)

    def handle_error(
        self,
        request: web.BaseRequest,
        status: int = SERVER_FAULT,
        exc: BaseException | None = None,
        message: str | None = None,  # noqa: ARG002 - it quotes the request
    ) -> web.StreamResponse:
        if request.writer.output_size > 0:
            raise ConnectionError("the answer has started, so its connection is cut")
        if status >= SERVER_FAULT:
            error = exc or RuntimeError("a handler ended without an answer")
        else:
            log.info("request refused: %s from %s", type(exc).__name__, request.remote)
            error = MalformedRequest(_fault(exc))
        response = error_answer(error, next_id()).response()
        response.force_close()
        return response


def _supported(handler: Handler) -> Handler:
    """Return a handler that refuses requests in forms of HTTP that this server does not have (RFC 9112)."""

    async def handle(request: web.BaseRequest) -> web.StreamResponse:
        if request.version not in (HttpVersion10, HttpVersion11):
            return _refused(request, UnsupportedHttpVersion("this server has HTTP/1.1 and HTTP/1.0"))
        if request.headers.get("Transfer-Encoding", "chunked").lower() != "chunked":
            return _refused(request, UnsupportedTransferCoding("the body has another coding than chunked"))
        return await handler(request)

    return handle


def _refused(request: web.BaseRequest, error: GatewayError) -> web.StreamResponse:
    log.info("request refused: %s from %s", type(error).__name__, request.remote)
    response = error_answer(error, next_id()).response()
    response.force_close()
    return response


def _fault(error: BaseException | None) -> str:
    if isinstance(error, LineTooLong):
        return "a request line or header field is too long; up to 8190 bytes are accepted"
    return "this is no valid HTTP request"
