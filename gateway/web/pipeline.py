"""The whole way of a request, from its head to the end of its answer.

In: requests as aiohttp's server has parsed them. Out: their answers. The way is the same for all and stands
in `Door`, top-down: the route is found, the recipient made out by its token and let in within its limits, the
handler answers, whatever fails becomes the protocol's error, and in the end the exchange is counted, audited
and logged. A request is answered to its end by the configuration that was in force when it came.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from functools import cache
from typing import TYPE_CHECKING

from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError
from aiohttp.web_protocol import RequestPayloadError

from gateway.access.authentication import identify
from gateway.config.networks import allowed
from gateway.errors import (
    AccessRevoked,
    BodyTooLarge,
    GatewayError,
    MalformedRequest,
    PermissionDenied,
)
from gateway.limits.admission import Exceeded
from gateway.limits.memory import MemoryGate
from gateway.protocol.cors import preflight_headers
from gateway.web.access_log import AccessLog
from gateway.web.context import Exchange, Route, next_id
from gateway.web.error_response import CLIENT_CLOSED_REQUEST, answer, has_left
from gateway.web.request_limits import refusal
from gateway.web.response import WholeResponse

if TYPE_CHECKING:
    from gateway.access.authentication import Credential
    from gateway.protocol.cors import Cors, FieldLines
    from gateway.state import Sharing
    from gateway.web.recorder import Watch
    from gateway.web.request_limits import Guards
    from gateway.web.router import Router

Answering = Callable[[Exchange], Awaitable[web.StreamResponse]]
Around = Callable[[Exchange, Answering], Awaitable[web.StreamResponse]]

MAX_BODY_BYTES = 1024 * 1024
TOO_LARGE = f"a body is at most {MAX_BODY_BYTES} bytes"
CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"


class Door:
    """Answers requests. `sharing` and `guards` may be swapped at any time; `draining` ends readiness."""

    def __init__(
        self,
        router: Router,
        sharing: Sharing,
        guards: Guards,
        watch: Watch,
        *,
        records_first: bool = False,
        around: Around | None = None,
    ) -> None:
        """`records_first`: nothing is done for a recipient before it is in the audit log.

        `around` sees each exchange as a whole, errors included (traces).
        """
        self.sharing = sharing
        self.guards = guards
        self.draining = False
        self._router = router
        self._watch = watch
        self._log = AccessLog()
        self._records_first = records_first
        self._around = around

    async def __call__(self, request: web.BaseRequest) -> web.StreamResponse:
        """Answer a request."""
        route, names, methods = self._router.find(request.method, request.rel_url.path_safe)
        cors = self.sharing.cors
        if cors is not None and request.method == "OPTIONS" and _is_preflight(request, cors):
            route = _preflight(methods) if methods else route
        exchange = Exchange(
            next_id(), request, route, names, self.sharing, time.monotonic(), draining=self.draining
        )
        if cors is not None:
            exchange.added_headers = cors.headers(request.headers.get("Origin"))
        if self._around is not None:
            return await self._around(exchange, self._watched)
        return await self._watched(exchange)

    async def _watched(self, exchange: Exchange) -> web.StreamResponse:
        """Answer, and tell how it ended; without a response, its client has left."""
        response: web.StreamResponse | None = None
        self._watch.begun(exchange)
        try:
            response = await self._answered(exchange)
            if exchange.added_headers and not response.prepared:
                _add_headers(response, exchange.added_headers)
            if isinstance(response, WholeResponse):
                response.write_seconds = exchange.drain_rate.write_seconds(response.body_length)
            return response
        finally:
            seconds = time.monotonic() - exchange.begun_seconds
            self._watch.ended(exchange, response, seconds)
            self._log.ended(exchange, response, seconds)

    async def _answered(self, exchange: Exchange) -> web.StreamResponse:
        """Answer; every exception becomes an answer in the protocol's shape."""
        try:
            if exchange.route.is_open:
                return await exchange.route.handler(exchange)
            return await self._admitted(exchange)
        except ConnectionError as error:
            if has_left(exchange.request):
                # Nobody is there to read it; the status is for the log and the metrics.
                return WholeResponse(status=CLIENT_CLOSED_REQUEST)
            return self._refused(exchange, error)
        except Exception as error:  # noqa: BLE001 - whatever it is, it has an answer
            return self._refused(exchange, error)
        except (asyncio.CancelledError, KeyboardInterrupt, SystemExit, GeneratorExit):
            raise
        except BaseException as error:  # noqa: BLE001 - a panic of native code is no Exception
            return self._refused(exchange, error)

    async def _admitted(self, exchange: Exchange) -> web.StreamResponse:
        """Answer a recipient who is known, comes from where it may, and is within its limits."""
        sharing, guards = exchange.sharing, self.guards
        authorization = exchange.request.headers.getall("Authorization", [])
        credential = identify(sharing.credentials, authorization, now_ms=sharing.now_ms())
        exchange.asking = recipient = credential.recipient
        if recipient.networks and not allowed(recipient.networks, exchange.address):
            self._watch.refused_address()
            raise PermissionDenied("this address is not on the recipient's allow-list")
        if self._records_first:
            await self._watch.record_first(exchange)
        exchange.body = await _body(exchange.request, guards.body_seconds)
        exchange.drain_rate = guards.drain_rate
        gate = guards.recipients.gate(recipient.name)
        await gate.request()
        if not exchange.route.is_long:
            return await exchange.route.handler(exchange)
        await gate.enter_stream()
        try:
            return await self._streamed(exchange, credential, guards.memory)
        finally:
            gate.leave_stream()
            gate.signed(exchange.facts.get("returned", 0))

    async def _streamed(
        self, exchange: Exchange, credential: Credential, memory: MemoryGate
    ) -> web.StreamResponse:
        """Answer by what may be a stream, within the memory of all of them."""
        taken_bytes = await memory.enter_stream()
        self._watch.stream_begun()
        exchange.require_access = AccessCheck(self, exchange, credential)
        try:
            return await exchange.route.handler(exchange)
        finally:
            self._watch.stream_ended()
            memory.leave_stream(taken_bytes)

    def _refused(self, exchange: Exchange, error: BaseException) -> web.StreamResponse:
        if isinstance(error, Exceeded):
            self._watch.limited(error.excess)
            error = refusal(error)
        said = answer(error, exchange.id)
        exchange.facts["error_code"] = said.error_code
        return said.response()


