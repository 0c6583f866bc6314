"""Connections on which every answer follows the protocol and is sent completely.

In: a request handler. Out: a runner like aiohttp's, with differences. A request head that cannot be parsed is
answered with the JSON of all errors, and logged by the kind of its error only, because it may hold a token.
The length of a head is bounded, no request is parsed before the one ahead of it is answered, and a connection
is bounded until it has sent an authenticated request. Bodies are passed as they were sent, still in their
content coding. And a caller can wait until the kernel has taken all written bytes.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from typing import Any, cast

from aiohttp import HttpVersion10, HttpVersion11, hdrs, web
from aiohttp.http import HttpRequestParser, RawRequestMessage
from aiohttp.http_exceptions import HttpProcessingError, LineTooLong
from aiohttp.streams import EMPTY_PAYLOAD, StreamReader
from aiohttp.web_protocol import RequestPayloadError, _ErrInfo

from gateway.errors import (
    GatewayError,
    MalformedRequest,
    Unavailable,
    UnsupportedHttpVersion,
    UnsupportedTransferCoding,
)
from gateway.limits.descriptors import is_reserved
from gateway.limits.drain_rate import DrainRate
from gateway.web.context import next_id
from gateway.web.error_response import SERVER_FAULT, error_answer
from gateway.web.held_bytes import HeldBytes
from gateway.web.request_body import BUFFERED_BYTES
from gateway.web.response import is_tls
from gateway.web.strangers import PLAIN_BYTES, TLS_BYTES, Strangers

log = logging.getLogger("gateway.serving")

Handler = Callable[[web.BaseRequest], Awaitable[web.StreamResponse]]

PROBES = ("/healthz", "/readyz")
"""Answered while descriptors run short."""
MAX_HEAD_BYTES = 32 * 1024
"""Of a request line and all header fields."""
PARTS_BYTES = 2 * 256 * 1024
"""What the event loop reads at once, in the parser and behind it: no more waits ahead of an answer."""
AHEAD_SECONDS = 1.0
"""A stranger's request that is sent ahead waits that long in a flood. Others have their turn."""
BODY_WEIGHT = 2
UNSENT_WEIGHT = 4
"""Memory of a byte that is not sent: its answer stays whole, as made and as joined with its head."""
FIELD_WEIGHT = 3
"""Memory of a head that has not ended: its fields as bytes, as texts and as a dictionary of both."""
LAST_LINE_BREAK = ord("\r")
SENT_POLL_SECONDS, LONGEST_POLL_SECONDS = 0.02, 0.5
UNREAD_BYTES = 64 * 1024
"""The bytes of an answer that may wait in a kept connection's buffer after its handler has ended."""
USUAL_BYTES = 4096
"""What came before a request was parsed is looked at if it is more."""


class Runner(web.ServerRunner):
    """Runs a request handler."""

    def __init__(self, handler: Handler, **options: Any) -> None:
        """`options`: as of aiohttp's connections. Call it on the event loop."""
        self._connections = Server(handler, access_log=None, **options)
        super().__init__(self._connections)

    @property
    def strangers(self) -> Strangers:
        """The connections without an authenticated request."""
        return self._connections.strangers

    def limit(self, idle_seconds: float, drain_rate: DrainRate, held_bytes: int) -> None:
        """Bound the idle time and the slowest reader of later connections, and what recipients' hold."""
        self._connections.held.bound_bytes = held_bytes
        self._connections.idle_seconds = self._connections.strangers.idle_seconds = idle_seconds
        self._connections.drain_rate = drain_rate

    async def stop_accepting(self) -> None:
        """Accept no more connections, and close those without a request."""
        for site in list(self.sites):
            await site.stop()
        # Requests that have arrived by now are answered.
        await asyncio.sleep(0)
        self._connections.pre_shutdown()

    async def close(self) -> None:
        """Close all connections."""
        self._shutdown_timeout = 0
        await self.cleanup()

    async def sent(self, seconds: float) -> None:
        """Wait at most that long until all answers are sent.

        A handler may have ended, and its connection be closed, while a buffer of its answer waits for a slow
        reader. A process that ended then would cut a complete answer.
        """
        end_seconds = time.monotonic() + seconds
        # No event says that the kernel has taken the last byte.
        while (  # noqa: ASYNC110
            any(map(_Connection.is_needed, self._connections.open)) and time.monotonic() < end_seconds
        ):
            await asyncio.sleep(SENT_POLL_SECONDS)


class AppRunner(web.AppRunner):
    """Runs an aiohttp application over such connections."""

    async def _make_server(self) -> web.Server:
        server = await super()._make_server()
        return Server(
            server.request_handler,
            request_factory=server.request_factory,
            **server._kwargs,  # noqa: SLF001 - aiohttp has no public name for the options of connections
        )


