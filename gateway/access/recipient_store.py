"""Recipients in an embedded database: their tokens, grants and networks.

In: the operations of `delta-gateway recipient` and of the admin API, one method each. Out: frozen records,
and the plain text of a new token once (only its SHA-256 is stored). Every change writes a history entry in
the same transaction and is passed to `on_change` for the audit log. A recipient has at most two live tokens,
and no operation extends the life of an old one.
"""

from __future__ import annotations

import json
import os
import re
import secrets
import sqlite3
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from types import MappingProxyType
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from gateway.access.authentication import token_hash
from gateway.config.networks import parse_network
from gateway.protocol.profile import Profile, profile

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

SCHEMA_VERSION = 1
TOKEN_BYTES = 32
MAX_NAME_LENGTH = 255
MAX_LIFE_SECONDS = 10 * 365 * 86_400
BUSY_SECONDS = 5.0
"""Maximum time that a change waits for the lock of another program."""
EVERY_SHARE = "*"
NOBODY = ""
"""The recipient of a change that concerns no single recipient."""

_NO_TEXT = r"\x00-\x1f\x7f-\x9f\ud800-\udfff"
"""Control characters, and surrogates, which represent command-line bytes that are not UTF-8."""
_NAME = re.compile(rf"[^{_NO_TEXT} /]+")
_SHARE = re.compile(rf"[^{_NO_TEXT}/]+")
_COMMENT = re.compile(rf"[^{_NO_TEXT}]*")
_SURROGATE = re.compile(r"[\ud800-\udfff]")
_SCHEMA = """
CREATE TABLE recipients (
    name TEXT PRIMARY KEY COLLATE NOCASE, comment TEXT NOT NULL, created_ms INTEGER NOT NULL) WITHOUT ROWID;
CREATE TABLE tokens (
    sha256 TEXT PRIMARY KEY, recipient TEXT NOT NULL COLLATE NOCASE REFERENCES recipients(name),
    created_ms INTEGER NOT NULL, expires_ms INTEGER) WITHOUT ROWID;
CREATE INDEX tokens_of ON tokens(recipient);
CREATE TABLE grants (
    recipient TEXT NOT NULL COLLATE NOCASE REFERENCES recipients(name), share TEXT NOT NULL COLLATE NOCASE,
    PRIMARY KEY (recipient, share)) WITHOUT ROWID;
CREATE TABLE networks (
    recipient TEXT NOT NULL COLLATE NOCASE REFERENCES recipients(name), network TEXT NOT NULL,
    PRIMARY KEY (recipient, network)) WITHOUT ROWID;
CREATE TABLE history (
    at_ms INTEGER NOT NULL, actor TEXT NOT NULL, action TEXT NOT NULL, recipient TEXT NOT NULL COLLATE NOCASE,
    detail TEXT NOT NULL);
CREATE INDEX history_of ON history(recipient);
"""


class RecipientError(ValueError):
    """Base of what the operations refuse; the text may be shown to the operator.

    RecipientError
    ├── RecipientNotFound
    ├── RecipientExists
    └── DatabaseMissing
    """


class RecipientNotFound(RecipientError):
    """No recipient of that name."""


class RecipientExists(RecipientError):
    """The name is taken, here or in the configuration file."""


class DatabaseMissing(RecipientError):
    """Raised while there is no database, because no recipient has been added."""

    def __init__(self) -> None:
        super().__init__("there is no database of recipients yet; adding a recipient makes it")


@dataclass(frozen=True, slots=True)
class TokenRecord:
    """A token as stored. Without `expires_ms` it is valid until it is rotated or revoked."""

    sha256: str = field(repr=False)
    created_ms: int
    expires_ms: int | None

    def live(self, now_ms: int) -> bool:
        """Return whether the token is valid at that time."""
        return self.expires_ms is None or now_ms < self.expires_ms


