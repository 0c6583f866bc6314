"""The shares of the database whose tables are discovered, for the process that searches and serves nothing.

In: where the database is. Out: these shares, read again whenever the database has changed. Recipients, and
shares with listed tables alone, are not read.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from sqlalchemy import Connection, select

from gateway.access import share_rows
from gateway.database.changes import last_position
from gateway.database.followed import FollowedDatabase
from gateway.database.migration import check_schema
from gateway.database.rows import all_rows, is_text
from gateway.database.schema import SCHEMAS, SHARES

if TYPE_CHECKING:
    from gateway.access.stored_shares import StoredShares
    from gateway.config.database import DatabasePlace
    from gateway.database.changes import Position
    from gateway.database.engine import Database

_WITH_TABLES = '%"tables"%'


class DiscoveringSharesReader:
    """Reads the shares whenever the database has changed. Not thread-safe."""

    def __init__(self, place: Callable[[], DatabasePlace]) -> None:
        """`place` is called for each reading."""
        self._followed = FollowedDatabase(place)
        self._database: Database | None = None
        self._position: Position | None = None
        self._shares: StoredShares = {}

    def read(self) -> StoredShares:
        """Return the shares; the same value as before where nothing has changed. Blocks.

        Raises DatabaseError, OSError and ValueError for a database that cannot be read.
        """
        try:
            database = self._followed.open()
            if database is not self._database:
                # A restored file may have the same position.
                self._database, self._position = database, None
            with database.reading() as connection:
                position = last_position(connection)
                if position != self._position:
                    check_schema(database, connection)
                    self._shares = _read(connection)
        except BaseException:
            # The next reading opens a new connection.
            self.close()
            raise
        self._position = position
        return self._shares

    def close(self) -> None:
        """Close the connection."""
        self._followed.close()
        self._database = None


def _read(connection: Connection) -> StoredShares:
    queries = (
        select(SHARES.c.key).where(SHARES.c.options.like(_WITH_TABLES)),
        select(SCHEMAS.c.share).where(SCHEMAS.c.options.like(_WITH_TABLES)),
    )
    keys = {key for query in queries for (key,) in all_rows(connection, query) if is_text(key)}
    # A text of an option may have the word, too.
    return {key: share for key, share in share_rows.read(connection, keys).items() if share.discovers}
