"""`create_app(config)`: the middlewares and the route table, the contents page of the gateway."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence

from aiohttp import web
from aiohttp.typedefs import Handler, Middleware

from gateway.access_log import access_log_middleware
from gateway.auth import authentication
from gateway.config import Config
from gateway.errors import error_middleware
from gateway.routes import changes, discovery, files, health, query
from gateway.routes import table as table_routes
from gateway.sharing import CURRENT, SHARING, Current, Sharing, epoch_ms

MAX_BODY_BYTES = 1024 * 1024


def create_app(
    config: Config,
    *,
    now_ms: Callable[[], int] = epoch_ms,
    outer: Sequence[Middleware] = (),
    inner: Sequence[Middleware] = (),
) -> web.Application:
    """Make the application of a configuration.

    `outer` middlewares see every answer as it leaves, errors included; `inner` ones run when the recipient is
    known, and what they raise is answered as an error. `app[CURRENT].sharing` may be swapped while it serves.
    """
    current = Current(Sharing.of(config, now_ms=now_ms))

    @web.middleware
    async def take_sharing(request: web.Request, handler: Handler) -> web.StreamResponse:
        request[SHARING] = current.sharing
        return await handler(request)

    authenticate = authentication(
        lambda request: request[SHARING].credentials, prefix=config.prefix, now_ms=now_ms
    )
    app = web.Application(
        middlewares=[access_log_middleware, *outer, error_middleware, take_sharing, authenticate, *inner],
        client_max_size=MAX_BODY_BYTES,
    )
    app[CURRENT] = current
    app.router.add_routes(routes(config.prefix))
    app.cleanup_ctx.append(_tables)
    return app


def routes(prefix: str) -> list[web.AbstractRouteDef]:
    """The route table."""
    share = f"{prefix}/shares/{{share}}"
    table = f"{share}/schemas/{{schema}}/tables/{{table}}"
    # The router tries them in turn: those that clients ask most come first.
    return [
        web.post(f"{table}/query", query.query),
        _get(f"{table}/changes", changes.changes),
        _get(f"{table}/metadata", table_routes.metadata),
        _get(f"{table}/version", table_routes.version),
        web.get("/healthz", health.alive),
        web.get("/readyz", health.ready),
        _get(f"{prefix}/shares", discovery.list_shares),
        _get(share, discovery.get_share),
        _get(f"{share}/schemas", discovery.list_schemas),
        _get(f"{share}/schemas/{{schema}}/tables", discovery.list_tables),
        _get(f"{share}/all-tables", discovery.list_all_tables),
        web.head(table, table_routes.version),
        web.post(f"{table}/queries/{{id}}", table_routes.async_query),
        web.get(f"{prefix}/files/{{root}}/{{key:.+}}", files.file),
    ]


def _get(path: str, handler: Handler) -> web.AbstractRouteDef:
    return web.get(path, handler, allow_head=False)


async def _tables(app: web.Application) -> AsyncIterator[None]:
    yield
    app[CURRENT].sharing.tables.close()
