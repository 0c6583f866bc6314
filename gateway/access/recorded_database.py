"""A connection to the database whose changes are recorded: in the history, and by hooks in the audit log.

In: the place of the database, and who changes it. Out: `change`, the transaction of one change. Its entry in
the history is part of the transaction, so there is no change without one.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Self

from sqlalchemy import Connection, insert, select

from gateway.access.recipient_records import Change
from gateway.config.database import DatabasePlace
from gateway.database.changes import forget_old
from gateway.database.migration import opened
from gateway.database.schema import HISTORY


def nothing() -> None:
    """Do nothing."""


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
        before_change: Callable[[Change], None] = lambda _change: None,
        on_change: Callable[[Change], None] = lambda _change: None,
    ) -> None:
        """Open the database. Raises as `gateway.database.migration.opened`.

        `before_change` is called with each change before it is committed, and may raise to refuse it;
        `on_change` is called afterwards.
        """
        self.now_ms = now_ms
        self._actor = actor
        self._before_change = before_change
        self._on_change = on_change
        self.database = opened(place, create=create, read_only=read_only, source=source)

    def close(self) -> None:
        """Close the connection."""
        self.database.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        self.close()

    @contextmanager
    def change(
        self,
        action: str,
        subject: Subject,
        deliver: Callable[[], None] = nothing,
        committed: Callable[[], None] = nothing,
    ) -> Iterator[tuple[Connection, dict[str, str]]]:
        """Return a connection, and the details of the change to fill, within its transaction.

        `deliver` is called just before the commit; if it raises, nothing is changed. `committed` is called
        right after the commit, before anything else that may fail.
        """
        with self.change_several(action, [subject], deliver, committed) as (connection, (detail,)):
            yield connection, detail

    @contextmanager
    def change_several(
        self,
        action: str,
        subjects: Sequence[Subject],
        deliver: Callable[[], None] = nothing,
        committed: Callable[[], None] = nothing,
    ) -> Iterator[tuple[Connection, Sequence[dict[str, str]]]]:
        """Do the same for several subjects in one transaction: each has its details, and its own record."""
        details: list[dict[str, str]] = [{} for _ in subjects]
        at_ms = self.now_ms()
        with self.database.changing() as connection:
            yield connection, details
            for subject, detail in zip(subjects, details, strict=True):
                connection.execute(
                    insert(HISTORY).values(
                        at_ms=at_ms,
                        actor=self._actor,
                        action=action,
                        kind=subject.kind,
                        subject=subject.key,
                        name=subject.name,
                        detail=json.dumps(detail, ensure_ascii=False),
                    )
                )
            forget_old(connection)
            changes = [
                Change(at_ms, self._actor, action, subject.name, MappingProxyType(detail))
                for subject, detail in zip(subjects, details, strict=True)
            ]
            for change in changes:
                self._before_change(change)
            deliver()
        committed()
        for change in changes:
            self._on_change(change)

    def changes(self, kind: str, key: str | None, *, most: int | None = None) -> tuple[Change, ...]:
        """Return the changes of a subject, also of a deleted one, oldest first; None: of all of the kind.

        `most`: only so many of the last ones.
        """
        query = select(HISTORY).where(HISTORY.c.kind == kind).order_by(HISTORY.c.id.desc()).limit(most)
        if key is not None:
            query = query.where(HISTORY.c.subject == key)
        with self.database.reading() as connection:
            newest_first = [
                Change(row.at_ms, row.actor, row.action, row.name, MappingProxyType(json.loads(row.detail)))
                for row in connection.execute(query)
            ]
        return tuple(reversed(newest_first))
