"""`{prefix}/files/{root}/{key}`: data files of local tables, for whoever holds a URL signed here.

The signature is checked over the path as it was sent, before the path is looked at; it names the root, so a
URL of one table opens no other. What the path names must lie inside of the root after links are followed.
"""

from __future__ import annotations

import os
import stat
import time
from pathlib import Path
from urllib.parse import quote, unquote_to_bytes, urlsplit

from aiohttp import web
from aiohttp.abc import AbstractStreamWriter
from aiohttp.web_request import BaseRequest

from gateway.errors import NotFound, PermissionDenied
from gateway.web.context import Exchange
from gateway.web.response import SERVER


class DataFile(web.FileResponse):
    """A file as it is: ranges, conditional requests and sendfile are aiohttp's.

    aiohttp would send `name.gz` for `name` to whoever accepts gzip, and that is another file.
    """

    async def prepare(self, request: BaseRequest) -> AbstractStreamWriter | None:
        """Send it, without looking for a compressed sibling. Once it is sent, nothing is left to do."""
        if self.prepared:
            return None
        headers = request.headers.copy()
        headers.popall("Accept-Encoding", None)
        return await super().prepare(request.clone(headers=headers))


async def file(exchange: Exchange) -> web.StreamResponse:
    """Answer GET and HEAD, whole or by a range."""
    sharing, request = exchange.sharing, exchange.request
    identity, key = split(request.rel_url.raw_path, f"{sharing.config.prefix}/files/")
    signed = sharing.tables.verify_local_url(
        urlsplit(sharing.config.public_url).path + spelling(sharing.config.prefix, identity, key),
        request.query.get("expires", ""),
        request.query.get("signature", ""),
        now_ms=sharing.now_ms(),
    )
    if not signed:
        raise PermissionDenied("the URL is not valid, or no longer")
    path = await sharing.tables.in_local_root(identity, inside, key)
    if path is None:
        raise NotFound("no such file")
    found = DataFile(path, headers={"Content-Type": "application/octet-stream", "Server": SERVER})
    found.headers.extend(exchange.added_headers)
    exchange.first_byte_seconds = time.monotonic()
    # Here and not by the server afterwards: what is logged and counted of it is known at its end.
    await found.prepare(request)
    await found.write_eof()
    return found


def split(raw_path: str, prefix: str) -> tuple[str, bytes]:
    """The root's id and the key, decoded once."""
    identity, _, key = raw_path.removeprefix(prefix).partition("/")
    return os.fsdecode(unquote_to_bytes(identity)), unquote_to_bytes(key)


def spelling(prefix: str, identity: str, key: bytes) -> str:
    """The path as the signer spells it."""
    return f"{prefix}/files/{quote(identity, safe='')}/{quote(key, safe='/')}"


def inside(root: str, key: bytes) -> Path | None:
    """The regular file that a key names inside of a root, or None. Blocks."""
    segments = key.split(b"/")
    if b"\0" in key or any(segment in (b"", b".", b"..") for segment in segments):
        return None
    real_root = os.path.realpath(os.fsencode(root))
    real_path = os.path.realpath(os.path.join(real_root, *segments))  # noqa: PTH118 - bytes: names need not be UTF-8
    if not real_path.startswith(real_root.rstrip(b"/") + b"/"):
        return None
    try:
        regular = stat.S_ISREG(os.stat(real_path).st_mode)  # noqa: PTH116 - as above
    except OSError:
        return None
    return Path(os.fsdecode(real_path)) if regular else None
