"""All recipients of a running server, those of the file and those of the database, in one table.

In: the configuration and the database. Out: a new CredentialTable whenever anybody has changed the database,
seen within a second. SQLite runs in a thread of its own and never on the event loop. When the database cannot
be read, or does not answer, the last table stays in force: nothing more is granted, the log says why, and the
metric `recipients_readable` is 0.
"""

from __future__ import annotations

import asyncio
import logging
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING

from gateway.access.authentication import (
    ANONYMOUS,
    Credential,
    CredentialTable,
    configured_credentials,
)
from gateway.access.stored_recipients import RecipientReader, StoredRecipients

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterable
    from pathlib import Path

    from gateway.config import Config
    from gateway.telemetry.metrics import Metrics

log = logging.getLogger("gateway.recipients")

POLL_SECONDS = 0.4
PATIENCE_SECONDS = 10.0
"""A database that has not answered within this counts as unreadable."""
THREAD = "recipients"
NEVER_EXPIRES = float("inf")
NOT_THERE = float("nan")


def configured_names(config: Config) -> frozenset[str]:
    """Names that the database may not give again."""
    return frozenset(recipient.name.lower() for recipient in config.gateway.recipients)


class CredentialStore:
    """The credentials in force, and the watch over the database that they come from."""

    def __init__(
        self,
        path: Path,
        changed: Callable[[CredentialTable], None],
        metrics: Metrics,
        now_ms: Callable[[], int],
        *,
        must_exist: bool = False,
    ) -> None:
        """`changed` is called on the event loop with each new table.

        Unless `must_exist`, the database at `path` need not be there yet: a first recipient may be added
        while this runs. One that cannot be read is raised, because there is no last state to keep:
        sqlite3.Error, OSError, ValueError.
        """
        self._path = path
        self._changed = changed
        self._metrics = metrics
        self._now_ms = now_ms
        self._reader = RecipientReader(path)
        self._thread = ThreadPoolExecutor(1, thread_name_prefix=THREAD)
        self._stored = StoredRecipients()
        self._was_there = must_exist
        self._readable = True
        self._expiries: dict[str, float] = {}
        self._stored = self._thread.submit(self._read).result()
        metrics.recipients_readable.set(1)

    @property
    def had_database(self) -> bool:
        """Whether the database was there at any time."""
        return self._was_there

    def table(self, config: Config) -> CredentialTable:
        """The table of a configuration and of what is known of the database. Takes a while for many."""
        return self._table(config, self._stored)

    async def latest_table(self, config: Config) -> CredentialTable:
        """The same, made by a thread; in force as long as the event loop is not yielded to."""
        while True:
            stored = self._stored
            table = await asyncio.to_thread(self._table, config, stored)
            if stored is self._stored:
                return table

    @asynccontextmanager
    async def watching(self, config: Callable[[], Config]) -> AsyncIterator[None]:
        """Follow the database for as long as the context lives."""
        task = asyncio.ensure_future(self._recorder(config))
        try:
            yield
        finally:
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task
            self._thread.submit(self._reader.close)
            self._thread.shutdown(wait=False)

    async def _recorder(self, config: Callable[[], Config]) -> None:
        while True:
            await asyncio.sleep(POLL_SECONDS)
            try:
                stored = await self._looked()
                if stored is not self._stored:
                    self._stored = stored
                    await self._change(config)
                self._tell(None)
            except Exception as error:  # noqa: BLE001 - to stop here would be to see no revocation any more
                self._tell(error)

    async def _looked(self) -> StoredRecipients:
        """Read the database in its thread, however long that takes."""
        look = asyncio.get_running_loop().run_in_executor(self._thread, self._read)
        try:
            async with asyncio.timeout(PATIENCE_SECONDS):
                return await asyncio.shield(look)
        except TimeoutError:
            if not look.done():
                self._tell(TimeoutError(f"no answer within {PATIENCE_SECONDS:g} s"))
            return await look

    async def _change(self, config: Callable[[], Config]) -> None:
        while True:
            current = config()
            table = await self.latest_table(current)
            # The configuration may have been swapped while the table was made.
            if current is config():
                break
        self._changed(table)
        log.info("the recipients' database has changed")

    def _read(self) -> StoredRecipients:
        """The recipients of the database; none as long as there is no database. In the reader's thread."""
        try:
            stored = self._reader.read()
        except FileNotFoundError:
            if self._was_there:
                raise
            return self._stored
        self._was_there = True
        return stored

    def _tell(self, trouble: Exception | None) -> None:
        """Say whether the database can be read; once for each time that it cannot."""
        if trouble is not None and self._readable:
            log.error(
                "the recipients' database cannot be read, the last state stays in force: %s",
                str(trouble) or type(trouble).__name__,
            )
        elif trouble is None and not self._readable:
            log.info("the recipients' database can be read again")
        self._readable = trouble is None
        self._metrics.recipients_readable.set(1 if self._readable else 0)

    def _table(self, config: Config, stored: StoredRecipients) -> CredentialTable:
        taken = configured_names(config)
        credentials = [*configured_credentials(config)]
        for recipient, own in stored:
            if recipient.name.lower() not in taken:
                credentials += own
        self._report_expiries(credentials)
        anonymous = ANONYMOUS if config.gateway.anonymous else None
        return CredentialTable(credentials, anonymous=anonymous)

    def _report_expiries(self, credentials: Iterable[Credential]) -> None:
        expiries: dict[str, float] = {}
        now_ms = self._now_ms()
        for credential in credentials:
            if credential.expires_ms is None or credential.expires_ms > now_ms:
                ends = NEVER_EXPIRES if credential.expires_ms is None else credential.expires_ms / 1000
                name = credential.recipient.name
                expiries[name] = max(ends, expiries.get(name, 0.0))
        before, self._expiries = self._expiries, expiries
        # Not a number is in no comparison, so a revoked recipient raises no alert.
        ended = dict.fromkeys(before.keys() - expiries.keys(), NOT_THERE)
        for name, ends in (expiries | ended).items():
            if ends != before.get(name):
                self._metrics.token_expiry.labels(name).set(ends)
