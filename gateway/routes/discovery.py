"""Shares, schemas, tables and volumes that a recipient was granted: each alone, and in pages."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Concatenate, TypeVar

import msgspec
from msgspec import UNSET, UnsetType

from gateway.authentication.sealed_tokens import InvalidToken, digest
from gateway.catalog import catalog as shared
from gateway.catalog.catalog import Recipient, Schema, Share, SharedTable, SharedVolume
from gateway.protocol import messages
from gateway.protocol.headers import JSON_CONTENT_TYPE
from gateway.protocol.queries import ListQuery
from gateway.web.context import RequestContext
from gateway.web.response import WholeResponse

Granted = TypeVar("Granted", Share, Schema)
FEW = 1000
"""Items whose page is made on the event loop: in a millisecond."""
Item = TypeVar("Item", Share, Schema, SharedTable, SharedVolume)
Message = messages.Share | messages.Schema | messages.Table | messages.Volume


async def list_shares(context: RequestContext) -> WholeResponse:
    """`GET {prefix}/shares`."""
    _require_searched(context)
    shares = context.state.catalog.shares_of(context.required_recipient)
    return await _page(context, shares, lambda share: share.name, _share, messages.Shares)


async def get_share(context: RequestContext) -> WholeResponse:
    """`GET {prefix}/shares/{share}`."""
    share = await _granted(context, context.state.catalog.share, "share")
    return _json(messages.ShareAnswer(_share(share)))


async def list_schemas(context: RequestContext) -> WholeResponse:
    """`GET {prefix}/shares/{share}/schemas`."""
    _require_searched(context, "share")
    share = await _granted(context, context.state.catalog.share, "share")
    return await _page(context, list(share.schemas), lambda schema: schema.name, _schema, messages.Schemas)


async def list_tables(context: RequestContext) -> WholeResponse:
    """`GET {prefix}/shares/{share}/schemas/{schema}/tables`."""
    _require_searched(context, "share", "schema")
    schema = await _granted(context, context.state.catalog.schema, "share", "schema")
    return await _page(context, list(schema.tables), lambda table: table.name, _table, messages.Tables)


async def list_all_tables(context: RequestContext) -> WholeResponse:
    """`GET {prefix}/shares/{share}/all-tables`."""
    _require_searched(context, "share")
    share = await _granted(context, context.state.catalog.share, "share")
    tables = share.tables()
    return await _page(context, tables, lambda table: f"{table.schema}/{table.name}", _table, messages.Tables)


async def get_table(context: RequestContext) -> WholeResponse:
    """`GET {prefix}/shares/{share}/schemas/{schema}/tables/{table}`, of OpenSharing. Reads no log."""
    names = context.names
    table = context.state.catalog.table(
        context.required_recipient, names["share"], names["schema"], names["table"]
    )
    return _json(msgspec.structs.replace(_table(table), format="delta"))


async def list_volumes(context: RequestContext) -> WholeResponse:
    """`GET {prefix}/shares/{share}/schemas/{schema}/volumes`, of OpenSharing."""
    schema = await _granted(context, context.state.catalog.schema, "share", "schema")
    return await _page(context, list(schema.volumes), lambda volume: volume.name, _volume, messages.Volumes)


async def list_all_volumes(context: RequestContext) -> WholeResponse:
    """`GET {prefix}/shares/{share}/all-volumes`, of OpenSharing."""
    share = await _granted(context, context.state.catalog.share, "share")
    volumes = share.volumes()
    return await _page(context, volumes, lambda one: f"{one.schema}/{one.name}", _volume, messages.Volumes)


async def get_volume(context: RequestContext) -> WholeResponse:
    """`GET {prefix}/shares/{share}/schemas/{schema}/volumes/{volume}`, of OpenSharing."""
    names = context.names
    volume = context.state.catalog.volume(
        context.required_recipient, names["share"], names["schema"], names["volume"]
    )
    return _json(_volume(volume))


def _require_searched(context: RequestContext, *names: str) -> None:
    """Raise Unavailable for a list of which a part is not known yet."""
    context.state.catalog.require_searched(
        context.required_recipient, *(context.names[name] for name in names)
    )


async def _granted(
    context: RequestContext, find: Callable[Concatenate[Recipient, ...], Granted], *names: str
) -> Granted:
    """Return a share or a schema of the path, if it is granted. Raises NotFound."""
    recipient, texts = context.required_recipient, [context.names[name] for name in names]
    if not recipient.grants:
        return find(recipient, *texts)
    # A part of it is made of all its tables, which may be many.
    return await context.state.tables.in_turn(recipient.name, find, recipient, *texts)


async def _page(context: RequestContext, items: Sequence[Item], *parts: Callable[..., Any]) -> WholeResponse:
    made = partial(_made_page, context, items, *parts)
    few = len(items) <= FEW
    return made() if few else await context.state.tables.in_turn(context.required_recipient.name, made)


def _made_page(
    context: RequestContext,
    items: Sequence[Item],
    name: Callable[[Item], str],
    body: Callable[[Item], Message],
    page: Callable[..., messages.Message],
) -> WholeResponse:
    """Return the requested page. A page token holds the listing, the last returned name, and what was before.

    Otherwise an item that a reload moves there would be on no page.
    """
    query = ListQuery.parse(context.request.query)
    recipient, state = context.required_recipient.name, context.state
    sealer, now_ms = state.sealer, state.now_ms()
    listing = "/".join((context.route.name, *context.names.values())).casefold()
    names = [name(item) for item in items]
    place: Mapping[str, str] = {}
    if query.page_token is not None:
        place = sealer.open("list", recipient, query.page_token, now_ms=now_ms)
        if place["listing"] != listing:
            raise InvalidToken("list")
    try:
        chosen, last = shared.page(names, after=place.get("after"), limit=query.max_results)
    except ValueError:
        raise InvalidToken("list") from None
    if place and place.get("before") != digest(names[: chosen.start]):
        raise InvalidToken("list")
    next_page_token: str | UnsetType = UNSET
    if last is not None:
        expires_ms = now_ms + state.config.query_table_page_token_ttl_ms
        value = {"listing": listing, "after": last, "before": digest(names[: chosen.stop])}
        next_page_token = sealer.seal("list", recipient, value, expires_ms=expires_ms)
    listed = tuple(body(items[index]) for index in chosen)
    is_power_query = context.request.headers.get("User-Agent", "").startswith(messages.POWER_QUERY)
    return _json(page(messages.for_power_query(listed) if is_power_query else listed, next_page_token))


def _share(share: Share) -> messages.Share:
    return messages.Share(
        share.name,
        share.id,
        display_name=share.display_name or UNSET,
        comment=share.comment or UNSET,
        properties=share.properties or UNSET,
    )


def _schema(schema: Schema) -> messages.Schema:
    return messages.Schema(schema.name, schema.share)


def _table(table: SharedTable) -> messages.Table:
    message = messages.Table(table.name, table.schema, table.share, table.share_id, table.id)
    if not table.offers_directory:
        return message
    return msgspec.structs.replace(
        message,
        location=table.location.hadoop_url,
        auxiliary_locations=tuple(root.hadoop_url for root in table.auxiliary_locations) or UNSET,
        access_modes=table.access_modes,
    )


def _volume(volume: SharedVolume) -> messages.Volume:
    return messages.Volume(
        volume.name,
        volume.schema,
        volume.share,
        volume.share_id,
        volume.id,
        volume.location.hadoop_url,
        volume.comment or UNSET,
    )


def _json(body: messages.Message) -> WholeResponse:
    return WholeResponse(messages.encoded(body), {"Content-Type": JSON_CONTENT_TYPE})
