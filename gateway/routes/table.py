"""A table's version and metadata."""

from __future__ import annotations

from aiohttp import web

from gateway.errors import NotFound
from gateway.protocol.parsing import timestamp_parameter
from gateway.protocol.queries import TimeTravel
from gateway.protocol.response import NDJSON_CONTENT_TYPE, VERSION_HEADER
from gateway.routes.table_request import TableRequest
from gateway.web.context import Exchange
from gateway.web.response import WholeResponse


async def version(exchange: Exchange) -> web.StreamResponse:
    """`GET .../version[?startingTimestamp=]`, and the deprecated `HEAD .../{table}`."""
    asked = TableRequest.of(exchange)
    timestamp_ms = timestamp_parameter(exchange.request.query, "startingTimestamp", round_up=True)

    def read(asked: TableRequest) -> WholeResponse:
        opened = asked.opened
        found = (
            opened.snapshot().version if timestamp_ms is None else opened.version_at_or_after(timestamp_ms)
        )
        return WholeResponse(headers={VERSION_HEADER: str(found), **asked.stale_header()})

    return await asked.reading(read)


async def metadata(exchange: Exchange) -> web.StreamResponse:
    """`GET .../metadata[?version=|timestamp=]`: the two lines that head every answer of that version."""
    asked = TableRequest.of(exchange)
    at = TimeTravel.parse(exchange.request.query)

    def read(asked: TableRequest) -> tuple[bytes, dict[str, str]]:
        snapshot = asked.opened.snapshot(version=at.version, timestamp_ms=at.timestamp_ms)
        chosen = asked.capabilities.negotiate(
            needs_delta_format=snapshot.needs_delta_format,
            client_reader_features=snapshot.client_reader_features,
        )
        lines = snapshot.header(
            chosen, with_version=bool(at), history_shared=asked.table.history_shared, stop=asked.stop
        )
        return lines, asked.headers(snapshot.version, chosen)

    lines, headers = await asked.reading(read)
    return WholeResponse(lines, {"Content-Type": NDJSON_CONTENT_TYPE, **headers})


async def async_query(exchange: Exchange) -> web.StreamResponse:
    """`POST .../queries/{id}`: every query is answered at once, so there is none to ask for."""
    TableRequest.of(exchange)
    raise NotFound("no such query: queries are answered at once")
