"""Queries and changes through a real socket: versions, pages, refreshed URLs, headers, last lines."""

import asyncio
import base64
import json
import os
import shutil
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import orjson
import pytest
from aiohttp.test_utils import TestClient
from support.gateway_app import PREFIX, Clock, bearer, error_of, recipients, serve
from yarl import URL

from gateway import _native
from gateway.config import loads
from gateway.protocol.capabilities import Capabilities
from gateway.routes.table_request import TableRequest
from gateway.state import GatewayState
from gateway.tables.open_table import OpenTable

Client = TestClient[Any, Any]

FIRST_MS = 1_700_000_000_000
TABLE = f"{PREFIX}/shares/s/schemas/d/tables/t"
FILES_PER_VERSION, VERSIONS = 3, 4
LIFETIME_SECONDS = 3600
SCHEMA = {
    "type": "struct",
    "fields": [
        {"name": name, "type": kind, "nullable": True, "metadata": {}}
        for name, kind in (("x", "long"), ("p", "string"))
    ],
}
CAPABLE = {"delta-sharing-capabilities": "responseformat=delta,parquet;includeendstreamaction=true"}


def commit(root: Path, version: int, *, table_id: str = "table-id") -> None:
    """Adds a few files; the first commit makes the table."""
    log = root / "_delta_log"
    log.mkdir(parents=True, exist_ok=True)
    actions: list[dict[str, Any]] = [{"commitInfo": {"inCommitTimestamp": FIRST_MS + version * 1000}}]
    if version == 0:
        actions.append(
            {
                "protocol": {
                    "minReaderVersion": 1,
                    "minWriterVersion": 7,
                    "writerFeatures": ["inCommitTimestamp"],
                }
            }
        )
        actions.append(
            {
                "metaData": {
                    "id": table_id,
                    "format": {"provider": "parquet", "options": {}},
                    "schemaString": json.dumps(SCHEMA),
                    "partitionColumns": ["p"],
                    "configuration": {
                        "delta.enableInCommitTimestamps": "true",
                        "delta.enableChangeDataFeed": "true",
                    },
                }
            }
        )
    for number in range(FILES_PER_VERSION):
        value = version * FILES_PER_VERSION + number
        stats = {
            "numRecords": 10,
            "minValues": {"x": value},
            "maxValues": {"x": value},
            "nullCount": {"x": 0},
        }
        add = {
            "path": f"p=part-{number}/{table_id}-{version}-{number}.parquet",
            "partitionValues": {"p": f"part-{number}"},
            "size": 100 + value,
            "modificationTime": FIRST_MS,
            "dataChange": True,
            "stats": json.dumps(stats),
        }
        actions.append({"add": add})
    text = "".join(json.dumps(action) + "\n" for action in actions)
    (log / f"{version:020}.json").write_text(text)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    for version in range(VERSIONS):
        commit(tmp_path / "t", version)
    return tmp_path / "t"


@pytest.fixture
def clock() -> Clock:
    return Clock(FIRST_MS + 86_400_000)


def configuration(root: Path, *, history_shared: bool = True, extra: str = "") -> str:
    table = f"{{name: t, location: '{root}', historyShared: {str(history_shared).lower()}, id: the-id}}"
    other = f"{{name: other, location: '{root}', historyShared: true}}"
    return (
        f"{extra}shares: [{{name: s, schemas: [{{name: d, tables: [{table}, {other}]}}]}}]\n"
        f"{recipients(alice='s', bob='s')}"
    )


@pytest.fixture
async def client(root: Path, clock: Clock) -> AsyncIterator[Client]:
    started, _ = await serve(configuration(root), clock=clock)
    yield started
    await started.close()


async def query(
    client: Client,
    body: dict[str, Any],
    *,
    headers: dict[str, str] | None = None,
    path: str = TABLE,
    name: str = "alice",
) -> tuple[Any, list[dict[str, Any]]]:
    """A successful query: the response and its lines."""
    sent = bearer(name) | (headers or {})
    response = await client.post(f"{path}/query", data=orjson.dumps(body), headers=sent)
    assert response.status == 200, await response.text()
    return response, lines_of(await response.read())


async def refused(
    client: Client, body: dict[str, Any], *, path: str = TABLE, name: str = "alice", **headers: str
) -> None:
    response = await client.post(f"{path}/query", data=orjson.dumps(body), headers=bearer(name) | headers)
    assert (response.status, error_of(await response.read())) == (400, "INVALID_PARAMETER_VALUE")


def lines_of(body: bytes) -> list[dict[str, Any]]:
    assert body.endswith(b"\n")
    return [orjson.loads(line) for line in body.splitlines()]


def ids(lines: list[dict[str, Any]]) -> list[str]:
    return [line["file"]["id"] for line in lines if "file" in line]


