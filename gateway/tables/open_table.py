"""An open table, limited to the versions that are shared.

Methods block: they run on a thread of the table's storage. `CachedTable` reads from memory only, for a
storage that is down.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import suppress
from typing import Literal, TypeVar

from msgspec import Struct, field

from gateway import _native
from gateway._native import Changes, Snapshot, Stop
from gateway.catalog.catalog import SharedTable
from gateway.errors import InvalidParameter
from gateway.protocol.capabilities import ResponseFormat
from gateway.protocol.queries import TimeTravel
from gateway.tables.ratified import ManagedTable
from gateway.tables.rules import rule_of
from gateway.tables.signers import TableSigners
from gateway.tables.visible_errors import naming, too_early

log = logging.getLogger("gateway.tables")

MAX_WARNED = 100
ANY_AGE_MS = 2**62
SMALL_METADATA_BYTES = 256 * 1024
MAX_LISTED_AGAIN = 3
"""How often a log is listed again that was cleaned up or replaced before its first line."""

Found = TypeVar("Found", Snapshot, Changes)
R = TypeVar("R")


class OpenTable(Struct, frozen=True, eq=False):
    """A table that can be read, limited to the versions that are shared. Its methods block."""

    shared: SharedTable
    table: _native.Table
    url_signers: TableSigners
    max_staleness_ms: int
    stale: bool = False
    """The storage is down, and a cached snapshot is read."""
    managed: ManagedTable | None = None
    """The table with its catalog, if one manages it."""
    warned: set[str] = field(default_factory=set)
    """Warnings that were logged for this table; each is logged once."""

    @property
    def rule(self) -> _native.Rule | None:
        """The rule that decides which files the recipient reads; None for all. Raises InvalidRule."""
        return rule_of(self.shared)

    @property
    def native(self) -> _native.Table:
        """The native table, without limits of history, with valid credentials."""
        self.url_signers.renew()
        if self.managed is not None:
            self.managed.ask_once()
        return self.table

    @property
    def has_small_metadata(self) -> bool:
        """Whether a version is in memory, with a small header: a refresh reads what came after it."""
        metadata_bytes = self.table.known_metadata_bytes()
        return metadata_bytes is not None and metadata_bytes <= SMALL_METADATA_BYTES

    def has_in_memory(self, identity: str) -> bool:
        """Whether the last version that was found is the one that a page names, with its files in memory."""
        known = self.table.latest_known(max_age_ms=ANY_AGE_MS) if self.has_small_metadata else None
        return known is not None and known.identity == identity and self.with_latest(known).is_in_memory

    @property
    def signers(self) -> _native.Signers:
        """Signers with valid credentials, for URLs of its files."""
        return self.url_signers.signers()

    def snapshot(self, *, version: int | None = None, timestamp_ms: int | None = None) -> _native.Snapshot:
        """Return the latest snapshot, or with history sharing the one of a version or timestamp."""
        if version is None and timestamp_ms is None:
            return self._as_shared(self.newest())
        self.require_history()
        if version is not None:
            self._require_shared(version, "version")
            with naming(self.shared, "version"):
                return self.native.snapshot(version=version)
        self._require_a_shared_version()
        with naming(self.shared, "timestamp"):
            snapshot = self.native.snapshot(timestamp_ms=timestamp_ms)
        if snapshot.version < self.shared.start_version:
            raise too_early(self.shared, "timestamp")
        return snapshot

    def newest(self) -> _native.Snapshot:
        """Return the latest snapshot, shared or not: tables with the same log refresh it together."""
        is_first = self.table.latest_known(max_age_ms=ANY_AGE_MS) is None
        latest = self.native.snapshot(max_staleness_ms=self.max_staleness_ms)
        if is_first:
            # The first listing may end early. Another look asks for the next commit by its name.
            latest = self.native.snapshot()
        self._warn_of_left_out(latest)
        return latest

    def _look(self) -> None:
        """Find the latest version of a table that is not known: later listings are compared with it."""
        if self.table.latest_known(max_age_ms=ANY_AGE_MS) is None:
            # One that cannot be read leaves others what they are.
            with suppress(_native.CorruptLog, _native.UnsupportedFeature):
                self.newest()

    def pinned(self, *, identity: str) -> _native.Snapshot:
        """Return the snapshot that an earlier page names."""
        return self.native.snapshot(identity=identity)

    def refreshed(self, version: int) -> _native.Snapshot:
        """Return the version of a refresh token, whether its history is shared or not."""
        return self.native.snapshot(version=version)

    def with_latest(self, latest: _native.Snapshot) -> LatestTable:
        """Return the table with its latest version."""
        return LatestTable(
            self.shared,
            self.table,
            self.url_signers,
            self.max_staleness_ms,
            managed=self.managed,
            warned=self.warned,
            latest=latest,
        )

    def version_at_or_after(self, timestamp_ms: int) -> int:
        """Return the earliest shared version that was committed at or after a timestamp."""
        self.require_history()
        self._require_a_shared_version()
        self._look()
        with naming(self.shared, "startingTimestamp"):
            version = self.native.version_at_or_after(timestamp_ms)
        return max(version, self.shared.start_version)

    def changes(
        self,
        *,
        start: TimeTravel,
        end: TimeTravel,
        change_data_feed: bool,
        heading: Literal["start", "latest"] | int = "start",
        stop: Stop | None = None,
    ) -> _native.Changes:
        """Return a range of shared versions; a start before the first commit is the first shared version.

        `heading` chooses the version whose metadata comes before the changes. `stop` ends the work.
        """
        self.require_history()
        if start.version is not None:
            self._require_shared(start.version, "startingVersion")
        first = start.version
        if first is None and start.timestamp_ms is not None:
            first = self.version_at_or_after(start.timestamp_ms)
        last = end.version
        if last is None and end.timestamp_ms is not None:
            with naming(self.shared, "endingTimestamp"):
                last = self.native.version_at_or_before(end.timestamp_ms)
            if last < self.shared.start_version:
                raise too_early(self.shared, "endingTimestamp")
        if first is None:
            raise InvalidParameter("give exactly one of startingVersion and startingTimestamp")
        if last is None:
            self._look()
        elif last < first:
            raise InvalidParameter(f"the range ends at version {last}, before its start at version {first}")
        with naming(self.shared, "startingVersion"):
            try:
                return self.native.changes(
                    starting_version=first,
                    ending_version=last,
                    change_data_feed=change_data_feed,
                    heading=heading,
                    max_staleness_ms=self.max_staleness_ms,
                    stop=stop,
                )
            except _native.ChangeDataFeedDisabled as disabled:
                raise InvalidParameter(f"{disabled}; {self._feed_advice(disabled.version)}") from None

    def _feed_advice(self, disabled: int) -> str:
        """Return the remedy for a change data feed that is off at a version. Blocks. Raises LogError."""
        latest = self.native.snapshot(max_staleness_ms=self.max_staleness_ms)
        if not latest.change_data_feed:
            return "the provider enables it by the table property delta.enableChangeDataFeed"
        off, on = disabled, latest.version
        while on - off > 1:
            middle = (off + on) // 2
            if self.native.snapshot(version=middle).change_data_feed:
                on = middle
            else:
                off = middle
        try:
            self.native.changes(starting_version=on, ending_version=None, change_data_feed=True)
        except _native.ChangeDataFeedDisabled as again:
            return f"it is enabled from version {on} to version {again.version - 1}"
        return f"it is enabled from version {on}"

    def header(
        self, snapshot: _native.Snapshot, response_format: ResponseFormat, *, with_version: bool, stop: Stop
    ) -> bytes:
        """Return the first two lines of every answer of a version. Blocks if its totals are not known."""
        self.require_totals(snapshot)
        return snapshot.header(
            response_format,
            with_version=with_version,
            history_shared=self.shared.history_shared,
            access=self.shared.access_members,
            rule=self.rule,
            stop=stop,
        )

    def require_totals(self, snapshot: _native.Snapshot) -> None:
        """Raise for a snapshot whose first lines cannot be written. This table can read everything."""

    def require_files(self, snapshot: _native.Snapshot) -> None:
        """Raise for a snapshot whose files cannot be listed. This table can read all files."""

    def _warn_of_left_out(self, snapshot: _native.Snapshot) -> None:
        if snapshot.has_bad_hint and "hint" not in self.warned:
            self.warned.add("hint")
            log.warning(
                "table %s: _last_checkpoint names no checkpoint, so the whole log is listed",
                self.shared.full_name,
            )
        for file, reason in snapshot.left_out:
            if file not in self.warned and len(self.warned) < MAX_WARNED:
                self.warned.add(file)
                log.warning(
                    "table %s: the checkpoint of %s is left out: %s", self.shared.full_name, file, reason
                )

    def require_history(self) -> None:
        """Raise InvalidParameter where history is not shared, before anything is read."""
        if not self.shared.history_shared:
            raise InvalidParameter(
                "the table is shared without its history: only its latest version can be read, without "
                "version, timestamp, startingVersion and startingTimestamp, and without changes"
            )

    def _as_shared(self, latest: _native.Snapshot) -> _native.Snapshot:
        """Return the latest snapshot. Raises InvalidParameter if it is before the first shared version."""
        if latest.version < self.shared.start_version:
            raise InvalidParameter(
                f"there is no shared version yet; the first shared version is {self.shared.start_version}"
            )
        return latest

    def _require_a_shared_version(self) -> None:
        """Raise InvalidParameter if there is none: times would be found among those of other versions."""
        if self.shared.start_version:
            self._as_shared(self.newest())

    def _require_shared(self, version: int, parameter: str) -> None:
        if version < self.shared.start_version:
            raise InvalidParameter(
                f"{parameter} {version} is not shared; "
                f"the first shared version is {self.shared.start_version}"
            )


class LatestTable(OpenTable, frozen=True, eq=False, kw_only=True):
    """An open table whose latest version is known."""

    latest: _native.Snapshot

    @property
    def is_in_memory(self) -> bool:
        """Return whether the files of the latest version can be listed and signed without blocking."""
        if self.shared.rule is None:
            return self.url_signers.is_valid and self.latest.is_in_memory
        return self.url_signers.is_valid and self.latest.is_in_memory_within(self.rule)

    def newest(self) -> _native.Snapshot:
        """Return the latest version; another one if its log was replaced."""
        return OpenTable.newest(self) if self.latest.is_lost else self.latest


class NotCached(Exception):
    """Raised by `CachedTable` for anything that is not in memory."""


class CachedTable(OpenTable, frozen=True, eq=False, kw_only=True):
    """The cached snapshot of a table whose storage is down.

    Its methods start no reads and never block, because the storage may hang. They raise NotCached for
    anything that has to be read.
    """

    cached: _native.Snapshot

    @property
    def native(self) -> _native.Table:
        """Raises NotCached: nothing can be read."""
        raise NotCached

    @property
    def signers(self) -> _native.Signers:
        """The most recent signers."""
        signers = self.url_signers.signers_in_memory()
        if signers is None:
            raise NotCached
        return signers

    def snapshot(self, *, version: int | None = None, timestamp_ms: int | None = None) -> _native.Snapshot:
        """Return the cached snapshot, if it is the requested one."""
        if timestamp_ms is not None:
            self.require_history()
            raise NotCached
        if version is None:
            return self._as_shared(self._readable(self.cached))
        self.require_history()
        self._require_shared(version, "version")
        return self.refreshed(version)

    def pinned(self, *, identity: str) -> _native.Snapshot:
        """Return the cached snapshot, if an earlier page names it."""
        if identity != self.cached.identity:
            raise NotCached
        return self._readable(self.cached)

    def refreshed(self, version: int) -> _native.Snapshot:
        """Return the cached snapshot, if it is of that version."""
        if version != self.cached.version:
            raise NotCached
        return self._readable(self.cached)

    @staticmethod
    def _readable(snapshot: _native.Snapshot) -> _native.Snapshot:
        """Return the snapshot, if its first lines for a whole table can be written without reading."""
        if not snapshot.has_totals:
            raise NotCached
        return snapshot

    def require_totals(self, snapshot: _native.Snapshot) -> None:
        """Raise NotCached for totals that are not known."""
        if not snapshot.has_totals_within(self.rule):
            raise NotCached

    def require_files(self, snapshot: _native.Snapshot) -> None:
        """Raise NotCached for files that are not in memory."""
        if not snapshot.is_in_memory_within(self.rule):
            raise NotCached


def versions_of(read: Snapshot | Changes) -> list[int]:
    """Return the first and the last version, and the version whose metadata comes first in the answer."""
    if isinstance(read, Snapshot):
        return [read.version, read.version, read.version]
    return [read.starting_version, read.ending_version, read.heading_version]


def metadata_id_of(read: Snapshot | Changes) -> str:
    """Return the table id of the Delta metadata."""
    return read.table_id if isinstance(read, Snapshot) else read.snapshot.table_id


def lacks_file(read: Snapshot | Changes, error: Exception) -> bool:
    """Return whether a read failed by a file of its log that is lost: one that is found again may succeed."""
    return isinstance(error, (_native.CorruptLog, _native.FileReplaced)) and read.is_lost


def from_readable_files(find: Callable[[], Found], use: Callable[[Found], R]) -> R:
    """Return what `use` makes of a version or range, found again where a file of its log is lost. Blocks.

    A damaged checkpoint is ignored from then on, and a log that was cleaned up or replaced is listed again.
    """
    for _ in range(MAX_LISTED_AGAIN):
        found = find()
        try:
            return use(found)
        except _native.LogError as error:
            if not lacks_file(found, error):
                raise
    return use(find())
