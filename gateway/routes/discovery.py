"""Listings: shares, schemas and tables that a recipient was granted, page by page."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import orjson

from gateway.access import catalog as shared
from gateway.access.catalog import Schema, Share, SharedTable
from gateway.access.sealed_tokens import InvalidToken
from gateway.protocol.queries import ListQuery
from gateway.web.context import Exchange
from gateway.web.error_response import JSON_CONTENT_TYPE
from gateway.web.response import WholeResponse

Item = TypeVar("Item", Share, Schema, SharedTable)


async def list_shares(exchange: Exchange) -> WholeResponse:
    """`GET {prefix}/shares`."""
    shares = exchange.sharing.catalog.shares_of(exchange.recipient)
    return _page(exchange, shares, lambda share: share.name, _share)


async def get_share(exchange: Exchange) -> WholeResponse:
    """`GET {prefix}/shares/{share}`."""
    share = exchange.sharing.catalog.share(exchange.recipient, exchange.names["share"])
    return _json({"share": _share(share)})


async def list_schemas(exchange: Exchange) -> WholeResponse:
    """`GET {prefix}/shares/{share}/schemas`."""
    share = exchange.sharing.catalog.share(exchange.recipient, exchange.names["share"])
    return _page(exchange, list(share.schemas), lambda schema: schema.name, _schema)


async def list_tables(exchange: Exchange) -> WholeResponse:
    """`GET {prefix}/shares/{share}/schemas/{schema}/tables`."""
    names = exchange.names
    schema = exchange.sharing.catalog.schema(exchange.recipient, names["share"], names["schema"])
    return _page(exchange, list(schema.tables), lambda table: table.name, _table)


async def list_all_tables(exchange: Exchange) -> WholeResponse:
    """`GET {prefix}/shares/{share}/all-tables`."""
    share = exchange.sharing.catalog.share(exchange.recipient, exchange.names["share"])
    return _page(exchange, share.tables(), lambda table: f"{table.schema}/{table.name}", _table)


def _page(
    exchange: Exchange,
    items: Sequence[Item],
    name: Callable[[Item], str],
    body: Callable[[Item], dict[str, Any]],
) -> WholeResponse:
    """Answer the asked page. A page token holds the listing and the last name that was given."""
    query = ListQuery.parse(exchange.request.query)
    recipient, sharing = exchange.recipient.name, exchange.sharing
    sealer, now_ms = sharing.sealer, sharing.now_ms()
    listing = "/".join((exchange.route.name, *exchange.names.values())).casefold()
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


def _json(body: dict[str, Any]) -> WholeResponse:
    return WholeResponse(orjson.dumps(body), {"Content-Type": JSON_CONTENT_TYPE})
