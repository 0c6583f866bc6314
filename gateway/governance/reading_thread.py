"""The thread that reads the database for a running process, never the event loop.

In: the configuration in force. Out: what the database holds, again after each change of it. The thread opens
the database when it exists: the first recipient or share may create it.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING

from gateway.catalog.stored_shares import StoredShares
from gateway.config import Config
from gateway.config.database import DatabasePlace
from gateway.database.errors import DatabaseMissing, DatabaseUnusable
from gateway.limits.replica_rank import ALONE, ReplicaRank
from gateway.paths import exists

if TYPE_CHECKING:
    from gateway.governance.stored_recipients import DatabaseReader, StoredRecipients

POLL_SECONDS = 0.4
"""Between two looks at the database. PostgreSQL notifies of changes before."""
FILE_POLL_SECONDS = 0.2
"""The same for a file, which notifies of nothing. A look takes 0.1 ms of CPU."""

THREAD = "database"
"""The begin of the names of these threads."""
GONE = "its file or its tables are gone: put them back, or restore a backup"
elapsed_seconds = partial(time.clock_gettime, getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))
"""Returns a time that grows while the process is stopped and while the machine sleeps."""
_NO_SHARES: StoredShares = {}
"""One value: another one would be a change of the shares."""


class ReadingThread:
    """A thread with a reader of the database."""

    def __init__(
        self,
        config: Callable[[], Config],
        name: str,
        *,
        must_exist: bool = False,
        replica_id: str = "",
        is_searching: bool = False,
    ) -> None:
        """`config` is called on the thread. `replica_id` and `is_searching` are those of the reader.

        Unless `must_exist`, the database may be created later.
        """
        self._config = config
        self._replica_id = replica_id
        self._is_searching = is_searching
        self._reader: DatabaseReader | None = None
        self._thread = ThreadPoolExecutor(1, thread_name_prefix=f"{THREAD}-{name}")
        self.has_existed = must_exist
        """Whether the database has ever existed."""
        self.work: deque[Callable[[], None]] = deque()
        """What the thread does before it waits for the next change."""
        self._has_looked = False

    @property
    def shares(self) -> StoredShares:
        """The shares as of the last reading; the same value as before where none has changed."""
        return _NO_SHARES if self._reader is None else self._reader.shares

    @property
    def replica_rank(self) -> ReplicaRank:
        """The part of this server among its replicas, as of the last reading."""
        return ALONE if self._reader is None else self._reader.replica_rank

    def first(self) -> StoredRecipients | None:
        """Read the database, and block for it. Raises as `DatabaseReader.read`; None without a database."""
        return self._thread.submit(self._read).result()

    async def next(self) -> tuple[StoredRecipients | None, float]:
        """Wait for a change, or for the time of a look, and read the database; at once if it was not yet.

        Also returns the time at which the reading began, by `elapsed_seconds`. Raises as `first`.
        """
        return await asyncio.get_running_loop().run_in_executor(self._thread, self._wait_and_read)

    def close(self) -> None:
        """Close the connection after the reading that is under way, and end the thread."""
        self._thread.submit(self._close)
        self._thread.shutdown(wait=False)

    def _wait_and_read(self) -> tuple[StoredRecipients | None, float]:
        # The event loop may empty it at any time.
        with suppress(IndexError):
            while True:
                self.work.popleft()()
        if self._has_looked and self._reader is None:
            time.sleep(POLL_SECONDS)
        elif self._reader is not None:
            self._reader.wait(FILE_POLL_SECONDS if self._reader.is_file else POLL_SECONDS)
        began_seconds = elapsed_seconds()
        return self._read(), began_seconds

    def _read(self) -> StoredRecipients | None:
        self._has_looked = True
        try:
            stored = self._opened_reader().read()
        except DatabaseMissing:
            if self.has_existed:
                raise DatabaseUnusable(GONE) from None
            return None
        self.has_existed = True
        return stored

    def _opened_reader(self) -> DatabaseReader:
        """Return the reader. Raises DatabaseMissing as long as there is no file."""
        if self._reader is None:
            path = self._place().path
            if path is not None and not exists(path):
                raise DatabaseMissing
            # A server without a database starts sooner.
            from gateway.governance.stored_recipients import DatabaseReader  # noqa: PLC0415

            self._reader = DatabaseReader(self._place, self._replica_id, is_searching=self._is_searching)
        return self._reader

    def _place(self) -> DatabasePlace:
        return self._config().database_place

    def _close(self) -> None:
        if self._reader is not None:
            self._reader.close()
