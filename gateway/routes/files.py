"""`{prefix}/files/{root}/{key}`: data files of local tables, by signed URL.

The signature is checked over the sent path, before the path is used. It covers the root and its directory,
so a URL of one table gives access to no other, also not to one that takes its names. The file must lie inside
of the root after symbolic links are resolved, and is opened beneath it without following any.
"""

from __future__ import annotations

import asyncio
import errno
import io
import logging
import math
import os
import re
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Executor
from dataclasses import dataclass
from email.utils import formatdate
from typing import Any
from urllib.parse import urlsplit

from aiohttp import web
from aiohttp.abc import AbstractStreamWriter
from aiohttp.web_request import BaseRequest

from gateway.errors import NotFound, PermissionDenied, Unavailable
from gateway.limits.admission import RETRY_AFTER_CEILING_SECONDS, LimitExceeded, LimitKind
from gateway.limits.attempts import network_of
from gateway.limits.descriptors import is_reserved
from gateway.limits.drain_rate import DrainRate
from gateway.storage.calls import DATA_FILE_THREADS
from gateway.tables.local_files import LocalFile, inside, spelling, split
from gateway.web.body_writer import BodyWriter, SlowReader, connection_of, cut
from gateway.web.connections import authenticated
from gateway.web.context import RequestContext
from gateway.web.response import SERVER, is_tls

log = logging.getLogger("gateway.storages")

UNSENT_BYTES = 64 * 1024
"""What waits for the kernel before the next piece is read, as the event loop has it."""

_RANGE = re.compile(r"bytes=(?:(\d{1,19})-(\d{0,19})|-(\d{1,19}))", re.ASCII | re.IGNORECASE)
_NO_DATE = re.compile(r"if-(?:un)?modified-since:.*\d{5}", re.IGNORECASE)


class DataFile(web.FileResponse):
    """A file response with ranges and conditional requests, without content coding.

    aiohttp would open the file by its path, in which a link may have come meanwhile, send `name.gz` for
    `name` to a client that accepts gzip, which is another file, and wait for a client that reads nothing.
    """

    def __init__(
        self,
        file: LocalFile,
        threads: Executor | None,
        rate: DrainRate,
        piece_bytes: Callable[[], int],
        headers: Mapping[str, str],
    ) -> None:
        """`threads` open and read the file: aiohttp would use the default ones, which all share.

        `piece_bytes` returns how much is read at once, and sent within the time of a slow reader.
        """
        super().__init__(os.fsdecode(file.segments[-1]), headers=headers)
        self._found = file
        self._threads = threads
        self._rate = rate
        self._piece_bytes = piece_bytes
        self._file: io.BufferedReader | None = None
        self.first_byte_seconds: float | None = None
        """When the head of a file was sent, by the monotonic clock."""

    async def prepare(self, request: BaseRequest) -> AbstractStreamWriter | None:
        """Send the file itself, never a compressed sibling. Does nothing when it is sent already."""
        if self.prepared:
            return None
        DATA_FILE_THREADS.set(self._threads)
        return await super().prepare(request)

    def _make_response(self, request: BaseRequest, accept_encoding: str) -> Any:
        """Open the file, on a thread. aiohttp answers each failure by 404 or 403, without a body."""
        try:
            self._file = self._found.open()
        except PermissionError:
            raise PermissionDenied("the server may not read the file; the provider must act") from None
        except (FileNotFoundError, NotADirectoryError):
            raise NotFound("no such file") from None
        except OSError as error:
            log.warning("a data file cannot be opened: %s", error.strerror)
            raise Unavailable("the file cannot be read at the moment") from None
        if is_reserved(self._file.fileno()):
            self._file.close()
            raise LimitExceeded(LimitKind.DESCRIPTORS, RETRY_AFTER_CEILING_SECONDS)
        # RFC 9110 ignores a condition that is no date. aiohttp fails at numbers that no date has.
        fields = [field for field in request.headers.items() if not _NO_DATE.match(":".join(field))]
        made = super()._make_response(request.clone(headers=fields), accept_encoding)
        if made[1] is None:
            self._file.close()
        return made

    def _get_file_path_stat_encoding(self, _accept_encoding: str) -> Any:
        """Return what `_make_response` opens, and its state."""
        file = self._file
        if file is None:
            raise FileNotFoundError
        return _Opened(file), os.fstat(file.fileno()), None

    async def _prepare_open_file(
        self, request: BaseRequest, fobj: Any, st: os.stat_result, file_encoding: str | None
    ) -> AbstractStreamWriter | None:
        """Send the file or its range: aiohttp accepts no tag in `If-Range`, and refuses invalid ranges."""
        # aiohttp gives a refused range no length, and HTTP/1.0 needs one where the connection stays open.
        self.content_length = 0
        headers = request.headers.copy()
        asked = headers.popall("Range", [])
        if_range = headers.popall("If-Range", [])
        # RFC 9110, section 14.2: only GET has ranges.
        has_range = request.method == "GET" and len(asked) == 1
        range_header = _range(asked[0], st.st_size) if has_range else None
        if range_header is not None and all(_is_same(validator, st) for validator in if_range):
            headers["Range"] = range_header
        return await super()._prepare_open_file(request.clone(headers=headers), fobj, st, file_encoding)

    async def _sendfile(
        self, request: BaseRequest, fobj: Any, offset: int, count: int
    ) -> AbstractStreamWriter:
        """Send a part of the file, each piece within the time of a slow reader.

        Raises SlowReader, and OSError for a file that can no longer be read or has become shorter.
        """
        # aiohttp's own would send the file again.
        writer = await web.StreamResponse.prepare(self, request)
        if writer is None:
            raise RuntimeError("the response has no writer")
        self.first_byte_seconds = time.monotonic()
        if request.transport is not None and not is_tls(request.transport):
            # Several small pieces would wait otherwise. TLS would keep the memory of all that wait.
            request.transport.set_write_buffer_limits(high=min(self._piece_bytes(), UNSENT_BYTES))
        body = BodyWriter(self, writer, self._rate, connection_of(request))
        loop = asyncio.get_running_loop()
        end = offset + count
        while offset < end:
            size = min(self._piece_bytes(), end - offset)
            piece = await loop.run_in_executor(None, self._seek_and_read, fobj, offset, size)
            if not piece:
                raise OSError(errno.EIO, "the file has become shorter")
            await body.write(memoryview(piece))
            offset += len(piece)
        await body.end(b"")
        return writer


