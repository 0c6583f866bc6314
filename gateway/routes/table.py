"""A table's version and metadata."""

from __future__ import annotations

from aiohttp import web

from gateway.errors import NotFound
from gateway.protocol.parsing import timestamp_parameter
from gateway.protocol.queries import TimeTravel
from gateway.protocol.response import NDJSON_CONTENT_TYPE, VERSION_HEADER
from gateway.routes.table_request import TableRequest
from gateway.tables.metadata import read_metadata, read_version
from gateway.web.context import RequestContext
from gateway.web.response import WholeResponse


async def version(context: RequestContext) -> web.StreamResponse:
    """`GET .../version[?startingTimestamp=]`, and the deprecated `HEAD .../{table}`."""
    request = TableRequest.of(context)
    timestamp_ms = timestamp_parameter(context.request.query, "startingTimestamp", round_up=True)
    found, stale = await request.read(read_version, timestamp_ms)
    context.record.stale = stale or None
    return WholeResponse(headers={VERSION_HEADER: str(found), **request.stale_header(stale)})


async def metadata(context: RequestContext) -> web.StreamResponse:
    """`GET .../metadata[?version=|timestamp=]`: the first two lines of every answer of that version."""
    request = TableRequest.of(context)
    at = TimeTravel.parse(context.request.query)
    found = await request.read(read_metadata, at, request.capabilities, request.stop)
    context.record.stale = found.stale or None
    headers = request.headers(found.version, found.response_format, stale=found.stale)
    return WholeResponse(found.lines, {"Content-Type": NDJSON_CONTENT_TYPE, **headers})


async def async_query(context: RequestContext) -> web.StreamResponse:
    """`POST .../queries/{id}`: queries are answered at once, so there is no query to poll."""
    TableRequest.of(context)
    raise NotFound("no such query: queries are answered at once")
