"""A table's version and metadata."""

from __future__ import annotations

from aiohttp import web

from gateway.errors import NotFound
from gateway.protocol import NDJSON_CONTENT_TYPE, VERSION_HEADER, TimeTravel, timestamp_parameter
from gateway.requests import TableRequest


async def version(request: web.Request) -> web.Response:
    """`GET .../version[?startingTimestamp=]`, and the deprecated `HEAD .../{table}`."""
    asked = TableRequest.of(request)
    timestamp_ms = timestamp_parameter(request.query, "startingTimestamp")

    def read(asked: TableRequest) -> web.Response:
        opened = asked.opened
        found = (
            opened.snapshot().version if timestamp_ms is None else opened.version_at_or_after(timestamp_ms)
        )
        return web.Response(headers={VERSION_HEADER: str(found), **asked.stale_header()})

    return await asked.reading(read)


async def metadata(request: web.Request) -> web.Response:
    """`GET .../metadata[?version=|timestamp=]`: the two lines that head every answer of that version."""
    asked = TableRequest.of(request)
    at = TimeTravel.parse(request.query)

    def read(asked: TableRequest) -> tuple[bytes, dict[str, str]]:
        snapshot = asked.opened.snapshot(version=at.version, timestamp_ms=at.timestamp_ms)
        chosen = asked.capabilities.negotiate(
            needs_delta_format=snapshot.needs_delta_format,
            client_reader_features=snapshot.client_reader_features,
        )
        return snapshot.header(chosen, with_version=bool(at)), asked.headers(snapshot.version, chosen)

    lines, headers = await asked.reading(read)
    return web.Response(body=lines, headers={"Content-Type": NDJSON_CONTENT_TYPE, **headers})


async def async_query(request: web.Request) -> web.Response:
    """`POST .../queries/{id}`: every query is answered at once, so there is none to ask for."""
    TableRequest.of(request)
    raise NotFound("no such query: queries are answered at once")
