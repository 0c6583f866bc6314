"""What of the database a running server holds: read as a whole once, then what has changed.

In: where the database is. Out: `StoredRecipients` and `StoredShares`, new values only when anything differs.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass, field, replace

from sqlalchemy import Connection

from gateway.authentication.credential_table import Credential, Holder
from gateway.authentication.oauth_clients import ClientSecret, OAuthClient
from gateway.catalog.catalog import Recipient
from gateway.catalog.stored_shares import StoredShares
from gateway.config.database import DatabasePlace
from gateway.config.networks import parse_networks
from gateway.database.changes import (
    CHANNEL,
    Position,
    changed_since,
    has_other_history,
    last_position,
)
from gateway.database.engine import Database
from gateway.database.errors import DatabaseError
from gateway.database.followed import FileIdentity, FollowedDatabase
from gateway.database.migration import check_schema, opened
from gateway.database.schema import recipient_key
from gateway.governance import rows, share_rows
from gateway.governance.follow import Failures
from gateway.governance.recipient_records import RecipientRecord
from gateway.governance.replicas import Replicas
from gateway.limits.replica_rank import ALONE, ReplicaRank

log = logging.getLogger("gateway.recipients")

REPLICAS_UNKNOWN = "the replicas are not known, the limits stay divided as they are: %s"
LOGGED_RECIPIENTS = 20
"""Maximum number of log lines about unreadable recipients for each change of the database."""
RESTORED = (
    "the database is in the state of another time: a backup was restored, or a replica without the last "
    "changes took over. What was revoked or deleted since then is valid again: compare it with the audit log"
)


@dataclass(frozen=True, slots=True)
class StoredRecipients:
    """All recipients of a database at one moment.

    Attributes:
        by_key: those that can be read, by their keys.
        unreadable: why others cannot be read, by their keys.
        is_incomplete: others are missing until the shares of the database are served.

    """

    by_key: Mapping[str, Holder] = field(default_factory=dict)
    unreadable: Mapping[str, str] = field(default_factory=dict)
    is_incomplete: bool = False

    def __bool__(self) -> bool:
        return bool(self.by_key)

    def __iter__(self) -> Iterator[Holder]:
        return iter(self.by_key.values())


def read_shares_once(place: DatabasePlace) -> StoredShares:
    """Read the shares of a database without a change to it. Raises as `read_once`."""
    with closing(opened(place, read_only=True)) as database, database.reading() as connection:
        return share_rows.read(connection, None)


def read_once(place: DatabasePlace) -> StoredRecipients:
    """Read the recipients of a database without a change to it. Raises DatabaseError and ValueError."""
    with closing(opened(place, read_only=True)) as database, database.reading() as connection:
        reading = rows.read(connection, None)
        stored = _updated(StoredRecipients(), None, reading.records)
        return replace(stored, unreadable=reading.unreadable)


@dataclass(frozen=True, slots=True)
class _Reading:
    """The result of a reading, with the file and the last change that it includes."""

    stored: StoredRecipients = field(default_factory=StoredRecipients)
    shares: StoredShares = field(default_factory=dict)
    position: Position | None = None
    file: FileIdentity | None = None


class DatabaseReader:
    """Reads the database whenever it has changed. Not thread-safe."""

    def __init__(
        self, place: Callable[[], DatabasePlace], replica_id: str = "", *, is_searching: bool = False
    ) -> None:
        """`place` is called for each look at the database.

        `replica_id`: of the server that the reader is for; without one, replicas are not read.
        `is_searching`: only the shares whose tables are discovered are read, for a process that serves none.
        """
        self._place = place
        self._is_searching = is_searching
        self._replicas = Replicas(replica_id) if replica_id else None
        self._replica_failures = Failures(
            log, logging.WARNING, REPLICAS_UNKNOWN, "the replicas are known again"
        )
        self._followed = FollowedDatabase(place)
        self._database: Database | None = None
        self._data_version: int | None = None
        self._written_ns = 0
        self._reading = _Reading()
        self._revision = 0
        """Of the last reading."""
        self._last_position: Position | None = None
        """The last change of the last reading, of whichever file."""

    @property
    def shares(self) -> StoredShares:
        """The shares as of the last reading; the same value as before where none has changed."""
        return self._reading.shares

    def read(self) -> StoredRecipients:
        """Return the recipients; the same value as before where nothing has changed.

        Raises DatabaseError, OSError and ValueError for a database that cannot be read.
        """
        try:
            stored = self._read()
        except BaseException:
            # The next read opens a new connection.
            self.close()
            raise
        self._read_replicas()
        return stored

    @property
    def replica_rank(self) -> ReplicaRank:
        """The part of this server among its replicas, at the last reading that succeeded."""
        return ALONE if self._replicas is None else self._replicas.rank

    def _read_replicas(self) -> None:
        """Read the replicas. Without them the recipients are known nevertheless."""
        if self._replicas is None or self._database is None:
            return
        try:
            self._replicas.read(self._database)
        except DatabaseError as error:
            self._replica_failures.report(error)
        else:
            self._replica_failures.report(None)

    @property
    def is_file(self) -> bool:
        """Return whether the database is a SQLite file."""
        return self._place().path is not None

    def wait(self, seconds: float) -> None:
        """Return after this time, or when PostgreSQL notifies of a change."""
        if self._database is None or self._database.is_sqlite:
            time.sleep(seconds)
            return
        started = time.monotonic()
        try:
            for _ in self._database.driver.notifies(timeout=seconds, stop_after=1):
                return
        except Exception:  # noqa: BLE001 - the next read reports the lost connection
            time.sleep(max(0.0, seconds - (time.monotonic() - started)))

    def close(self) -> None:
        self._followed.close()
        self._database = self._data_version = None

    def _read(self) -> StoredRecipients:
        database = self._open()
        before, data_version, written_ns = self._reading, None, self._followed.written_ns
        with database.statement() as connection:
            if database.is_sqlite:
                (data_version,) = connection.exec_driver_sql("PRAGMA data_version").one()
                is_unchanged = data_version == self._data_version
            else:
                is_unchanged = last_position(connection) == before.position
        if is_unchanged and written_ns != self._written_ns:
            # SQLite tells contents by a count of changes. A backup that was copied over the file, and changed
            # since, may have the same, and a connection then keeps what it has read.
            self.close()
            return self._read()
        if is_unchanged:
            return before.stored
        with database.reading() as connection:
            check_schema(database, connection)
            changed = changed_since(connection, before.position)
            last = self._last_position if changed.keys is None and not self._is_searching else None
            is_restored = last is not None and has_other_history(connection, last)
            keys = None if changed.keys is None else changed.keys.get("recipient", frozenset())
            if self._is_searching:
                keys = frozenset()
            reading = rows.read(connection, keys)
            share_keys = None if changed.keys is None else changed.keys.get("share", frozenset())
            shares = None if share_keys == frozenset() else self._shares(connection, share_keys)
        self._last_position = changed.position
        if is_restored:
            log.warning(RESTORED)
        unreadable = {} if keys is None else dict(before.stored.unreadable)
        for key in keys or ():
            unreadable.pop(key, None)
        unreadable |= reading.unreadable
        _report(before.stored.unreadable, unreadable)
        self._revision += 1
        stored = _updated(before.stored, keys, reading.records, self._revision)
        if unreadable != stored.unreadable:
            stored = replace(stored, unreadable=unreadable)
        self._reading = _Reading(
            stored, _updated_shares(before.shares, share_keys, shares), changed.position, before.file
        )
        self._data_version, self._written_ns = data_version, written_ns
        return stored

    def _shares(self, connection: Connection, keys: Collection[str] | None) -> StoredShares:
        if not self._is_searching:
            return share_rows.read(connection, keys)
        keys = share_rows.discovering(connection) if keys is None else keys
        # A text of an option may have the word, too.
        return {key: share for key, share in share_rows.read(connection, keys).items() if share.discovers}

    def _open(self) -> Database:
        """Return a connection to the database of the place. Raises DatabaseMissing where there is none."""
        database = self._followed.open()
        if database is not self._database:
            if self._followed.file != self._reading.file:
                # The numbers of changes in another file say nothing about this one.
                self._reading = replace(self._reading, position=None, file=self._followed.file)
            database.listen(CHANNEL)
            self._database, self._data_version = database, None
        return database


def _updated(
    stored: StoredRecipients,
    keys: Collection[str] | None,
    records: Iterable[RecipientRecord],
    revision: int = 0,
) -> StoredRecipients:
    """Return the recipients, with the ones of these keys replaced; the same value where no key has one.

    One that was deleted and added again as it was is another one: what was issued to the first is not its
    own.
    """
    if keys is not None:
        of_records = {recipient_key(record.name): _stored(record, revision) for record in records}
        changed = {key for key in keys if key in stored.by_key or key in of_records}
        if not changed:
            return stored
        by_key = dict(stored.by_key)
        for key in changed:
            if key in of_records:
                by_key[key] = of_records[key]
            else:
                by_key.pop(key, None)
        return replace(stored, by_key=by_key)
    # Those that are as before stay the same values.
    known = stored.by_key
    of_records = {}
    for record in records:
        key = recipient_key(record.name)
        before = known.get(key)
        of_records[key] = _stored(record, 0 if before is None else before.recipient.revision)
    by_key = {key: known[key] if known.get(key) == new else new for key, new in of_records.items()}
    return stored if by_key == known else replace(stored, by_key=by_key)


def held_back(before: StoredRecipients | None, after: StoredRecipients | None) -> StoredRecipients | None:
    """Return recipients without what they had before alone, and without what they have afterwards alone.

    Of those that have changed, who only gains something is as before, who only loses something is as
    afterwards, and the others are missing, as new ones are.
    """
    if before is after or after is None:
        return after
    known = {} if before is None else before.by_key
    by_key = {
        key: kept
        for key, held in after.by_key.items()
        if key in known and (kept := _less(known[key], held)) is not None
    }
    is_same = by_key.keys() == known.keys() and all(by_key[key] is known[key] for key in known)
    if before is not None and is_same and before.unreadable == after.unreadable and before.is_incomplete:
        return before
    if len(by_key) == len(after.by_key) and all(by_key[key] is held for key, held in after.by_key.items()):
        return after
    return StoredRecipients(by_key, after.unreadable, is_incomplete=True)


def _less(before: Holder, after: Holder) -> Holder | None:
    """Return the one of two states of a recipient that gives less; None where neither does."""
    if before is after:
        return after
    earlier, later = before.recipient, after.recipient
    if (earlier.networks, earlier.properties) != (later.networks, later.properties):
        return None
    had, has = _given(before), _given(after)
    return after if has <= had else before if had <= has else None


def _given(held: Holder) -> set[object]:
    """Return what a recipient has: its grants, and all that it is identified by."""
    recipient, clients = held.recipient, held.clients
    tokens = (token for token in held.credentials if not token.is_forbidden)
    return {
        *recipient.shares,
        *recipient.grants,
        *held.policies,
        *((token.sha256, token.expires_ms) for token in tokens),
        *((client.id, secret) for client in clients for secret in client.secrets),
    }


def _report(before: Mapping[str, str], after: Mapping[str, str]) -> None:
    """Log which recipients cannot be read any more, and which can be read again."""
    new = [(key, reason) for key, reason in after.items() if before.get(key) != reason]
    for key, reason in new[:LOGGED_RECIPIENTS]:
        log.error("recipient %s cannot be read and is refused: %s", ascii(key), reason)
    if len(new) > LOGGED_RECIPIENTS:
        log.error("%d more recipients cannot be read and are refused", len(new) - LOGGED_RECIPIENTS)
    if gone := before.keys() - after.keys():
        log.info("%d recipients that could not be read can be read again, or are gone", len(gone))


def _updated_shares(
    stored: StoredShares, keys: Collection[str] | None, changed: StoredShares | None
) -> StoredShares:
    """Return the shares, with the ones of these keys replaced; the same value where nothing differs."""
    if changed is None:
        return stored
    unchanged = {} if keys is None else {key: share for key, share in stored.items() if key not in keys}
    updated = {**unchanged, **changed}
    return stored if updated == stored else updated


def recipient_of(record: RecipientRecord, revision: int = 0) -> Recipient:
    """Return the recipient of a record, with its grants."""
    return Recipient(
        record.name,
        frozenset(record.shares),
        # Most recipients have none of them, and there are many recipients.
        parse_networks(record.networks) if record.networks else (),
        record.grants,
        record.properties,
        revision,
    )


def _stored(record: RecipientRecord, revision: int = 0) -> Holder:
    recipient = recipient_of(record, revision)
    credentials = tuple(
        Credential(
            bytes.fromhex(token.sha256),
            recipient,
            token.expires_ms,
            is_forbidden=record.forbids_bearer_tokens,
        )
        for token in record.tokens
    )
    if not record.clients and not record.policies:
        return Holder(recipient, credentials, ())
    clients = tuple(
        OAuthClient(
            client.id,
            recipient,
            tuple(ClientSecret(bytes.fromhex(secret.sha256), secret.expires_ms) for secret in client.secrets),
        )
        for client in record.clients
    )
    policies = tuple(stored.policy for stored in record.policies)
    return Holder(recipient, credentials, policies, clients)
