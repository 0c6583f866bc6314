"""Reads the body of a request, and decodes its content coding.

In: an authenticated request. Out: the whole body as the client wrote it before it was coded. Connections pass
bodies as they arrive, so an unread body, such as the body of a request without a token, is never decoded.
"""

from __future__ import annotations

import asyncio
import zlib

from aiohttp import HttpVersion10, hdrs, web
from aiohttp.http_exceptions import HttpProcessingError
from aiohttp.web_protocol import RequestPayloadError

from gateway.errors import BodyTooLarge, MalformedRequest

MAX_BODY_BYTES = 1024 * 1024
BUFFERED_BYTES = 64 * 1024
"""What a connection keeps of a body that no one reads."""
CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"

_GZIP, _ZLIB, _DEFLATE = zlib.MAX_WBITS | 16, zlib.MAX_WBITS, -zlib.MAX_WBITS
_ZLIB_METHOD = 8


def received_body(request: web.BaseRequest, max_bytes: int = MAX_BODY_BYTES) -> bytes | None:
    """Return a body that came together with its head. None: `read_body` waits, decodes it or refuses it."""
    if not request.body_exists:
        return b""
    if hdrs.CONTENT_ENCODING in request.headers or not request.content.is_eof():
        return None
    try:
        return _received(request, max_bytes)
    except (RequestPayloadError, HttpProcessingError):
        return None


def may_be_long(request: web.BaseRequest) -> bool:
    """Return whether a body that is not received may be longer than what a connection keeps."""
    length = request.content_length
    return length is None or length > BUFFERED_BYTES or hdrs.CONTENT_ENCODING in request.headers


async def read_body(request: web.BaseRequest, seconds: float, max_bytes: int = MAX_BODY_BYTES) -> bytes:
    """Return the whole body, decoded.

    `seconds`: the time in which it has to arrive; `max_bytes` bounds it before and after decoding.
    Raises MalformedRequest and BodyTooLarge.
    """
    body = received_body(request, max_bytes)
    if body is not None:
        return body
    try:
        body = await _coded(request, seconds, max_bytes)
    except (RequestPayloadError, HttpProcessingError):
        raise MalformedRequest("the body is not coded as its header fields say") from None
    return _decoded(body, request.headers.getall(hdrs.CONTENT_ENCODING, []), max_bytes)


async def _coded(request: web.BaseRequest, seconds: float, max_bytes: int) -> bytes:
    """Return a body in its sent coding."""
    if request.content.is_eof():
        return _received(request, max_bytes)
    _check_length(request.content_length or 0, max_bytes)
    # RFC 9110, section 10.1.1: HTTP/1.0 has no interim answers.
    expects_answer = request.headers.get("Expect", "").lower() == "100-continue"
    if expects_answer and request.version != HttpVersion10:
        await request.writer.write(CONTINUE)
        request.writer.output_size = 0
    try:
        async with asyncio.timeout(seconds):
            return await _rest(request, max_bytes)
    except TimeoutError:
        raise MalformedRequest(f"the body did not arrive within {seconds:g} s") from None


def _received(request: web.BaseRequest, max_bytes: int) -> bytes:
    body = request.content.read_nowait()
    _check_length(len(body), max_bytes)
    return body


async def _rest(request: web.BaseRequest, max_bytes: int) -> bytes:
    body = bytearray()
    while chunk := await request.content.readany():
        body += chunk
        _check_length(len(body), max_bytes)
    return bytes(body)


def _decoded(body: bytes, codings: list[str], max_bytes: int) -> bytes:
    """Return a body without its content coding. At most `max_bytes` and one are ever decoded."""
    coding = ",".join(codings).strip().lower()
    if coding in ("", "identity") or not body:
        return body
    if coding in ("gzip", "x-gzip"):
        window = _GZIP
    elif coding == "deflate":
        # Some clients send deflate without the frame of zlib, which the coding of that name has.
        window = _ZLIB if body[0] & 0xF == _ZLIB_METHOD else _DEFLATE
    else:
        raise MalformedRequest("the body has an unknown content coding: gzip and deflate are accepted")
    decoder = zlib.decompressobj(window)
    try:
        decoded = decoder.decompress(body, max_bytes + 1)
    except zlib.error:
        decoded = None
    if decoded is not None:
        _check_length(len(decoded), max_bytes)
    if decoded is None or not decoder.eof or decoder.unused_data:
        raise MalformedRequest("the body is not coded as its header fields say")
    return decoded


def _check_length(length: int, max_bytes: int) -> None:
    if length > max_bytes:
        raise BodyTooLarge(f"a body is at most {max_bytes} bytes")
