"""Sends an answer: `send`, and `pump` for answers that are streamed.

The first chunk is ready before the headers are sent, so an early fault keeps its status. An answer that is
complete by then is sent with its length; a longer one is chunked. After the first byte a fault becomes an
endStreamAction where the client asked for one; otherwise the connection is cut before the final chunk, so
that a broken answer is never taken for a whole one. The event loop is never blocked and is yielded to after
every chunk.
"""

from __future__ import annotations

import asyncio
import logging
import time
from typing import TYPE_CHECKING

from aiohttp import web

from gateway.errors import AccessRevoked
from gateway.protocol.response import end_stream_action
from gateway.web.context import Exchange
from gateway.web.error_response import answer as error_answer
from gateway.web.response import SERVER, WholeResponse

if TYPE_CHECKING:
    pass
from gateway.web.answer import (
    PRUNING_HEADER,
    Answer,
    answer_headers,
    expected_pruning_header,
    prune_counts,
    pruning_header,
)
from gateway.web.body_writer import Body, SlowReader, bound_kernel_buffers, connection_of, end_by_reset
from gateway.web.chunk_reader import Pieces

log = logging.getLogger("gateway.stream")


async def answer(exchange: Exchange, sent: Answer) -> web.StreamResponse:
    """Send an answer. Raises what fails before the first byte; ends the native work if the client leaves."""
    exchange.facts |= sent.facts
    pieces = Pieces(sent)
    try:
        await pieces.begin()
        if sent.chunks.done:
            return _whole(sent, pieces)
        if exchange.request.method == "HEAD":
            return _head(sent)
        return await pump(exchange, sent, pieces)
    finally:
        pieces.close()
        sent.chunks.cancel()
        summary = sent.chunks.summary
        exchange.facts |= prune_counts(summary.pruning)
        exchange.facts["file_bytes"] = summary.file_bytes


async def pump(exchange: Exchange, sent: Answer, pieces: Pieces) -> web.StreamResponse:
    """Write the first piece, those that follow and the last line."""
    pruning = expected_pruning_header(sent)
    response = web.StreamResponse(headers=answer_headers(sent) | {PRUNING_HEADER: pruning, "Server": SERVER})
    response.headers.extend(exchange.added_headers)
    writer, connection = await response.prepare(exchange.request), connection_of(exchange.request)
    body = Body(response, writer, exchange.drain_rate, connection)
    exchange.first_byte_seconds = time.monotonic()
    bound_kernel_buffers(connection)
    if body.framed is None:
        end_by_reset(connection, True)
    try:
        while (piece := await pieces.next()) is not None:
            exchange.require_access()
            await body.write(piece)
            # Let go of: the buffer is wanted for another piece.
            piece = None
            # A fast client never suspends a write; others wait for the loop.
            await asyncio.sleep(0)
        exchange.require_access()
        await body.end(sent.ending())
    except ConnectionError:
        exchange.facts["outcome"] = "client left"
        raise
    except SlowReader:
        log.info("request %s is cut off: a slow reader", exchange.id)
        exchange.facts["outcome"] = "slow reader"
        _cut(exchange.request)
        return response
    except Exception as error:  # noqa: BLE001 - after the first byte every fault becomes the last line or a cut
        await _fail(exchange, sent, body, error)
    return response


def _whole(sent: Answer, pieces: Pieces) -> WholeResponse:
    """An answer that is ready with its first piece."""
    sent.ended(None)
    body = b"".join((pieces.first or b"", sent.ending()))
    return WholeResponse(
        body, answer_headers(sent) | {PRUNING_HEADER: pruning_header(sent.chunks.summary.pruning)}
    )


def _head(sent: Answer) -> web.StreamResponse:
    """The head of an answer whose length nobody knows yet."""
    return web.StreamResponse(
        headers=answer_headers(sent) | {PRUNING_HEADER: expected_pruning_header(sent), "Server": SERVER}
    )


async def _fail(exchange: Exchange, sent: Answer, body: Body, error: Exception) -> None:
    """Tell a fault in the last line, or cut the connection where the client did not ask for one."""
    said = error_answer(error, exchange.id)
    outcome = "revoked" if isinstance(error, AccessRevoked) else "failed"
    exchange.facts.update(outcome=outcome, error_code=said.error_code)
    if sent.last_line is None:
        _cut(exchange.request)
        return
    fields = {"errorMessage": said.message, "httpStatusErrorCode": said.status}
    try:
        await body.end(sent.chunks.finish(end_stream_action(fields)))
    except SlowReader:
        _cut(exchange.request)


def _cut(request: web.BaseRequest) -> None:
    """End the connection without the final chunk."""
    if request.transport is not None:
        request.transport.abort()
