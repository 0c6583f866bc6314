"""`GET .../changes`: the change data feed of a range of versions."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Literal

from aiohttp import web

from gateway.access.sealed_tokens import Page
from gateway.protocol.capabilities import ResponseFormat
from gateway.protocol.queries import ChangesQuery
from gateway.routes.table_request import TableRequest
from gateway.tables.open_table import Moment
from gateway.web import stream
from gateway.web.answer import Answer
from gateway.web.context import Exchange

if TYPE_CHECKING:
    from gateway.tables.native import Changes, StreamSummary


async def changes(exchange: Exchange) -> web.StreamResponse:
    """Answer a range of changes."""
    asked = TableRequest.of(exchange)
    query = ChangesQuery.parse(exchange.request.query)
    page = asked.open_page(query)
    sent = await asked.streaming(answer_changes, query, page)
    return await stream.answer(exchange, sent)


def answer_changes(asked: TableRequest, query: ChangesQuery, page: Page | None) -> Answer:
    """Start the answer. Blocks."""
    found = find_changes(asked, query, page)
    chosen = asked.negotiate(found, page)
    coding = asked.content_coding(query.paging)
    chunks = found.files(
        asked.options(chosen, query.paging, page, coding),
        include_historical_metadata=query.include_historical_metadata,
        include_historical_protocol=query.include_historical_protocol,
    )
    last_line = last_line_of(asked, query, found, chosen, page)
    headers = asked.headers(found.starting_version, chosen, end_stream_action=last_line is not None)
    facts = {"version": found.starting_version, "ending_version": found.ending_version, "format": chosen}
    return Answer(chunks, headers, coding, last_line, facts)


def find_changes(asked: TableRequest, query: ChangesQuery, page: Page | None) -> Changes:
    """The range that a page token pins, or that of the query. Blocks.

    The metadata of the latest version heads it, or with historical metadata that of the first one. A latest
    version that cannot be read refuses the range, because its metadata must be answered.
    """
    latest: Literal["latest"] | int = "latest" if page is None else page.versions[-1]
    heading: Literal["start", "latest"] | int = "start" if query.include_historical_metadata else latest
    if page is not None:
        start, end = Moment(version=page.versions[0]), Moment(version=page.versions[1])
    else:
        start = Moment(query.starting_version, query.starting_timestamp_ms)
        end = Moment(query.ending_version, query.ending_timestamp_ms)
    return asked.opened.changes(start=start, end=end, change_data_feed=True, heading=heading, stop=asked.stop)


def last_line_of(
    asked: TableRequest, query: ChangesQuery, found: Changes, chosen: ResponseFormat, page: Page | None
) -> Callable[[StreamSummary], dict[str, Any]] | None:
    """What the endStreamAction will say, where the client asked for it."""
    if not query.wants_end_stream_action(asked.capabilities):
        return None
    return lambda summary: asked.ending(found, summary, chosen, query.parameters(), page)