@dataclass(frozen=True, slots=True)
class RecipientRecord:
    """A recipient as stored. `shares` are case-folded and may be `*`; no `networks` allow any address."""

    name: str
    comment: str
    created_ms: int
    tokens: tuple[TokenRecord, ...]
    shares: tuple[str, ...]
    networks: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class IssuedToken:
    """A new token: the only time that its plain text is known."""

    recipient: str
    token: str = field(repr=False)
    expires_ms: int | None


@dataclass(frozen=True, slots=True)
class Change:
    """A change, as in the history and the audit log."""

    at_ms: int
    actor: str
    action: str
    recipient: str
    detail: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Purged:
    """The counts of deleted rows."""

    tokens: int
    changes: int


def profile_of(endpoint: str, issued: IssuedToken) -> Profile:
    """Return the profile of a new token."""
    if issued.expires_ms is None:
        return profile(endpoint, issued.token)
    expires = datetime.fromtimestamp(issued.expires_ms / 1000, UTC)
    return profile(endpoint, issued.token, expires.isoformat(timespec="milliseconds").replace("+00:00", "Z"))


def check_name(name: str, what: str = "recipient name") -> str:
    """Return a valid name. Raises RecipientError for blanks, `/`, control characters or a wrong length."""
    if len(name) > MAX_NAME_LENGTH or not _NAME.fullmatch(name):
        message = f"{what}: 1 to {MAX_NAME_LENGTH} characters without blanks, '/' and control characters"
        raise RecipientError(message)
    return name


def check_share(share: str) -> str:
    """Return a valid share name. Raises RecipientError for `/`, control characters or a wrong length."""
    if len(share) > MAX_NAME_LENGTH or not _SHARE.fullmatch(share):
        message = f"share name: 1 to {MAX_NAME_LENGTH} characters without '/' and control characters"
        raise RecipientError(message)
    return share


def check_comment(comment: str) -> str:
    """Return a valid comment. Raises RecipientError for control characters and text that is not UTF-8."""
    if not _COMMENT.fullmatch(comment):
        raise RecipientError("comment: UTF-8 text without control characters")
    return comment


def _undelivered(_issued: IssuedToken) -> None:
    """Leave a new token to the caller."""


def _nothing() -> None:
    """Do nothing after the commit."""


