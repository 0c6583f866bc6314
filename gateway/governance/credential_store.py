"""The credentials of a running server: those of the configuration and those of the database.

In: the configuration and the database. Out: a new CredentialTable within a second of a change of the
database, which is read by its own thread, never on the event loop. While the database cannot be read or does
not answer, the last table stays in force, the log says why, and the metric `recipients_readable` is 0. After
`maxOutageSeconds` a table without the recipients of the database takes its place, and its shares end, too.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from gateway.authentication.credential_table import ANONYMOUS, CredentialTable, configured_holders
from gateway.authentication.expiries import Expiries
from gateway.catalog.stored_shares import StoredShares
from gateway.config import Config
from gateway.governance.follow import Failures, following
from gateway.governance.reading_thread import POLL_SECONDS, ReadingThread, elapsed_seconds
from gateway.limits.replica_rank import ALONE, ReplicaRank

if TYPE_CHECKING:
    from gateway.governance.stored_recipients import StoredRecipients
    from gateway.telemetry.metrics import Metrics

log = logging.getLogger("gateway.recipients")

PAUSE_SECONDS = 0.1
"""Minimum time between two looks."""
MOST_CHANGED = 1000
"""With more changed recipients the whole table is made again."""
PATIENCE_SECONDS = 10.0
"""A database that does not answer within this time counts as unreadable."""
LOOK_SECONDS = 2.0
"""Time within which a look at a database that answers ends, beyond `maxOutageSeconds`."""
OUTDATED = "the recipients' database was not read for %g s: its recipients get 503, and so do its shares"
UNREADABLE = (
    "the recipients' database cannot be read: %s. Make it readable again: its last state is in force for "
    "gateway.database.maxOutageSeconds"
)


def configured_names(config: Config) -> frozenset[str]:
    """Return the names that the database may not use."""
    return frozenset(recipient.name.lower() for recipient in config.gateway.recipients)


async def _unused(_shares: StoredShares) -> None:
    """Do nothing with shares."""


def _held_back(before: StoredRecipients | None, after: StoredRecipients | None) -> StoredRecipients | None:
    # A server without a database starts sooner.
    from gateway.governance.stored_recipients import held_back  # noqa: PLC0415

    return held_back(before, after)


@dataclass(frozen=True, slots=True)
class _Made:
    """A table, and what it was made of."""

    config: Config
    stored: StoredRecipients | None
    table: CredentialTable


class CredentialStore:
    """The credentials in force, kept up to date with the database."""

    def __init__(
        self,
        config: Config,
        changed: Callable[[CredentialTable], None],
        metrics: Metrics,
        now_ms: Callable[[], int],
        *,
        must_exist: bool = False,
        take_shares: Callable[[StoredShares], Awaitable[None]] = _unused,
        replica_id: str = "",
        rank_changed: Callable[[ReplicaRank], None] = lambda _rank: None,
        elapsed: Callable[[], float] = elapsed_seconds,
    ) -> None:
        """`changed` is called on the event loop with each new table.

        `take_shares` is called after each reading, with the same value unless shares have changed. What a
        reading takes back is in force before it, and what it gives afterwards.
        `replica_id`: of this server, for the limits that replicas share; `rank_changed` is called on the
        event loop when they join or leave.

        Unless `must_exist`, the database may be created later, with the first recipient. Raises
        DatabaseError, OSError or ValueError for a database that cannot be read.
        """
        self._config: Callable[[], Config] = lambda: config
        self._changed = changed
        self._take_shares = take_shares
        self._metrics = metrics
        self._rank_changed = rank_changed
        self._thread = ReadingThread(
            self._in_effect, "recipients", must_exist=must_exist, replica_id=replica_id
        )
        self._elapsed = elapsed
        self._read_at_seconds = elapsed()
        self._has_ended = False
        self._is_due = False
        """Whether the table in force is older than the last reading. The caller makes the first table."""
        self.have_shares_ended = False
        """Whether the shares of the last reading are out of force. `changed` is called when this changes."""
        self._failures = Failures(
            log, logging.ERROR, UNREADABLE, "the recipients' database can be read again"
        )
        self.expiries = Expiries(now_ms)
        """The ends of tokens and client secrets, as of the last reading."""
        self._made: _Made | None = None
        self._stored = self._thread.first()
        self._taken = self.shares
        """The shares that are served, for which the recipients in force have their grants."""
        self.replica_rank = ALONE
        """The place of this server among replicas, which divide the recipients' limits."""
        self._take_rank(lambda _rank: None)
        self._count_left_out()
        metrics.recipients_readable.set(1)

    @property
    def shares(self) -> StoredShares:
        """Return the shares of the database, as of the last reading."""
        return self._thread.shares

    @property
    def had_database(self) -> bool:
        """Return whether the database has ever existed."""
        return self._thread.has_existed

    def table(self, config: Config) -> CredentialTable:
        """Return the table of a configuration and the known database. Slow for many recipients."""
        return self._table(config, self._in_force)

    async def latest_table(self, config: Config) -> CredentialTable:
        """Return the same table, made on a thread; it is current until the event loop is yielded to."""
        while True:
            stored = self._in_force
            table = await asyncio.to_thread(self._table, config, stored)
            if stored is self._in_force:
                return table

    @property
    def _in_force(self) -> StoredRecipients | None:
        return None if self._has_ended else self._stored

    def _in_effect(self) -> Config:
        return self._config()

    @asynccontextmanager
    async def watching(self, config: Callable[[], Config]) -> AsyncIterator[None]:
        """Follow the database within the context."""
        self._config = config
        try:
            async with following(
                self._next,
                self._take,
                self._report,
                retry_seconds=POLL_SECONDS,
                patience_seconds=PATIENCE_SECONDS,
            ):
                yield
        finally:
            self._thread.close()

    async def _next(self) -> tuple[StoredRecipients | None, float]:
        await asyncio.sleep(PAUSE_SECONDS)
        return await self._thread.next()

    async def _take(self, reading: tuple[StoredRecipients | None, float]) -> None:
        stored, self._read_at_seconds = reading
        shares = self.shares
        if shares is not self._taken:
            # A revocation does not wait for the shares, which may be many. A grant does: until then its names
            # may be those of other tables. After an outage nothing is in force, and without its shares
            # a recipient would find none.
            if not self._has_ended:
                await self._put(await asyncio.to_thread(_held_back, self._stored, stored))
            await self._take_shares(shares)
            self._taken = shares
        if self.have_shares_ended:
            self.have_shares_ended, self._is_due = False, True
        await self._put(stored)
        await self._take_shares(shares)
        self._take_rank(self._rank_changed)
        self._count_left_out()

    async def _put(self, stored: StoredRecipients | None) -> None:
        """Put recipients in force."""
        if stored is not self._stored or self._has_ended:
            self._stored, self._has_ended, self._is_due = stored, False, True
        if self._is_due:
            await self._change()

    def _count_left_out(self) -> None:
        self._metrics.recipients_left_out.set(0 if self._stored is None else len(self._stored.unreadable))

    def _take_rank(self, changed: Callable[[ReplicaRank], None]) -> None:
        rank = self._thread.replica_rank
        if rank != self.replica_rank:
            self.replica_rank = rank
            log.info("the limits of recipients are divided by %d replicas", rank.count)
            changed(rank)

    async def _report(self, error: Exception | None) -> None:
        """Log when the database becomes unreadable or readable again, and set the metric."""
        self._failures.report(error)
        self._metrics.recipients_readable.set(1 if error is None else 0)
        if error is not None:
            # Where this fails, too, it is due again at the next look.
            await self._end_state()

    async def _end_state(self) -> None:
        """Take the last state out of force when the database could not be read for too long."""
        kept_seconds = self._config().max_outage_seconds
        is_done = self._has_ended and not self._is_due
        if is_done or self._elapsed() - self._read_at_seconds < kept_seconds:
            return
        self._has_ended = self._is_due = True
        await self._change()
        log.error(OUTDATED, kept_seconds)

    def end_outdated(self) -> None:
        """Take a state out of force that was read too long ago, as by a process that was stopped meanwhile.

        Each request calls it: after a stop they come before the next reading.
        """
        age_seconds = self._elapsed() - self._read_at_seconds
        # The first comparison is the whole cost for each chunk of an answer.
        if age_seconds <= LOOK_SECONDS or self._has_ended or not (self._stored or self._taken):
            return
        config = self._config()
        if age_seconds <= config.max_outage_seconds + LOOK_SECONDS:
            return
        self._has_ended = self.have_shares_ended = True
        self._changed(self._table(config, None))
        log.error(OUTDATED, config.max_outage_seconds)

    async def _change(self) -> None:
        while True:
            current = self._config()
            table = await self.latest_table(current)
            # The configuration may have changed while the table was made.
            if current is self._config():
                break
        if self._has_ended:
            self.have_shares_ended = True
        self._changed(table)
        self._is_due = False
        if not self._has_ended:
            log.info("the recipients' database has changed")

    def _table(self, config: Config, stored: StoredRecipients | None) -> CredentialTable:
        made, is_incomplete = self._made, self._has_ended or (stored is not None and stored.is_incomplete)
        table = None
        if made is not None and made.config is config:
            table = self._changed_table(made, stored, is_incomplete=is_incomplete)
        if table is None:
            table = self._whole_table(config, stored, is_incomplete=is_incomplete)
        self._made = _Made(config, stored, table)
        return table

    def _changed_table(
        self, made: _Made, stored: StoredRecipients | None, *, is_incomplete: bool
    ) -> CredentialTable | None:
        """Return the table of other recipients and the same configuration; None: all of it has to be made."""
        before = {} if made.stored is None else made.stored.by_key
        after = {} if stored is None else stored.by_key
        if before is after and made.table.is_incomplete == is_incomplete:
            return made.table
        taken = configured_names(made.config)
        # Recipients that have not changed are the same values.
        gone = [entry for key, entry in before.items() if after.get(key) is not entry]
        new = [entry for key, entry in after.items() if before.get(key) is not entry]
        if len(gone) + len(new) > MOST_CHANGED:
            return None
        gone = [entry for entry in gone if entry.recipient.name.lower() not in taken]
        new = [entry for entry in new if entry.recipient.name.lower() not in taken]
        table = made.table.replaced(gone, new, is_incomplete=is_incomplete)
        if table is not None:
            self._thread.work.append(lambda: self.expiries.report_some(gone, new))
        return table

    def _whole_table(
        self, config: Config, stored: StoredRecipients | None, *, is_incomplete: bool
    ) -> CredentialTable:
        taken = configured_names(config)
        others = (entry for entry in stored or () if entry.recipient.name.lower() not in taken)
        holders = [*configured_holders(config), *others]
        # A full report replaces queued partial reports, which could otherwise wait behind a hung read.
        self._thread.work.clear()
        self._thread.work.append(lambda: self.expiries.report_all(holders))
        anonymous = ANONYMOUS if config.gateway.anonymous else None
        return CredentialTable(holders, anonymous=anonymous, is_incomplete=is_incomplete)
