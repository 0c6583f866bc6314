"""Operations on the shares of the database.

In: the operations of `delta-gateway share` and `table` and of the admin API, as functions from a share to its
next state. Out: stored shares. A change is refused if the configuration would refuse its entries, with the
same reason; it is part of the history, and servers notice it within a second.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import Any

from sqlalchemy import Connection

from gateway.access import share_rows
from gateway.access.recipient_records import Change
from gateway.access.recorded_database import RecordedDatabase, Subject
from gateway.access.share_records import ShareError, ShareExists, ShareNotFound
from gateway.access.stored_shares import StoredShare, WithStored, with_stored
from gateway.config import Config
from gateway.database.changes import changed_since, last_position
from gateway.database.schema import name_key

KIND = "share"
"""Of subjects in the history."""
CREATED, CHANGED, DELETED = "createShare", "updateShare", "deleteShare"

_NOT_STORABLE = re.compile(r"[\x00-\x1f\x7f\ud800-\udfff]")


class ShareDatabase(RecordedDatabase):
    """One connection to the database, for operations on shares."""

    def __init__(self, config: Config, **options: Any) -> None:
        """Open the database of a configuration; `options` are those of `RecordedDatabase`."""
        super().__init__(config.database_place, source=config.database_source, **options)
        self._config = config

    def all(self) -> Mapping[str, StoredShare]:
        """Return all shares by their keys, from one consistent read."""
        with self.database.reading() as connection:
            return share_rows.read(connection, None)

    def show(self, name: str) -> StoredShare:
        """Return a share. Raises ShareNotFound."""
        if _NOT_STORABLE.search(name):
            # No share has the name, and PostgreSQL takes no such text.
            raise self._missing(name)
        with self.database.reading() as connection:
            found = share_rows.read(connection, [_key(name)]).get(_key(name))
        if found is None:
            raise self._missing(name)
        return found

    def with_configuration(self) -> WithStored:
        """Return the configuration with all shares, and what is left out."""
        return with_stored(self._config, self.all())

    def history(self, name: str | None) -> tuple[Change, ...]:
        """Return the changes of a share, also of a deleted one, oldest first; None: of all shares."""
        if name is not None and _NOT_STORABLE.search(name):
            return ()
        return self.changes(KIND, None if name is None else _key(name))

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

    def replace(
        self, share: StoredShare, before: StoredShare | None = None, detail: Mapping[str, str] | None = None
    ) -> StoredShare:
        """Put a share in the place of another state of it; None: there is none.

        Raises ShareError, also where the share has another state than `before`: what someone else has changed
        stays.
        """

        def replaced(found: StoredShare | None) -> StoredShare:
            if found != before:
                raise ShareError(f"share {share.name!r} was changed meanwhile; run the command again")
            return share

        return self._edit(CHANGED, share.name, replaced, detail)

    def remove(self, name: str) -> None:
        """Remove a share with its schemas and tables; their files stay. Raises ShareNotFound."""
        if _NOT_STORABLE.search(name):
            raise self._missing(name)
        with self.change(DELETED, Subject(KIND, name, _key(name))) as (connection, _detail):
            if _key(name) not in share_rows.read(connection, [_key(name)]):
                raise self._missing(name)
            share_rows.remove(connection, _key(name))

    def _edit(
        self,
        action: str,
        name: str,
        edit: Callable[[StoredShare | None], StoredShare],
        described: Mapping[str, str] | None,
    ) -> StoredShare:
        self._check_name(name)
        # Before the lock is taken, which revocations wait for.
        with self.database.reading() as connection:
            position = last_position(connection)
        before, after = self._edited(self.database.reading, name, edit)
        with self.change(action, Subject(KIND, name, _key(name))) as (connection, detail):
            changed = changed_since(connection, position).keys
            if changed is None or KIND in changed:
                before, after = self._edited(lambda: nullcontext(connection), name, edit)
            share_rows.write(connection, before, after, self.now_ms())
            detail.update(described or {})
            return after

    def _edited(
        self,
        reading: Callable[[], AbstractContextManager[Connection]],
        name: str,
        edit: Callable[[StoredShare | None], StoredShare],
    ) -> tuple[StoredShare | None, StoredShare]:
        """Return a share as it is, and its next state. Raises ShareError.

        Other shares are read only where they can have an id or files in common with this one. Nothing is
        computed within a transaction: that of a SQLite file keeps others from changing it.
        """
        if _NOT_STORABLE.search(name):
            # No share has the name, and PostgreSQL takes no such text: one of both refuses it.
            self._check({}, edit(None))
        with reading() as connection:
            before = share_rows.read(connection, [_key(name)]).get(_key(name))
            is_excluded = share_rows.exclude_others(connection, _key(name))
        after = edit(before)
        own = {} if before is None else {after.key: before}
        if after.excludes_others or is_excluded:
            with reading() as connection:
                own = {**share_rows.read(connection, None), **own}
        self._check(own, after)
        return before, after

    def _check_name(self, name: str) -> None:
        if any(share.name.casefold() == name.casefold() for share in self._config.shares):
            raise ShareExists(f"share {name!r} is in the configuration file, where it is changed")

    def _check(self, stored: Mapping[str, StoredShare], after: StoredShare) -> None:
        """Raise ShareError where a state of a share would not be shared as a whole."""
        for text in _texts(after):
            if _NOT_STORABLE.search(text):
                raise ShareError("a name or location has a control character or half of a surrogate pair")
        _check_unique("schema", [schema.name for schema in after.schemas])
        for schema in after.schemas:
            _check_unique("table", [table.name for table in schema.tables])
        known = with_stored(self._config, stored)
        earlier = {*known.left_out}
        whole = with_stored(self._config, {**stored, after.key: after}, known)
        new = [one for one in whole.left_out if one not in earlier]
        if new:
            raise ShareError(f"{new[0].name}: {new[0].reason}")

    def _missing(self, name: str) -> ShareError:
        if any(share.name.casefold() == name.casefold() for share in self._config.shares):
            return ShareExists(f"share {name!r} is in the configuration file, where it is changed")
        return ShareNotFound(f"the database has no share {name!r}")


def _key(name: str) -> str:
    return name_key(name)


def _texts(share: StoredShare) -> list[str]:
    texts = [share.name]
    for schema in share.schemas:
        texts.append(schema.name)
        for table in schema.tables:
            texts += (table.name, table.location)
    return texts


def _check_unique(what: str, names: list[str]) -> None:
    seen: set[str] = set()
    for name in names:
        if name.casefold() in seen:
            raise ShareError(f"{what} {name!r} is there twice (names are case-insensitive)")
        seen.add(name.casefold())
