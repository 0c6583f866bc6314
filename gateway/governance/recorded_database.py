"""A connection to the database whose changes are recorded: in the history, and by hooks in the audit log.

In: the place of the database, and who changes it. Out: `change`, the transaction of one change. Its entry in
the history is part of the transaction, so there is no change without one.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from copy import copy
from dataclasses import dataclass, field
from itertools import groupby
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple, Self, TypeVar

from sqlalchemy import Connection, func, select

from gateway.config.database import DatabasePlace
from gateway.database.changes import forget_old
from gateway.database.engine import Database
from gateway.database.migration import opened
from gateway.database.rows import batches, insert_rows
from gateway.database.schema import HISTORY
from gateway.governance.recipient_records import ChangedMeanwhile, ChangeRecord
from gateway.governance.rows import NOT_STORABLE

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Subject:
    """What a change is about.

    Attributes:
        kind: `recipient` or `share`.
        name: as it was spelled; empty for a change of no single one.
        key: the name as it is compared.

    """

    kind: str
    name: str
    key: str


class LastChange(NamedTuple):
    """The number of the last change of a subject; 0 without any."""

    kind: str
    key: str
    number: int


@dataclass(slots=True)
class Whole:
    """Changes that are committed as one.

    Attributes:
        connection: within the transaction.
        names: the names of recipients by their forms; None before they are read.
        unrecorded: each change with the database that makes it and its subject, before it is recorded.
        recorded: those whose records are written.
        commits: functions that are called right after the commit.

    """

    connection: Connection
    names: dict[str, str] | None = None
    unrecorded: list[_Recorded] = field(default_factory=list)
    recorded: list[_Recorded] = field(default_factory=list)
    commits: list[Callable[[], None]] = field(default_factory=list)

    def record(self) -> None:
        """Write the changes to the history, and to an audit log that may refuse them."""
        if self.recorded and not self.unrecorded:
            # What was issued is recorded before it is handed over; nothing has changed since.
            return
        recorded, self.unrecorded = self.unrecorded, []
        _record(self.connection, recorded)
        for database, changes in _by_database(recorded):
            database._before_changes(changes)  # noqa: SLF001 - of this module
        self.recorded += recorded


class RecordedDatabase:
    """One connection. Not thread-safe; open one for each thread. Changes of several programs are safe."""

    def __init__(
        self,
        place: DatabasePlace,
        *,
        now_ms: Callable[[], int],
        actor: str = "server",
        create: bool = True,
        read_only: bool = False,
        source: Path | None = None,
        beside: RecordedDatabase | None = None,
        before_changes: Callable[[Sequence[ChangeRecord]], None] = lambda _changes: None,
        on_changes: Callable[[Sequence[ChangeRecord]], None] = lambda _changes: None,
    ) -> None:
        """Open the database. Raises as `gateway.database.migration.opened`.

        `beside`: use the connection of another one, in whose `together` changes of both are one.
        `before_changes` is called with the changes of a transaction before it is committed, and may raise to
        refuse them; `on_changes` is called afterwards.
        """
        self.now_ms = now_ms
        self._actor = actor
        self._before_changes = before_changes
        self._on_changes = on_changes
        self._basis: LastChange | None = None
        self._open: list[Whole] = [] if beside is None else beside._open  # noqa: SLF001 - of this class
        self.database: Database = (
            opened(place, create=create, read_only=read_only, source=source)
            if beside is None
            else beside.database
        )

    def close(self) -> None:
        self.database.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        self.close()

    def based_on(self, last_change: LastChange) -> Self:
        """Return this connection for changes that raise ChangedMeanwhile unless it is still the last one."""
        based = copy(self)
        based._basis = last_change  # noqa: SLF001 - of this class
        return based

    @contextmanager
    def change(self, action: str, subject: Subject) -> Iterator[tuple[Connection, dict[str, str]]]:
        """Return a connection, and the details of the change to fill, within its transaction."""
        with self.change_several(action, [subject]) as (connection, (detail,)):
            yield connection, detail

    @contextmanager
    def change_several(
        self, action: str, subjects: Sequence[Subject]
    ) -> Iterator[tuple[Connection, Sequence[dict[str, str]]]]:
        """Do the same for several subjects in one transaction: each has its details, and its own record."""
        details: list[dict[str, str]] = [{} for _ in subjects]
        at_ms = self.now_ms()
        with self.together() as whole:
            if self._basis is not None and self._basis != _last_change(whole.connection, *self._basis[:2]):
                raise ChangedMeanwhile
            yield whole.connection, details
            for subject, detail in zip(subjects, details, strict=True):
                change = ChangeRecord(at_ms, self._actor, action, subject.name, MappingProxyType(detail))
                whole.unrecorded.append((self, change, subject))

    @contextmanager
    def issued(self, issue: Callable[[], T], committed: Callable[[], None]) -> Iterator[T]:
        """Return what a change issues, to hand it over within the context, at whose end it takes effect.

        After an exception nothing is changed. `committed` is called right after the commit, before anything
        else that may fail.
        """
        with self.together() as whole:
            whole.commits.append(committed)
            result = issue()
            whole.record()
            yield result

    @contextmanager
    def together(self) -> Iterator[Whole]:
        """Commit all changes within the context as one, or none of them after an exception.

        The lock of the database is held from the start to the end of the context.
        """
        if self._open:
            yield self._open[0]
            return
        with self.database.changing() as connection:
            whole = Whole(connection)
            self._open.append(whole)
            try:
                yield whole
            finally:
                self._open.clear()
            whole.record()
        for committed in whole.commits:
            committed()
        for database, changes in _by_database(whole.recorded):
            database._on_changes(changes)  # noqa: SLF001 - as above

    def last_change(self, kind: str, key: str) -> LastChange:
        """Return the last change of a subject."""
        if NOT_STORABLE.search(key):
            return LastChange(kind, key, 0)
        with self.database.reading() as connection:
            return _last_change(connection, kind, key)

    def changes(self, kind: str, key: str | None, *, most: int | None = None) -> tuple[ChangeRecord, ...]:
        """Return the changes of a subject, also of a deleted one, oldest first; None: of all of the kind.

        `most`: the number of the last changes to return.
        """
        if key is not None and NOT_STORABLE.search(key):
            return ()
        query = select(HISTORY).where(HISTORY.c.kind == kind).order_by(HISTORY.c.id.desc()).limit(most)
        if key is not None:
            query = query.where(HISTORY.c.subject == key)
        with self.database.reading() as connection:
            newest_first = connection.execute(query).all()
        return tuple(
            ChangeRecord(row.at_ms, row.actor, row.action, row.name, MappingProxyType(json.loads(row.detail)))
            for row in reversed(newest_first)
        )


def _last_change(connection: Connection, kind: str, key: str) -> LastChange:
    query = select(func.max(HISTORY.c.id)).where(HISTORY.c.kind == kind, HISTORY.c.subject == key)
    return LastChange(kind, key, connection.execute(query).scalar_one() or 0)


_Recorded = tuple[RecordedDatabase, ChangeRecord, Subject]
"""A change with the database that makes it."""


def _by_database(recorded: Iterable[_Recorded]) -> Iterator[tuple[RecordedDatabase, list[ChangeRecord]]]:
    """Iterate over the changes of each database, in their order."""
    for database, of_database in groupby(recorded, key=lambda entry: entry[0]):
        yield database, [change for _, change, _ in of_database]


def _record(connection: Connection, recorded: Iterable[_Recorded]) -> None:
    """Write the history of changes."""
    rows = [
        {
            "at_ms": change.at_ms,
            "actor": change.actor,
            "action": change.action,
            "kind": subject.kind,
            "subject": subject.key,
            "name": subject.name,
            "detail": json.dumps(dict(change.detail), ensure_ascii=False),
        }
        for _, change, subject in recorded
    ]
    for batch in batches(rows):
        insert_rows(connection, HISTORY, batch)
    forget_old(connection)
