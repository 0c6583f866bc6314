"""From native chunks to a response: `answer` and `pump`, the one function that writes the last line.

In: chunks that native threads make ahead, headers, and what the last line is to say. The first chunk is there
before the headers leave, so an early fault keeps its status. A whole answer that is ready by then leaves with
its length; a longer one is chunked. After the first byte a fault ends the stream in an endStreamAction where
the client asked for one, and otherwise the connection is cut before the final chunk: a broken answer is never
taken for a whole one. The event loop never blocks and is yielded to after every chunk.
"""

from __future__ import annotations

import asyncio
import logging
import re
import socket
import struct
import time
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import lru_cache
from ipaddress import ip_address
from typing import TYPE_CHECKING, Any, Literal

from aiohttp import web
from aiohttp.abc import AbstractStreamWriter
from aiohttp.http import StreamWriter

from gateway.config import Compression
from gateway.errors import AccessRevoked
from gateway.limits.admission import DrainRate
from gateway.protocol.queries import NDJSON_CONTENT_TYPE, end_stream_action
from gateway.web.context import Exchange
from gateway.web.error_response import answer as error_answer
from gateway.web.response import SERVER, WholeResponse

if TYPE_CHECKING:
    from gateway.tables.registry import NdjsonChunks, PruneCounts, StreamSummary

log = logging.getLogger("gateway.stream")

ContentCoding = Literal["identity", "gzip", "zstd"]
PRUNING_HEADER = "delta-sharing-pruning"
COUNTED_LATER = "counted=while streaming"

# A slow reader's unsent bytes stay in our bounded queue instead of megabytes of the kernel's.
TCP_NOTSENT_LOWAT = getattr(socket, "TCP_NOTSENT_LOWAT", 25)
NOT_SENT_BYTES = 128 * 1024
SEND_BUFFER_BYTES = 512 * 1024

# Best first: zstd costs half of gzip's time and is smaller.
CODINGS: tuple[ContentCoding, ...] = ("zstd", "gzip", "identity")
ALIASES = {"x-gzip": "gzip"}
# Clients send the same header again and again.
REMEMBERED_CODINGS = 256
REMEMBERED_LENGTH = 256

_WEIGHT = re.compile(r"0(?:\.[0-9]*)?|1(?:\.0*)?")


class SlowReader(Exception):
    """A chunk did not leave within its time."""


@dataclass(frozen=True, slots=True)
class Answer:
    """What is to be sent.

    Attributes:
        chunks: the body but for its last line.
        headers: those of the protocol; content type and coding are added here.
        content_coding: that of the chunks.
        last_line: the fields of the endStreamAction; None where the client did not ask for that line.
        facts: for the request's line in the log.
        considered: the files that are chosen from, where that is known before they are read.
        ended: told None when all chunks were made, else what ended them; not told when the client leaves.
        shared_error: what a client may see of an error of the chunks.

    """

    chunks: NdjsonChunks
    headers: Mapping[str, str]
    content_coding: ContentCoding = "identity"
    last_line: Callable[[StreamSummary], Mapping[str, Any]] | None = None
    facts: Mapping[str, Any] = field(default_factory=dict)
    considered: int | None = None
    ended: Callable[[BaseException | None], None] = lambda _error: None
    shared_error: Callable[[Exception], Exception] = lambda error: error

    def ending(self) -> bytes:
        """The last line of a whole answer, and the end of its coding."""
        line = end_stream_action(self.last_line(self.chunks.summary)) if self.last_line else b""
        return self.chunks.finish(line)


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
        exchange.facts |= _counts(summary.pruning)
        exchange.facts["file_bytes"] = summary.file_bytes


async def pump(exchange: Exchange, sent: Answer, pieces: Pieces) -> web.StreamResponse:
    """Write the first piece, those that follow and the last line."""
    pruning = _foreseen_pruning(sent)
    response = web.StreamResponse(headers=_headers(sent) | {PRUNING_HEADER: pruning, "Server": SERVER})
    response.headers.extend(exchange.added_headers)
    writer, connection = await response.prepare(exchange.request), _connection(exchange.request)
    body = Body(response, writer, exchange.drain_rate, connection)
    exchange.first_byte_seconds = time.monotonic()
    _bound_kernel_buffers(connection)
    if body.framed is None:
        _end_by_reset(connection, True)
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
    return WholeResponse(body, _headers(sent) | {PRUNING_HEADER: _pruning(sent.chunks.summary.pruning)})