def end(lines: list[dict[str, Any]]) -> dict[str, Any]:
    action: dict[str, Any] = lines[-1]["endStreamAction"]
    return action


async def test_the_latest_version_has_the_protocols_headers_and_lines(client: Client) -> None:
    response, lines = await query(client, {})
    assert response.headers["Content-Type"] == "application/x-ndjson; charset=utf-8"
    assert response.headers["Delta-Table-Version"] == "3"
    assert response.headers["delta-sharing-capabilities"] == "responseformat=parquet"
    assert [next(iter(line)) for line in lines] == ["protocol", "metaData"] + ["file"] * 12
    assert (lines[1]["metaData"]["numFiles"], lines[1]["metaData"]["size"]) == (12, sum(range(100, 112)))
    assert "version" not in lines[1]["metaData"]


async def test_an_older_version_is_stamped_on_every_line(client: Client) -> None:
    response, lines = await query(client, {"version": 1})
    assert response.headers["Delta-Table-Version"] == "1"
    assert lines[1]["metaData"]["version"] == 1
    assert len(ids(lines)) == 6
    assert {line["file"]["version"] for line in lines[2:]} == {1}
    by_time, same = await query(client, {"timestamp": "2023-11-14T22:13:21.5Z"})
    assert by_time.headers["Delta-Table-Version"] == "1"
    assert ids(same) == ids(lines)


async def test_metadata_and_query_say_the_same_two_lines(client: Client) -> None:
    described = await client.get(f"{TABLE}/metadata", headers=bearer())
    answered = await client.post(f"{TABLE}/query", data=b"{}", headers=bearer())
    assert (await answered.read()).startswith(await described.read())
    assert described.headers["Delta-Table-Version"] == "3"


async def test_the_deprecated_head_tells_the_version(client: Client) -> None:
    for method, path in (("HEAD", TABLE), ("GET", f"{TABLE}/version")):
        response = await client.request(method, path, headers=bearer())
        assert (response.status, response.headers["Delta-Table-Version"]) == (200, "3")


@pytest.mark.parametrize("size", [1, 2, 5, 12, 50])
async def test_pages_make_up_the_answer_and_begin_alike(client: Client, size: int) -> None:
    _, whole = await query(client, {})
    response, page = await query(client, {"maxFiles": size})
    heads, seen = [(response.headers["Delta-Table-Version"], page[:2])], ids(page)
    while token := end(page).get("nextPageToken"):
        response, page = await query(client, {"maxFiles": size, "pageToken": token})
        heads.append((response.headers["Delta-Table-Version"], page[:2]))
        assert 0 < len(ids(page)) <= size
        seen += ids(page)
    assert seen == ids(whole)
    assert all(head == heads[0] for head in heads)


async def test_a_commit_between_pages_changes_nothing(client: Client, root: Path) -> None:
    _, whole = await query(client, {})
    _, first = await query(client, {"maxFiles": 7})
    commit(root, VERSIONS)
    response, second = await query(client, {"maxFiles": 7, "pageToken": end(first)["nextPageToken"]})
    assert ids(first) + ids(second) == ids(whole)
    assert response.headers["Delta-Table-Version"] == "3"


async def test_tokens_of_a_table_that_was_made_anew_are_refused(client: Client, root: Path) -> None:
    _, page = await query(client, {"maxFiles": 2, "includeRefreshToken": True})
    first = root / "_delta_log" / f"{0:020}.json"
    first.write_text(first.read_text().replace("table-id", "another-id"))
    replica, _ = await serve(configuration(root))
    try:
        await refused(replica, {"maxFiles": 2, "pageToken": end(page)["nextPageToken"]})
        await refused(replica, {"refreshToken": end(page)["refreshToken"]})
    finally:
        await replica.close()


async def test_a_page_of_a_log_that_was_written_again_in_its_place_is_refused(
    client: Client, root: Path
) -> None:
    _, page = await query(client, {"maxFiles": 2})
    # As long as before and with the same id: only the store's own time shows it.
    os.utime(root / "_delta_log" / f"{VERSIONS - 1:020}.json", ns=(0, 1_700_000_000_000_000_001))
    replica, _ = await serve(configuration(root))
    try:
        await refused(replica, {"maxFiles": 2, "pageToken": end(page)["nextPageToken"]})
    finally:
        await replica.close()


def uncounted(root: Path) -> _native.Snapshot:
    """The latest version of the table with a checkpoint: its files have to be counted."""
    log = root / "_delta_log"
    name = f"{VERSIONS - 1:020}.checkpoint.80a083e8-7026-4e79-81be-64bd76c43a11.json"
    commits = [(log / f"{version:020}.json").read_text() for version in range(VERSIONS)]
    (log / name).write_text("".join(commits))
    return _native.Table(_native.Storage.local(), str(root)).snapshot()


