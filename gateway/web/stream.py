"""Sends an answer: `send`, and `pump` for an answer that is streamed.

The first chunk is ready before the headers are sent, so an early fault keeps its status. An answer that is
complete by then is sent with its length; a longer one is chunked. After the first byte a fault becomes an
endStreamAction where the client announced that it reads one; otherwise the connection is cut before the final
chunk, so that a broken answer never looks complete. The event loop is never blocked and is yielded to after
every chunk.
"""

from __future__ import annotations

import asyncio
import logging
import time

from aiohttp import web

from gateway.errors import AccessRevoked
from gateway.protocol.response import end_stream_action
from gateway.telemetry.request_record import Outcome
from gateway.web.answer import Answer
from gateway.web.body_writer import (
    BodyWriter,
    SlowReader,
    bound_kernel_buffers,
    connection_of,
    cut,
    end_by_reset,
)
from gateway.web.chunk_reader import ChunkReader
from gateway.web.context import RequestContext
from gateway.web.error_response import error_answer
from gateway.web.response import SERVER, WholeResponse
from gateway.web.running import is_end_of_server, shutting_down

log = logging.getLogger("gateway.stream")

LAST_LINE_SECONDS = 0.5
"""Time for the last line of an answer that the end of the server cuts off."""


async def send(context: RequestContext, answer: Answer) -> web.StreamResponse:
    """Send an answer. Raises errors before the first byte; ends the native work if the client leaves."""
    answer.record.table = context.record.table
    context.record = answer.record
    reader = ChunkReader(answer, context.require_access)
    try:
        await reader.begin()
        if answer.chunks.done:
            return _whole(answer, reader)
        if context.request.method == "HEAD":
            return _head(answer)
        return await pump(context, answer, reader)
    finally:
        reader.close()
        answer.chunks.cancel()
        answer.count_files()


async def pump(context: RequestContext, answer: Answer, reader: ChunkReader) -> web.StreamResponse:
    """Write all chunks and the last line."""
    response = _head(answer)
    response.headers.extend(context.added_headers)
    writer, connection = await response.prepare(context.request), connection_of(context.request)
    body = BodyWriter(response, writer, context.drain_rate, connection)
    context.first_byte_seconds = time.monotonic()
    bound_kernel_buffers(connection)
    if body.framed is None:
        # aiohttp would keep a connection of HTTP/1.0 that asks for it, so the body would never end.
        response.force_close()
        end_by_reset(connection, True)
    try:
        while (chunk := await reader.next()) is not None:
            await body.write(chunk)
            # Released here: the buffer is reused for another chunk.
            chunk = None
            # A write to a fast client never suspends; other requests need the loop.
            await asyncio.sleep(0)
        await body.end(answer.tail())
    except ConnectionError:
        context.record.outcome = "client left"
        raise
    except SlowReader:
        log.info("request %s is cut off: a slow reader", context.id)
        context.record.outcome = "slow reader"
        cut(context.request)
        return response
    except asyncio.CancelledError as cancelled:
        if not is_end_of_server(cancelled):
            raise
        try:
            async with asyncio.timeout(LAST_LINE_SECONDS):
                await _fail(context, answer, body, shutting_down(), "shutdown")
        except TimeoutError:
            cut(context.request)
    except Exception as error:  # noqa: BLE001 - after the first byte every error becomes the last line or a cut
        outcome: Outcome = "revoked" if isinstance(error, AccessRevoked) else "failed"
        await _fail(context, answer, body, error, outcome)
    return response


def _whole(answer: Answer, reader: ChunkReader) -> WholeResponse:
    """Return the response for an answer that is complete with its first chunk."""
    answer.ended(None)
    body = b"".join((reader.first or b"", answer.tail()))
    return WholeResponse(body, answer.response_headers(answer.pruning()))


def _head(answer: Answer) -> web.StreamResponse:
    """Return the head of an answer whose length is not known."""
    return web.StreamResponse(headers=answer.response_headers(answer.expected_pruning()) | {"Server": SERVER})


async def _fail(
    context: RequestContext, answer: Answer, body: BodyWriter, error: Exception, outcome: Outcome
) -> None:
    """Write an error as the last line, or cut the connection if the client would not read it there."""
    failure = error_answer(error, context.id)
    context.record.outcome = outcome
    failure.put_on(context.record)
    if not answer.may_end_in_error:
        cut(context.request)
        return
    fields = {"errorMessage": failure.message, "httpStatusErrorCode": failure.status}
    try:
        await body.end(answer.chunks.finish(end_stream_action(fields)))
    except SlowReader:
        cut(context.request)
