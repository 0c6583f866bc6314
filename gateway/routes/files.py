"""`{prefix}/files/{root}/{key}`: data files of local tables, for whoever holds a URL signed here.

The signature is checked over the path as it was sent, before the path is looked at; it names the root, so a
URL of one table opens no other. What the path names must lie inside of the root after links are followed.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path
from urllib.parse import unquote_to_bytes, urlsplit

from aiohttp import web
from aiohttp.abc import AbstractStreamWriter
from aiohttp.web_request import BaseRequest

from gateway.errors import NotFound, PermissionDenied
from gateway.sharing import SHARING


class DataFile(web.FileResponse):
    """A file as it is: ranges, conditional requests and sendfile are aiohttp's.

    aiohttp would send `name.gz` for `name` to whoever accepts gzip, and that is another file.
    """

    async def prepare(self, request: BaseRequest) -> AbstractStreamWriter | None:
        """Send it, without looking for a compressed sibling."""
        headers = request.headers.copy()
        headers.popall("Accept-Encoding", None)
        return await super().prepare(request.clone(headers=headers))


async def file(request: web.Request) -> web.StreamResponse:
    """Answer GET and HEAD, whole or by a range."""
    sharing = request[SHARING]
    raw_path = urlsplit(sharing.config.public_url).path + request.rel_url.raw_path
    signed = sharing.tables.verify_local_url(
        raw_path,
        request.query.get("expires", ""),
        request.query.get("signature", ""),
        now_ms=sharing.now_ms(),
    )
    if not signed:
        raise PermissionDenied("the URL is not valid, or no longer")
    identity, raw_key = split(request.rel_url.raw_path, f"{sharing.config.prefix}/files/")
    root = sharing.tables.local_root(identity)
    path = await sharing.tables.blocking(inside, root, raw_key) if root is not None else None
    if path is None:
        raise NotFound("no such file")
    return DataFile(path, headers={"Content-Type": "application/octet-stream"})


def split(raw_path: str, prefix: str) -> tuple[str, str]:
    """The root's id and the still encoded key of a path."""
    identity, _, key = raw_path.removeprefix(prefix).partition("/")
    return os.fsdecode(unquote_to_bytes(identity)), key


def inside(root: str, raw_key: str) -> Path | None:
    """The regular file that an encoded key names inside of a root, or None. Blocks."""
    key = unquote_to_bytes(raw_key)
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
