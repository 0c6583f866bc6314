"""Writes one line of JSON for every request: recipient, path, status, duration and facts.

In: contexts of requests that have ended. Out: lines of the log `gateway.access`. `remote` is the client's
address, as far as proxies are trusted, and `proxy` the proxy's. The query string and the headers are not
logged: they may hold tokens and signatures.
"""

from __future__ import annotations

import asyncio
import logging
import time

from aiohttp import web

from gateway.encoding import json_bytes
from gateway.protocol.profile import without_code
from gateway.telemetry.log_output import ACCESS_LOG
from gateway.web.context import RequestContext
from gateway.web.error_response import CLIENT_CLOSED_REQUEST

log = logging.getLogger(ACCESS_LOG)


class AccessLog:
    """Writes the lines of all requests that end in one turn of the event loop as one log record.

    A log record costs more time than the line itself.
    """

    def __init__(self) -> None:
        self._lines: list[bytes] = []

    def ended(self, context: RequestContext, response: web.StreamResponse | None, seconds: float) -> None:
        """Log a request that took that long. Without a response its client has left."""
        if not log.isEnabledFor(logging.INFO):
            return
        if not self._lines:
            asyncio.get_running_loop().call_soon(self._write)
        self._lines.append(line(context, response, seconds))

    def _write(self) -> None:
        lines, self._lines = self._lines, []
        # `log.info` looks for its caller, which no handler shows.
        text = b"\n".join(lines).decode()
        log.handle(log.makeRecord(log.name, logging.INFO, "", 0, text, (), None))


def line(context: RequestContext, response: web.StreamResponse | None, seconds: float) -> bytes:
    """Return the line of a request, without a line break."""
    request = context.request
    fields = {
        "time_ms": time.time_ns() // 1_000_000,
        "request": context.id,
        "method": request.method,
        "path": without_code(request.path),
        "status": CLIENT_CLOSED_REQUEST if response is None else response.status,
    }
    if context.recipient is not None:
        fields["recipient"] = context.recipient.name
    remote = request.remote
    if context.state.trusted_proxies and (address := context.address) is not None:
        client = str(address)
        if client != remote:
            fields["proxy"] = remote
        remote = client
    if remote is not None:
        fields["remote"] = remote
    fields["duration_ms"] = round(seconds * 1000, 3)
    if sent_bytes := context.sent_bytes(response):
        fields["bytes"] = sent_bytes
    fields |= context.record.known()
    return json_bytes(fields)
