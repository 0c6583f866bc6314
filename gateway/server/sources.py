"""The places where tables are discovered, for a supervisor of workers.

In: the configuration in force and its database. Out: the places of both, at most a second after a change.
While the database cannot be read, its last places stay.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING

from gateway.catalog.stored_shares import StoredShares, stored_sources
from gateway.config import Config, Source
from gateway.governance.follow import Failures, following
from gateway.governance.reading_thread import POLL_SECONDS, ReadingThread

if TYPE_CHECKING:
    from gateway.governance.stored_recipients import StoredRecipients

log = logging.getLogger("gateway.discovery")

START_SECONDS = 10.0
"""The start of a server waits so long for the first reading."""
PATIENCE_SECONDS = 10.0
"""A database that does not answer within this time counts as unreadable."""
UNREADABLE = "the places of stored shares cannot be read, the last ones stay: %s"


class Sources:
    """The places as of the last reading."""

    def __init__(self, config: Callable[[], Config], *, must_exist: bool = False) -> None:
        """`config` returns the configuration in force; it is called on a thread, too.

        Unless `must_exist`, the database may be created later.
        """
        self._config = config
        self._thread = ReadingThread(config, "sources", must_exist=must_exist, is_searching=True)
        self._failures = Failures(
            log, logging.WARNING, UNREADABLE, "the places of stored shares can be read again"
        )
        self._seen: tuple[Config, StoredShares] | None = None
        self._stored: tuple[Source, ...] = ()
        self._has_read = asyncio.Event()

    @property
    def had_database(self) -> bool:
        """Return whether the database has ever existed."""
        return self._thread.has_existed

    def all(self) -> tuple[Source, ...]:
        """Return the places of the configuration and of the database."""
        return (*self._config().sources, *self._stored)

    @asynccontextmanager
    async def following(self) -> AsyncIterator[None]:
        """Follow the database within the context, which begins after the first reading."""
        async with following(
            self._thread.next,
            self._take,
            self._report,
            retry_seconds=POLL_SECONDS,
            patience_seconds=PATIENCE_SECONDS,
        ):
            with suppress(TimeoutError):
                async with asyncio.timeout(START_SECONDS):
                    await self._has_read.wait()
            try:
                yield
            finally:
                self._thread.close()

    async def _take(self, _reading: tuple[StoredRecipients | None, float]) -> None:
        config, shares = self._config(), self._thread.shares
        if self._seen is None or self._seen[0] is not config or self._seen[1] is not shares:
            self._stored = await asyncio.to_thread(stored_sources, config, shares)
            self._seen = (config, shares)

    async def _report(self, error: Exception | None) -> None:
        self._failures.report(error)
        self._has_read.set()