class RecipientDatabase:
    """One connection to the database file, which is made (readable by its owner alone) where it may be.

    Not thread-safe; open one for each thread. SQLite's own locks make changes from several processes safe.
    """

    def __init__(
        self,
        path: Path,
        *,
        now_ms: Callable[[], int],
        actor: str = "server",
        create: bool = True,
        read_only: bool = False,
        taken_names: Callable[[], frozenset[str]] = frozenset,
        known_shares: Callable[[], Iterable[str]] | None = None,
        before_change: Callable[[Change], None] = lambda _change: None,
        on_change: Callable[[Change], None] = lambda _change: None,
    ) -> None:
        """Open the file. Raises DatabaseMissing where there is none and none may be created.

        `read_only`: the file is neither made nor changed, also not to a newer schema.
        `taken_names`: lower-case names that the configuration file already gives to recipients.
        `known_shares`: those that can be granted; None: any. `before_change` is called with each change
        before it is committed, and may raise to refuse it; `on_change` is called afterwards.
        """
        if (read_only or not create) and not path.exists():
            raise DatabaseMissing
        if not read_only:
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
        self._path = path
        self._now_ms = now_ms
        self._actor = actor
        self._taken_names = taken_names
        self._known_shares = known_shares
        self._before_change = before_change
        self._on_change = on_change
        uri = f"file:{quote(str(path.absolute()))}?mode={'ro' if read_only else 'rw'}"
        self._connection = sqlite3.connect(uri, uri=True, isolation_level=None, timeout=BUSY_SECONDS)
        try:
            self._prepare(read_only=read_only)
        except BaseException:
            self._connection.close()
            raise

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()

    def list(self) -> tuple[RecipientRecord, ...]:
        """All recipients by name, all from one moment."""
        with self._transaction("BEGIN"):
            return self._read(None)

    def show(self, name: str) -> RecipientRecord:
        """One recipient, or RecipientNotFound."""
        with self._transaction("BEGIN"):
            return self._one(name)

    def history(self, name: str | None) -> tuple[Change, ...]:
        """The changes of a recipient, also of a deleted one, oldest first; None: all changes."""
        rows = self._connection.execute(
            "SELECT at_ms, actor, action, recipient, detail FROM history"
            " WHERE ?1 IS NULL OR recipient = ?1 ORDER BY rowid",
            (name,),
        )
        return tuple(
            Change(at, actor, action, who, _unpack(detail)) for at, actor, action, who, detail in rows
        )

    def add(
        self,
        name: str,
        *,
        shares: Sequence[str] = (),
        networks: Sequence[str] = (),
        comment: str = "",
        expires_in_seconds: int | None = None,
        allow_absent: bool = False,
        deliver: Callable[[IssuedToken], None] = _undelivered,
        committed: Callable[[], None] = _nothing,
    ) -> IssuedToken:
        """A new recipient with its first token.

        `allow_absent`: shares may be granted before the configuration has them. `deliver` gets the token
        before the change counts and after nothing else refuses it; when it raises, nothing is changed.
        `committed` is called when the change counts, before everything that may still fail.
        """
        check_name(name)
        check_comment(comment)
        if name.lower() in self._taken_names():
            raise RecipientExists(f"recipient {name!r} stands in the configuration file")
        with self._change("createRecipient", name, lambda: deliver(issued), committed) as detail:
            if self._read(name):
                raise RecipientExists(f"recipient {name!r} exists already; rotate gives it a new token")
            self._connection.execute(
                "INSERT INTO recipients VALUES (?, ?, ?)", (name, comment, self._now_ms())
            )
            self._insert_grants(name, shares, allow_absent=allow_absent)
            self._insert_networks(name, networks)
            detail |= {"shares": _listed(shares), "networks": " ".join(networks)}
            issued = self._issue(name, expires_in_seconds, detail)
            return issued

    def rotate(
        self,
        name: str,
        *,
        old_expires_in_seconds: int = 0,
        expires_in_seconds: int | None = None,
        deliver: Callable[[IssuedToken], None] = _undelivered,
        committed: Callable[[], None] = _nothing,
    ) -> IssuedToken:
        """A new token; of the old ones only the youngest lives on, for at most `old_expires_in_seconds`.

        `deliver` and `committed` as for `add`: a token that nobody received ends no other.
        """
        if not 0 <= old_expires_in_seconds <= MAX_LIFE_SECONDS:
            raise RecipientError(f"the old token's remaining life: 0 to {MAX_LIFE_SECONDS} seconds")
        with self._change("rotateRecipientToken", name, lambda: deliver(issued), committed) as detail:
            record, now_ms = self._one(name), self._now_ms()
            youngest_first = sorted(record.tokens, key=lambda token: token.created_ms, reverse=True)
            live = [token for token in youngest_first if token.live(now_ms)]
            for rank, token in enumerate(live):
                self._shorten(token.sha256, now_ms + (old_expires_in_seconds * 1000 if rank == 0 else 0))
            detail["oldTokenExpiresInSeconds"] = str(old_expires_in_seconds)
            issued = self._issue(record.name, expires_in_seconds, detail)
            return issued

    def revoke(self, name: str, *, shares: Sequence[str] = ()) -> RecipientRecord:
        """End every token of a recipient at once, or, with `shares`, take just these grants back."""
        action = "updateSharePermissions" if shares else "revokeRecipientTokens"
        with self._change(action, name) as detail:
            record = self._one(name)
            if shares:
                self._delete_grants(record, shares)
                detail["revoked"] = _listed(shares)
            else:
                for token in record.tokens:
                    self._shorten(token.sha256, self._now_ms())
            return self._one(name)

    def grant(
        self,
        name: str,
        shares: Sequence[str],
        *,
        networks: Sequence[str] | None = None,
        allow_absent: bool = False,
    ) -> RecipientRecord:
        """Grant shares; one that is granted already stays so. `allow_absent` as for `add`.

        `networks`: they are replaced in the same change, as by `allow`; None: they stay.
        """
        with self._change("updateSharePermissions", name) as detail:
            record = self._one(name)
            self._insert_grants(record.name, shares, allow_absent=allow_absent)
            detail["granted"] = _listed(shares)
            if networks is not None:
                self._replace_networks(record.name, networks, detail)
            return self._one(name)

    def delete(self, name: str) -> RecipientRecord:
        """Delete a recipient with its tokens, grants and networks; returns what it was. Its history stays."""
        with self._change("deleteRecipient", name) as detail:
            record = self._one(name)
            for table in ("tokens", "grants", "networks"):
                self._connection.execute(f"DELETE FROM {table} WHERE recipient = ?", (record.name,))  # noqa: S608
            self._connection.execute("DELETE FROM recipients WHERE name = ?", (record.name,))
            detail |= {"tokens": str(len(record.tokens)), "shares": _listed(record.shares)}
            return record

    def purge(
        self, *, tokens_expired_for_seconds: int | None = None, history_older_than_seconds: int | None = None
    ) -> Purged:
        """Delete tokens that expired so long ago, and changes of the history that are so old; None: none."""
        with self._change("purgeRecipients", NOBODY) as detail:
            purged = Purged(
                self._delete_older("tokens", "expires_ms", tokens_expired_for_seconds),
                self._delete_older("history", "at_ms", history_older_than_seconds),
            )
            for key, seconds in (
                ("tokensExpiredForSeconds", tokens_expired_for_seconds),
                ("historyOlderThanSeconds", history_older_than_seconds),
            ):
                if seconds is not None:
                    detail[key] = str(seconds)
            detail |= {"tokens": str(purged.tokens), "changes": str(purged.changes)}
            return purged

    def _delete_older(self, table: str, column: str, seconds: int | None) -> int:
        if seconds is None:
            return 0
        if not 0 <= seconds <= MAX_LIFE_SECONDS:
            raise RecipientError(f"an age: 0 to {MAX_LIFE_SECONDS} seconds")
        before_ms = self._now_ms() - seconds * 1000
        return self._connection.execute(f"DELETE FROM {table} WHERE {column} <= ?", (before_ms,)).rowcount  # noqa: S608

    def allow(self, name: str, networks: Sequence[str]) -> RecipientRecord:
        """Replace the networks from which the recipient may come; none lets it come from anywhere."""
        with self._change("updateRecipient", name) as detail:
            record = self._one(name)
            self._replace_networks(record.name, networks, detail)
            return self._one(name)

    def _prepare(self, *, read_only: bool) -> None:
        # Shares are compared as in the catalog; SQLite's NOCASE knows ASCII letters alone.
        self._connection.create_function("casefold", 1, str.casefold, deterministic=True)
        if read_only:
            self._check_schema()
            return
        self._leave_write_ahead_log()
        self._connection.execute("PRAGMA foreign_keys=ON")
        self._migrate()

    def _leave_write_ahead_log(self) -> None:
        """Give up a write-ahead log: it would be applied to a file that is put in this one's place."""
        (mode,) = self._connection.execute("PRAGMA journal_mode").fetchone()
        if mode != "wal":
            # To set it needs a lock, which another program may have.
            return
        # While a server of an earlier version runs the file stays as it is, without a wait for it.
        self._connection.execute("PRAGMA busy_timeout=0")
        with suppress(sqlite3.OperationalError):
            self._connection.execute("PRAGMA journal_mode=DELETE")
        self._connection.execute(f"PRAGMA busy_timeout={int(BUSY_SECONDS * 1000)}")

    def _check_schema(self) -> None:
        (version,) = self._connection.execute("PRAGMA user_version").fetchone()
        if version > SCHEMA_VERSION:
            raise RecipientError(f"the recipients' database has version {version}, of a newer gateway")
        if version == 0:
            raise RecipientError("the recipients' database is empty: it holds not even its tables")

    def _migrate(self) -> None:
        (version,) = self._connection.execute("PRAGMA user_version").fetchone()
        if version == SCHEMA_VERSION:
            # To look waits for nobody's change.
            return
        with self._transaction("BEGIN IMMEDIATE"):
            (version,) = self._connection.execute("PRAGMA user_version").fetchone()
            if version > SCHEMA_VERSION:
                raise RecipientError(f"the recipients' database has version {version}, of a newer gateway")
            if version == 0:
                for statement in _SCHEMA.split(";"):
                    self._connection.execute(statement)
                self._connection.execute(f"PRAGMA user_version = {SCHEMA_VERSION}")

    @contextmanager
    def _transaction(self, begin: str) -> Iterator[None]:
        self._connection.execute(begin)
        try:
            yield
            self._connection.execute("COMMIT")
        except BaseException:
            # SQLite itself rolls back on a full disk, and an interruption may come after the commit.
            if self._connection.in_transaction:
                self._connection.execute("ROLLBACK")
            raise

    @contextmanager
    def _change(
        self,
        action: str,
        name: str,
        deliver: Callable[[], None] = _nothing,
        committed: Callable[[], None] = _nothing,
    ) -> Iterator[dict[str, str]]:
        detail: dict[str, str] = {}
        at_ms = self._now_ms()
        with self._transaction("BEGIN IMMEDIATE"):
            yield detail
            self._connection.execute(
                "INSERT INTO history VALUES (?, ?, ?, ?, ?)",
                (at_ms, self._actor, action, name, _pack(detail)),
            )
            change = Change(at_ms, self._actor, action, name, MappingProxyType(detail))
            self._before_change(change)
            deliver()
        committed()
        self._on_change(change)

    def _one(self, name: str) -> RecipientRecord:
        # SQLite takes no surrogates. Control characters stand in names of earlier versions.
        records = () if _SURROGATE.search(name) else self._read(name)
        if not records:
            raise RecipientNotFound(f"no recipient {name!r} in the database")
        return records[0]

    def _read(self, name: str | None) -> tuple[RecipientRecord, ...]:
        def rows(statement: str) -> Iterator[tuple[Any, ...]]:
            return self._connection.execute(statement, (name,))

        tokens = _grouped(
            (recipient, TokenRecord(sha256, created_ms, expires_ms))
            for recipient, sha256, created_ms, expires_ms in rows(
                "SELECT recipient, sha256, created_ms, expires_ms FROM tokens"
                " WHERE ?1 IS NULL OR recipient = ?1 ORDER BY created_ms, sha256"
            )
        )
        shares = _grouped(
            rows(
                "SELECT DISTINCT recipient, casefold(share) AS share FROM grants"
                " WHERE ?1 IS NULL OR recipient = ?1 ORDER BY share"
            )
        )
        networks = _grouped(
            rows(
                "SELECT recipient, network FROM networks WHERE ?1 IS NULL OR recipient = ?1 ORDER BY network"
            )
        )
        return tuple(
            RecipientRecord(
                who, comment, created_ms, tokens.get(who, ()), shares.get(who, ()), networks.get(who, ())
            )
            for who, comment, created_ms in rows(
                "SELECT name, comment, created_ms FROM recipients WHERE ?1 IS NULL OR name = ?1 ORDER BY name"
            )
        )

    def _issue(self, name: str, expires_in_seconds: int | None, detail: dict[str, str]) -> IssuedToken:
        if expires_in_seconds is not None and not 0 < expires_in_seconds <= MAX_LIFE_SECONDS:
            raise RecipientError(f"a token's life: 1 to {MAX_LIFE_SECONDS} seconds")
        now_ms, token = self._now_ms(), secrets.token_urlsafe(TOKEN_BYTES)
        expires_ms = None if expires_in_seconds is None else now_ms + expires_in_seconds * 1000
        self._connection.execute(
            "INSERT INTO tokens VALUES (?, ?, ?, ?)", (token_hash(token).hex(), name, now_ms, expires_ms)
        )
        detail["tokenExpiresMs"] = "never" if expires_ms is None else str(expires_ms)
        return IssuedToken(name, token, expires_ms)

    def _shorten(self, sha256: str, expires_ms: int) -> None:
        self._connection.execute(
            "UPDATE tokens SET expires_ms = min(coalesce(expires_ms, ?1), ?1) WHERE sha256 = ?2",
            (expires_ms, sha256),
        )

    def _insert_grants(self, name: str, shares: Sequence[str], *, allow_absent: bool) -> None:
        known = None if self._known_shares is None or allow_absent else {*self._known_shares()}
        folded = {share.casefold() for share in known or ()}
        for share in shares:
            check_share(share)
            if known is not None and share != EVERY_SHARE and share.casefold() not in folded:
                there = ", ".join(sorted(known)) or "none"
                raise RecipientError(
                    f"share {share!r} is not in the configuration, whose shares are: {there}; to "
                    "grant a share before it is configured: --allow-absent (API: allowAbsent)"
                )
            self._connection.execute("INSERT OR IGNORE INTO grants VALUES (?, ?)", (name, share.casefold()))

    def _delete_grants(self, record: RecipientRecord, shares: Sequence[str]) -> None:
        # Earlier versions stored the spelling of the command, and several of one share beside each other.
        for folded, share in {share.casefold(): share for share in shares}.items():
            if _SURROGATE.search(share) or not self._delete_grant(record.name, folded):
                raise RecipientError(f"share {share!r} is not granted to {record.name!r}")

    def _delete_grant(self, name: str, folded: str) -> int:
        return self._connection.execute(
            "DELETE FROM grants WHERE recipient = ? AND casefold(share) = ?", (name, folded)
        ).rowcount

    def _replace_networks(self, name: str, networks: Sequence[str], detail: dict[str, str]) -> None:
        self._connection.execute("DELETE FROM networks WHERE recipient = ?", (name,))
        self._insert_networks(name, networks)
        detail["networks"] = " ".join(networks)

    def _insert_networks(self, name: str, networks: Sequence[str]) -> None:
        for text in networks:
            # An IPv6 zone may hold any character.
            if not _COMMENT.fullmatch(text):
                raise RecipientError(f"network {text!r}: UTF-8 text without control characters")
            try:
                network = parse_network(text)
            except ValueError as error:
                raise RecipientError(f"network {text!r}: {error}") from None
            self._connection.execute("INSERT OR IGNORE INTO networks VALUES (?, ?)", (name, str(network)))


def _listed(shares: Sequence[str]) -> str:
    """Names with blanks between; one that holds a blank is quoted."""
    return " ".join(json.dumps(share, ensure_ascii=False) if " " in share else share for share in shares)


def _grouped(rows: Iterable[tuple[Any, ...]]) -> dict[str, tuple[Any, ...]]:
    groups: dict[str, list[Any]] = {}
    for recipient, value in rows:
        groups.setdefault(recipient, []).append(value)
    return {recipient: tuple(values) for recipient, values in groups.items()}


def _pack(detail: Mapping[str, str]) -> str:
    return "\n".join(f"{key}={value}" for key, value in detail.items())


def _unpack(text: str) -> Mapping[str, str]:
    return MappingProxyType(dict(line.split("=", 1) for line in text.split("\n") if line))