@dataclass(frozen=True, slots=True)
class _Opened:
    """An open file in the place of a path."""

    file: io.BufferedReader

    def open(self, _mode: str) -> io.BufferedReader:
        return self.file


def _range(text: str, size: int) -> str | None:
    """Return a range as aiohttp reads it; None for another unit, several ranges and invalid ones."""
    match = _RANGE.fullmatch(text.strip())
    if match is None:
        return None
    first, last, suffix = match.groups()
    if suffix is not None:
        # The last no bytes cannot be satisfied.
        return f"bytes=-{suffix}" if int(suffix) else f"bytes={size}-"
    if last and int(last) < int(first):
        return None
    return f"bytes={first}-{last}"


def _is_same(validator: str, status: os.stat_result) -> bool:
    """Return whether a validator, a strong tag or the time of the last change, still fits a file."""
    if validator.startswith('"'):
        return validator == f'"{status.st_mtime_ns:x}-{status.st_size:x}"'
    return validator == formatdate(math.ceil(status.st_mtime), usegmt=True)


async def file(context: RequestContext) -> web.StreamResponse:
    """Answer GET and HEAD, whole or by a range."""
    state, request = context.state, context.request
    identity, key = split(request.rel_url.raw_path, f"{state.config.prefix}/files/")
    signed = state.tables.verify_local_url(
        identity,
        urlsplit(state.config.public_url).path + spelling(state.config.prefix, identity, key),
        request.query.get("expires", ""),
        request.query.get("signature", ""),
        now_ms=state.now_ms(),
    )
    if not signed:
        raise PermissionDenied("the URL is not valid, or no longer")
    authenticated(request)
    local = await state.tables.in_local_root(identity, inside, key)
    if local is None:
        raise NotFound("no such file")
    headers = {"Content-Type": "application/octet-stream", "Server": SERVER}
    threads, piece_bytes = state.tables.file_threads(identity), context.file_readers.piece_bytes
    response = DataFile(local, threads, context.drain_rate, piece_bytes, headers)
    response.headers.extend(context.added_headers)
    # Sent here and not by the server afterwards, so that logs and metrics count the sent bytes.
    with context.file_readers.reading(network_of(context.address), request.rel_url.raw_path):
        try:
            await response.prepare(request)
            await response.write_eof()
        except SlowReader:
            log.info("request %s is cut off: a slow reader", context.id)
            context.record.outcome = "slow reader"
            cut(request)
        finally:
            context.first_byte_seconds = response.first_byte_seconds
    return response