def _head(sent: Answer) -> web.StreamResponse:
    """The head of an answer whose length nobody knows yet."""
    return web.StreamResponse(
        headers=_headers(sent) | {PRUNING_HEADER: _foreseen_pruning(sent), "Server": SERVER}
    )


def content_coding(
    accepted: str, remote: str | None, compression: Compression, *, files: int
) -> ContentCoding:
    """Choose the coding of an answer of so many files by the Accept-Encoding header (RFC 9110, 12.5.3)."""
    if not compression.enabled:
        return "identity"
    codings = acceptable_codings(accepted)
    is_spared = compression.skip_loopback and remote is not None and _is_loopback(remote)
    if "identity" in codings and (files < compression.minimum_files or is_spared):
        return "identity"
    # A client that accepts none of ours gets the answer as it is.
    return codings[0] if codings else "identity"


def acceptable_codings(accepted: str) -> tuple[ContentCoding, ...]:
    """The codings that an Accept-Encoding header accepts, best first.

    What its sender names goes before what `*` stands for, and the heavier goes before the lighter. An answer
    that is not coded is acceptable wherever it is not excluded, as the last choice where it is not named.
    """
    remember = _read_codings if len(accepted) <= REMEMBERED_LENGTH else _read_codings.__wrapped__
    return remember(accepted)


@lru_cache(REMEMBERED_CODINGS)
def _read_codings(accepted: str) -> tuple[ContentCoding, ...]:
    weights = _weights(accepted)
    others = weights.get("*")
    named = [coding for coding in CODINGS if weights.get(coding, 0.0) > 0]
    # Sorting is stable: of equal weights ours decides.
    named.sort(key=lambda coding: -weights[coding])
    if others is None:
        return (*named,) if "identity" in weights else (*named, "identity")
    return (*named, *(coding for coding in CODINGS if coding not in weights and others > 0))


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


@dataclass(slots=True)
class Body:
    """The body of a response that has begun: pieces leave within the time that their reader has for them.

    aiohttp joins a piece with its frame into new bytes, which costs about as much as making the piece; so the
    frame of an HTTP chunk is written here, and only what goes first, with the headers, goes through aiohttp.
    """

    response: web.StreamResponse
    writer: AbstractStreamWriter | None
    rate: DrainRate
    connection: socket.socket | None
    begun: bool = False

    @property
    def framed(self) -> StreamWriter | None:
        """Who writes chunks; None where the end of the connection is that of the body, as for HTTP/1.0."""
        return self.writer if isinstance(self.writer, StreamWriter) and self.writer.chunked else None

    async def write(self, piece: memoryview) -> None:
        """Write one piece. Raises SlowReader, ConnectionError."""
        if self.begun and (writer := self.framed) is not None:
            await self._write_framed(writer, piece)
        else:
            await self._in_time(self.response.write(piece), piece)
            self.begun = True

    async def end(self, tail: bytes) -> None:
        """Write what comes after the last piece, and the end of the body. Raises as `write`."""
        await self._in_time(self.response.write_eof(tail), memoryview(tail))
        if self.framed is None:
            _end_by_reset(self.connection, False)

    async def _write_framed(self, writer: StreamWriter, piece: memoryview) -> None:
        transport = writer.transport
        if transport is None or transport.is_closing():
            raise ConnectionResetError("the client has left")
        # One call to the system for all three.
        transport.writelines((b"%x\r\n" % len(piece), piece, b"\r\n"))
        writer.output_size += len(piece)
        # What a fast client has taken at once needs no clock.
        if transport.get_write_buffer_size():
            await self._in_time(writer.drain(), piece)

    async def _in_time(self, writing: Awaitable[None], piece: memoryview) -> None:
        try:
            async with asyncio.timeout(self.rate.write_seconds(len(piece))):
                await writing
        except TimeoutError:
            raise SlowReader from None


