"""The places where tables of stored shares are discovered, for a supervisor of workers.

In: the configuration in force and its database. Out: the places, at most a second after a change. A thread of
its own reads the database; while it cannot be read, the last places stay.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from gateway.access.stored_shares import stored_sources
from gateway.database.errors import DatabaseMissing

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from gateway.access.discovering_shares import DiscoveringSharesReader
    from gateway.access.stored_shares import StoredShares
    from gateway.config import Config, Source

log = logging.getLogger("gateway.discovery")

POLL_SECONDS = 0.5
START_SECONDS = 10.0
"""The start of a server waits so long for the first reading."""


class StoredSources:
    """The places as of the last reading."""

    def __init__(self, config: Callable[[], Config]) -> None:
        """`config` returns the configuration in force; it is called on a thread."""
        self._config = config
        self._reader: DiscoveringSharesReader | None = None
        self._seen: tuple[Config, StoredShares] | None = None
        self._is_readable = True
        self._has_read, self._ends = threading.Event(), threading.Event()
        self.sources: tuple[Source, ...] = ()

    @asynccontextmanager
    async def following(self) -> AsyncIterator[None]:
        """Follow the database within the context, which begins after the first reading."""
        # A database that hangs keeps no process from ending.
        threading.Thread(target=self._follow, name="stored-sources", daemon=True).start()
        await asyncio.to_thread(self._has_read.wait, START_SECONDS)
        try:
            yield
        finally:
            self._ends.set()

    def _follow(self) -> None:
        while not self._ends.is_set():
            try:
                self._look()
            except DatabaseMissing:
                # The first recipient or share creates it.
                pass
            except Exception as error:  # noqa: BLE001 - the next look may succeed
                if self._is_readable:
                    log.warning("the places of stored shares cannot be read, the last ones stay: %s", error)
                self._is_readable = False
            else:
                self._is_readable = True
            self._has_read.set()
            self._ends.wait(POLL_SECONDS)
        if self._reader is not None:
            self._reader.close()

    def _look(self) -> None:
        config = self._config()
        path = config.database_place.path
        if path is not None and not path.exists():
            raise DatabaseMissing
        if self._reader is None:
            # A server without a database starts sooner.
            from gateway.access.discovering_shares import DiscoveringSharesReader  # noqa: PLC0415

            self._reader = DiscoveringSharesReader(lambda: self._config().database_place)
        shares = self._reader.read()
        if self._seen is None or self._seen[0] is not config or self._seen[1] is not shares:
            self.sources = stored_sources(config, shares)
            self._seen = (config, shares)
