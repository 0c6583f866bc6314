"""Answers that are known whole before their first byte."""

from __future__ import annotations

import time
from email.utils import formatdate
from typing import TYPE_CHECKING

from aiohttp import web
from aiohttp.http import HttpVersion10

if TYPE_CHECKING:
    from collections.abc import Mapping

    from aiohttp.abc import AbstractStreamWriter

SERVER = "delta-sharing-gateway"
"""What answers say of who made them; versions are nobody's business."""


class WholeResponse(web.StreamResponse):
    """Status, headers and body of an answer that leaves in one write.

    aiohttp's own `web.Response` does the same for bodies of every kind, and that costs a small answer more
    than all that is found out for it.
    """

    def __init__(
        self, body: bytes = b"", headers: Mapping[str, str] | None = None, *, status: int = 200
    ) -> None:
        """`headers` name the body's type, if there is a body."""
        super().__init__(status=status, headers=headers)
        self.body = body

    @property
    def body_length(self) -> int:
        """The body's bytes, whether they have left or not."""
        return len(self.body)

    async def prepare(self, request: web.BaseRequest) -> AbstractStreamWriter | None:
        """Send it. Raises ConnectionError."""
        writer, headers, version = request.writer, self.headers, request.version
        if self._keep_alive is None:
            self._keep_alive = request.keep_alive
        headers["Content-Length"] = str(len(self.body))
        headers["Date"] = _date()
        headers["Server"] = SERVER
        if version == HttpVersion10 and self._keep_alive:
            headers["Connection"] = "keep-alive"
        elif version != HttpVersion10 and not self._keep_alive:
            headers["Connection"] = "close"
        await writer.write_headers(f"HTTP/{version[0]}.{version[1]} {self.status} {self.reason}", headers)
        await writer.write_eof(b"" if request.method == "HEAD" else self.body)
        return None

    async def write_eof(self, data: bytes = b"") -> None:
        """Nothing is left to be sent."""


def _date() -> str:
    global _today  # noqa: PLW0603 - it is made once a second, not once an answer
    now_seconds = int(time.time())
    if _today[0] != now_seconds:
        _today = (now_seconds, formatdate(now_seconds, usegmt=True))
    return _today[1]


_today = (0, "")
