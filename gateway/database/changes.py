"""What of the database has changed since it was last read.

In: a connection, and the position of the last reading. Out: the keys that have changed since, or `Everything`
where that is unknown: the database was restored from a backup, a replica without the last changes took
over, or the changes since were purged. Triggers of the database write the changes, so those by any program
are there.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection, Row, delete, func, select

from gateway.database.rows import all_rows, is_text
from gateway.database.schema import CHANGES

LOCK = 7_206_931_442
"""PostgreSQL's advisory lock of writers of tables that servers read, held to the end of a transaction."""
CHANNEL = "delta_gateway"
"""The channel of PostgreSQL's notifications of changes; they have no payload."""
KEPT_CHANGES = 10_000
EVERYTHING = "all"


@dataclass(frozen=True, slots=True)
class Position:
    """The last change that was read. Both are empty before the first."""

    number: int = 0
    stamp: str = ""


@dataclass(frozen=True, slots=True)
class Changed:
    """What has changed since an earlier position.

    Attributes:
        position: the last change.
        keys: the changed keys by kind, `recipient` or `share`; None: anything may have changed.

    """

    position: Position
    keys: Mapping[str, frozenset[str]] | None


def changed_since(connection: Connection, since: Position | None) -> Changed:
    """Return what has changed; None: everything. Call it in one transaction with the reading."""
    if since is not None:
        changes = all_rows(
            connection, select(CHANGES).where(CHANGES.c.number >= since.number).order_by(CHANGES.c.number)
        )
        if _begins_at(since, changes):
            keys: dict[str, set[str]] = {}
            for change in changes:
                if change.number > since.number:
                    keys.setdefault(change.kind, set()).add(change.key)
            last = Position(changes[-1].number, changes[-1].stamp) if changes else since
            # No query asks for a key that is no text; a reading of everything passes it over.
            if EVERYTHING in keys or not all(is_text(key) for changed in keys.values() for key in changed):
                return Changed(last, None)
            return Changed(last, {kind: frozenset(changed) for kind, changed in keys.items()})
    return Changed(last_position(connection), None)


def _begins_at(since: Position, changes: Sequence[Row[Any]]) -> bool:
    """Return whether changes follow a position without a gap."""
    if not changes or not since.number:
        return not changes and not since.number
    return (changes[0].number, changes[0].stamp) == (since.number, since.stamp)


def has_other_history(connection: Connection, since: Position) -> bool:
    """Return whether the changes up to a position are others: a backup was restored, or a replica took over.

    A position that was purged says nothing.
    """
    query = select(CHANGES.c.number, CHANGES.c.stamp).where(CHANGES.c.number <= since.number)
    row = connection.execute(query.order_by(CHANGES.c.number.desc()).limit(1)).first()
    return row is not None and Position(row.number, row.stamp) != since


def last_position(connection: Connection) -> Position:
    """Return the last change."""
    query = select(CHANGES.c.number, CHANGES.c.stamp).order_by(CHANGES.c.number.desc()).limit(1)
    row = connection.execute(query).first()
    return Position() if row is None else Position(row.number, row.stamp)


def forget_old(connection: Connection) -> None:
    """Delete changes that every running server has read long ago, at the end of a change."""
    last = select(func.max(CHANGES.c.number)).scalar_subquery()
    connection.execute(delete(CHANGES).where(CHANGES.c.number < last - KEPT_CHANGES))
