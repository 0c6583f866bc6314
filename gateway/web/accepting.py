"""Accepts connections: in few rounds of the event loop, and with TLS behind handshakes that are strangers."""

from __future__ import annotations

import asyncio
import socket
import ssl
from contextlib import suppress
from typing import Any, cast

from aiohttp import web

from gateway.background import forget_error
from gateway.limits.descriptors import is_reserved
from gateway.web.connections import Server, peer_of
from gateway.web.strangers import LIFE_SECONDS, TLS_BYTES

BACKLOG = 2048
"""Connections that wait to be accepted. A client beyond them tries again after a second or more."""
TCP_NOTSENT_LOWAT = getattr(socket, "TCP_NOTSENT_LOWAT", 25)
NOT_SENT_BYTES = 128 * 1024
"""What the kernel takes of an answer before its client can receive it."""
RECEIVED_BYTES = 32 * 1024
"""Of what a client sends, in the kernel. A TLS connection keeps the memory of what was ever read at once."""
ENCRYPTED_BYTES = 256 * 1024
"""That wait to be sent. Fewer would stop the writer of a fast client."""
ACCEPTED_AT_ONCE, ACCEPTED_IN_FLOOD = 32, 4
"""Connections that one round of the event loop accepts, behind the one that it accepts itself."""


class Site(web.SockSite):
    """Accepts connections of a socket, with TLS behind handshakes that are strangers."""

    async def start(self) -> None:
        """Begin to accept."""
        await web.BaseSite.start(self)
        self._accepting: set[asyncio.Task[Any]] = set()
        # Its connections have it, too. The kernel would take megabytes for each client that does not read. No
        # bound of this process sees them, and its memory for connections is that of the whole machine.
        self._sock.setsockopt(socket.IPPROTO_TCP, TCP_NOTSENT_LOWAT, NOT_SENT_BYTES)
        self._sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, RECEIVED_BYTES)
        self._server = await asyncio.get_running_loop().create_server(
            self._first, sock=self._sock, backlog=BACKLOG
        )

    async def stop(self) -> None:
        """Accept no more. What is accepted by now is a connection then, and is closed with the others."""
        await super().stop()
        await asyncio.gather(*self._accepting, return_exceptions=True)

    def _first(self) -> asyncio.BaseProtocol:
        asyncio.get_running_loop().call_soon(self._accept_waiting)
        return self._protocol()

    def _protocol(self) -> asyncio.BaseProtocol:
        server, tls = cast("Server", self._runner.server), self._ssl_context
        return server() if tls is None else _Handshake(server, tls)

    def _accept_waiting(self) -> None:
        """Accept what waits behind a connection.

        The event loop accepts one in each of its rounds: behind hundreds that came at once and are being
        answered the last one would wait for as many rounds, of some ten milliseconds each.
        """
        loop, strangers = asyncio.get_running_loop(), cast("Server", self._runner.server).strangers
        with suppress(OSError):
            for number in range(ACCEPTED_AT_ONCE):
                if number >= ACCEPTED_IN_FLOOD and not strangers.has_room:
                    return
                connection, _ = self._sock.accept()
                task = loop.create_task(loop.connect_accepted_socket(self._protocol, connection))
                self._accepting.add(task)
                task.add_done_callback(self._accepting.discard)
                task.add_done_callback(forget_error)
                if is_reserved(connection.fileno()):
                    # Those behind it would close it before its request is read.
                    return


class _Handshake(asyncio.Protocol):
    """A TLS handshake, which has as long as a request head. Makes a connection when it is done.

    An event loop that accepts TLS itself shows a connection only when its handshake is done.
    """

    def __init__(self, server: Server, tls: ssl.SSLContext) -> None:
        self._server = server
        self._tls = tls
        self._wire: asyncio.Transport | None = None
        self._task: asyncio.Task[None] | None = None
        self._early = bytearray()
        """What came before the handshake began, and later what came with its end."""
        self._is_lost = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._wire = wire = cast("asyncio.Transport", transport)
        # uvloop begins to read nevertheless.
        wire.pause_reading()
        self._server.strangers.made(self, *peer_of(wire), own_bytes=TLS_BYTES)
        loop = asyncio.get_running_loop()
        self._task = loop.create_task(self._shake_hands(wire))
        # Behind the first step of the task and what that step schedules.
        loop.call_soon(loop.call_soon, self._pass_early, wire)

    def _pass_early(self, wire: asyncio.Transport) -> None:
        """Pass the first message of the client to TLS."""
        protocol: object = wire.get_protocol()
        if protocol is self or protocol is None:
            # It was lost before.
            return
        tls, early = cast("asyncio.BufferedProtocol", protocol), bytes(self._early)
        self._early.clear()
        while early and not wire.is_closing():
            buffer = memoryview(tls.get_buffer(len(early)))
            part, early = early[: len(buffer)], early[len(buffer) :]
            buffer[: len(part)] = part
            tls.buffer_updated(len(part))

    def abort(self) -> None:
        """Close the connection at once."""
        if self._wire is not None:
            self._wire.abort()

    def is_waiting(self) -> bool:
        """Return whether the connection waits for its client."""
        return True

    def is_idle(self) -> bool:
        """Return whether nothing of a request has come: a part of a handshake is one of a request."""
        return False

    def data_received(self, data: bytes) -> None:
        self._early += data

    def connection_lost(self, exc: BaseException | None) -> None:  # noqa: ARG002
        self._is_lost = True

    async def _shake_hands(self, wire: asyncio.Transport) -> None:
        try:
            transport = await asyncio.get_running_loop().start_tls(
                wire, self, self._tls, server_side=True, ssl_handshake_timeout=LIFE_SECONDS
            )
        except OSError:
            wire.abort()
            return
        finally:
            self._server.strangers.lost(self)
        # A connection that ends within its handshake may end without an error.
        if transport is None or self._is_lost or wire.is_closing():
            return
        if self._server.is_ending:
            transport.close()
            return
        connection = self._server()
        connection.under_tls = wire
        wire.set_write_buffer_limits(high=ENCRYPTED_BYTES)
        # What is encrypted and not passed on stops the writer. At 0 uvloop would stop it without any.
        transport.set_write_buffer_limits(high=1)
        cast("Any", transport).set_read_buffer_limits(high=RECEIVED_BYTES)
        transport.set_protocol(connection)
        connection.connection_made(transport)
        if self._early:
            connection.data_received(bytes(self._early))