def test_a_count_of_files_ends_at_its_deadline_and_where_nobody_waits_for_it(root: Path) -> None:
    snapshot = uncounted(root)
    stop = _native.Stop(seconds=3600)
    stop.cancel()
    with pytest.raises(_native.Cancelled):
        snapshot.totals(stop)
    with pytest.raises(_native.DeadlineExceeded):
        snapshot.totals(_native.Stop(seconds=0))
    assert snapshot.totals(_native.Stop(seconds=3600))[0] == VERSIONS * FILES_PER_VERSION


async def test_a_request_that_nobody_waits_for_any_more_stops_its_blocking_call(root: Path) -> None:
    state = GatewayState.of(loads(f"version: 1\n{configuration(root)}"))
    loop = asyncio.get_running_loop()
    begun, stopped = asyncio.Event(), asyncio.Event()

    def count_for_ever(_opened: OpenTable, stop: _native.Stop) -> None:
        try:
            while True:
                uncounted(root).totals(stop)
                loop.call_soon_threadsafe(begun.set)
        except _native.Cancelled:
            loop.call_soon_threadsafe(stopped.set)

    table = next(iter(state.catalog.tables()))
    stop = _native.Stop()
    request = TableRequest(
        state=state,
        recipient="alice",
        table=table,
        opened=state.tables.open(table),
        capabilities_text=None,
        capabilities=Capabilities.parse(None),
        file_id_scheme=None,
        accepted_codings="",
        remote=None,
        stop=stop,
    )
    reading = asyncio.create_task(request.read(count_for_ever, stop))
    async with asyncio.timeout(30):
        await begun.wait()
        reading.cancel()
        await stopped.wait()
    state.tables.close()


async def test_another_replica_with_the_key_goes_on(client: Client, root: Path, clock: Clock) -> None:
    _, first = await query(client, {"maxFiles": 5})
    replica, _ = await serve(configuration(root), clock=clock)
    try:
        _, second = await query(replica, {"pageToken": end(first)["nextPageToken"]})
    finally:
        await replica.close()
    _, whole = await query(client, {})
    assert ids(first) + ids(second) == ids(whole)


async def test_a_page_token_is_bound_to_what_was_asked(client: Client, clock: Clock) -> None:
    hints = {"predicateHints": ["x >= 2"], "maxFiles": 2}
    _, page = await query(client, hints)
    token = {"pageToken": end(page)["nextPageToken"]}
    await query(client, hints | {"maxFiles": 3} | token)
    await refused(client, {"maxFiles": 2} | token)
    await refused(client, hints | {"limitHint": 5} | token)
    await refused(client, {"startingVersion": 0} | token)
    await refused(client, hints | token, fileidhash="delta")
    await refused(client, hints | token, name="bob")
    await refused(client, hints | token, path=TABLE[:-1] + "other")
    await refused(client, hints | token, **{"delta-sharing-capabilities": "responseformat=delta"})
    clock.now_ms += 259_200_000
    await refused(client, hints | token)


async def test_a_limit_holds_over_all_pages(client: Client) -> None:
    _, whole = await query(client, {"limitHint": 45})
    body = {"limitHint": 45, "maxFiles": 2}
    _, page = await query(client, body)
    seen = ids(page)
    while token := end(page).get("nextPageToken"):
        _, page = await query(client, body | {"pageToken": token})
        seen += ids(page)
    assert seen == ids(whole)
    assert len(seen) == 5


async def test_the_configured_page_size_is_the_ceiling(root: Path, clock: Clock) -> None:
    client, _ = await serve(configuration(root, extra="queryTablePageSizeLimit: 4\n"), clock=clock)
    try:
        assert len(ids((await query(client, {"maxFiles": 100}))[1])) == 4
        assert len(ids((await query(client, {}))[1])) == 12
    finally:
        await client.close()


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


async def test_refresh_tokens_that_follow_from_one_another_end_with_the_first(
    root: Path, clock: Clock
) -> None:
    text = configuration(root, history_shared=False, extra="refreshTokenTtlMs: 2000\n")
    client, _ = await serve(text, clock=clock)
    try:
        _, page = await query(client, {"includeRefreshToken": True})
        first = ids(page)
        commit(root, VERSIONS)
        for _ in range(3):
            clock.now_ms += 600
            _, page = await query(client, {"refreshToken": end(page)["refreshToken"]})
            assert ids(page) == first
        clock.now_ms += 200
        await refused(client, {"refreshToken": end(page)["refreshToken"]})
        _, page = await query(client, {"includeRefreshToken": True})
        clock.now_ms += 1999
        await query(client, {"refreshToken": end(page)["refreshToken"], "includeRefreshToken": True})
    finally:
        await client.close()


