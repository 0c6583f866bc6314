"""`GET .../changes`: the change data feed of a range of versions."""

from __future__ import annotations

from aiohttp import web

from gateway.protocol.queries import ChangesQuery
from gateway.routes.table_answer import table_answer
from gateway.routes.table_request import TableRequest
from gateway.web import stream
from gateway.web.context import RequestContext


async def changes(context: RequestContext) -> web.StreamResponse:
    """Answer a range of changes."""
    request = TableRequest.of(context)
    request.require_urls()
    parameters = ChangesQuery.parse(context.request.query)
    query = request.files_query(parameters)
    await context.read_log()
    files = await request.files(query)
    return await stream.send(context, table_answer(request, query, files))
