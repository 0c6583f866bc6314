"""What the operations on recipients in the database have in common.

A change of a recipient is one transaction, beside which no other change is made, with its entry in the
history. A recipient is inserted without tokens.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import chain
from typing import Any

from sqlalchemy import Connection, Table, select

from gateway.config.database import DatabasePlace
from gateway.config.name_forms import name_form, new_name_problem
from gateway.config.recipients import EVERY_SHARE
from gateway.database.rows import all_rows, batches, delete_orphans, is_text
from gateway.database.schema import GRANTS, NETWORKS, RECIPIENTS, SHARES, name_key, recipient_key
from gateway.governance import rows
from gateway.governance.credentials import Issuing
from gateway.governance.recipient_names import check_comment, check_name, check_share
from gateway.governance.recipient_records import (
    TEXTS,
    NewRecipient,
    RecipientError,
    RecipientExists,
    RecipientRecord,
    text_of,
)
from gateway.governance.recorded_database import RecordedDatabase, Subject

KIND = "recipient"
"""Of subjects in the history."""
NAMED_SHARES = 20
"""Of those in the message about an absent one."""


class RecipientChanges(RecordedDatabase):
    """One connection to the database, for changes of recipients."""

    def __init__(
        self,
        place: DatabasePlace,
        *,
        taken_names: Callable[[], frozenset[str]] = frozenset,
        known_shares: Callable[[], Iterable[str]] | None = None,
        known_issuers: Callable[[], Iterable[str]] | None = None,
        **options: Any,
    ) -> None:
        """Open the database; `options` are those of `RecordedDatabase`.

        `taken_names`: keys of recipients in the configuration file. `known_shares`: the shares that can be
        granted; `known_issuers`: the issuers that policies can name; None: any.
        """
        super().__init__(place, **options)
        self._taken_names = taken_names
        self._known_shares = known_shares
        self._known_issuers = known_issuers

    @contextmanager
    def _change(self, action: str, name: str) -> Iterator[tuple[Connection, dict[str, str]]]:
        rows.check_storable(name)
        with self.change(action, Subject(KIND, name, recipient_key(name))) as changed:
            yield changed

    @contextmanager
    def changing(
        self, action: str, name: str
    ) -> Iterator[tuple[Connection, dict[str, str], RecipientRecord]]:
        """Change a known recipient, whose record is that of the beginning. Raises RecipientNotFound."""
        with self._change(action, name) as (connection, detail):
            record = rows.read_one(connection, name)
            self._check_served(record)
            yield connection, detail, record

    def is_served(self, record: RecipientRecord) -> bool:
        """Return whether no recipient of the configuration file is served in its place."""
        return record.name.lower() not in self._taken_names()

    def _check_served(self, record: RecipientRecord) -> None:
        """Raise RecipientError for a recipient that is refused: what is revoked may still be read."""
        if not self.is_served(record):
            raise RecipientError(
                f"recipient {record.name!r} is in the configuration file, where it is changed; the stored "
                "one of this name is refused, and can only be deleted"
            )

    def _check_new(self, name: str, described: NewRecipient) -> None:
        check_name(name)
        problem = new_name_problem(name)
        if problem is not None:
            raise RecipientError(f"recipient name {name!a}: {problem}")
        for text in TEXTS:
            check_comment(text_of(described, text), text)
        if name.lower() in self._taken_names():
            raise RecipientExists(f"recipient {name!r} is in the configuration file")

    def _check_distinct(self, connection: Connection, name: str) -> None:
        """Raise RecipientExists for a name that is easily mistaken for the name of another recipient."""
        with self.together() as whole:
            if whole.names is None:
                known = all_rows(connection, select(RECIPIENTS.c.name))
                stored = (row.name for row in known if is_text(row.name))
                whole.names = {name_form(other): other for other in chain(stored, self._taken_names())}
            form = name_form(name)
            other = whole.names.get(form)
            whole.names.setdefault(form, name)
        if other is not None:
            raise RecipientExists(f"recipient name {name!a} is easily taken for {other!a}, which exists")

    def _insert_all(
        self, connection: Connection, new: Mapping[str, NewRecipient], details: Iterable[dict[str, str]]
    ) -> None:
        """Insert recipients without credentials, with statements for all together, and describe each."""
        names = {recipient_key(name): name for name in new}
        if len(names) < len(new):
            raise RecipientExists("a recipient is listed twice (names are case-insensitive)")
        known = rows.read(connection, names)
        for key in (*(recipient_key(record.name) for record in known.records), *known.unreadable):
            raise RecipientExists(f"recipient {names[key]!r} exists already; rotate gives it a new token")
        for keys in batches(names):
            delete_orphans(
                connection, {table: table.c.recipient.in_(keys) for table in rows.RECIPIENT_TABLES}
            )
        created_ms = self.now_ms()
        added: dict[Table, list[dict[str, Any]]] = {RECIPIENTS: [], GRANTS: [], NETWORKS: []}
        for (name, described), detail in zip(new.items(), details, strict=True):
            self._check_distinct(connection, name)
            shares, networks = described.get("shares", ()), described.get("networks", ())
            self.check_shares(shares, allow_absent=described.get("allow_absent", False))
            added[RECIPIENTS].append(
                {
                    "key": recipient_key(name),
                    "name": name,
                    **{text: text_of(described, text) for text in TEXTS},
                    "created_ms": created_ms,
                    "properties": "{}",
                    "forbids_bearer_tokens": False,
                }
            )
            # It has no shares yet.
            added[GRANTS] += rows.share_rows(name, shares)
            added[NETWORKS] += rows.network_rows(name, networks)
            detail |= {"shares": listed(shares), "networks": " ".join(networks)}
        rows.insert(connection, added)

    def check_shares(self, shares: Sequence[str], *, allow_absent: bool) -> None:
        """Check the names of shares to grant. Raises RecipientError."""
        known = None
        if self._known_shares is not None and not allow_absent:
            stored = (row.name for row in all_rows(self.database.connection, select(SHARES.c.name)))
            known = {*self._known_shares(), *filter(is_text, stored)}
        folded = {*map(name_key, known or ())}
        for share in shares:
            check_share(share)
            if known is not None and share != EVERY_SHARE and name_key(share) not in folded:
                there = ", ".join(sorted(known)[:NAMED_SHARES]) or "none"
                there += f" and {len(known) - NAMED_SHARES} more" if len(known) > NAMED_SHARES else ""
                part = "; a part of a share is granted by `recipient grant`" if "." in share else ""
                raise RecipientError(
                    f"share {share!r} is not in the configuration, whose shares are: {there}; to "
                    f"grant a share before it is configured: --allow-absent (API: allowAbsent){part}"
                )

    def _earliest_ms(self) -> int:
        """Return the time from which an old token's remaining life counts, and an age.

        The clock of an operator's machine may be ahead: by the clocks of servers that life would be longer,
        and what has not ended would be deleted.
        """
        server_ms = self.database.server_now_ms()
        return self.now_ms() if server_ms is None else min(self.now_ms(), server_ms)

    def _issuing(
        self,
        connection: Connection,
        record: RecipientRecord,
        detail: dict[str, str],
        policies: list[dict[str, Any]],
    ) -> Issuing:
        return Issuing(connection, record, detail, self.now_ms(), self._earliest_ms, policies)


def listed(shares: Sequence[str]) -> str:
    """Return the names separated by blanks; a name with a blank is quoted."""
    return " ".join(json.dumps(share, ensure_ascii=False) if " " in share else share for share in shares)