class AccessCheck:
    """Whether what was allowed when a request came is allowed still, as a stream asks with each chunk."""

    __slots__ = ("_credential", "_door", "_exchange", "_seen")

    def __init__(self, door: Door, exchange: Exchange, credential: Credential) -> None:
        self._door = door
        self._exchange = exchange
        self._credential = credential
        self._seen = exchange.sharing
        """The state by which access was checked last."""

    def __call__(self) -> None:
        """Raise AccessRevoked when the token, the recipient or the grant has ended since."""
        sharing = self._door.sharing
        now_ms = sharing.now_ms()
        if sharing is self._seen and not self._credential.has_expired(now_ms):
            return
        exchange, names = self._exchange, self._exchange.names
        authorization = exchange.request.headers.getall("Authorization", [])
        try:
            credential = identify(sharing.credentials, authorization, now_ms=now_ms)
            recipient = credential.recipient
            if recipient.name != exchange.recipient.name or not allowed(recipient.networks, exchange.address):
                raise AccessRevoked
            sharing.catalog.table(recipient, names["share"], names["schema"], names["table"])
        except GatewayError:
            raise AccessRevoked from None
        self._seen, self._credential = sharing, credential


def _is_preflight(request: web.BaseRequest, cors: Cors) -> bool:
    headers = request.headers
    return "Access-Control-Request-Method" in headers and cors.allows(headers.get("Origin"))


@cache
def _preflight(methods: tuple[str, ...]) -> Route:
    """What answers a browser that asks which methods a path has. It tells nothing of what is shared."""
    headers = preflight_headers(methods)

    async def preflight(_exchange: Exchange) -> web.StreamResponse:
        return WholeResponse(headers=headers)

    return Route("OPTIONS", "", preflight, is_open=True)


def _add_headers(response: web.StreamResponse, headers: FieldLines) -> None:
    if isinstance(response, WholeResponse):
        response.field_lines += "".join([f"{name}: {value}\r\n" for name, value in headers])
    else:
        response.headers.extend(headers)


async def _body(request: web.BaseRequest, seconds: float) -> bytes:
    """A request's body, read to its end within its time before anything else is taken."""
    if not request.body_exists:
        return b""
    if request.content.is_eof():
        # It came with the head: nothing has to be waited for.
        body = request.content.read_nowait()
        if len(body) > MAX_BODY_BYTES:
            raise BodyTooLarge(TOO_LARGE)
        return body
    if request.headers.get("Expect", "").lower() == "100-continue":
        await request.writer.write(CONTINUE)
        request.writer.output_size = 0
    try:
        async with asyncio.timeout(seconds):
            return await request.read()
    except TimeoutError:
        raise MalformedRequest(f"the body did not arrive within {seconds:g} s") from None
    except web.HTTPRequestEntityTooLarge:
        raise BodyTooLarge(TOO_LARGE) from None
    except (RequestPayloadError, HttpProcessingError):
        raise MalformedRequest("the body is not coded as its header fields say") from None
