"""Makes the `Administration` that the admin listener serves."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from typing import TypeVar

from gateway.admin.administration import Administration, ReloadResult
from gateway.admin.grant_checks import grant_warnings
from gateway.catalog.stored_shares import with_stored
from gateway.config import Admin, Config
from gateway.config.networks import Address
from gateway.database.errors import DatabaseMissing, DatabaseUnusable
from gateway.governance.audited_database import open_database, open_share_database
from gateway.telemetry.audit import AuditLog
from gateway.telemetry.audit_record import action_record
from gateway.telemetry.metrics import AdminMetrics

T = TypeVar("T")


def administer(
    settings: Admin,
    config: Callable[[], Config],
    *,
    audit: AuditLog | None,
    metrics_page: Callable[[], bytes],
    reload: Callable[[], Awaitable[ReloadResult]],
    had_database: Callable[[], bool],
    metrics: AdminMetrics,
    now_ms: Callable[[], int],
) -> Administration:
    """Return what the admin API works on.

    An addition creates the database only where `had_database` says that there was none before: a missing
    database may come back, and an empty one in its place would reject every recipient.
    """

    def opened(opener: Callable[..., T], actor: str, *, create: bool = False, read_only: bool = False) -> T:
        current = config()
        had = had_database()
        try:
            return opener(
                current, actor, now_ms=now_ms, audit=audit, create=create and not had, read_only=read_only
            )
        except DatabaseMissing:
            if had:
                raise DatabaseUnusable("it is missing") from None
            raise

    def audited(action: str, actor: str, address: Address | None, status: int) -> None:
        if audit is not None:
            audit.put(action_record(action, actor, address, status, at_ms=now_ms()).line())

    return Administration(
        open_database=partial(opened, open_database),
        open_shares=partial(opened, open_share_database),
        config=config,
        metrics_page=metrics_page,
        reload=reload,
        token_sha256=settings.token_sha256,
        metrics_token_sha256=settings.metrics_token_sha256,
        count_refused=metrics.auth_failures.inc,
        audited=audited,
        grant_warnings=lambda stored, grants, properties: grant_warnings(
            with_stored(config(), stored).config, grants, properties
        ),
    )
