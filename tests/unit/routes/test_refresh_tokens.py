"""Refreshed URLs through a real socket: the same files with later expiry, and no revoked access."""

import json
import os
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from support.gateway_app import Clock, bearer, serve
from support.history_table import (
    LIFETIME_SECONDS,
    TABLE,
    VERSIONS,
    Client,
    commit,
    configuration,
    end,
    ids,
    query,
    refused,
)

from gateway.state import GatewayState


async def test_a_refresh_gives_the_same_files_new_urls_and_a_later_expiry(
    client: Client, root: Path, clock: Clock
) -> None:
    _, first = await query(client, {"includeRefreshToken": True})
    commit(root, VERSIONS)
    fifteen_minutes_before_expiry_ms = (LIFETIME_SECONDS - 900) * 1000
    clock.now_ms += fifteen_minutes_before_expiry_ms
    response, again = await query(client, {"refreshToken": end(first)["refreshToken"]})
    assert response.headers["Delta-Table-Version"] == "3"
    assert ids(again) == ids(first)
    later_ms = end(again)["minUrlExpirationTimestamp"] - end(first)["minUrlExpirationTimestamp"]
    assert later_ms == fifteen_minutes_before_expiry_ms
    assert {line["file"]["url"] for line in again[2:-1]}.isdisjoint(
        line["file"]["url"] for line in first[2:-1]
    )
    await query(client, {"refreshToken": end(again)["refreshToken"], "predicateHints": ["x = 1"]})
    await refused(client, {"refreshToken": end(first)["refreshToken"]}, name="bob")
    clock.now_ms += 900_000
    await refused(client, {"refreshToken": end(first)["refreshToken"]})


async def test_a_refresh_of_a_version_that_was_restored_away_and_written_again_is_refused(
    client: Client, root: Path
) -> None:
    _, first = await query(client, {"includeRefreshToken": True})
    later = root / "_delta_log" / f"{VERSIONS - 1:020}.json"
    later.write_text(later.read_text().replace("table-id-", "restored-"))
    os.utime(later, ns=(0, 1_700_000_000_000_000_001))
    assert ids((await query(client, {}))[1]) != ids(first)
    await refused(client, {"refreshToken": end(first)["refreshToken"]})


async def test_a_refresh_works_where_history_is_not_shared(root: Path, clock: Clock) -> None:
    client, _ = await serve(configuration(root, history_shared=False), clock=clock)
    try:
        _, first = await query(client, {"includeRefreshToken": True})
        commit(root, VERSIONS)
        _, again = await query(client, {"refreshToken": end(first)["refreshToken"]})
        assert ids(again) == ids(first)
        await refused(client, {"version": 3})
    finally:
        await client.close()


@asynccontextmanager
async def refreshing(
    root: Path, clock: Clock, *, history_shared: bool
) -> AsyncIterator[tuple[Client, Callable[[int], Awaitable[None]], Callable[[int], Awaitable[None]]]]:
    """A client with tokens that live for two seconds, a refresh after some time, and one that is refused."""
    text = configuration(root, history_shared=history_shared, extra="refreshTokenTtlMs: 2000\n")
    client, _ = await serve(text, clock=clock)
    try:
        _, page = await query(client, {"includeRefreshToken": True})
        first = ids(page)

        async def refresh(after_ms: int) -> None:
            nonlocal page
            clock.now_ms += after_ms
            _, page = await query(client, {"refreshToken": end(page)["refreshToken"]})
            assert ids(page) == first

        async def refuse(after_ms: int) -> None:
            clock.now_ms += after_ms
            await refused(client, {"refreshToken": end(page)["refreshToken"]})

        yield client, refresh, refuse
    finally:
        await client.close()


async def test_refresh_tokens_of_a_version_that_is_shared_no_longer_end_with_the_first(
    root: Path, clock: Clock
) -> None:
    async with refreshing(root, clock, history_shared=False) as (client, refresh, refuse):
        commit(root, VERSIONS)
        for _ in range(3):
            await refresh(600)
        await refuse(200)
        _, page = await query(client, {"includeRefreshToken": True})
        clock.now_ms += 1999
        await query(client, {"refreshToken": end(page)["refreshToken"], "includeRefreshToken": True})


@pytest.mark.parametrize("history_shared", [False, True])
async def test_pages_of_a_refresh_end_with_its_token_where_their_version_is_shared_no_longer(
    root: Path, clock: Clock, history_shared: bool
) -> None:
    text = configuration(root, history_shared=history_shared, extra="refreshTokenTtlMs: 2000\n")
    client, _ = await serve(text, clock=clock)
    try:
        _, first = await query(client, {"includeRefreshToken": True})
        commit(root, VERSIONS)
        body = {"maxFiles": 2}
        _, page = await query(client, body | {"refreshToken": end(first)["refreshToken"]})
        for _ in range(2):
            body["pageToken"] = end(page)["nextPageToken"]
            clock.now_ms += 900
            _, page = await query(client, body)
        clock.now_ms += 300
        if history_shared:
            await query(client, body)
        else:
            await refused(client, body)
    finally:
        await client.close()


