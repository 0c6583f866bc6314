"""An open table, limited to the versions that are shared.

Methods block: they run on a thread of the table's storage. `KeptTable` reads from memory only, for a storage
that is down.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, field
from typing import Literal

from gateway import _native
from gateway._native import (
    Changes,
    Snapshot,
    Stop,
)
from gateway.access.catalog import SharedTable
from gateway.errors import InvalidParameter
from gateway.tables.signers import Access
from gateway.tables.visible_errors import too_early

log = logging.getLogger("gateway.tables")


@dataclass(frozen=True, slots=True)
class OpenTable:
    """A table that can be read, within what is shared of its history. Its methods block."""

    shared: SharedTable
    table: _native.Table
    access: Access
    max_staleness_ms: int
    stale: bool = False
    """Its storage is down, and what is read is what was kept of it."""
    warned: set[str] = field(default_factory=set, compare=False)
    """What the log was told of it; each is told once."""

    @property
    def native(self) -> _native.Table:
        """The table without regard to what is shared of its history, ready to be read."""
        self.access.renew()
        return self.table

    @property
    def signers(self) -> _native.Signers:
        """Those that make URLs of its files."""
        return self.access.signers()

    def snapshot(self, *, version: int | None = None, timestamp_ms: int | None = None) -> _native.Snapshot:
        """The latest snapshot, or that of a version or timestamp, which need history sharing."""
        if version is None and timestamp_ms is None:
            latest = self.native.snapshot(max_staleness_ms=self.max_staleness_ms)
            self._warn_of_bad_hint(latest)
            return latest
        self.require_history()
        if version is not None:
            self._require_shared(version)
            return self.native.snapshot(version=version)
        snapshot = self.native.snapshot(timestamp_ms=timestamp_ms)
        if snapshot.version < self.shared.start_version:
            raise too_early(self.shared)
        return snapshot

    def pinned(self, *, identity: str) -> _native.Snapshot:
        """The snapshot that an earlier answer names, for its next pages."""
        return self.native.snapshot(identity=identity)

    def given(self, version: int) -> _native.Snapshot:
        """A version that the recipient was given before, whether its history is shared or not."""
        return self.native.snapshot(version=version)

    def latest_in_memory(self) -> _native.Snapshot | None:
        """The latest snapshot, if a look is fresh and nothing has to be read or renewed. Never blocks."""
        if not self.access.is_fresh:
            return None
        snapshot = self.table.latest_if_fresh(max_staleness_ms=self.max_staleness_ms)
        return snapshot if snapshot is not None and snapshot.is_in_memory else None

    def version_at_or_after(self, timestamp_ms: int) -> int:
        """The earliest shared version that was committed at or after a timestamp."""
        self.require_history()
        return max(self.native.version_at_or_after(timestamp_ms), self.shared.start_version)

    def changes(
        self,
        *,
        start: Moment,
        end: Moment,
        change_data_feed: bool,
        heading: Literal["start", "latest"] | int = "start",
        stop: Stop | None = None,
    ) -> _native.Changes:
        """A range of shared versions; a start before the first commit is the first shared version.

        `heading` chooses the version whose metadata stands before the changes. The work ends at `stop`.
        """
        self.require_history()
        if start.version is not None:
            self._require_shared(start.version)
        first = start.version
        if first is None and start.timestamp_ms is not None:
            first = self.version_at_or_after(start.timestamp_ms)
        last = end.version
        if last is None and end.timestamp_ms is not None:
            last = self.native.version_at_or_before(end.timestamp_ms)
            if last < self.shared.start_version:
                raise too_early(self.shared)
        if first is None:
            raise InvalidParameter("give exactly one of startingVersion and startingTimestamp")
        if last is not None and last < first:
            raise InvalidParameter(f"the range ends at version {last}, before its start at version {first}")
        return self.native.changes(
            starting_version=first,
            ending_version=last,
            change_data_feed=change_data_feed,
            heading=heading,
            max_staleness_ms=self.max_staleness_ms,
            stop=stop,
        )

    def require_files(self, snapshot: _native.Snapshot) -> None:
        """Refuse a snapshot whose files cannot be listed: the files of this one can be read."""

    def _warn_of_bad_hint(self, snapshot: _native.Snapshot) -> None:
        if snapshot.has_bad_hint and "hint" not in self.warned:
            self.warned.add("hint")
            log.warning(
                "table %s: _last_checkpoint leads to nothing, so its whole log is listed",
                self.shared.full_name,
            )

    def require_history(self) -> None:
        """Refuse what needs history sharing where it is off, before anything is read."""
        if not self.shared.history_shared:
            raise InvalidParameter(
                "the table is shared without its history: only its latest version can be read, without "
                "version, timestamp, startingVersion and startingTimestamp, and without changes"
            )

    def _require_shared(self, version: int) -> None:
        if version < self.shared.start_version:
            raise InvalidParameter(
                f"version {version} is not shared; the first shared version is {self.shared.start_version}"
            )


class NotKept(Exception):
    """What is asked of a table whose storage is down is not in memory."""


@dataclass(frozen=True, slots=True)
class KeptTable(OpenTable):
    """What is kept in memory of a table whose storage is down.

    Its methods read nothing, begin to read nothing and never block, because the storage may hang. They raise
    NotKept for what they would have to read.
    """

    kept: _native.Snapshot = field(kw_only=True)

    @property
    def native(self) -> _native.Table:
        """Nothing can be read."""
        raise NotKept

    @property
    def signers(self) -> _native.Signers:
        """Those that were made last."""
        signers = self.access.signers_in_memory()
        if signers is None:
            raise NotKept
        return signers

    def snapshot(self, *, version: int | None = None, timestamp_ms: int | None = None) -> _native.Snapshot:
        """The kept snapshot, if it is the one that is asked for."""
        if timestamp_ms is not None:
            self.require_history()
            raise NotKept
        if version is None:
            return self._readable(self.kept)
        self.require_history()
        self._require_shared(version)
        return self.given(version)

    def pinned(self, *, identity: str) -> _native.Snapshot:
        """The kept snapshot, if an earlier answer names it."""
        if identity != self.kept.identity:
            raise NotKept
        return self._readable(self.kept)

    def given(self, version: int) -> _native.Snapshot:
        """The kept snapshot, if it is of that version."""
        if version != self.kept.version:
            raise NotKept
        return self._readable(self.kept)

    @staticmethod
    def _readable(snapshot: _native.Snapshot) -> _native.Snapshot:
        """The snapshot, if its first lines can be written without reading."""
        if not snapshot.has_totals:
            raise NotKept
        return snapshot

    def require_files(self, snapshot: _native.Snapshot) -> None:
        """Refuse to list files that would have to be read."""
        if not snapshot.is_in_memory:
            raise NotKept


@dataclass(frozen=True, slots=True)
class Moment:
    """A version, a timestamp in milliseconds, or neither."""

    version: int | None = None
    timestamp_ms: int | None = None


def versions_of(read: Snapshot | Changes) -> list[int]:
    """The first and the last version of what was read, and the one whose metadata heads its answer."""
    if isinstance(read, Snapshot):
        return [read.version, read.version, read.version]
    return [read.starting_version, read.ending_version, read.heading_version]


def metadata_id_of(read: Snapshot | Changes) -> str:
    """The id in the Delta table's own metadata."""
    return read.table_id if isinstance(read, Snapshot) else read.snapshot.table_id
