"""Listings: shares, schemas and tables that a recipient was granted, page by page."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import orjson

from gateway.access import catalog as shared
from gateway.access.catalog import Schema, Share, SharedTable
from gateway.access.sealed_tokens import InvalidToken
from gateway.protocol.queries import ListQuery
from gateway.web.context import RequestContext
from gateway.web.error_response import JSON_CONTENT_TYPE
from gateway.web.response import WholeResponse

Item = TypeVar("Item", Share, Schema, SharedTable)


async def list_shares(context: RequestContext) -> WholeResponse:
    """`GET {prefix}/shares`."""
    shares = context.state.catalog.shares_of(context.required_recipient)
    return _page(context, shares, lambda share: share.name, _share)


async def get_share(context: RequestContext) -> WholeResponse:
    """`GET {prefix}/shares/{share}`."""
    share = context.state.catalog.share(context.required_recipient, context.names["share"])
    return _json({"share": _share(share)})


async def list_schemas(context: RequestContext) -> WholeResponse:
    """`GET {prefix}/shares/{share}/schemas`."""
    share = context.state.catalog.share(context.required_recipient, context.names["share"])
    return _page(context, list(share.schemas), lambda schema: schema.name, _schema)


async def list_tables(context: RequestContext) -> WholeResponse:
    """`GET {prefix}/shares/{share}/schemas/{schema}/tables`."""
    names = context.names
    schema = context.state.catalog.schema(context.required_recipient, names["share"], names["schema"])
    return _page(context, list(schema.tables), lambda table: table.name, _table)


async def list_all_tables(context: RequestContext) -> WholeResponse:
    """`GET {prefix}/shares/{share}/all-tables`."""
    share = context.state.catalog.share(context.required_recipient, context.names["share"])
    return _page(context, share.tables(), lambda table: f"{table.schema}/{table.name}", _table)


def _page(
    context: RequestContext,
    items: Sequence[Item],
    name: Callable[[Item], str],
    body: Callable[[Item], dict[str, Any]],
) -> WholeResponse:
    """Answer the requested page. A page token holds the listing and the last returned name."""
    query = ListQuery.parse(context.request.query)
    recipient, state = context.required_recipient.name, context.state
    sealer, now_ms = state.sealer, state.now_ms()
    listing = "/".join((context.route.name, *context.names.values())).casefold()
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
        expires_ms = now_ms + state.config.query_table_page_token_ttl_ms
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
