"""`{prefix}/files/{root}/{key}`: data files of local tables, by signed URL.

The signature is checked over the path as it was sent, before the path is used. It covers the root, so a URL
of one table gives access to no other. The file must lie inside of the root after symbolic links are resolved.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping
from concurrent.futures import Executor
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from aiohttp import web
from aiohttp.abc import AbstractStreamWriter
from aiohttp.web_request import BaseRequest

from gateway.errors import NotFound, PermissionDenied, Unavailable
from gateway.storage.calls import DATA_FILE_THREADS
from gateway.tables.local_files import inside, spelling, split
from gateway.web.context import RequestContext
from gateway.web.response import SERVER

log = logging.getLogger("gateway.storages")


class DataFile(web.FileResponse):
    """A file response with ranges, conditional requests and sendfile, without content coding.

    aiohttp would send `name.gz` for `name` to a client that accepts gzip, which is another file.
    """

    def __init__(self, path: Path, threads: Executor | None, headers: Mapping[str, str]) -> None:
        """`threads` open and read the file: aiohttp would use the default ones, which all share."""
        super().__init__(path, headers=headers)
        self._threads = threads

    async def prepare(self, request: BaseRequest) -> AbstractStreamWriter | None:
        """Send the file itself, never a compressed sibling. Does nothing when it is sent already."""
        if self.prepared:
            return None
        DATA_FILE_THREADS.set(self._threads)
        headers = request.headers.copy()
        headers.popall("Accept-Encoding", None)
        return await super().prepare(request.clone(headers=headers))

    def _make_response(self, request: BaseRequest, accept_encoding: str) -> Any:
        """Open the file, on a thread. aiohttp answers each failure by 404 or 403, without a body."""
        try:
            return super()._make_response(request, accept_encoding)
        except PermissionError:
            raise PermissionDenied("the server may not read the file; the provider must act") from None
        except (FileNotFoundError, NotADirectoryError):
            raise NotFound("no such file") from None
        except OSError as error:
            log.warning("a data file cannot be opened: %s", error.strerror)
            raise Unavailable("the file cannot be read at the moment") from None


async def file(context: RequestContext) -> web.StreamResponse:
    """Answer GET and HEAD, whole or by a range."""
    state, request = context.state, context.request
    identity, key = split(request.rel_url.raw_path, f"{state.config.prefix}/files/")
    signed = state.tables.verify_local_url(
        urlsplit(state.config.public_url).path + spelling(state.config.prefix, identity, key),
        request.query.get("expires", ""),
        request.query.get("signature", ""),
        now_ms=state.now_ms(),
    )
    if not signed:
        raise PermissionDenied("the URL is not valid, or no longer")
    path = await state.tables.in_local_root(identity, inside, key)
    if path is None:
        raise NotFound("no such file")
    headers = {"Content-Type": "application/octet-stream", "Server": SERVER}
    found = DataFile(path, state.tables.file_threads(identity), headers)
    found.headers.extend(context.added_headers)
    context.first_byte_seconds = time.monotonic()
    # Sent here and not by the server afterwards, so that logs and metrics count the sent bytes.
    await found.prepare(request)
    await found.write_eof()
    return found
