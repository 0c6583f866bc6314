"""`POST .../query`: the files of a version, or what changed since one.

The body becomes one frozen `FilesQuery`, which is handed down to one call on a thread of the table's
storage. The latest version is answered on the event loop if its files are in memory.
"""

from __future__ import annotations

from aiohttp import web

from gateway.protocol.queries import TableQuery
from gateway.routes.cached_answer import CachedQuery
from gateway.routes.table_answer import table_answer
from gateway.routes.table_request import TableRequest
from gateway.tables.answer_cache import CachedAnswer
from gateway.tables.files import Files, FilesQuery, is_worth_another_try, start_snapshot
from gateway.tables.open_table import LatestTable, OpenTable
from gateway.web import stream
from gateway.web.answer import Answer
from gateway.web.context import RequestContext
from gateway.web.response import WholeResponse

LARGE_BODY_BYTES = 16 * 1024
"""A larger body is parsed on a thread, and so are its hints. They count as a stream."""
HUGE_BODY_BYTES = 128 * 1024
HUGE_BODY_STREAMS = 2
"""As how many streams the hints of a larger body count: 1 MiB of short ones takes 68 MiB."""


async def query(context: RequestContext) -> web.StreamResponse:
    """Answer a query."""
    request = TableRequest.of(context)
    request.require_urls()
    is_large = len(context.body) > LARGE_BODY_BYTES
    if is_large:
        await context.read_log(HUGE_BODY_STREAMS if len(context.body) > HUGE_BODY_BYTES else 1)
        body = await context.state.tables.in_turn(request.recipient, TableQuery.parse, context.body)
    else:
        body = TableQuery.parse(context.body)
    if reads_latest(body):
        latest = LatestQuery(request, context.body, body, may_start_at_once=not is_large)
        return await latest.answer(context)
    files_query = request.files_query(body)
    in_memory = continues_in_memory(request, files_query)
    if not in_memory:
        await context.read_log()
    files = await request.files(files_query, in_memory=in_memory)
    return await send(context, request, files_query, files, table_answer(request, files_query, files))


async def send(
    context: RequestContext, request: TableRequest, query: FilesQuery, files: Files, answer: Answer
) -> web.StreamResponse:
    """Send an answer, or a second one if the log turns out to be damaged before the first line."""
    try:
        return await stream.send(context, answer)
    except Exception as error:
        if not is_worth_another_try(query, files.read, error):
            raise
    await context.read_log()
    return await stream.send(context, table_answer(request, query, await request.files(query)))


def reads_latest(body: TableQuery) -> bool:
    """Return whether a query reads the latest version, and not one that it or a token names."""
    is_continued = body.paging.page_token is not None or body.refresh_token is not None
    return not is_continued and body.starting_version is None and not body.at


def continues_in_memory(request: TableRequest, query: FilesQuery) -> bool:
    """Return whether a query asks for the next page of a version whose files are in memory."""
    is_of_version = isinstance(query.query, TableQuery) and query.query.starting_version is None
    return is_of_version and query.page is not None and request.opened.has_in_memory(query.page.identity)


class LatestQuery(CachedQuery):
    """A query of the latest version: from the cache of this second, from memory, or from the log.

    What takes long is done on a thread, also for files in memory.
    """

    may_start_at_once: bool = True

    def start(self, opened: OpenTable) -> CachedAnswer | tuple[FilesQuery, Files]:
        """Start the answer. Blocks."""
        # It may read a later version than the one that was looked for.
        self.key = None
        files_query = self.request.files_query(self.query)
        return files_query, start_snapshot(opened, files_query, self.query)

    def at_once(self, opened: LatestTable) -> CachedAnswer | tuple[FilesQuery, Files] | None:
        """Return the answer of this second, or start one from memory; None if it takes long."""
        if not self.may_start_at_once:
            return None
        if found := self.find(opened):
            return found
        # The metadata may have become large with this version.
        if not (opened.has_small_metadata and opened.is_in_memory):
            return None
        files_query = self.request.files_query(self.query)
        return files_query, start_snapshot(opened, files_query, self.query)

    async def answer(self, context: RequestContext) -> web.StreamResponse:
        """Answer the query."""
        request = self.request
        if not request.opened.has_small_metadata:
            await context.read_log()
        started = await request.read_latest(self.start, self.at_once, context.read_log)
        if isinstance(started, CachedAnswer):
            # Shared, not copied: nothing changes the record of a whole answer.
            context.record = started.record
            return WholeResponse(started.body, started.field_lines)
        files_query, files = started
        answer = table_answer(request, files_query, files)
        response = await send(context, request, files_query, files, answer)
        # A second attempt has sent another answer.
        if context.record is answer.record:
            self.put(answer, response)
        return response
