"""Writes the body of a streamed response, each chunk within the time allowed to its reader."""

from __future__ import annotations

import asyncio
import socket
import struct
from collections.abc import Awaitable
from contextlib import suppress
from dataclasses import dataclass

from aiohttp import web
from aiohttp.abc import AbstractStreamWriter
from aiohttp.http import StreamWriter

from gateway.limits.drain_rate import DrainRate
from gateway.web.response import is_tls, pieces, write_parts

# Bytes of a slow reader stay in the bounded queue of chunks instead of megabytes of kernel buffers.
SEND_BUFFER_BYTES = 512 * 1024


class SlowReader(Exception):
    """Raised when the client does not read a chunk within its time."""


@dataclass(slots=True)
class BodyWriter:
    """Writes the body of a prepared response.

    aiohttp joins a chunk with its HTTP framing into new bytes, which costs about as much as making the
    chunk. So the framing is written here; only the first chunk, sent with the headers, goes through aiohttp.
    """

    response: web.StreamResponse
    writer: AbstractStreamWriter | None
    rate: DrainRate
    connection: socket.socket | None
    started: bool = False

    @property
    def framed(self) -> StreamWriter | None:
        """The writer of HTTP chunks; None where the connection ends the body, as in HTTP/1.0."""
        return self.writer if isinstance(self.writer, StreamWriter) and self.writer.chunked else None

    async def write(self, chunk: memoryview) -> None:
        """Write one chunk. Raises SlowReader, ConnectionError."""
        if self.started and (writer := self.framed) is not None:
            await self._write_framed(writer, chunk)
        else:
            await self._in_time(self._write_unframed(chunk), chunk)
            self.started = True

    async def end(self, tail: bytes) -> None:
        """Write the last bytes and the end of the body. Raises as `write`."""
        await self._in_time(self.response.write_eof(tail), memoryview(tail))
        if self.framed is None:
            end_by_reset(self.connection, False)

    async def _write_unframed(self, chunk: memoryview) -> None:
        writer = self.writer if isinstance(self.writer, StreamWriter) else None
        if writer is None or writer.transport is None or not is_tls(writer.transport):
            await self.response.write(chunk)
            return
        for piece in pieces(chunk):
            await self.response.write(piece)
            # aiohttp waits for several pieces at once.
            await writer.drain()

    async def _write_framed(self, writer: StreamWriter, chunk: memoryview) -> None:
        transport = writer.transport
        if transport is None or transport.is_closing():
            raise ConnectionResetError("the client has left")
        writer.output_size += len(chunk)
        # A chunk that the kernel took at once needs no timeout.
        if (writing := write_parts(transport, writer, (b"%x\r\n" % len(chunk), chunk, b"\r\n"))) is not None:
            await self._in_time(writing, chunk)

    async def _in_time(self, writing: Awaitable[None], chunk: memoryview) -> None:
        try:
            async with asyncio.timeout(self.rate.write_seconds(len(chunk))):
                await writing
        except TimeoutError:
            raise SlowReader from None


def connection_of(request: web.BaseRequest) -> socket.socket | None:
    """Return the TCP socket of a request, if it is still connected."""
    connection = request.transport.get_extra_info("socket") if request.transport else None
    is_tcp = connection is not None and connection.family in (socket.AF_INET, socket.AF_INET6)
    return connection if is_tcp else None


def bound_kernel_buffers(connection: socket.socket | None) -> None:
    """Limit the bytes that the kernel buffers for a slow reader."""
    if connection is not None:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SEND_BUFFER_BYTES)


def cut(request: web.BaseRequest) -> None:
    """Close a connection at once: its answer is not whole."""
    if request.transport is not None:
        request.transport.abort()


def end_by_reset(connection: socket.socket | None, is_on: bool) -> None:
    """Make the connection end by a reset, or make it end in order again.

    If the end of the connection is the end of the body, an orderly end would make a cut answer look complete.
    """
    if connection is None:
        return
    # The client may have closed it.
    with suppress(OSError):
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", is_on, 0))
