"""Listings: shares, schemas and tables that a recipient was granted, page by page."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import orjson
from aiohttp import web

from gateway import catalog as shared
from gateway.auth import RECIPIENT
from gateway.catalog import Schema, Share, SharedTable
from gateway.errors import JSON_CONTENT_TYPE
from gateway.protocol import ListQuery
from gateway.sharing import SHARING
from gateway.tokens import InvalidToken

Item = TypeVar("Item", Share, Schema, SharedTable)


async def list_shares(request: web.Request) -> web.Response:
    """`GET {prefix}/shares`."""
    shares = request[SHARING].catalog.shares_of(request[RECIPIENT])
    return _page(request, shares, lambda share: share.name, _share)


async def get_share(request: web.Request) -> web.Response:
    """`GET {prefix}/shares/{share}`."""
    share = request[SHARING].catalog.share(request[RECIPIENT], request.match_info["share"])
    return _json({"share": _share(share)})


async def list_schemas(request: web.Request) -> web.Response:
    """`GET {prefix}/shares/{share}/schemas`."""
    share = request[SHARING].catalog.share(request[RECIPIENT], request.match_info["share"])
    return _page(request, list(share.schemas), lambda schema: schema.name, _schema)


async def list_tables(request: web.Request) -> web.Response:
    """`GET {prefix}/shares/{share}/schemas/{schema}/tables`."""
    names = request.match_info
    schema = request[SHARING].catalog.schema(request[RECIPIENT], names["share"], names["schema"])
    return _page(request, list(schema.tables), lambda table: table.name, _table)


async def list_all_tables(request: web.Request) -> web.Response:
    """`GET {prefix}/shares/{share}/all-tables`."""
    share = request[SHARING].catalog.share(request[RECIPIENT], request.match_info["share"])
    return _page(request, share.tables(), lambda table: f"{table.schema}/{table.name}", _table)


def _page(
    request: web.Request,
    items: Sequence[Item],
    name: Callable[[Item], str],
    body: Callable[[Item], dict[str, Any]],
) -> web.Response:
    """Answer the asked page. A page token holds the listing's path and the last name that was given."""
    query = ListQuery.parse(request.query)
    recipient, sharing = request[RECIPIENT].name, request[SHARING]
    sealer, now_ms = sharing.sealer, sharing.now_ms()
    listing = request.path.casefold()
    after: str | None = None
    if query.page_token is not None:
        place = sealer.open("list", recipient, query.page_token, now_ms=now_ms)
        if place["listing"] != listing:
            raise InvalidToken("list")
        after = place["after"]
    try:
        chosen, last = shared.page([name(item) for item in items], after=after, limit=query.max_results)
    except KeyError:
        raise InvalidToken("list") from None
    answer: dict[str, Any] = {"items": [body(items[index]) for index in chosen]}
    if last is not None:
        expires_ms = now_ms + sharing.config.query_table_page_token_ttl_ms
        value = {"listing": listing, "after": last}
        answer["nextPageToken"] = sealer.seal("list", recipient, value, expires_ms=expires_ms)
    return _json(answer)


def _share(share: Share) -> dict[str, Any]:
    return {"name": share.name, "id": share.id}


def _schema(schema: Schema) -> dict[str, Any]:
    return {"name": schema.name, "share": schema.share}


def _table(table: SharedTable) -> dict[str, Any]:
    return {
        "name": table.name,
        "schema": table.schema,
        "share": table.share,
        "shareId": table.share_id,
        "id": table.id,
    }


def _json(body: dict[str, Any]) -> web.Response:
    return web.Response(body=orjson.dumps(body), headers={"Content-Type": JSON_CONTENT_TYPE})
