"""One structured line of JSON for every request: who, what, how it ended, how long it took.

In: exchanges that are over. Out: lines in the log `gateway.access`. `remote` is the client, as far as trusted
proxies tell it, and `proxy` the one that it came through. The path stands there, the query string
and headers do not: they may hold tokens and signatures.
"""

from __future__ import annotations

import asyncio
import logging
import time
from typing import TYPE_CHECKING

import orjson

from gateway.telemetry.log_output import ACCESS_LOG
from gateway.web.error_response import CLIENT_CLOSED_REQUEST

if TYPE_CHECKING:
    from aiohttp import web

    from gateway.web.context import Exchange

log = logging.getLogger(ACCESS_LOG)


class AccessLog:
    """Writes the lines of all requests that end in one turn of the event loop as one entry of the log.

    An entry costs the logging module more than making its line.
    """

    def __init__(self) -> None:
        self._lines: list[bytes] = []

    def ended(self, exchange: Exchange, response: web.StreamResponse | None, seconds: float) -> None:
        """Log a request that took so long. Without a response it was cut off."""
        if not log.isEnabledFor(logging.INFO):
            return
        if not self._lines:
            asyncio.get_running_loop().call_soon(self._write)
        self._lines.append(line(exchange, response, seconds))

    def _write(self) -> None:
        lines, self._lines = self._lines, []
        log.info(b"\n".join(lines).decode())


def line(exchange: Exchange, response: web.StreamResponse | None, seconds: float) -> bytes:
    """The line, without its end."""
    request = exchange.request
    fields = {
        "time_ms": time.time_ns() // 1_000_000,
        "request": exchange.id,
        "method": request.method,
        "path": request.path,
        "status": CLIENT_CLOSED_REQUEST if response is None else response.status,
    }
    if exchange.asking is not None:
        fields["recipient"] = exchange.asking.name
    remote = request.remote
    if exchange.sharing.trusted_proxies and (address := exchange.address) is not None:
        client = str(address)
        if client != remote:
            fields["proxy"] = remote
        remote = client
    if remote is not None:
        fields["remote"] = remote
    fields["duration_ms"] = round(seconds * 1000, 3)
    if sent_bytes := exchange.sent_bytes(response):
        fields["bytes"] = sent_bytes
    fields |= exchange.facts
    return orjson.dumps(fields)
