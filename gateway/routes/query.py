"""`POST .../query`: the files of a version, or what changed since one.

The body becomes one frozen `FilesQuery`, which is handed down to one call on a thread of the table's
storage. The latest version is answered on the event loop where nothing has to be read.
"""

from __future__ import annotations

from collections.abc import Hashable

from aiohttp import web

from gateway.protocol.queries import TableQuery
from gateway.routes.table_request import TableRequest
from gateway.tables.answer_cache import CachedAnswer
from gateway.tables.files import start_snapshot
from gateway.tables.native import Snapshot
from gateway.web import stream
from gateway.web.answer import Answer
from gateway.web.content_coding import acceptable_codings
from gateway.web.context import RequestContext
from gateway.web.response import WholeResponse

LARGE_BODY_BYTES = 16 * 1024
"""A larger body is parsed on a thread, and so are its hints."""


async def query(context: RequestContext) -> web.StreamResponse:
    """Answer a query."""
    request = TableRequest.of(context)
    is_large = len(context.body) > LARGE_BODY_BYTES
    if is_large:
        body = await context.state.tables.blocking(TableQuery.parse, context.body)
    else:
        body = TableQuery.parse(context.body)
    if not is_large and (latest := latest_in_memory(request, body)) is not None:
        return await answer_latest(context, request, body, latest)
    files_query = request.files_query(body)
    files = await request.files(files_query)
    return await stream.send(context, request.answer(files_query, files))


def latest_in_memory(request: TableRequest, body: TableQuery) -> Snapshot | None:
    """Return the latest version, if the query reads it and nothing has to be read from storage."""
    if body.starting_version is not None or body.paging.page_token is not None:
        return None
    if body.refresh_token is not None or body.at:
        return None
    return request.opened.latest_in_memory()


async def answer_latest(
    context: RequestContext, request: TableRequest, body: TableQuery, latest: Snapshot
) -> web.StreamResponse:
    """Answer from the latest version in memory, or from the cache of this second."""
    cache, now_ms, key = (
        context.state.answer_cache,
        context.state.now_ms(),
        cache_key(context, request, latest),
    )
    cached = cache.find(key, now_ms=now_ms)
    if cached is not None:
        # Shared, not copied: nothing changes the record of a whole answer.
        context.record = cached.record
        return WholeResponse(cached.body, cached.field_lines)
    files_query = request.files_query(body)
    files = start_snapshot(request.opened, files_query, body, latest)
    answer = request.answer(files_query, files, reads_storage=False)
    response = await stream.send(context, answer)
    if isinstance(response, WholeResponse) and is_cacheable(context, body, answer):
        cache.keep(
            key, CachedAnswer(response.body, response.field_lines, answer.record.copy()), now_ms=now_ms
        )
    return response


def cache_key(context: RequestContext, request: TableRequest, latest: Snapshot) -> Hashable:
    """Return everything that the answer depends on, beside the configuration and the second."""
    return (
        request.table,
        latest.table_id,
        latest.identity,
        request.opened.signers,
        request.capabilities_text,
        request.file_id_scheme,
        context.body,
        # A client that excludes `identity` gets another answer.
        "identity" in acceptable_codings(request.accepted_codings),
    )


def is_cacheable(context: RequestContext, body: TableQuery, answer: Answer) -> bool:
    """Return whether an answer is the same for all recipients and codings, without a recipient's token."""
    compression = context.state.config.gateway.compression
    is_small = not compression.enabled or (answer.considered or 0) < compression.minimum_files
    return is_small and answer.content_coding == "identity" and not body.paging and not body.refreshes
