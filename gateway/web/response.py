"""Responses whose whole body is known before the first byte."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Iterator, Mapping, Sequence
from email.utils import formatdate
from itertools import chain

from aiohttp import web
from aiohttp.abc import AbstractStreamWriter
from aiohttp.http import HttpVersion, HttpVersion10

WRITE_SECONDS = 30.0
LARGE_BYTES = 4 * 1024
"""A longer body is not copied to be sent with its head."""
TLS_PIECE_BYTES = 32 * 1024
"""A connection keeps the memory of the longest piece that TLS has encrypted and not yet passed on."""
SERVER = "delta-sharing-gateway"
"""The `Server` header, without a version."""


class WholeResponse(web.StreamResponse):
    """A response that is sent in one write.

    aiohttp's `web.Response` handles bodies of every kind, which costs a small answer more than all its
    other work.
    """

    def __init__(
        self, body: bytes = b"", headers: Mapping[str, str] | str = "", *, status: int = 200
    ) -> None:
        """`headers` include the content type of a body; or they are `field_lines` of an earlier response."""
        super().__init__(status=status)
        self.body = body
        self.field_lines = headers if isinstance(headers, str) else _field_lines(headers)
        self.write_seconds: float | None = WRITE_SECONDS
        """Return the time limit of the write; None without a limit."""

    async def prepare(self, request: web.BaseRequest) -> None:
        """Send the response. Raises ConnectionError, also for a slow reader."""
        if self._keep_alive is None:
            self._keep_alive = request.keep_alive
        transport, writer = request.transport, request.writer
        if transport is None or transport.is_closing():
            raise ConnectionResetError("the client has left")
        if writer.output_size:
            # The failed handler has started an answer: a second one would be read as the rest of the first.
            transport.abort()
            raise ConnectionResetError("the answer has started, so its connection is cut")
        head, body = self._head(request.version), b"" if request.method == "HEAD" else self.body
        writer.output_size += len(head) + len(body)
        parts = (head + body,) if len(body) < LARGE_BYTES else (head, body)
        # A response that the kernel took at once needs no timeout.
        if (writing := write_parts(transport, writer, parts)) is not None:
            await self._in_time(writing, transport)

    async def write_eof(self, data: bytes = b"") -> None:  # noqa: ARG002 - as aiohttp calls it
        """Forget the body, which is sent already: aiohttp has the response until the next request."""
        self.body = b""

    async def _in_time(self, writing: Awaitable[None], transport: asyncio.WriteTransport) -> None:
        try:
            async with asyncio.timeout(self.write_seconds):
                await writing
        except TimeoutError:
            transport.abort()
            raise ConnectionResetError("a slow reader was cut off") from None

    def _head(self, version: HttpVersion) -> bytes:
        # An answer to another version is in this server's own (RFC 9110, section 2.5).
        is_old = version == HttpVersion10
        start, connection = "HTTP/1.0" if is_old else "HTTP/1.1", ""
        if bool(self._keep_alive) is is_old:
            connection = "Connection: keep-alive\r\n" if is_old else "Connection: close\r\n"
        return (
            f"{start} {self.status} {self.reason}\r\n{self.field_lines}{connection}"
            f"Content-Length: {len(self.body)}{_last_lines()}"
        ).encode()


def write_parts(
    transport: asyncio.WriteTransport, writer: AbstractStreamWriter, parts: Sequence[bytes | memoryview]
) -> Awaitable[None] | None:
    """Write in one system call. Return what waits for the rest; None where the kernel took all at once."""
    if is_tls(transport):
        return _write_pieces(transport, writer, parts)
    transport.writelines(parts)
    return writer.drain() if transport.get_write_buffer_size() else None


async def _write_pieces(
    transport: asyncio.WriteTransport, writer: AbstractStreamWriter, parts: Sequence[bytes | memoryview]
) -> None:
    if sum(map(len, parts)) < TLS_PIECE_BYTES:
        parts = (b"".join(parts),)
    for piece in chain.from_iterable(map(pieces, parts)):
        if transport.is_closing():
            raise ConnectionResetError("the client has left")
        transport.write(piece)
        if transport.get_write_buffer_size():
            await writer.drain()


def is_tls(transport: asyncio.BaseTransport) -> bool:
    """Return whether what is written is encrypted first."""
    return transport.get_extra_info("ssl_object") is not None


def pieces(part: bytes | memoryview) -> Iterator[bytes | memoryview]:
    """Return what is encrypted at once."""
    return (part[start : start + TLS_PIECE_BYTES] for start in range(0, len(part), TLS_PIECE_BYTES))


def _field_lines(headers: Mapping[str, str]) -> str:
    lines = [f"{name}: {value}" for name, value in headers.items()]
    text = "".join(lines)
    if "\r" in text or "\n" in text or "\0" in text:
        raise ValueError("a header holds a line break")
    return "\r\n".join([*lines, ""])


def _last_lines() -> str:
    """Return the end of the line before them, and the last lines of a head, formatted once a second."""
    global _second, _lines
    now_seconds = int(time.time())
    if _second != now_seconds:
        date = formatdate(now_seconds, usegmt=True)
        _second, _lines = now_seconds, f"\r\nDate: {date}\r\nServer: {SERVER}\r\n\r\n"
    return _lines


_second, _lines = 0, ""
