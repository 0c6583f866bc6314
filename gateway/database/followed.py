"""A connection for as long as the database stays the same one.

In: where the database is. Out: a connection with the present schema. A SQLite file is identified by device
and inode, so a file that was restored from a backup is opened in place of the former one. No database is
created, but a file of an earlier release that takes the place of the present one is brought up to date.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from gateway.config.database import DatabasePlace
from gateway.database.engine import Database
from gateway.database.errors import DatabaseMissing, DatabaseUnusable
from gateway.database.migration import opened

FileIdentity = tuple[int, int]
"""Device and inode."""


class FollowedDatabase:
    """The connection. Not thread-safe."""

    def __init__(self, place: Callable[[], DatabasePlace]) -> None:
        """`place` is called for each look at the database."""
        self._place = place
        self._database: Database | None = None
        self._took_changes = True
        self.file: FileIdentity | None = None
        """The file of the last connection; None for PostgreSQL."""
        self.written_ns = 0
        """The time of the last write to the file, before it was opened or looked at."""

    def open(self) -> Database:
        """Return the connection, a new one if there is none or it is to another file.

        A connection to a server that has become a standby is closed: the new one is to that which takes
        changes, where the URL says so. Raises DatabaseError, DatabaseMissing where there is no database,
        OSError.
        """
        place = self._place()
        file = None
        if place.path is not None:
            file, self.written_ns = _looked_at(place.path)
        is_demoted = self._database is not None and self._took_changes and not self._database.takes_changes()
        if self._database is None or is_demoted or file != self.file:
            self.close()
            self._database, self.file = opened(place), file
            self._took_changes = self._database.takes_changes()
            if place.path is not None and file != _looked_at(place.path)[0]:
                raise DatabaseUnusable("it was replaced while it was opened")
        return self._database

    def close(self) -> None:
        if self._database is not None:
            self._database.close()
        self._database = None


def _looked_at(path: Path) -> tuple[FileIdentity, int]:
    """Return the identity of a file and the time of the last write to it, which no program can set."""
    try:
        status = path.stat()
    except FileNotFoundError:
        raise DatabaseMissing from None
    return (status.st_dev, status.st_ino), status.st_ctime_ns
