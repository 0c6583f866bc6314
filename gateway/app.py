"""`create_app(config)` and the route table."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from gateway.config import Config
from gateway.limits.shared_memory import SharedLimits
from gateway.protocol.profile import TOKEN_ENDPOINT
from gateway.routes import (
    activation,
    changes,
    discovery,
    files,
    health,
    oauth,
    openapi,
    query,
    table,
    temporary_credentials,
)
from gateway.state import GatewayState
from gateway.telemetry.activity import Activity
from gateway.telemetry.audit import AuditLog
from gateway.telemetry.metrics import Metrics
from gateway.times import epoch_ms
from gateway.web.context import Route
from gateway.web.pipeline import Middleware, RequestPipeline
from gateway.web.recorder import RequestRecorder
from gateway.web.request_limits import RequestLimits
from gateway.web.router import Router


def create_app(
    config: Config,
    *,
    now_ms: Callable[[], int] = epoch_ms,
    workers: int = 1,
    metrics: Metrics | None = None,
    audit: AuditLog | None = None,
    middleware: Middleware | None = None,
    token_secret: bytes | None = None,
    shared_limits: SharedLimits | None = None,
    activity: Activity | None = None,
    had_database: Callable[[], bool] | None = None,
) -> RequestPipeline:
    """Return the pipeline that answers requests, for aiohttp's `web.Server`.

    `workers` share the memory, the `shared_limits`, and the `token_secret` where no token keys are
    configured. `audit` is the open audit log, if one is configured. `activity` remembers recent requests.
    `had_database`: whether the database has ever existed; without it, by the configuration. The caller closes
    the tables of `state`.
    """
    limits = RequestLimits.of(config, workers=workers, shared=shared_limits)
    links = activation.Activation(
        config.prefixes[0], limits.attempts, audit, now_ms, had_database or (lambda: config.has_database)
    )
    return RequestPipeline(
        Router([*all_routes(config.prefixes), *links.routes()], prefixes=config.prefixes),
        GatewayState.of(config, now_ms=now_ms, token_secret=token_secret),
        limits,
        RequestRecorder(metrics or Metrics(), audit, now_ms, activity),
        audits_first=config.gateway.audit is not None and config.gateway.audit.fail_closed,
        middleware=middleware,
    )


def all_routes(prefixes: Sequence[str]) -> list[Route]:
    """Return the route tables of the first prefix, and of its aliases, which have no files."""
    first, *aliases = prefixes
    return [*routes(first), *(route for alias in aliases for route in documented_routes(alias))]


def routes(prefix: str) -> list[Route]:
    """The route table."""
    return [
        *documented_routes(prefix),
        Route("GET", f"{prefix}/files/{{root}}/{{key:.+}}", files.file, is_public=True),
        Route("GET", "/healthz", health.alive, is_public=True),
        Route("GET", "/readyz", health.ready, is_public=True),
    ]


def documented_routes(prefix: str) -> list[Route]:
    """Return the routes of the protocol, and the route of their description."""
    described = protocol_routes(prefix)
    return [
        *described,
        Route("GET", f"{prefix}/openapi.json", openapi.handler(described, prefix), is_public=True),
    ]


def protocol_routes(prefix: str) -> list[Route]:
    """Return the routes of the protocol."""
    shares = f"{prefix}/shares"
    schemas = f"{shares}/{{share}}/schemas"
    tables = f"{schemas}/{{schema}}/tables"
    of_table = f"{tables}/{{table}}"
    volumes = f"{schemas}/{{schema}}/volumes"
    return [
        Route("GET", shares, discovery.list_shares),
        Route("GET", f"{shares}/{{share}}", discovery.get_share),
        Route("GET", schemas, discovery.list_schemas),
        Route("GET", tables, discovery.list_tables),
        Route("GET", f"{shares}/{{share}}/all-tables", discovery.list_all_tables),
        Route("GET", of_table, discovery.get_table),
        Route("HEAD", of_table, table.version),
        Route("GET", f"{of_table}/version", table.version),
        Route("GET", f"{of_table}/metadata", table.metadata, may_be_large=True),
        Route("POST", f"{of_table}/query", query.query, may_stream=True),
        Route("POST", f"{of_table}/queries/{{id}}", table.async_query),
        Route("GET", f"{of_table}/changes", changes.changes, may_stream=True),
        Route(
            "POST",
            f"{of_table}/temporary-table-credentials",
            temporary_credentials.temporary_table_credentials,
            issues_credentials=True,
        ),
        Route("GET", volumes, discovery.list_volumes),
        Route("GET", f"{shares}/{{share}}/all-volumes", discovery.list_all_volumes),
        Route("GET", f"{volumes}/{{volume}}", discovery.get_volume),
        Route(
            "POST",
            f"{volumes}/{{volume}}/temporary-volume-credentials",
            temporary_credentials.temporary_volume_credentials,
            issues_credentials=True,
        ),
        Route("POST", f"{prefix}{TOKEN_ENDPOINT}", oauth.issue_token, is_for_clients=True),
    ]
