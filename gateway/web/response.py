"""Answers that are known whole before their first byte."""

from __future__ import annotations

import asyncio
import time
from email.utils import formatdate
from typing import TYPE_CHECKING

from aiohttp import web
from aiohttp.http import HttpVersion10

if TYPE_CHECKING:
    from collections.abc import Mapping

    from aiohttp.abc import AbstractStreamWriter
    from aiohttp.http import HttpVersion

WRITE_SECONDS = 30.0
SERVER = "delta-sharing-gateway"
"""What answers say of who made them; versions are nobody's business."""


class WholeResponse(web.StreamResponse):
    """Status, headers and body of an answer that leaves in one write.

    aiohttp's own `web.Response` does the same for bodies of every kind, and that costs a small answer more
    than all that is found out for it.
    """

    def __init__(
        self, body: bytes = b"", headers: Mapping[str, str] | str = "", *, status: int = 200
    ) -> None:
        """`headers` name the body's type, if there is a body; or the `field_lines` of an earlier answer."""
        super().__init__(status=status)
        self.body = body
        self.field_lines = headers if isinstance(headers, str) else _field_lines(headers)
        self.write_seconds: float | None = WRITE_SECONDS
        """How long it may take to leave; None: for ever."""

    @property
    def body_length(self) -> int:
        """The body's bytes, whether they have left or not."""
        return len(self.body)

    async def prepare(self, request: web.BaseRequest) -> None:
        """Send it. Raises ConnectionError, also for a reader that takes too long."""
        if self._keep_alive is None:
            self._keep_alive = request.keep_alive
        transport, writer = request.transport, request.writer
        if transport is None or transport.is_closing():
            raise ConnectionResetError("the client has left")
        if writer.output_size:
            # What failed had begun to answer: a second answer would read as the rest of the first.
            transport.abort()
            raise ConnectionResetError("the answer has begun, so its connection is cut")
        sent = self._head(request.version) + (b"" if request.method == "HEAD" else self.body)
        transport.write(sent)
        writer.output_size += len(sent)
        # What a client has taken at once needs no clock.
        if transport.get_write_buffer_size():
            await self._drained(transport, writer)

    async def write_eof(self, data: bytes = b"") -> None:
        """Nothing is left to be sent."""

    async def _drained(self, transport: asyncio.WriteTransport, writer: AbstractStreamWriter) -> None:
        try:
            async with asyncio.timeout(self.write_seconds):
                await writer.drain()
        except TimeoutError:
            transport.abort()
            raise ConnectionResetError("a slow reader was cut off") from None

    def _head(self, version: HttpVersion) -> bytes:
        connection = ""
        if self._keep_alive and version == HttpVersion10:
            connection = "Connection: keep-alive\r\n"
        elif not self._keep_alive and version != HttpVersion10:
            connection = "Connection: close\r\n"
        return (
            f"HTTP/{version[0]}.{version[1]} {self.status} {self.reason}\r\n{self.field_lines}{connection}"
            f"Content-Length: {len(self.body)}\r\nDate: {_date()}\r\nServer: {SERVER}\r\n\r\n"
        ).encode()


def _field_lines(headers: Mapping[str, str]) -> str:
    lines = "".join([f"{name}: {value}\r\n" for name, value in headers.items()])
    if not lines.count("\r") == lines.count("\n") == len(headers) or "\0" in lines:
        raise ValueError("a header holds a line break")
    return lines


def _date() -> str:
    global _today  # noqa: PLW0603 - it is made once a second, not once an answer
    now_seconds = int(time.time())
    if _today[0] != now_seconds:
        _today = (now_seconds, formatdate(now_seconds, usegmt=True))
    return _today[1]


_today = (0, "")
