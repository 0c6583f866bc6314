"""`POST .../query`: the files of a version, or what changed since one.

The body becomes one frozen `FilesQuery`, which is handed down to one call on a thread of the table's
storage. The latest version is answered on the event loop if its files are in memory.
"""

from __future__ import annotations

from collections.abc import Hashable

from aiohttp import web
from msgspec import Struct

from gateway.protocol.queries import TableQuery
from gateway.routes.table_request import TableRequest
from gateway.tables.answer_cache import CachedAnswer
from gateway.tables.files import Files, FilesQuery, is_worth_another_try, start_snapshot
from gateway.tables.open_table import LatestTable, OpenTable
from gateway.web import stream
from gateway.web.answer import Answer
from gateway.web.context import RequestContext
from gateway.web.response import WholeResponse

LARGE_BODY_BYTES = 16 * 1024
"""A larger body is parsed on a thread, and so are its hints."""


async def query(context: RequestContext) -> web.StreamResponse:
    """Answer a query."""
    request = TableRequest.of(context)
    request.require_urls()
    is_large = len(context.body) > LARGE_BODY_BYTES
    if is_large:
        body = await context.state.tables.blocking(TableQuery.parse, context.body)
    else:
        body = TableQuery.parse(context.body)
    if reads_latest(body):
        return await answer_latest(context, request, body, may_start_at_once=not is_large)
    files_query = request.files_query(body)
    files = await request.files(files_query)
    return await send(context, request, files_query, files, request.answer(files_query, files))


async def send(
    context: RequestContext, request: TableRequest, query: FilesQuery, files: Files, answer: Answer
) -> web.StreamResponse:
    """Send an answer, or a second one if the log turns out to be damaged before the first line."""
    try:
        return await stream.send(context, answer)
    except Exception as error:
        if not is_worth_another_try(query, files.read, error):
            raise
    return await stream.send(context, request.answer(query, await request.files(query)))


def reads_latest(body: TableQuery) -> bool:
    """Return whether a query reads the latest version, and not one that it or a token names."""
    is_continued = body.paging.page_token is not None or body.refresh_token is not None
    return not is_continued and body.starting_version is None and not body.at


class Started(Struct, frozen=True):
    """A started answer with its query; from memory, also the key to cache it and the time."""

    query: FilesQuery
    files: Files
    key: Hashable = None
    now_ms: int = 0


async def answer_latest(
    context: RequestContext, request: TableRequest, body: TableQuery, *, may_start_at_once: bool
) -> web.StreamResponse:
    """Answer from the latest version: from the cache of this second, from memory, or from the log."""

    def from_log(opened: OpenTable) -> CachedAnswer | Started:
        files_query = request.files_query(body)
        return Started(files_query, start_snapshot(opened, files_query, body))

    def from_memory(opened: LatestTable) -> CachedAnswer | Started | None:
        if not may_start_at_once or not opened.is_in_memory:
            return None
        key, now_ms = cache_key(context, request, opened), context.state.now_ms()
        cached = context.state.answer_cache.find(key, now_ms=now_ms)
        if cached is not None:
            return cached
        files_query = request.files_query(body)
        return Started(files_query, start_snapshot(opened, files_query, body), key, now_ms)

    started = await request.read_latest(from_log, from_memory)
    if isinstance(started, CachedAnswer):
        # Shared, not copied: nothing changes the record of a whole answer.
        context.record = started.record
        return WholeResponse(started.body, started.field_lines)
    answer = request.answer(started.query, started.files, reads_storage=started.key is None)
    response = await send(context, request, started.query, started.files, answer)
    cache = context.state.answer_cache
    if (
        started.key is not None
        and isinstance(response, WholeResponse)
        and cache.has_room(response.body_length, now_ms=started.now_ms)
        and is_cacheable(context, body, answer)
    ):
        kept = CachedAnswer(response.body, response.field_lines, answer.record.copy())
        cache.keep(started.key, kept, now_ms=started.now_ms)
    return response


def cache_key(context: RequestContext, request: TableRequest, opened: LatestTable) -> Hashable:
    """Return everything that the answer depends on, beside the configuration and the second."""
    return (
        request.table,
        opened.latest.table_id,
        opened.latest.identity,
        opened.signers,
        request.capabilities_text,
        request.file_id_scheme,
        context.body,
        # A client that excludes `identity` gets another answer, if it accepts another coding.
        request.codings()[0],
    )


def is_cacheable(context: RequestContext, body: TableQuery, answer: Answer) -> bool:
    """Return whether an answer is the same for all recipients and codings, without a recipient's token."""
    compression = context.state.config.gateway.compression
    is_small = not compression.enabled or (answer.considered or 0) < compression.minimum_files
    return is_small and answer.content_coding == "identity" and not body.paging and not body.refreshes
