"""`create_app(config)` and the route table, the contents page of the gateway."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gateway.routes import changes, discovery, files, health, query, table
from gateway.state import Sharing, epoch_ms
from gateway.telemetry.metrics import Metrics
from gateway.web.context import Route
from gateway.web.pipeline import Door
from gateway.web.recorder import Watch
from gateway.web.request_limits import Guards
from gateway.web.router import Router

if TYPE_CHECKING:
    from collections.abc import Callable

    from gateway.config import Config
    from gateway.telemetry.audit import AuditLog
    from gateway.web.pipeline import Around


def create_app(
    config: Config,
    *,
    now_ms: Callable[[], int] = epoch_ms,
    workers: int = 1,
    metrics: Metrics | None = None,
    audit: AuditLog | None = None,
    around: Around | None = None,
    token_secret: bytes | None = None,
) -> Door:
    """Make what answers the requests of a configuration, for aiohttp's `web.Server`.

    `workers` share the limits, and the `token_secret` where no token keys are configured. `audit` is the log
    that `gateway.audit` asks for, already open. Whoever serves closes the tables of `sharing`.
    """
    return Door(
        Router(routes(config.prefix), prefix=config.prefix),
        Sharing.of(config, now_ms=now_ms, token_secret=token_secret),
        Guards.of(config, workers=workers),
        Watch(metrics or Metrics(), audit, now_ms),
        records_first=config.gateway.audit is not None and config.gateway.audit.fail_closed,
        around=around,
    )


def routes(prefix: str) -> list[Route]:
    """The route table."""
    shares = f"{prefix}/shares"
    schemas = f"{shares}/{{share}}/schemas"
    tables = f"{schemas}/{{schema}}/tables"
    of_table = f"{tables}/{{table}}"
    return [
        Route("GET", shares, discovery.list_shares),
        Route("GET", f"{shares}/{{share}}", discovery.get_share),
        Route("GET", schemas, discovery.list_schemas),
        Route("GET", tables, discovery.list_tables),
        Route("GET", f"{shares}/{{share}}/all-tables", discovery.list_all_tables),
        Route("HEAD", of_table, table.version),
        Route("GET", f"{of_table}/version", table.version),
        Route("GET", f"{of_table}/metadata", table.metadata),
        Route("POST", f"{of_table}/query", query.query, is_long=True),
        Route("POST", f"{of_table}/queries/{{id}}", table.async_query),
        Route("GET", f"{of_table}/changes", changes.changes, is_long=True),
        Route("GET", f"{prefix}/files/{{root}}/{{key:.+}}", files.file, is_open=True),
        Route("GET", "/healthz", health.alive, is_open=True),
        Route("GET", "/readyz", health.ready, is_open=True),
    ]
