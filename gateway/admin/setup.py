"""What the admin API and the command line work on: the database and the audit log of a configuration.

In: a configuration. Out: the opened database, whose every change is a line of the audit log, and the
`Administration` that the admin listener serves.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from gateway.access.credential_store import CredentialStore, configured_names
from gateway.access.recipient_store import Change, RecipientDatabase
from gateway.admin.app import Administration, ReloadResult
from gateway.errors import Unavailable
from gateway.telemetry.audit import AuditLog, AuditRecord

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from gateway.access.authentication import CredentialTable
    from gateway.config import Admin, Config
    from gateway.telemetry.metrics import AdminMetrics, Metrics

log = logging.getLogger("gateway.serving")

AUDIT_SECONDS = 2.0
"""How long a change waits for its record at most."""


def open_audit(config: Config) -> AuditLog | None:
    """Open the audit log, if one is configured. Raises OSError when it cannot be opened."""
    settings = config.gateway.audit
    if settings is None:
        return None
    return AuditLog(settings.file, queue_records=settings.queue_records, on_trouble=log.error)


def open_database(
    config: Config,
    actor: str,
    *,
    now_ms: Callable[[], int],
    audit: AuditLog | None = None,
    create: bool = True,
    read_only: bool = False,
) -> RecipientDatabase:
    """Open the recipients' database. Raises sqlite3.Error, OSError, RecipientError.

    `create`: it is made where there is none. `read_only`: its file is not changed at all. With `failClosed`
    a change is in the audit log before it is committed, and raises Unavailable when it cannot be recorded.
    """
    settings = config.gateway.audit
    first = audit if settings is not None and settings.fail_closed else None

    def before(change: Change) -> None:
        if first and not first.write(change_record(change).line(), timeout_seconds=AUDIT_SECONDS):
            raise Unavailable("the change is not made: the audit log cannot be written")

    def after(change: Change) -> None:
        log.info("%s of recipient %s by %s", change.action, change.recipient, change.actor)
        if audit is not None and first is None:
            audit.put(change_record(change).line())

    return RecipientDatabase(
        config.recipients_database,
        now_ms=now_ms,
        actor=actor,
        create=create,
        read_only=read_only,
        known_shares=lambda: [share.name for share in config.shares],
        taken_names=lambda: configured_names(config),
        before_change=before,
        on_change=after,
    )


def make_database(config: Config, now_ms: Callable[[], int]) -> None:
    """Make the recipients' database that the configuration names where it is not there.

    Once for a server, before its workers: a worker that is started again while the file is away would make
    an empty one, and lock every recipient out. Raises as `open_database`.
    """
    if config.has_recipients_database:
        open_database(config, "server", now_ms=now_ms).close()


def open_credential_store(
    config: Config,
    changed: Callable[[CredentialTable], None],
    metrics: Metrics,
    now_ms: Callable[[], int],
    *,
    must_exist: bool,
) -> CredentialStore:
    """Read the recipients' database. Raises as RecipientBook."""
    return CredentialStore(config.recipients_database, changed, metrics, now_ms, must_exist=must_exist)


def change_record(change: Change) -> AuditRecord:
    """The audit record of a change of a recipient."""
    return AuditRecord(
        at_ms=change.at_ms,
        action=change.action,
        request_id="",
        recipient=change.recipient or None,
        source_address=None,
        user_agent=None,
        status=200,
        error_code=None,
        details={"actor": change.actor, **change.detail},
        result={},
    )


def endpoint(config: Config) -> str:
    """What profiles name as the endpoint."""
    return f"{config.public_url}{config.prefix}"


def administer(
    settings: Admin,
    config: Callable[[], Config],
    *,
    audit: AuditLog | None,
    metrics_page: Callable[[], bytes],
    reload: Callable[[], Awaitable[ReloadResult]],
    metrics: AdminMetrics,
    now_ms: Callable[[], int],
) -> Administration:
    """Make what the admin listener serves.

    An addition makes the database only where there was none so far: one that is away would come back, or be
    missed, as an empty one.
    """
    was_there = config().has_recipients_database or config().recipients_database.exists()

    def opened(actor: str, *, create: bool = False, read_only: bool = False) -> RecipientDatabase:
        nonlocal was_there
        current = config()
        was_there = was_there or current.recipients_database.exists()
        if was_there and not current.recipients_database.exists():
            raise FileNotFoundError("the file is away")
        return open_database(current, actor, now_ms=now_ms, audit=audit, create=create, read_only=read_only)

    return Administration(
        open_database=opened,
        endpoint=lambda: endpoint(config()),
        metrics_page=metrics_page,
        reload=reload,
        token_sha256=settings.token_sha256,
        metrics_token_sha256=settings.metrics_token_sha256,
        count_refused=metrics.auth_failures.inc,
    )
