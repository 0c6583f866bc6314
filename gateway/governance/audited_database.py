"""Opens the recipients' database of a configuration; each change is a record of the audit log."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Required, TypedDict, Unpack

from gateway.config import Config
from gateway.config.database import DatabasePlace
from gateway.database.errors import DatabaseError
from gateway.errors import Unavailable
from gateway.governance.credential_store import configured_names
from gateway.governance.recipient_records import ChangeRecord
from gateway.telemetry.audit import AuditLog
from gateway.telemetry.audit_record import AuditRecord

if TYPE_CHECKING:
    from gateway.governance.recipient_store import RecipientDatabase
    from gateway.governance.recorded_database import RecordedDatabase
    from gateway.governance.share_store import ShareDatabase

log = logging.getLogger("gateway.serving")

AUDIT_SECONDS = 2.0
"""Maximum time that a change waits for its audit record."""
EMPTY = (
    "%s has no recipient and no share yet. If it should have some, it is not the database that had them: "
    "look at gateway.database and gateway.recipientsDatabase"
)

NO_CHANGES = "the database takes no changes, such as revocations: it is a standby, or read-only by default"


class Opening(TypedDict, total=False):
    """How a database is opened.

    Attributes:
        now_ms: returns the time of changes.
        create: create the database where there is none.
        read_only: do not change it.

    """

    now_ms: Required[Callable[[], int]]
    create: bool
    read_only: bool


def open_database(
    config: Config,
    actor: str,
    *,
    audit: AuditLog | None = None,
    beside: RecordedDatabase | None = None,
    **options: Unpack[Opening],
) -> RecipientDatabase:
    """Open the database. Raises DatabaseError, OSError.

    `beside`: use the connection of another one. With `failClosed` a change is in the audit log before it is
    committed; it raises Unavailable when it cannot be recorded.
    """
    # Commands that open no database start sooner.
    from gateway.governance.recipient_store import RecipientDatabase  # noqa: PLC0415

    return RecipientDatabase(
        config.database_place,
        source=config.database_source,
        actor=actor,
        beside=beside,
        known_shares=lambda: [share.name for share in config.shares],
        known_issuers=lambda: [issuer.issuer for issuer in config.gateway.oidc.issuers],
        taken_names=lambda: configured_names(config),
        **_hooks(config, audit, "recipient", change_record),
        **options,
    )


def open_share_database(
    config: Config, actor: str, *, audit: AuditLog | None = None, **options: Unpack[Opening]
) -> ShareDatabase:
    """Open the database for operations on shares, as `open_database`."""
    # As above.
    from gateway.governance.share_store import ShareDatabase  # noqa: PLC0415

    return ShareDatabase(
        config, actor=actor, **_hooks(config, audit, "share", share_change_record), **options
    )


def _hooks(
    config: Config, audit: AuditLog | None, what: str, record: Callable[[ChangeRecord], AuditRecord]
) -> dict[str, Callable[[Sequence[ChangeRecord]], None]]:
    """Return the functions that `RecordedDatabase` calls before and after the commit of changes."""
    settings = config.gateway.audit
    first = audit if settings is not None and settings.fail_closed else None

    def before(changes: Sequence[ChangeRecord]) -> None:
        lines = (record(change).line() for change in changes)
        if first and not first.write(*lines, timeout_seconds=AUDIT_SECONDS):
            raise Unavailable("the change is not made: the audit log cannot be written")

    def after(changes: Sequence[ChangeRecord]) -> None:
        for change in changes:
            log.info("%s of %s %s by %s", change.action, what, change.recipient, change.actor)
        if audit is not None and first is None:
            audit.put_all([record(change).line() for change in changes], timeout_seconds=AUDIT_SECONDS)

    return {"before_changes": before, "on_changes": after}


def create_database(config: Config, now_ms: Callable[[], int]) -> None:
    """Create the recipients' database of a configuration, where it does not exist.

    Call it once for a server, before its workers start: a worker that restarts while the file is missing
    would create an empty one and reject every recipient. Raises as `open_database`.
    """
    if not config.has_database:
        return
    with open_database(config, "server", now_ms=now_ms) as database:
        if database.is_empty():
            log.warning(EMPTY, config.database_place.path or "the database of gateway.database")
    for problem in change_problems(config):
        log.warning("%s", problem)


def change_problems(config: Config) -> Iterator[str]:
    """Iterate over the reason why the database of a configuration can be read and not changed, if any."""
    if not config.has_database:
        return
    from gateway.database.engine import Database  # noqa: PLC0415 - as above
    from gateway.database.migration import change_problem  # noqa: PLC0415 - as above

    place = config.database_place
    if (problem := change_problem(place)) is not None:
        yield problem
    if place.path is None:
        # One that cannot be reached is a problem of the start.
        with suppress(DatabaseError), closing(Database(place)) as database:
            if not database.takes_changes():
                yield NO_CHANGES


def database_problem(config: Config) -> str | None:
    """Return why the database cannot be read; None when it can. Changes nothing."""
    from gateway.database.migration import opened  # noqa: PLC0415 - as above

    try:
        check_followed(config.database_place)
        opened(config.database_place, read_only=True).close()
    except OSError as error:
        return f"the recipients' database cannot be read: {error}"
    return None


def check_followed(place: DatabasePlace) -> None:
    """Check that a server can follow a database of PostgreSQL: it reads no standby. Raises DatabaseError."""
    from gateway.database.changes import CHANNEL  # noqa: PLC0415 - as above
    from gateway.database.engine import Database  # noqa: PLC0415 - as above

    if place.path is None:
        with closing(Database(place)) as database:
            database.listen(CHANNEL)


def share_change_record(change: ChangeRecord) -> AuditRecord:
    """Return the audit record of a change of a share."""
    whole = change_record(change)
    return replace(whole, recipient=None, details={**whole.details, "share": change.recipient})


def change_record(change: ChangeRecord) -> AuditRecord:
    """Return the audit record of a change of a recipient."""
    return AuditRecord(
        at_ms=change.at_ms,
        action=change.action,
        recipient=change.recipient or None,
        status=200,
        details={"actor": change.actor, **change.detail},
    )
