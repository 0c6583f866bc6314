"""Operations on the shares of the database.

In: the operations of `delta-gateway share` and `table` and of the admin API, as functions from a share to its
next state. Out: stored shares. A change is refused with the reason for which the configuration would refuse
its entries. Each change is part of the history, and servers notice it within a second.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection

from gateway.catalog.stored_shares import StoredShare, StoredShares, WithStored, with_stored
from gateway.config import Config
from gateway.database.changes import Position, changed_since, last_position
from gateway.database.schema import SHARES, name_key
from gateway.governance import share_rows
from gateway.governance.recipient_records import ChangeRecord
from gateway.governance.recorded_database import RecordedDatabase, Subject
from gateway.governance.share_plan import Step, Verb
from gateway.governance.share_records import ShareError, ShareExists, ShareNotFound

KIND = "share"
"""Of subjects in the history."""
CREATED, CHANGED, DELETED = "createShare", "updateShare", "deleteShare"
ACTIONS: Mapping[Verb, str] = {"add": CREATED, "change": CHANGED, "remove": DELETED}
MAX_LINES = 20
"""Lines of a step in the history."""

_NOT_STORABLE = re.compile(r"[\x00-\x1f\x7f\ud800-\udfff]")


@dataclass(frozen=True, slots=True)
class CheckedSteps:
    """Steps whose last state can be shared, with their first state."""

    steps: Sequence[Step]
    position: Position
    stored: StoredShares
    differences: share_rows.Differences


class ShareDatabase(RecordedDatabase):
    """One connection to the database, for operations on shares."""

    def __init__(self, config: Config, **options: Any) -> None:
        """Open the database of a configuration; `options` as of `RecordedDatabase`."""
        super().__init__(config.database_place, source=config.database_source, **options)
        self._config = config

    def all(self) -> Mapping[str, StoredShare]:
        """Return all shares by their keys, from one consistent read."""
        with self.database.reading() as connection:
            return share_rows.read(connection, None)

    def show(self, name: str) -> StoredShare:
        """Return a share. Raises ShareNotFound."""
        if _NOT_STORABLE.search(name):
            # No share has the name, and PostgreSQL refuses such a text.
            raise self._missing(name)
        with self.database.reading() as connection:
            share = share_rows.read(connection, [name_key(name)]).get(name_key(name))
        if share is None:
            raise self._missing(name)
        return share

    def with_configuration(self) -> WithStored:
        """Return the configuration with all shares, and the entries that are left out."""
        return with_stored(self._config, self.all())

    def history(self, name: str | None) -> tuple[ChangeRecord, ...]:
        """Return the changes of a share, also of a deleted one, oldest first; None: of all shares."""
        return self.changes(KIND, None if name is None else name_key(name))

    def add(self, share: StoredShare, detail: Mapping[str, str] | None = None) -> StoredShare:
        """Add a share. Raises ShareExists, and ShareError for one that cannot be shared."""

        def added(before: StoredShare | None) -> StoredShare:
            if before is not None:
                raise ShareExists(f"share {before.name!r} exists already")
            return share

        return self._edit(CREATED, share.name, added, detail)

    def edit(
        self,
        name: str,
        edit: Callable[[StoredShare], StoredShare],
        detail: Mapping[str, str] | None = None,
        *,
        action: str = CHANGED,
    ) -> StoredShare:
        """Change a share. Raises ShareNotFound, and ShareError for one that cannot be shared.

        `detail` describes the change in the history and in the audit log.
        """

        def edited(before: StoredShare | None) -> StoredShare:
            if before is None:
                raise self._missing(name)
            return edit(before)

        return self._edit(action, name, edited, detail)

    def stored(self) -> tuple[Position, StoredShares]:
        """Return all shares, and the last change that they have, for `checked`."""
        with self.database.reading() as connection:
            return last_position(connection), share_rows.read(connection, None)

    def checked(self, steps: Sequence[Step], position: Position, stored: StoredShares) -> CheckedSteps:
        """Return steps whose last state can be shared as a whole. Raises ShareError."""
        for step in steps:
            if step.share is not None:
                self._check_name(step.name)
                _check_texts(step.share)
        self._check_end(stored, steps)
        differences = share_rows.Differences()
        for step in steps:
            if step.share is None:
                differences.gone[SHARES].append((name_key(step.name),))
            else:
                differences.add(step.before, step.share)
        return CheckedSteps(steps, position, stored, differences)

    def make(self, checked: CheckedSteps) -> None:
        """Make all steps or none. Raises ShareError if one of their shares was changed after the plan."""
        subjects = [Subject(KIND, step.name, name_key(step.name)) for step in checked.steps]
        with self.together() as whole:
            changed = changed_since(whole.connection, checked.position).keys
            if changed is None or KIND in changed:
                self._check_again(whole.connection, checked, None if changed is None else changed[KIND])
            checked.differences.write(whole.connection, self.now_ms())
            for step, subject in zip(checked.steps, subjects, strict=True):
                with self.change(ACTIONS[step.verb], subject) as (_connection, detail):
                    detail |= {"by": "apply", "differs": "; ".join(step.lines[:MAX_LINES])}

    def _check_again(
        self, connection: Connection, checked: CheckedSteps, changed: Collection[str] | None
    ) -> None:
        """Check steps after later changes; None: all shares may have changed. Raises ShareError."""
        same = {} if changed is None else {k: v for k, v in checked.stored.items() if k not in changed}
        stored = {**same, **share_rows.read(connection, changed)}
        for step in checked.steps:
            if stored.get(name_key(step.name)) != step.before:
                raise ShareError(f"share {step.name!r} was changed meanwhile; run the command again")
        self._check_end(stored, checked.steps)

    def remove(self, name: str) -> None:
        """Remove a share with its schemas and tables; their files stay. Raises ShareNotFound."""
        if _NOT_STORABLE.search(name):
            raise self._missing(name)
        with self.change(DELETED, Subject(KIND, name, name_key(name))) as (connection, _detail):
            if not share_rows.remove(connection, name_key(name)):
                raise self._missing(name)

    def _edit(
        self,
        action: str,
        name: str,
        edit: Callable[[StoredShare | None], StoredShare],
        described: Mapping[str, str] | None,
    ) -> StoredShare:
        self._check_name(name)
        # Revocations wait for the lock, so the check is made before it is taken.
        with self.database.reading() as connection:
            position = last_position(connection)
        before, after = self._edited(self.database.reading, name, edit)
        differences = share_rows.differences(before, after)
        with self.change(action, Subject(KIND, name, name_key(name))) as (connection, detail):
            changed = changed_since(connection, position).keys
            if changed is None or KIND in changed:
                before, after = self._edited(lambda: nullcontext(connection), name, edit)
                differences = share_rows.differences(before, after)
            differences.write(connection, self.now_ms())
            detail.update(described or {})
            return after

    def _edited(
        self,
        reading: Callable[[], AbstractContextManager[Connection]],
        name: str,
        edit: Callable[[StoredShare | None], StoredShare],
    ) -> tuple[StoredShare | None, StoredShare]:
        """Return a share as it is, and its next state. Raises ShareError.

        Other shares are read only if they can have an id or files in common with this one. Nothing is
        computed within a transaction, since one of SQLite blocks every other change.
        """
        if _NOT_STORABLE.search(name):
            # No share has the name, and PostgreSQL refuses such a text. `edit` or the check raises.
            self._check({}, edit(None))
        with reading() as connection:
            before = share_rows.read(connection, [name_key(name)]).get(name_key(name))
            is_excluded = share_rows.exclude_others(connection, name_key(name))
        after = edit(before)
        stored = {} if before is None else {after.key: before}
        if after.excludes_others or is_excluded:
            with reading() as connection:
                stored = {**share_rows.read(connection, None), **stored}
        self._check(stored, after)
        return before, after

    def _check_name(self, name: str) -> None:
        if any(share.name.casefold() == name.casefold() for share in self._config.shares):
            raise ShareExists(f"share {name!r} is in the configuration file, where it is changed")

    def _check(self, stored: StoredShares, after: StoredShare) -> None:
        """Raise ShareError if a part of the next state of a share would be left out."""
        _check_texts(after)
        self._check_shared(stored, {**stored, after.key: after})

    def _check_end(self, stored: StoredShares, steps: Iterable[Step]) -> None:
        """Raise ShareError if a part of the last state would be left out."""
        end = dict(stored)
        for step in steps:
            if step.share is None:
                del end[name_key(step.name)]
            else:
                end[step.share.key] = step.share
        self._check_shared(stored, end)

    def _check_shared(self, stored: StoredShares, end: StoredShares) -> None:
        """Raise ShareError if more is left out of the last state than of the stored one."""
        known = with_stored(self._config, stored)
        earlier = {*known.left_out}
        whole = with_stored(self._config, end, known)
        new = [entry for entry in whole.left_out if entry not in earlier]
        if new:
            raise ShareError(f"{new[0].name}: {new[0].reason}")

    def _missing(self, name: str) -> ShareNotFound:
        self._check_name(name)
        return ShareNotFound(f"the database has no share {name!r}")


def _check_texts(share: StoredShare) -> None:
    texts = [share.name]
    for schema in share.schemas:
        texts.append(schema.name)
        for table in schema.tables:
            texts += (table.name, table.location)
    if any(map(_NOT_STORABLE.search, texts)):
        raise ShareError("a name or location has a control character or half of a surrogate pair")
