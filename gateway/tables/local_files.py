"""Local tables: the roots and files that signed URLs of the files route name."""

from __future__ import annotations

import errno
import io
import os
import stat
import uuid
from dataclasses import dataclass
from urllib.parse import quote, unquote_to_bytes

from gateway.catalog.catalog import Catalog
from gateway.config import Config, Location
from gateway.config.shares import ID_NAMESPACE

FILES_USE = b"files"
_DIRECTORY = os.O_DIRECTORY | os.O_NOFOLLOW | getattr(os, "O_PATH", os.O_RDONLY)


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
    """Return the signed form of the path."""
    return f"{prefix}/files/{quote(os.fsencode(identity), safe='')}/{quote(key, safe='/')}"


@dataclass(frozen=True, slots=True)
class LocalFile:
    """A file beneath a root, without links in its path when it was resolved."""

    root: bytes
    segments: tuple[bytes, ...]

    def open(self) -> io.BufferedReader:
        """Open the file, step by step beneath its root, following no link. Blocks.

        Raises OSError, also for a link that was put into its path meanwhile, and FileNotFoundError for
        anything but a regular file.
        """
        *directories, name = self.segments
        directory = os.open(self.root, _DIRECTORY)
        try:
            for segment in directories:
                below = os.open(segment, _DIRECTORY, dir_fd=directory)
                os.close(directory)
                directory = below
            # A pipe would block.
            descriptor = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=directory)
        except OSError as error:
            if error.errno in (errno.ELOOP, errno.ENXIO):
                raise FileNotFoundError(error.errno, error.strerror) from None
            raise
        finally:
            os.close(directory)
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            os.close(descriptor)
            raise FileNotFoundError(errno.ENOENT, "not a regular file")
        return os.fdopen(descriptor, "rb")


def inside(root: str, key: bytes) -> LocalFile | None:
    """Return the file with a key inside of a root, after its links are resolved, or None. Blocks."""
    *directories, name = key.split(b"/")
    # Several slashes are one to a file system, as to the writers that make such paths.
    segments = (*filter(None, directories), name)
    if b"\0" in key or any(segment in (b"", b".", b"..") for segment in segments):
        return None
    real_root = os.path.realpath(os.fsencode(root))
    real_path = os.path.realpath(os.path.join(real_root, *segments))  # noqa: PTH118 - bytes: names need not be UTF-8
    before = real_root.rstrip(b"/") + b"/"
    if not real_path.startswith(before):
        return None
    try:
        regular = stat.S_ISREG(os.stat(real_path).st_mode)  # noqa: PTH116 - as above
    except OSError:
        return None
    return LocalFile(real_root, tuple(real_path.removeprefix(before).split(b"/"))) if regular else None