class Server(web.Server):
    """The connections of a listener."""

    def __init__(self, handler: Handler, **options: Any) -> None:
        super().__init__(handler, **options)
        self.open: set[_Connection] = set()
        """Connections that are open, or closed with unsent bytes."""
        self.strangers = Strangers()
        self.held = HeldBytes()
        self.idle_seconds: float | None = None
        self.drain_rate = DrainRate()
        self.is_ending = False

    def pre_shutdown(self) -> None:
        """Close the connections without a request, and make no more behind handshakes."""
        self.is_ending = True
        super().pre_shutdown()

    def __call__(self) -> _Connection:
        """Make a connection."""
        options = self._kwargs
        if self.idle_seconds is not None:
            options = options | {"keepalive_timeout": self.idle_seconds}
        return _Connection(self, loop=self._loop, **options)


class _Parser(HttpRequestParser):
    """Parses one request, and the next one when the connection says so."""

    def message_consumed(self) -> None:
        """Do nothing: aiohttp calls it before the request is handled."""

    def next(self) -> None:
        """Parse the next request from here on."""
        super().message_consumed()

    def skip_upgrade(self) -> bytes:
        """Go on behind a request for another protocol, and return what came after it.

        The parser has that only for the protocols that it knows, or as if it were upgraded already.
        """
        self.set_upgraded(True)
        _, _, tail = self.feed_data(b"")
        self.set_upgraded(False)
        return tail


class _HeadTooLong(HttpProcessingError):
    """Raised for a request head above the bound."""


