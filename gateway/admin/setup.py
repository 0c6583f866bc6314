"""Makes the `Administration` that the admin listener serves."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gateway.access.audited_database import open_database
from gateway.access.recipient_store import RecipientDatabase
from gateway.admin.administration import Administration, ReloadResult
from gateway.database.errors import DatabaseMissing, DatabaseUnusable
from gateway.telemetry.audit import AuditLog

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from gateway.config import Admin, Config
    from gateway.telemetry.metrics import AdminMetrics


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

    def opened(actor: str, *, create: bool = False, read_only: bool = False) -> RecipientDatabase:
        current = config()
        had = had_database()
        try:
            return open_database(
                current, actor, now_ms=now_ms, audit=audit, create=create and not had, read_only=read_only
            )
        except DatabaseMissing:
            if had:
                raise DatabaseUnusable("it is missing") from None
            raise

    return Administration(
        open_database=opened,
        endpoint=lambda: config().endpoint_url,
        metrics_page=metrics_page,
        reload=reload,
        token_sha256=settings.token_sha256,
        metrics_token_sha256=settings.metrics_token_sha256,
        count_refused=metrics.auth_failures.inc,
    )
