"""States of files, to notice a file that was replaced or changed since it was read."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

FileStamp = tuple[int, ...]
Stamp = tuple[FileStamp | None, ...]
UNREAD: Stamp = ((),)
"""The state of a file that was not read, which no file has."""


def stamp(paths: Iterable[Path]) -> Stamp:
    """Return the states of files."""
    return tuple(file_stamp(path) for path in paths)


def file_stamp(path: Path) -> FileStamp | None:
    """Return the state of a file; None if it is missing, which is a state, too."""
    try:
        status = path.stat()
    except OSError:
        return None
    # Copies that keep the time of modification, in place or from another file system, change the others.
    return (status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns)