class _Connection(web.RequestHandler):
    """A connection that holds one request at a time.

    What a client sends ahead of an answer stays unparsed, and unread beyond one part.
    """

    __slots__ = (
        "_ahead_bytes",
        "_asks_for_upgrade",
        "_body",
        "_drain_rate",
        "_handler",
        "_has_more",
        "_head_bytes",
        "_held",
        "_is_answered",
        "_is_busy",
        "_open",
        "_part_bytes",
        "_pause",
        "_strangers",
        "_wire",
        "has_memory",
        "is_for_probes",
        "under_tls",
    )

    def __init__(self, manager: Server, **options: Any) -> None:
        # A body is decoded when it is read, by an authenticated request, and not while it is skipped.
        super().__init__(manager, auto_decompress=False, **options)
        self._parser: _Parser | None = _Parser(
            self,
            self._loop,
            self._read_bufsize,
            max_line_size=self.max_line_size,
            max_field_size=self.max_field_size,
            max_headers=self.max_headers,
            payload_exception=RequestPayloadError,
            auto_decompress=False,
            max_msg_queue_size=1,
        )
        self._handler = manager.request_handler
        self._open = manager.open
        self._drain_rate = manager.drain_rate
        self._strangers: Strangers | None = manager.strangers
        self._held = manager.held
        self._wire: asyncio.Transport | None = None
        """As `transport`, which aiohttp forgets while unsent bytes remain."""
        self.under_tls: asyncio.Transport | None = None
        """What sends the bytes of TLS."""
        self.is_for_probes = False
        """It has a descriptor of the reserve, and is closed after one answer."""
        self.has_memory = False
        """Memory is admitted for the answer, until it is sent."""
        self._head_bytes = 0
        """Received of the next request."""
        self._ahead_bytes = 0
        """About what was received after the request that is being answered."""
        self._is_busy = False
        """A request is parsed, and not yet answered with its body read."""
        self._is_answered = False
        """Its handler has ended."""
        self._body: StreamReader = EMPTY_PAYLOAD
        self._has_more = False
        """Bytes came after the request that is being answered."""
        self._part_bytes = 0
        """Received since nothing waited behind a request."""
        self._pause: asyncio.TimerHandle | None = None
        """Before a request that was sent ahead is parsed."""
        self._asks_for_upgrade = False
        """That request asks for another protocol. What comes after it waits in `_message_tail`."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._wire = cast("asyncio.Transport", transport)
        self._open.add(self)
        if self._strangers is not None:
            address, self.is_for_probes = peer_of(transport)
            own_bytes = TLS_BYTES if is_tls(transport) else PLAIN_BYTES
            self._strangers.made(self, address, self.is_for_probes, own_bytes=own_bytes)
        super().connection_made(transport)

    def connection_lost(self, exc: BaseException | None) -> None:
        self._open.discard(self)
        if self._strangers is not None:
            # It stays a stranger: nothing that it holds is counted from here on.
            self._strangers.lost(self)
        self._held.lost(self)
        if self._pause is not None:
            # It would hold what was sent ahead.
            self._pause.cancel()
            self._pause = None
        super().connection_lost(exc)

    def resume_writing(self) -> None:
        # uvloop resumes a lost connection with TLS, too.
        if self._paused:
            super().resume_writing()

    def authenticated(self) -> None:
        """Lift the bounds of strangers."""
        if self._strangers is not None:
            self._strangers.lost(self)
            self._strangers = None
            self._count_held()

    def _supporting(self, request: web.BaseRequest, handler: Handler) -> Handler:
        """Return what answers a request. Refuses forms of HTTP that this server does not have (RFC 9112)."""
        if request.version not in (HttpVersion11, HttpVersion10):
            return _refusing(UnsupportedHttpVersion("this server has HTTP/1.1 and HTTP/1.0"))
        coding = request.headers.get(hdrs.TRANSFER_ENCODING)
        if coding is not None and request.version == HttpVersion10:
            # Something on the way may have read another body (RFC 9112, section 6.1).
            return _refusing(MalformedRequest("HTTP/1.0 has no transfer codings"))
        if coding is not None and coding.lower() != "chunked":
            return _refusing(UnsupportedTransferCoding("the body has another coding than chunked"))
        if not self.is_for_probes:
            return handler
        if request.path in PROBES:
            return _closing(handler)
        if self._strangers is not None:
            self._strangers.refused()
        return _refusing(Unavailable("the server has too many connections"))

    def abort(self) -> None:
        """Close the connection at once."""
        if self._wire is not None:
            self._wire.abort()

    def close(self) -> None:
        """Close the connection when the request that it has is answered, or at once if it has none."""
        # Also where a request that was sent ahead waits to be parsed.
        is_waiting = self._waiter is not None and not self._waiter.done()
        super().close()
        # aiohttp would leave it open, and ignore all that comes.
        if (is_waiting or not self._is_busy) and self.transport is not None:
            self.transport.close()

    def is_needed(self) -> bool:
        """Return whether the connection is not closed, or the kernel has not taken all bytes.

        A closed connection with TLS stays until its client closes it, too: for long, in a pool.
        """
        return self._unsent_bytes() > 0 or (self._wire is not None and not self._wire.is_closing())

    def held_bytes(self) -> int:
        """Return about what is held beside an answer that has memory of its own or whose handler runs."""
        if not self._is_busy:
            held_bytes = self._head_bytes * FIELD_WEIGHT
        else:
            body_bytes = 0 if self._body.is_eof() else min(self._body.total_bytes, BUFFERED_BYTES)
            ahead_bytes = min(self._part_bytes, PARTS_BYTES) if self._has_more else 0
            held_bytes = ahead_bytes + body_bytes * BODY_WEIGHT
        if self._current_request is None and not self.has_memory:
            held_bytes += self._unsent_bytes() * UNSENT_WEIGHT
        return held_bytes

    def _count_held(self) -> None:
        """Count what is received and no handler has taken, and what is not sent."""
        if self._strangers is None:
            self._held.count(self)

    def _unsent_bytes(self) -> int:
        """Return what the kernel has not taken of the answers."""
        wire, under_tls = self._wire, self.under_tls
        unsent_bytes = 0 if wire is None else wire.get_write_buffer_size()
        return unsent_bytes if under_tls is None else unsent_bytes + under_tls.get_write_buffer_size()

    def is_waiting(self) -> bool:
        """Return whether the connection waits for its client, and not for the server."""
        wire = self._wire
        has_request = self._request_in_progress or bool(self._messages)
        return not has_request or (wire is not None and wire.get_write_buffer_size() > 0)

    def is_idle(self) -> bool:
        """Return whether nothing of a request has come, and nothing of an answer is left to send."""
        wire = self._wire
        is_read = not self._is_busy and self._head_bytes == 0
        return is_read and (wire is None or wire.get_write_buffer_size() == 0)

    def data_received(self, data: bytes) -> None:
        self._part_bytes += len(data)
        self._take(data)
        if self._has_more or not self._is_busy or not self._body.is_eof():
            self._count_held()

    def _take(self, data: bytes) -> None:
        if self._strangers is not None and data:
            self._strangers.received(self, len(data))
        if self._is_busy:
            if self._body.is_eof():
                # aiohttp's parser would go on with the next request, though the one ahead is not consumed.
                self._message_tail += data
                self._ahead_bytes += len(data)
                self._pause_reading_for_buffer()
                self._has_more = True
            else:
                # A parser that is paused has kept bytes.
                is_unpaused, body_bytes = bool(data) and not self._reading_paused, self._body.total_bytes
                # aiohttp would ignore the rest of a body behind `close`.
                is_closing, self._close = self._close, False
                super().data_received(data)
                self._close = is_closing
                if self._messages and isinstance(self._messages[-1][0], _ErrInfo):
                    self._end_broken_body()
                is_body = is_unpaused and self._body.total_bytes - body_bytes == len(data)
                self._has_more = self._body.is_eof() and not is_body
            self._end_if_done()
            return
        self._head_bytes += len(data)
        super().data_received(data)
        if self._strangers is not None and not self._messages:
            self._strangers.received(self, len(data) * (FIELD_WEIGHT - 1))
        if self._messages:
            message, self._body = self._messages[-1]
            self._is_busy, self._is_answered, self._ahead_bytes = True, False, 0
            self._asks_for_upgrade = isinstance(message, RawRequestMessage) and message.upgrade
            is_alone = not self._asks_for_upgrade and _is_one_request(message, self._body, data)
            self._has_more = self._body.is_eof() and not is_alone
            if self._head_bytes > USUAL_BYTES:
                own_bytes = _head_bytes(message)
                self._ahead_bytes = max(0, self._head_bytes - own_bytes - _body_bytes(message, self._body))
                if own_bytes > MAX_HEAD_BYTES:
                    self._messages.clear()
                    self._refuse_head()
        elif self._head_bytes > MAX_HEAD_BYTES:
            self._is_busy = True
            self._refuse_head()

    def _end_broken_body(self) -> None:
        """Tell the reader of a body that it is not coded as its head says. Nothing can come after it.

        aiohttp would have the reader wait, and answer the error as another request.
        """
        self._messages.pop()
        self._close = True
        if not self._is_answered:
            self._body.set_exception(RequestPayloadError("the body is not coded as its head says"))
        # aiohttp reads the rest of a body behind its answer.
        self._body.feed_eof()

    def resume_reading(self, resume_parser: bool = True) -> None:
        # aiohttp resumes after each body, and parses again, even if reading was not paused.
        if self._reading_paused:
            super().resume_reading(resume_parser)

    def _resume_reading_if_drained(self) -> None:
        """Do nothing: the next request is parsed when this one is answered."""

    async def _drain_helper(self) -> None:
        # At the end of the server a task that waits here is cancelled, and writes its last line.
        # aiohttp would wait for cancelled handlers.
        if self._drain_waiter is not None and self._drain_waiter.cancelled():
            self._drain_waiter = None
        if self._strangers is not None:
            self._strangers.received(self, self._unsent_bytes())
        self._count_held()
        await super()._drain_helper()

    async def _handle_request(
        self, request: web.BaseRequest, start_time: float | None, request_handler: Handler
    ) -> tuple[web.StreamResponse, bool]:
        # aiohttp has another handler for what is no request.
        if request_handler is self._handler:
            request_handler = self._supporting(request, request_handler)
        try:
            response, is_lost = await super()._handle_request(request, start_time, request_handler)
            if self.under_tls is not None:
                is_kept = response.keep_alive and not self._close
                await self._send_until(UNREAD_BYTES if is_kept else 0)
            return response, is_lost
        finally:
            self.has_memory, self._is_answered = False, True
            self._end_if_done()

    async def _send_until(self, left_bytes: int) -> None:
        """Wait until at most that is unsent. A TLS connection is cut half a minute after it is closed."""
        unsent_bytes, pause_seconds = self._unsent_bytes(), 0.0
        if unsent_bytes <= left_bytes:
            return
        self._count_held()
        try:
            async with asyncio.timeout(self._drain_rate.write_seconds(unsent_bytes)):
                while self.transport is not None and self._unsent_bytes() > left_bytes:
                    await asyncio.sleep(pause_seconds)
                    # Of hundreds that wait for slow readers each would have its timer every few milliseconds.
                    pause_seconds = min(pause_seconds * 1.125 + SENT_POLL_SECONDS / 8, LONGEST_POLL_SECONDS)
        except TimeoutError:
            log.info("a connection is cut off: a slow reader")
            self.abort()

    def _end_if_done(self) -> None:
        """Parse what came after a request, once it is answered and its body is read."""
        strangers = self._strangers
        if not self._is_done():
            return
        if not self._has_more or strangers is None or strangers.has_room:
            self._parse_next()
        elif self._pause is None:
            self._pause = self._loop.call_later(AHEAD_SECONDS, self._end_pause)

    def _end_pause(self) -> None:
        self._pause = None
        if self._is_done():
            self._parse_next()

    def _is_done(self) -> bool:
        """Return whether a request is answered, its body is read, and its connection stays open."""
        is_answered = self._is_busy and not self._request_in_progress and not self._messages
        is_closing = self._parser is None or self._force_close or self._close
        return is_answered and self._body.is_eof() and not is_closing

    def _parse_next(self) -> None:
        parser, strangers = cast("_Parser", self._parser), self._strangers
        ahead, self._message_tail = self._message_tail, b""
        # What is passed again is counted again. Blanks of heads and lengths of chunks are miscounted, and
        # must not add up to a head that is too long where a recipient keeps its connection.
        self._ahead_bytes = 0 if strangers is None else max(0, self._ahead_bytes - len(ahead))
        if self._asks_for_upgrade:
            # No handler upgrades.
            ahead, self._ahead_bytes = parser.skip_upgrade() + ahead, 0
        self._is_busy, self._head_bytes = False, self._ahead_bytes
        parser.next()
        if strangers is not None:
            strangers.answered(self, self._ahead_bytes + self._unsent_bytes())
        self._count_held()
        if self._has_more:
            self._has_more = False
            self._take(ahead)
            # The parser began with what it kept of an earlier part: `ahead` may be a whole request behind it.
            self._has_more = bool(self._messages) and self._body.is_eof()
        if not self._has_more:
            self._part_bytes = 0
        # Of the next request perhaps only the head came: its body is still to be read.
        if self._buffer_paused and not (self._is_busy and self._body.is_eof()):
            self._resume_reading_for_buffer()

    def _refuse_head(self) -> None:
        error = _HeadTooLong(message=f"more than {MAX_HEAD_BYTES} bytes")
        self._messages.append((_ErrInfo(status=400, exc=error, message=error.message), EMPTY_PAYLOAD))
        self._body = EMPTY_PAYLOAD
        self._pause_reading_for_buffer()
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

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


def _refusing(error: GatewayError) -> Handler:
    async def refuse(request: web.BaseRequest) -> web.StreamResponse:
        log.info("request refused: %s from %s", type(error).__name__, request.remote)
        response = error_answer(error, next_id()).response()
        response.force_close()
        return response

    return refuse


def _closing(handler: Handler) -> Handler:
    async def close(request: web.BaseRequest) -> web.StreamResponse:
        response = await handler(request)
        response.force_close()
        return response

    return close


def _is_one_request(message: Any, body: StreamReader, data: bytes) -> bool:
    """Return whether received bytes, with which a request became whole, are its end and nothing else.

    Where they begin with a line break, the head may end in it. Chunked bodies are shorter than what was sent.
    """
    if not isinstance(message, RawRequestMessage):
        return False
    head_end = data.find(b"\r\n\r\n")
    return head_end > 0 and data[0] > LAST_LINE_BREAK and head_end + 4 + body.total_bytes == len(data)


def peer_of(transport: asyncio.BaseTransport) -> tuple[str | None, bool]:
    """Return the address, and whether the connection has a descriptor of the reserve."""
    peer, connection = transport.get_extra_info("peername"), transport.get_extra_info("socket")
    is_from_reserve = connection is not None and is_reserved(connection.fileno())
    return peer[0] if isinstance(peer, tuple) else None, is_from_reserve


def authenticated(request: web.BaseRequest) -> None:
    """Lift the bounds of strangers from the connection of a request that is authenticated."""
    connection = request.protocol
    if isinstance(connection, _Connection):
        connection.authenticated()


def admitted(request: web.BaseRequest) -> None:
    """Do not count the answer of a request, for which memory is admitted."""
    connection = request.protocol
    if isinstance(connection, _Connection):
        connection.has_memory = True


def _head_bytes(message: Any) -> int:
    """Return the approximate length of a request head; 0 without a request."""
    if not isinstance(message, RawRequestMessage):
        return 0
    fields = sum(len(name) + len(value) + 4 for name, value in message.raw_headers)
    return len(f"{message.method} {message.path} HTTP/1.1\r\n\r\n") + fields


def _body_bytes(message: Any, body: StreamReader) -> int:
    """Return the length that a request gives of its body, or else what has come of it without its framing."""
    text = message.headers.get("Content-Length", "") if isinstance(message, RawRequestMessage) else ""
    return int(text) if text.isdecimal() else body.total_bytes


def _fault(error: BaseException | None) -> str:
    if isinstance(error, LineTooLong):
        return "a request line or header field is too long; up to 8190 bytes are accepted"
    if isinstance(error, _HeadTooLong):
        return f"the head of the request is too long; up to {MAX_HEAD_BYTES} bytes are accepted"
    return "this is not a valid HTTP request"
