"""Writes one line of JSON for every request: recipient, path, status, duration and facts.

In: contexts of requests that have ended. Out: lines of the log `gateway.access`. `remote` is the client's
address, as far as proxies are trusted, and `proxy` the proxy's. The query string and the headers are not
logged: they may hold tokens and signatures.
"""

from __future__ import annotations

import asyncio
import logging
from functools import lru_cache

from aiohttp import web

from gateway.encoding import begin_of, json_members
from gateway.protocol.profile import ACTIVATION, without_code
from gateway.telemetry.log_output import ACCESS_LOG
from gateway.times import epoch_ms
from gateway.web.context import RequestContext
from gateway.web.error_response import CLIENT_CLOSED_REQUEST

log = logging.getLogger(ACCESS_LOG)

CACHED_FIELDS, CACHED_PATH_LENGTH = 1024, 512
MAX_PATH_BYTES = 3 * 1024
"""A line with such a path still has less than the 4 KiB that a pipe of several workers takes in one piece."""


class AccessLog:
    """Writes the lines of all requests that end in one turn of the event loop as one log record.

    A log record costs more time than the line itself.
    """

    def __init__(self) -> None:
        self._lines: list[str] = []

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
        log.handle(log.makeRecord(log.name, logging.INFO, "", 0, "\n".join(lines), (), None))


def line(context: RequestContext, response: web.StreamResponse | None, seconds: float) -> str:
    """Return the line of a request, without a line break."""
    request, proxy, remote = context.request, None, context.request.remote
    if context.state.trusted_proxies and (address := context.address) is not None:
        proxy, remote = remote, str(address)
    # Without the code also as a key, which is in memory for long.
    path = request.path
    if ACTIVATION in path:
        path = without_code(path, context.state.config.prefixes)
    fields = _request_fields if len(path) <= CACHED_PATH_LENGTH else _request_fields.__wrapped__
    status = CLIENT_CLOSED_REQUEST if response is None else response.status
    recipient = context.recipient.name if context.recipient else None
    members = fields(request.method, path, status, recipient, proxy, remote)
    sent = f',"bytes":{context.sent_bytes}' if context.sent_bytes else ""
    return (
        f'{{"time_ms":{epoch_ms()},"request":"{context.id}",{members},"duration_ms":{seconds * 1000:.3f}'
        f"{sent}{context.record.members()}}}"
    )


# Clients repeat their requests.
@lru_cache(CACHED_FIELDS)
def _request_fields(method: str, path: str, status: int, *client: str | None) -> str:
    """Return the members of a line that requests of one client for one path have in common."""
    recipient, proxy, remote = client[0], *map(_without_prefix, client[1:])
    named = {"recipient": recipient, "proxy": None if proxy == remote else proxy, "remote": remote}
    fields = {"method": method, "path": begin_of(path, MAX_PATH_BYTES), "status": status}
    return json_members(fields | {name: text for name, text in named.items() if text is not None}).decode()


def _without_prefix(address: str | None) -> str | None:
    """Return an address; of IPv4, at a listener for both kinds, without the prefix of IPv6."""
    return address.removeprefix("::ffff:") if address is not None and "." in address else address
