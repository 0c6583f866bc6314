"""Local tables: the roots and files that signed URLs of the files route name."""

from __future__ import annotations

import os
import stat
import uuid
from pathlib import Path
from urllib.parse import quote, unquote_to_bytes

from gateway.access.catalog import Catalog
from gateway.config import Config, Location
from gateway.config.shares import ID_NAMESPACE

FILES_USE = b"files"


def root_id(root: Location) -> str:
    """Return the id in URLs of an allowed root that is not the root of a table."""
    return str(uuid.uuid5(ID_NAMESPACE, root.url))


def local_roots(config: Config, catalog: Catalog) -> dict[str, Location]:
    """Return the local roots by the ids that URLs name them by."""
    allowed = {root_id(root): root for root in config.gateway.allowed_roots}
    tables = {table.id: table.location for table in catalog.tables()}
    return {identity: root for identity, root in (allowed | tables).items() if root.kind == "file"}


def split(raw_path: str, prefix: str) -> tuple[str, bytes]:
    """Return the root's id and the key of a URL's path, decoded once."""
    identity, _, key = raw_path.removeprefix(prefix).partition("/")
    return os.fsdecode(unquote_to_bytes(identity)), unquote_to_bytes(key)


def spelling(prefix: str, identity: str, key: bytes) -> str:
    """Return the path as it is signed."""
    return f"{prefix}/files/{quote(os.fsencode(identity), safe='')}/{quote(key, safe='/')}"


def inside(root: str, key: bytes) -> Path | None:
    """Return the regular file with a key inside of a root, or None. Blocks."""
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
