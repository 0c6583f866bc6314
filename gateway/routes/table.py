"""A table's version and metadata."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from aiohttp import web

from gateway.errors import NotFound
from gateway.protocol.capabilities import Capabilities, ResponseFormat
from gateway.protocol.headers import NDJSON_CONTENT_TYPE, VERSION_HEADER
from gateway.protocol.parsing import timestamp_parameter
from gateway.protocol.queries import TimeTravel
from gateway.routes.table_answer import answer_headers, stale_header
from gateway.routes.table_request import TableRequest
from gateway.tables.native import Snapshot, Stop
from gateway.tables.open_table import LatestTable, OpenTable, from_readable_files
from gateway.web.context import RequestContext
from gateway.web.response import WholeResponse

LARGE_ANSWER_STREAMS = 2
"""As how many streams a whole answer counts: texts of a log are read, parsed, kept, and written twice."""


async def version(context: RequestContext) -> web.StreamResponse:
    """`GET .../version[?startingTimestamp=]`, and the deprecated `HEAD .../{table}`."""
    request = TableRequest.of(context)
    timestamp_ms = timestamp_parameter(context.request.query, "startingTimestamp", round_up=True)
    read = partial(read_version, timestamp_ms=timestamp_ms)
    number, stale = await (
        request.read(read) if timestamp_ms is not None else request.read_latest(read, read)
    )
    context.record.stale = stale or None
    return WholeResponse(headers={VERSION_HEADER: str(number), **stale_header(stale=stale)})


async def metadata(context: RequestContext) -> web.StreamResponse:
    """`GET .../metadata[?version=|timestamp=]`: the first two lines of every answer of that version."""
    request = TableRequest.of(context)
    at = TimeTravel.parse(context.request.query)
    read = partial(read_metadata, at=at, capabilities=request.capabilities, stop=request.stop)
    read_log = partial(context.read_log, LARGE_ANSWER_STREAMS)
    if at or not request.opened.has_small_metadata:
        await read_log()
    at_once = partial(metadata_in_memory, read)
    answer = await (request.read(read) if at else request.read_latest(read, at_once, read_log))
    context.record.stale = answer.stale or None
    headers = answer_headers(request, answer.version, answer.response_format, stale=answer.stale)
    return WholeResponse(answer.lines, {"Content-Type": NDJSON_CONTENT_TYPE, **headers})


def metadata_in_memory(read: Callable[[OpenTable], Metadata], opened: LatestTable) -> Metadata | None:
    """Return the metadata if nothing has to be read for it, and it has not become large with this version."""
    is_small = opened.has_small_metadata and opened.latest.has_totals_within(opened.rule)
    return read(opened) if is_small else None


async def async_query(context: RequestContext) -> web.StreamResponse:
    """`POST .../queries/{id}`: queries are answered at once, so there is no query to poll."""
    TableRequest.of(context)
    raise NotFound("no such query: queries are answered at once")


@dataclass(frozen=True, slots=True)
class Metadata:
    """The first two lines of every answer of a version; `stale` as in `Files`."""

    lines: bytes
    version: int
    response_format: ResponseFormat
    stale: bool


def read_version(opened: OpenTable, timestamp_ms: int | None) -> tuple[int, bool]:
    """Return the latest version, or the first one at or after a timestamp, and whether it is stale."""
    if timestamp_ms is None:
        return opened.snapshot().version, opened.stale
    return opened.version_at_or_after(timestamp_ms), opened.stale


def read_metadata(opened: OpenTable, at: TimeTravel, capabilities: Capabilities, stop: Stop) -> Metadata:
    """Return the protocol and metadata of the latest version, or of the version `at`."""
    find = partial(opened.snapshot, version=at.version, timestamp_ms=at.timestamp_ms)
    use = partial(_metadata_of, opened, with_version=bool(at), capabilities=capabilities, stop=stop)
    return from_readable_files(find, use)


def _metadata_of(
    opened: OpenTable, snapshot: Snapshot, *, with_version: bool, capabilities: Capabilities, stop: Stop
) -> Metadata:
    chosen = capabilities.negotiate(
        needs_delta_format=snapshot.needs_delta_format,
        client_reader_features=snapshot.client_reader_features,
    )
    lines = opened.header(snapshot, chosen, with_version=with_version, stop=stop)
    return Metadata(lines, snapshot.version, chosen, opened.stale)