async def test_page_tokens_that_follow_from_one_another_end_with_the_first(root: Path, clock: Clock) -> None:
    text = configuration(root, history_shared=False, extra="queryTablePageTokenTtlMs: 2000\n")
    client, _ = await serve(text, clock=clock)
    try:
        _, page = await query(client, {"maxFiles": 1})
        for _ in range(3):
            clock.now_ms += 600
            _, page = await query(client, {"maxFiles": 1, "pageToken": end(page)["nextPageToken"]})
        clock.now_ms += 200
        await refused(client, {"maxFiles": 1, "pageToken": end(page)["nextPageToken"]})
    finally:
        await client.close()


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


async def test_a_refresh_token_of_a_recipient_whose_grant_ended_opens_nothing(
    root: Path, clock: Clock
) -> None:
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


@pytest.mark.parametrize(
    ("body", "headers", "wanted", "announced"),
    [
        ({}, {}, False, False),
        ({"limitHint": 1}, {}, False, False),
        ({"maxFiles": 1}, {}, True, False),
        ({"includeRefreshToken": True}, {}, True, False),
        ({}, CAPABLE, True, True),
        ({"startingVersion": 0}, {}, False, False),
        ({"startingVersion": 0}, CAPABLE, True, True),
    ],
)
async def test_the_last_line_is_there_when_it_was_asked_for(
    client: Client, body: dict[str, Any], headers: dict[str, str], wanted: bool, announced: bool
) -> None:
    response, lines = await query(client, body, headers=headers)
    assert ("endStreamAction" in lines[-1]) is wanted
    said = response.headers["delta-sharing-capabilities"]
    assert ("includeendstreamaction=true" in said) is announced


async def test_predicates_prune_and_the_counts_are_seen(client: Client) -> None:
    response, lines = await query(client, {"predicateHints": ["p = 'part-1'", "x > 4"]})
    assert len(ids(lines)) == 2
    assert response.headers["delta-sharing-hint-status"] == "ok"
    assert (
        response.headers["delta-sharing-pruning"]
        == "considered=12, pruned_by_partition=8, pruned_by_stats=2, pruned_by_limit=0, returned=2"
    )


async def test_a_hint_that_is_ignored_is_told(client: Client) -> None:
    response, lines = await query(client, {"predicateHints": ["x ~ 4", "p = 'part-1'"]})
    assert response.headers["delta-sharing-hint-status"].startswith("ignored 1: predicateHints[0]: ")
    assert len(ids(lines)) == 4
    response, lines = await query(client, {"startingVersion": 0, "predicateHints": ["p = 'part-1'", "x ~ 4"]})
    assert response.headers["delta-sharing-hint-status"].startswith("ignored 1: predicateHints[1]: ")


async def test_hints_count_as_far_as_the_configuration_says(root: Path, clock: Clock) -> None:
    keys = ("evaluatePredicateHints", "evaluateJsonPredicateHints", "evaluateJsonPredicateHintsV2")
    off = "".join(f"{key}: false\n" for key in keys)
    client, _ = await serve(configuration(root, extra=off), clock=clock)
    column = {"op": "column", "name": "p", "valueType": "string"}
    literal = {"op": "literal", "value": "x", "valueType": "string"}
    tree = {"op": "equal", "children": [column, literal]}
    try:
        _, lines = await query(
            client, {"predicateHints": ["p = 'x'"], "jsonPredicateHints": json.dumps(tree)}
        )
        assert len(ids(lines)) == 12
    finally:
        await client.close()


@pytest.mark.parametrize("scheme", ["parquet", "Delta"])
async def test_the_id_scheme_is_echoed(client: Client, scheme: str) -> None:
    response, lines = await query(client, {}, headers={"fileidhash": scheme})
    assert response.headers["fileidhash"] == scheme.lower()
    assert {len(identity) for identity in ids(lines)} == {32 if scheme == "parquet" else 64}