class Pieces:
    """The pieces of an answer's body, when they are there."""

    __slots__ = ("_deadline", "_descriptor", "_sent", "_woken", "first")

    def __init__(self, sent: Answer) -> None:
        self.first: memoryview | None = None
        self._sent = sent
        self._descriptor: int | None = None
        self._deadline: asyncio.TimerHandle | None = None
        self._woken: asyncio.Future[None] | None = None

    async def begin(self) -> None:
        """Wait for the `first` piece. Raises what ended the native work before it."""
        self.first = await self._made()

    async def next(self) -> memoryview | None:
        """The next piece, beginning with the first; None at the end. Raises what ended the native work."""
        piece, self.first = self.first, None
        return piece or await self._made()

    async def _made(self) -> memoryview | None:
        chunks = self._sent.chunks
        while True:
            try:
                chunk = chunks.next_chunk()
            except Exception as error:  # noqa: BLE001 - it is raised as the client may see it
                self._sent.ended(error)
                raise self._sent.shared_error(error) from None
            if chunk is not None:
                return memoryview(chunk)
            if chunks.done:
                self._sent.ended(None)
                return None
            await self._readable()

    def close(self) -> None:
        """Listen no more. Before the native work is let go, which closes the descriptor."""
        if self._descriptor is not None:
            asyncio.get_running_loop().remove_reader(self._descriptor)
            self._descriptor = None
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    async def _readable(self) -> None:
        """Wait until there may be something new to say, which at the deadline there is."""
        loop, chunks = asyncio.get_running_loop(), self._sent.chunks
        self._woken = loop.create_future()
        if self._descriptor is None:
            # It is readable only while somebody waits, so it may stay registered from the first time on.
            self._descriptor = chunks.fileno()
            loop.add_reader(self._descriptor, self._wake)
        if self._deadline is None and (seconds_left := chunks.seconds_left) is not None:
            self._deadline = loop.call_later(seconds_left, self._late)
        await self._woken

    def _late(self) -> None:
        self._deadline = None
        self._wake()

    def _wake(self) -> None:
        if self._woken is not None and not self._woken.done():
            self._woken.set_result(None)


def _headers(sent: Answer) -> dict[str, str]:
    headers = {"Content-Type": NDJSON_CONTENT_TYPE, "Vary": "Accept-Encoding", **sent.headers}
    if sent.content_coding != "identity":
        headers["Content-Encoding"] = sent.content_coding
    return headers


def _pruning(counts: PruneCounts) -> str:
    """How files are chosen, told before them."""
    return ", ".join([f"{name}={count}" for name, count in _counts(counts).items()])


def _foreseen_pruning(sent: Answer) -> str:
    """The same for an answer that is still being made; without foresight the log's line has the counts."""
    foreseen = sent.chunks.foreseen
    if foreseen is not None:
        return _pruning(foreseen)
    considered = "" if sent.considered is None else f"considered={sent.considered}, "
    return f"{considered}{COUNTED_LATER}"


def _counts(counts: PruneCounts) -> dict[str, int]:
    return {
        "considered": counts.considered,
        "pruned_by_partition": counts.pruned_by_partition,
        "pruned_by_stats": counts.pruned_by_stats,
        "pruned_by_limit": counts.pruned_by_limit,
        "returned": counts.returned,
    }


def _connection(request: web.BaseRequest) -> socket.socket | None:
    connection = request.transport.get_extra_info("socket") if request.transport else None
    is_tcp = connection is not None and connection.family in (socket.AF_INET, socket.AF_INET6)
    return connection if is_tcp else None


def _bound_kernel_buffers(connection: socket.socket | None) -> None:
    if connection is not None:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SEND_BUFFER_BYTES)
        connection.setsockopt(socket.IPPROTO_TCP, TCP_NOTSENT_LOWAT, NOT_SENT_BYTES)


def _end_by_reset(connection: socket.socket | None, is_on: bool) -> None:
    """Let the connection end by a reset, whatever ends it, for as long as its answer is not whole.

    Where only its end tells that of the answer, an orderly one would make a short answer a whole one.
    """
    if connection is None:
        return
    # The client may have left since.
    with suppress(OSError):
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", is_on, 0))


def _is_loopback(remote: str) -> bool:
    try:
        return ip_address(remote.partition("%")[0]).is_loopback
    except ValueError:
        return False


def _weights(accepted: str) -> dict[str, float]:
    """Read an Accept-Encoding header: coding to weight. A weight that is none excludes its coding."""
    weights: dict[str, float] = {}
    for part in accepted.lower().split(","):
        coding, *parameters = (word.strip() for word in part.split(";"))
        if coding:
            given = [word[2:] for word in parameters if word.startswith("q=")]
            weight = given[0] if given else "1"
            weights[ALIASES.get(coding, coding)] = float(weight) if _WEIGHT.fullmatch(weight) else 0.0
    return weights