@pytest.mark.parametrize("newer", [{"protocol": {"minReaderVersion": 99, "minWriterVersion": 99}}, {}])
async def test_a_refresh_token_lives_again_as_long_as_its_version_is_shared(
    root: Path, clock: Clock, newer: dict[str, Any]
) -> None:
    async with refreshing(root, clock, history_shared=False) as (_, refresh, refuse):
        for _ in range(3):
            await refresh(1500)
        commit(root, VERSIONS)
        if newer:
            log = root / "_delta_log" / f"{VERSIONS:020}.json"
            log.write_text(f"{log.read_text()}{json.dumps(newer)}\n")
        await refresh(1500)
        await refuse(600)


async def test_a_refresh_token_lives_again_where_history_is_shared(root: Path, clock: Clock) -> None:
    async with refreshing(root, clock, history_shared=True) as (_, refresh, _):
        commit(root, VERSIONS)
        for _ in range(3):
            await refresh(1500)


async def test_a_token_opens_no_version_and_no_history_that_is_shared_no_longer(
    root: Path, clock: Clock
) -> None:
    client, config = await serve(configuration(root), clock=clock)
    try:
        _, first = await query(client, {"includeRefreshToken": True})
        refresh = {"refreshToken": end(first)["refreshToken"]}
        _, latest = await query(client, {"maxFiles": 2})
        next_latest = {"maxFiles": 2, "pageToken": end(latest)["nextPageToken"]}
        _, travelled = await query(client, {"maxFiles": 2, "version": VERSIONS - 1})
        next_travelled = {
            "maxFiles": 2,
            "version": VERSIONS - 1,
            "pageToken": end(travelled)["nextPageToken"],
        }
        commit(root, VERSIONS)

        def share(**changes: Any) -> None:
            [shared] = config.shares
            [schema] = shared.schemas
            tables = (replace(schema.tables[0], **changes), *schema.tables[1:])
            changed = replace(config, shares=(replace(shared, schemas=(replace(schema, tables=tables),)),))
            pipeline = client.server.pipeline
            pipeline.state = GatewayState.of(changed, now_ms=clock, previous=pipeline.state)

        share(start_version=VERSIONS - 1)
        for body in (refresh, next_latest, next_travelled):
            await query(client, body)
        share(history_shared=False)
        for body in (refresh, next_latest):
            await query(client, body)
        await refused(client, next_travelled)
        share(start_version=VERSIONS)
        for body in (refresh, next_latest, next_travelled):
            await refused(client, body)
        share(history_shared=False, start_version=VERSIONS)
        for body in (refresh, next_latest, next_travelled):
            await refused(client, body)
        share()
        for body in (refresh, next_latest, next_travelled):
            await query(client, body)
    finally:
        await client.close()


async def test_a_latest_version_before_the_first_shared_one_is_not_shared(root: Path) -> None:
    text = configuration(root).replace("id: the-id", f"id: the-id, startVersion: {VERSIONS}")
    client, _ = await serve(text)
    # Another table of the share has the same location and no first version.
    other = TABLE.removesuffix("t") + "other"
    try:
        for _ in range(2):
            for body in ({}, {"maxFiles": 2}, {"includeRefreshToken": True}):
                await refused(client, body)
            for path in ("metadata", "version", "version?startingTimestamp={}", "metadata?timestamp={}"):
                for time in ("1970-01-01T00:00:00Z", "2100-01-01T00:00:00Z")[: path.count("{") + 1]:
                    response = await client.get(f"{TABLE}/{path.format(time)}", headers=bearer())
                    assert response.status == 400, await response.text()
                    assert "there is no shared version yet" in await response.text()
            await query(client, {}, path=other)
        commit(root, VERSIONS)
        _, lines = await query(client, {"maxFiles": 2, "includeRefreshToken": True})
        await query(client, {"maxFiles": 2, "pageToken": end(lines)["nextPageToken"]})
        await query(client, {"refreshToken": end(lines)["refreshToken"]})
    finally:
        await client.close()


async def test_a_refresh_token_is_refused_after_the_grant_ended(root: Path, clock: Clock) -> None:
    client, config = await serve(configuration(root), clock=clock)
    try:
        _, first = await query(client, {"includeRefreshToken": True})
        recipients = tuple(replace(entry, shares=()) for entry in config.gateway.recipients)
        changed = replace(config, gateway=replace(config.gateway, recipients=recipients))
        pipeline = client.server.pipeline
        pipeline.state = GatewayState.of(changed, now_ms=clock, previous=pipeline.state)
        response = await client.post(
            f"{TABLE}/query", json={"refreshToken": end(first)["refreshToken"]}, headers=bearer()
        )
        assert response.status == 404
    finally:
        await client.close()