async def test_a_hint_that_leads_to_nothing_is_told_once(
    client: Client, root: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (root / "_delta_log" / "_last_checkpoint").write_text('{"version": 77}')
    for _ in range(2):
        _, lines = await query(client, {})
        assert len(ids(lines)) == FILES_PER_VERSION * VERSIONS
    assert [record.name for record in caplog.records if "_last_checkpoint" in record.message] == [
        "gateway.tables"
    ]


async def test_what_changed_since_a_version(client: Client) -> None:
    response, lines = await query(client, {"startingVersion": 2, "endingVersion": 99})
    assert response.headers["Delta-Table-Version"] == "2"
    versions = [line["add"]["version"] for line in lines if "add" in line]
    assert versions == [2] * 3 + [3] * 3


@pytest.mark.parametrize(
    ("asked", "protocols"), [({}, []), ({"includeHistoricalProtocol": True}, [2, VERSIONS])]
)
async def test_metadata_and_protocols_of_later_versions_stand_at_their_version(
    client: Client, root: Path, asked: dict[str, Any], protocols: list[int]
) -> None:
    first = [json.loads(line) for line in (root / "_delta_log" / f"{0:020}.json").read_text().splitlines()]
    heads = [action for action in first if "protocol" in action or "metaData" in action]
    info = {"commitInfo": {"inCommitTimestamp": FIRST_MS + VERSIONS * 1000}}
    last = root / "_delta_log" / f"{VERSIONS:020}.json"
    last.write_text("".join(json.dumps(action) + "\n" for action in [info, *heads]))
    capable = {"delta-sharing-capabilities": "responseformat=delta"}
    response, lines = await query(client, {"startingVersion": 2} | asked, headers=capable)
    assert response.headers["Delta-Table-Version"] == "2"
    assert [line["metaData"]["version"] for line in lines if "metaData" in line] == [2, VERSIONS]
    assert [*lines[0], *lines[1]] == ["protocol", "metaData"]
    found = [line["protocol"]["version"] for line in lines if "version" in line.get("protocol", {})]
    assert found == protocols
    assert {line["file"]["version"] for line in lines if "file" in line} == {2, 3}
    assert all(line["file"]["timestamp"] >= FIRST_MS for line in lines if "file" in line)


async def changes(
    client: Client, parameters: str, headers: dict[str, str] | None = None
) -> list[dict[str, Any]]:
    """The lines of a range of changes."""
    response = await client.get(f"{TABLE}/changes?{parameters}", headers=bearer() | (headers or {}))
    assert response.status == 200, await response.text()
    return lines_of(await response.read())


def metadata_of_version(root: Path, version: int, **fields: Any) -> None:
    """Gives a version's commit a metaData with other fields."""
    first = [json.loads(line) for line in (root / "_delta_log" / f"{0:020}.json").read_text().splitlines()]
    (head,) = [action for action in first if "metaData" in action]
    path = root / "_delta_log" / f"{version:020}.json"
    path.write_text(path.read_text() + json.dumps({"metaData": head["metaData"] | fields}) + "\n")


@pytest.mark.parametrize("delta", [False, True])
async def test_the_current_metadata_heads_changes(client: Client, root: Path, delta: bool) -> None:
    metadata_of_version(root, 3, name="renamed")
    headers = {"delta-sharing-capabilities": "responseformat=delta"} if delta else {}
    lines = await changes(client, "startingVersion=0&endingVersion=1", headers)
    (head,) = [line["metaData"] for line in lines if "metaData" in line]
    assert head.get("deltaMetadata", head)["name"] == "renamed"
    assert head.get("version") == (3 if delta else None)
    assert (head["numFiles"], len(lines) - 2) == (12, 6)


async def test_historical_metadata_begins_with_that_of_the_start(client: Client, root: Path) -> None:
    metadata_of_version(root, 3, name="renamed")
    lines = await changes(client, "startingVersion=1&includeHistoricalMetadata=true")
    heads = [line["metaData"] for line in lines if "metaData" in line]
    assert [(head["version"], head.get("name")) for head in heads] == [(1, None), (3, "renamed")]
    assert heads[0]["numFiles"] == 6


async def test_reader_features_of_the_current_metadata_must_be_announced(client: Client, root: Path) -> None:
    path = root / "_delta_log" / f"{3:020}.json"
    features = ["deletionVectors"]
    protocol = {"minReaderVersion": 3, "minWriterVersion": 7}
    protocol |= {"readerFeatures": features, "writerFeatures": [*features, "inCommitTimestamp"]}
    path.write_text(path.read_text() + json.dumps({"protocol": protocol}) + "\n")
    response = await client.get(f"{TABLE}/changes?startingVersion=0&endingVersion=1", headers=bearer())
    assert (response.status, error_of(await response.read())) == (400, "UNSUPPORTED_OPERATION")
    historical = "startingVersion=0&endingVersion=1&includeHistoricalMetadata=true"
    assert len(await changes(client, historical)) == 2 + 6


@pytest.mark.parametrize("historical_metadata", ["true", "false"])
async def test_the_parquet_format_has_no_historical_protocol(
    client: Client, root: Path, historical_metadata: str
) -> None:
    log = root / "_delta_log"
    text = (log / f"{2:020}.json").read_text()
    protocol = {"minReaderVersion": 1, "minWriterVersion": 7, "writerFeatures": ["inCommitTimestamp"]}
    (log / f"{2:020}.json").write_text(text + json.dumps({"protocol": protocol}) + "\n")
    asked = f"startingVersion=1&includeHistoricalMetadata={historical_metadata}"
    with_protocol = await changes(client, f"{asked}&includeHistoricalProtocol=true")
    _, queried = await query(client, {"startingVersion": 1, "includeHistoricalProtocol": True})
    for lines in (with_protocol, queried):
        assert lines[0] == {"protocol": {"minReaderVersion": 1}}
        assert not [line for line in lines[1:] if "protocol" in line]
    assert {*with_protocol[1]} == {*(await changes(client, asked))[1]}


@pytest.mark.parametrize("shared", [True, False])
async def test_the_parquet_format_names_the_change_data_feed_where_it_can_be_read(
    root: Path, clock: Clock, shared: bool
) -> None:
    client, _ = await serve(configuration(root, history_shared=shared), clock=clock)
    response = await client.get(f"{TABLE}/metadata", headers=bearer())
    metadata = lines_of(await response.read())
    _, queried = await query(client, {})
    configurations = [lines[1]["metaData"]["configuration"] for lines in (metadata, queried)]
    assert configurations == [{"enableChangeDataFeed": "true"} if shared else {}] * 2
    capable = {"delta-sharing-capabilities": "responseformat=delta"}
    response = await client.get(f"{TABLE}/metadata", headers=bearer() | capable)
    (_, line) = lines_of(await response.read())
    logged = line["metaData"]["deltaMetadata"]["configuration"]
    assert logged["delta.enableChangeDataFeed"] == "true", "the delta format hands on what the log says"
    await client.close()


async def test_a_limit_of_zero_is_no_limit(client: Client) -> None:
    _, lines = await query(client, {"limitHint": 0})
    assert len(ids(lines)) == FILES_PER_VERSION * VERSIONS
    _, page = await query(client, {"limitHint": 0, "maxFiles": 5})
    _, following = await query(client, {"maxFiles": 9, "pageToken": end(page)["nextPageToken"]})
    assert ids(page) + ids(following) == ids(lines)


async def test_a_missing_in_commit_timestamp_fails_only_questions_about_time(
    client: Client, root: Path
) -> None:
    path = root / "_delta_log" / f"{3:020}.json"
    path.write_text(path.read_text().replace("inCommitTimestamp", "timestamp"))
    _, latest = await query(client, {})
    assert len(ids(latest)) == FILES_PER_VERSION * VERSIONS
    _, lines = await query(client, {"version": 3})
    assert len(ids(lines)) == FILES_PER_VERSION * VERSIONS
    assert all("timestamp" not in line["file"] for line in lines[2:]), "what is not known is not said"
    _, added = await query(client, {"startingVersion": 2})
    assert ["timestamp" in line["add"] for line in added[2:]] == [True] * 3 + [False] * 3
    response = await client.get(f"{TABLE}/metadata?version=3", headers=bearer())
    assert response.status == 200
    assert len(await changes(client, "startingVersion=0&endingVersion=2")) == 2 + 9
    for asked in ("version?startingTimestamp=2023-11-14T22:13:23Z", "changes?startingVersion=2"):
        response = await client.get(f"{TABLE}/{asked}", headers=bearer())
        body = await response.read()
        assert (response.status, error_of(body)) == (500, "INTERNAL_ERROR")
        assert "this commit has none; read its version by number" in orjson.loads(body)["message"]


async def test_a_property_alone_enables_no_in_commit_timestamps(client: Client, root: Path) -> None:
    for version in range(VERSIONS):
        path = root / "_delta_log" / f"{version:020}.json"
        text = path.read_text().replace('"inCommitTimestamp"]', '"appendOnly"]')
        path.write_text(text.replace("inCommitTimestamp", "timestamp"))
        seconds = FIRST_MS / 1000 + 100 * version
        os.utime(path, (seconds, seconds))
    _, lines = await query(client, {"version": 2})
    assert {line["file"]["timestamp"] for line in lines[2:]} == {FIRST_MS + 200_000}
    _, lines = await query(client, {"timestamp": "2023-11-14T22:15:30Z"})
    assert len(ids(lines)) == 2 * FILES_PER_VERSION


@pytest.mark.parametrize("size", [1, 4, 100])
async def test_pages_of_changes(client: Client, root: Path, size: int) -> None:
    path = f"{TABLE}/changes?startingVersion=1&endingTimestamp=2023-11-14T22:13:23Z"
    whole = lines_of(await (await client.get(path, headers=bearer())).read())
    seen: list[Any] = []
    token, head = "", None
    while True:
        paged = f"{path}&maxFiles={size}" + (f"&pageToken={token}" if token else "")
        response = await client.get(paged, headers=bearer())
        assert response.headers["Delta-Table-Version"] == "1"
        page = lines_of(await response.read())
        head = head or page[:2]
        assert page[:2] == head
        seen += [line["add"]["id"] for line in page if "add" in line]
        commit(root, VERSIONS)
        token = end(page).get("nextPageToken", "")
        if not token:
            break
    assert seen == [line["add"]["id"] for line in whole if "add" in line]
    assert len(seen) == 9


async def test_changes_that_are_asked_for_again_are_the_same_files_with_new_urls(
    client: Client, clock: Clock
) -> None:
    path = f"{TABLE}/changes?startingVersion=1&endingVersion=2&includeHistoricalMetadata=true"
    first = lines_of(await (await client.get(path, headers=bearer())).read())
    clock.now_ms += (LIFETIME_SECONDS - 900) * 1000
    again = lines_of(await (await client.get(path, headers=bearer())).read())
    assert again[:2] == first[:2]
    for old, new in zip(first[2:], again[2:], strict=True):
        assert [new["add"][name] for name in ("id", "version", "timestamp")] == [
            old["add"][name] for name in ("id", "version", "timestamp")
        ]
        assert new["add"]["url"] != old["add"]["url"]
        assert new["add"]["expirationTimestamp"] > old["add"]["expirationTimestamp"]


async def test_a_token_with_any_bit_flipped_is_refused_and_nothing_else(client: Client) -> None:
    _, page = await query(client, {"maxFiles": 2, "includeRefreshToken": True})
    for name, token in (
        ("pageToken", end(page)["nextPageToken"]),
        ("refreshToken", end(page)["refreshToken"]),
    ):
        sealed = base64.urlsafe_b64decode(token + "=" * (-len(token) % 4))
        for bit in range(len(sealed) * 8):
            altered = bytearray(sealed)
            altered[bit // 8] ^= 1 << bit % 8
            text = base64.urlsafe_b64encode(altered).rstrip(b"=").decode()
            await refused(client, {name: text} | ({"maxFiles": 2} if name == "pageToken" else {}))


async def test_an_asynchronous_query_is_answered_at_once(client: Client) -> None:
    headers = {"delta-sharing-capabilities": "responseformat=parquet;asyncquery=true"}
    response, lines = await query(client, {"idempotencyKey": "k"}, headers=headers)
    assert response.headers["delta-sharing-capabilities"] == "responseformat=parquet"
    assert len(ids(lines)) == 12
    asked = await client.post(f"{TABLE}/queries/1", data=b"{}", headers=bearer())
    assert (asked.status, error_of(await asked.read())) == (404, "RESOURCE_DOES_NOT_EXIST")


async def test_every_request_is_a_line_without_its_query_string(
    client: Client, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "gateway.access")
    _, lines = await query(client, {"predicateHints": ["p = 'part-1'"]})
    url = lines[2]["file"]["url"]
    await client.session.get(url)
    logged = [json.loads(record.message) for record in caplog.records if record.name == "gateway.access"]
    asked = logged[0]
    assert (asked["status"], asked["recipient"], asked["table"], asked["version"]) == (
        200,
        "alice",
        "s.d.t",
        3,
    )
    assert (asked["considered"], asked["pruned_by_partition"], asked["returned"]) == (12, 8, 4)
    assert "signature" not in caplog.text
    assert "token-of-alice" not in caplog.text


async def test_short_pages_of_changes_leave_as_they_are(client: Client) -> None:
    path = f"{TABLE}/changes?startingVersion=0"
    for pages, coding in (("", "gzip"), ("&maxFiles=2", None), ("&maxFiles=500", "gzip")):
        response = await client.get(path + pages, headers=bearer() | {"Accept-Encoding": "gzip"})
        assert response.status == 200
        assert response.headers.get("Content-Encoding") == coding


async def test_versions_and_changes_of_a_table_made_anew_are_its_own(client: Client, root: Path) -> None:
    async def urls(body: dict[str, Any]) -> str:
        _, lines = await query(client, body)
        return " ".join(line[kind]["url"] for line in lines for kind in ("file", "add") if kind in line)

    asked = [{"version": 1}, {"startingVersion": 0, "endingVersion": 1}]
    for body in asked:
        assert "table-id-1-" in await urls(body)
    shutil.rmtree(root)
    for version in range(2):
        commit(root, version, table_id="another-id")
    for body in [{}, *asked]:
        found = await urls(body)
        assert "another-id-1-" in found
        assert "table-id" not in found


LOG_VALUES = {"id": "table-id", "format": {"provider": "parquet", "options": {}}, "configuration": {}}


def write_log(root: Path, partition_type: str, *versions: list[dict[str, Any]]) -> None:
    """A table partitioned by `p` of a type."""
    fields = [{"name": "p", "type": partition_type, "nullable": True, "metadata": {}}]
    schema = json.dumps({"type": "struct", "fields": fields})
    heads: list[dict[str, Any]] = [
        {"protocol": {"minReaderVersion": 1, "minWriterVersion": 2}},
        {"metaData": LOG_VALUES | {"schemaString": schema, "partitionColumns": ["p"]}},
    ]
    (root / "_delta_log").mkdir(parents=True)
    for version, actions in enumerate(versions):
        lines = [json.dumps(action) + "\n" for action in (heads if version == 0 else []) + actions]
        (root / "_delta_log" / f"{version:020}.json").write_text("".join(lines))


def an_add(path: str, value: str | None, **fields: Any) -> dict[str, Any]:
    common = {
        "path": path,
        "partitionValues": {"p": value},
        "size": 10,
        "modificationTime": 1,
        "dataChange": True,
    }
    return {"add": common | fields}


async def served_at(root: Path, clock: Clock) -> Client:
    client, _ = await serve(configuration(root), clock=clock)
    return client


async def test_timestamps_of_partitions_have_one_spelling_in_the_parquet_format(
    tmp_path: Path, clock: Clock
) -> None:
    spelled = {
        "2024-03-05T13:00:00.000000Z": "2024-03-05 13:00:00",
        "2024-03-05T13:00:00.123456Z": "2024-03-05 13:00:00.123456",
        "2024-03-05 13:00:00": "2024-03-05 13:00:00",
        "": None,
    }
    adds = [an_add(f"f{number}", value) for number, value in enumerate(spelled)]
    write_log(tmp_path / "t", "timestamp", adds)
    client = await served_at(tmp_path / "t", clock)
    _, lines = await query(client, {})
    assert [line["file"]["partitionValues"]["p"] for line in lines[2:]] == [*spelled.values()]
    _, lines = await query(client, {"startingVersion": 0})
    assert [line["add"]["partitionValues"]["p"] for line in lines[2:]] == [*spelled.values()]
    delta = {"delta-sharing-capabilities": "responseformat=delta"}
    _, lines = await query(client, {}, headers=delta)
    values = [line["file"]["deltaSingleAction"]["add"]["partitionValues"]["p"] for line in lines[2:]]
    assert values == [value or None for value in spelled]
    await client.close()


async def test_a_bare_remove_is_completed_in_parquet_and_as_logged_in_delta(
    tmp_path: Path, clock: Clock
) -> None:
    bare = {"remove": {"path": "f0", "dataChange": True, "tags": {"k": "v"}}}
    write_log(tmp_path / "t", "string", [an_add("f0", "x", size=77)], [an_add("f1", "y")], [bare])
    client = await served_at(tmp_path / "t", clock)
    for start in (0, 2):
        _, lines = await query(client, {"startingVersion": start})
        (remove,) = [line["remove"] for line in lines if "remove" in line]
        assert (remove["partitionValues"], remove["size"]) == ({"p": "x"}, 77)
    _, lines = await query(client, {"startingVersion": 0, "predicateHints": ["p = 'y'"]})
    assert not [line for line in lines if "remove" in line], "what was found prunes, too"
    delta = {"delta-sharing-capabilities": "responseformat=delta"}
    _, lines = await query(client, {"startingVersion": 2}, headers=delta)
    (line,) = lines[2:]
    logged = line["file"]["deltaSingleAction"]["remove"]
    assert {name: logged[name] for name in logged if name != "path"} == {
        "dataChange": True,
        "tags": {"k": "v"},
    }
    await client.close()


async def test_a_remove_whose_add_is_not_in_the_log_is_its_own_error(tmp_path: Path, clock: Clock) -> None:
    bare = {"remove": {"path": "secret-path", "dataChange": True}}
    write_log(tmp_path / "t", "string", [], [bare], [an_add("f1", "y")])
    client = await served_at(tmp_path / "t", clock)
    response = await client.post(f"{TABLE}/query", data=b'{"startingVersion": 1}', headers=bearer())
    body = await response.read()
    assert (response.status, error_of(body)) == (400, "INVALID_PARAMETER_VALUE")
    assert "version 1 removes a file" in orjson.loads(body)["message"]
    assert b"secret-path" not in body
    assert len((await query(client, {"startingVersion": 2}))[1]) == 3
    await client.close()


async def test_a_file_with_a_colon_in_its_path_is_read(tmp_path: Path, clock: Clock) -> None:
    root = tmp_path / "t"
    write_log(root, "string", [an_add("a-b:c/d%20e.parquet", "x")])
    (root / "a-b:c").mkdir()
    (root / "a-b:c" / "d e.parquet").write_bytes(b"PAR1")
    client = await served_at(root, clock)
    _, lines = await query(client, {})
    response = await client.session.get(URL(lines[2]["file"]["url"], encoded=True))
    assert (response.status, await response.read()) == (200, b"PAR1")
    await client.close()


async def test_a_path_that_names_nothing_fails_its_answers_with_its_own_error(
    tmp_path: Path, clock: Clock
) -> None:
    write_log(tmp_path / "t", "string", [an_add("good", "x")], [an_add("secret%00name", "y")])
    client = await served_at(tmp_path / "t", clock)
    response = await client.post(f"{TABLE}/query", data=b"{}", headers=bearer())
    body = await response.read()
    assert (response.status, error_of(body)) == (500, "INTERNAL_ERROR")
    assert "a file by a path that holds NUL" in orjson.loads(body)["message"]
    assert b"secret" not in body
    for asked in ({"version": 0}, {"predicateHints": ["p = 'x'"]}):
        _, lines = await query(client, asked)
        assert len(ids(lines)) == 1
    await client.close()
