"""All recipients of a running server, those of the file and those of the database, in one table.

In: the configuration and the database. Out: a new CredentialTable whenever the database was changed by
anybody, seen within `POLL_SECONDS`. When the database cannot be read, the last table goes on and the log
says so.
"""

from __future__ import annotations

import asyncio
import logging
import sqlite3
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING

from gateway.auth import ANONYMOUS, Credential, CredentialTable, configured_credentials
from gateway.catalog import Recipient
from gateway.networks import parse_networks

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterable

    from gateway.config import Config
    from gateway.metrics import Metrics
    from gateway.recipients import RecipientDatabase, RecipientRecord

log = logging.getLogger("gateway.recipients")

POLL_SECONDS = 0.4
NEVER_EXPIRES = float("inf")
NOT_THERE = float("nan")


def stored_credentials(records: Iterable[RecipientRecord]) -> Iterable[Credential]:
    """Every token of the database, expired ones included: time decides at each request."""
    for record in records:
        shares = frozenset(share.casefold() for share in record.shares)
        recipient = Recipient(record.name, shares, parse_networks(record.networks))
        for token in record.tokens:
            yield Credential(bytes.fromhex(token.sha256), recipient, token.expires_ms)


def configured_names(config: Config) -> frozenset[str]:
    """Names that the database may not give again."""
    return frozenset(recipient.name.lower() for recipient in config.gateway.recipients)


class RecipientBook:
    """The credentials in force, and the watch over the database that they come from."""

    def __init__(
        self,
        open_database: Callable[[], RecipientDatabase | None],
        changed: Callable[[CredentialTable], None],
        metrics: Metrics,
        now_ms: Callable[[], int],
    ) -> None:
        """`changed` is called on the event loop with each new table.

        `open_database` gives None as long as there is none: a first recipient may be added while this runs.
        """
        self._open_database = open_database
        # At the start there is no last state to go on with: what cannot be opened is raised.
        self._database = open_database()
        self._changed = changed
        self._metrics = metrics
        self._now_ms = now_ms
        self._records: tuple[RecipientRecord, ...] = ()
        self._readable = True
        self._expiries: dict[str, float] = {}

    def table(self, config: Config) -> CredentialTable:
        """The table of a configuration and of what is known of the database."""
        taken = configured_names(config)
        records = [record for record in self._records if record.name.lower() not in taken]
        credentials = [*configured_credentials(config), *stored_credentials(records)]
        self._tell_expiries(credentials)
        anonymous = ANONYMOUS if config.gateway.anonymous else None
        return CredentialTable(credentials, anonymous=anonymous)

    def look(self) -> bool:
        """Read the database if it was changed. Whether anything is new."""
        try:
            self._database = self._database or self._open_database()
            if self._database is None or (not self._database.changed() and self._readable):
                return False
            records = self._database.list()
        except (sqlite3.Error, OSError) as error:
            if self._readable:
                log.error("the recipients' database cannot be read, the last state goes on: %s", error)  # noqa: TRY400
            self._readable = False
            return False
        self._readable = True
        self._records = records
        return True

    @asynccontextmanager
    async def watching(self, config: Callable[[], Config]) -> AsyncIterator[None]:
        """Follow the database for as long as the context lives."""
        task = asyncio.ensure_future(self._watch(config))
        try:
            yield
        finally:
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task

    async def _watch(self, config: Callable[[], Config]) -> None:
        while True:
            await asyncio.sleep(POLL_SECONDS)
            try:
                if self.look():
                    self._changed(self.table(config()))
                    log.info("recipients were read anew")
            except Exception:
                # To stop here would be to see no revocation any more.
                log.exception("the recipients' database holds what cannot be read, the last state goes on")

    def _tell_expiries(self, credentials: Iterable[Credential]) -> None:
        expiries: dict[str, float] = {}
        now_ms = self._now_ms()
        for credential in credentials:
            if credential.expires_ms is None or credential.expires_ms > now_ms:
                ends = NEVER_EXPIRES if credential.expires_ms is None else credential.expires_ms / 1000
                name = credential.recipient.name
                expiries[name] = max(ends, expiries.get(name, 0.0))
        for name in self._expiries.keys() - expiries.keys():
            # Not a number is in no comparison, so a revoked recipient raises no alert.
            self._metrics.token_expiry.labels(name).set(NOT_THERE)
        for name, ends in expiries.items():
            self._metrics.token_expiry.labels(name).set(ends)
        self._expiries = expiries
