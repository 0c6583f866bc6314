"""Writes the body of a streamed response, each chunk within the time allowed to its reader."""

from __future__ import annotations

import asyncio
import socket
import struct
from collections.abc import Awaitable
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from aiohttp import web
from aiohttp.abc import AbstractStreamWriter
from aiohttp.http import StreamWriter

from gateway.limits.drain_rate import DrainRate

if TYPE_CHECKING:
    pass

# A slow reader's unsent bytes stay in our bounded queue instead of megabytes of the kernel's.
TCP_NOTSENT_LOWAT = getattr(socket, "TCP_NOTSENT_LOWAT", 25)
NOT_SENT_BYTES = 128 * 1024
SEND_BUFFER_BYTES = 512 * 1024


class SlowReader(Exception):
    """A chunk did not leave within its time."""


@dataclass(slots=True)
class Body:
    """The body of a response that has begun: pieces leave within the time that their reader has for them.

    aiohttp joins a piece with its frame into new bytes, which costs about as much as making the piece; so the
    frame of an HTTP chunk is written here, and only what goes first, with the headers, goes through aiohttp.
    """

    response: web.StreamResponse
    writer: AbstractStreamWriter | None
    rate: DrainRate
    connection: socket.socket | None
    begun: bool = False

    @property
    def framed(self) -> StreamWriter | None:
        """Who writes chunks; None where the end of the connection is that of the body, as for HTTP/1.0."""
        return self.writer if isinstance(self.writer, StreamWriter) and self.writer.chunked else None

    async def write(self, piece: memoryview) -> None:
        """Write one piece. Raises SlowReader, ConnectionError."""
        if self.begun and (writer := self.framed) is not None:
            await self._write_framed(writer, piece)
        else:
            await self._in_time(self.response.write(piece), piece)
            self.begun = True

    async def end(self, tail: bytes) -> None:
        """Write what comes after the last piece, and the end of the body. Raises as `write`."""
        await self._in_time(self.response.write_eof(tail), memoryview(tail))
        if self.framed is None:
            end_by_reset(self.connection, False)

    async def _write_framed(self, writer: StreamWriter, piece: memoryview) -> None:
        transport = writer.transport
        if transport is None or transport.is_closing():
            raise ConnectionResetError("the client has left")
        # One call to the system for all three.
        transport.writelines((b"%x\r\n" % len(piece), piece, b"\r\n"))
        writer.output_size += len(piece)
        # What a fast client has taken at once needs no clock.
        if transport.get_write_buffer_size():
            await self._in_time(writer.drain(), piece)

    async def _in_time(self, writing: Awaitable[None], piece: memoryview) -> None:
        try:
            async with asyncio.timeout(self.rate.write_seconds(len(piece))):
                await writing
        except TimeoutError:
            raise SlowReader from None


def connection_of(request: web.BaseRequest) -> socket.socket | None:
    """Return the socket of a request, if its connection is open."""
    connection = request.transport.get_extra_info("socket") if request.transport else None
    is_tcp = connection is not None and connection.family in (socket.AF_INET, socket.AF_INET6)
    return connection if is_tcp else None


def bound_kernel_buffers(connection: socket.socket | None) -> None:
    """Bound the bytes that the kernel holds for a slow reader."""
    if connection is not None:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SEND_BUFFER_BYTES)
        connection.setsockopt(socket.IPPROTO_TCP, TCP_NOTSENT_LOWAT, NOT_SENT_BYTES)


def end_by_reset(connection: socket.socket | None, is_on: bool) -> None:
    """Let the connection end by a reset, whatever ends it, for as long as its answer is not whole.

    Where only its end tells that of the answer, an orderly one would make a short answer a whole one.
    """
    if connection is None:
        return
    # The client may have left since.
    with suppress(OSError):
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", is_on, 0))
