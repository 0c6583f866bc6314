"""Queries through a real socket: versions, headers, last lines, and work that ends with its request."""

import asyncio
import gc
import json
import select
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from support.gateway_app import bearer, error_of
from support.history_table import (
    CAPABLE,
    FILES_PER_VERSION,
    TABLE,
    VERSIONS,
    Client,
    commit,
    configuration,
    end,
    ids,
    metadata_of_version,
    query,
)
from support.waiting import until

from gateway import _native
from gateway.config import loads
from gateway.limits.memory import AdmittedStream
from gateway.protocol.capabilities import Capabilities
from gateway.protocol.parsing import json_object
from gateway.routes.query import LARGE_BODY_BYTES
from gateway.routes.table_request import TableRequest
from gateway.state import GatewayState
from gateway.storage.calls import StorageCalls
from gateway.tables.files import Files, start_snapshot
from gateway.tables.open_table import SMALL_METADATA_BYTES, OpenTable
from gateway.web.context import RequestContext


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


@pytest.mark.parametrize(("name", "expected"), [("query", 1), ("metadata", 2)])
async def test_an_answer_takes_the_memory_of_metadata_that_has_become_large(
    client: Client, root: Path, monkeypatch: pytest.MonkeyPatch, name: str, expected: int
) -> None:
    taken = []
    read_log = AdmittedStream.read_log

    async def counted(self: AdmittedStream, streams: int = 1) -> None:
        taken.append(streams)
        await read_log(self, streams)

    await query(client, {})
    monkeypatch.setattr(AdmittedStream, "read_log", counted)

    async def answered() -> bytes:
        method = "POST" if name == "query" else "GET"
        response = await client.request(method, f"{TABLE}/{name}", headers=bearer())
        assert response.status == 200
        return await response.read()

    small = await answered()
    assert not taken
    commit(root, VERSIONS)
    metadata_of_version(root, VERSIONS, description="x" * 2 * SMALL_METADATA_BYTES)
    assert len(await answered()) > SMALL_METADATA_BYTES > len(small)
    assert taken == [expected]


async def test_a_large_schema_is_written_and_bound_on_a_thread_that_is_none_of_the_storage(
    client: Client, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    commit(root, VERSIONS)
    metadata_of_version(root, VERSIONS, description="x" * 2 * SMALL_METADATA_BYTES)
    await query(client, {})
    threads, ended = [], []

    def started(*arguments: Any) -> Files:
        threads.append(threading.current_thread().name.partition("_")[0])
        return start_snapshot(*arguments)

    monkeypatch.setattr("gateway.routes.query.start_snapshot", started)
    monkeypatch.setattr(StorageCalls, "run", None)
    monkeypatch.setattr(StorageCalls, "stream_ended", lambda _self, error: ended.append(error))
    long_hint = f"x = '{'y' * LARGE_BODY_BYTES}'"
    for body in (
        {"maxFiles": 100},
        {"limitHint": 1},
        {"predicateHints": ["x = 1"]},
        {"jsonPredicateHints": '{"op":"equal"}'},
        {"predicateHints": [long_hint]},
    ):
        response, _ = await query(client, body)
        assert response.status == 200
    assert threads == ["tables"] * 5
    assert ended == []


async def test_large_bodies_are_parsed_one_at_a_time_also_where_their_clients_leave(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    running, together = [], []

    def parsed(body: bytes) -> dict[str, Any]:
        running.append(body)
        together.append(len(running))
        # Another thread has its turn.
        time.sleep(0.05)
        running.pop()
        return json_object(body)

    monkeypatch.setattr("gateway.protocol.queries.json_object", parsed)
    large = {"predicateHints": [f"x = '{'y' * LARGE_BODY_BYTES}'"]}
    leaving = asyncio.ensure_future(query(client, large))
    await until(lambda: running)
    leaving.cancel()
    for response, _ in await asyncio.gather(*(query(client, large) for _ in range(3))):
        assert response.status == 200
    assert together == [1, 1, 1, 1]


async def test_the_next_page_of_files_in_memory_is_no_call_of_the_storage(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    ended: list[Any] = []
    _, whole = await query(client, {})
    _, first = await query(client, {"maxFiles": 7})
    monkeypatch.setattr(StorageCalls, "run", None)
    monkeypatch.setattr(StorageCalls, "stream_ended", lambda _self, error: ended.append(error))
    response, second = await query(client, {"maxFiles": 7, "pageToken": end(first)["nextPageToken"]})
    assert response.status == 200
    assert ids(first) + ids(second) == ids(whole)
    assert ended == []


async def test_the_log_line_of_many_ignored_hints_is_one_that_a_pipe_takes_whole(
    client: Client, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "gateway.access")
    hints = [f"`{number}{chr(0x1F600) * 50}` = 1" for number in range(40)]
    response, _ = await query(client, {"predicateHints": ["unknown = 1", *hints]})
    assert response.status == 200
    await asyncio.sleep(0)
    (line,) = [record.message for record in caplog.records if record.name == "gateway.access"]
    ignored = json.loads(line)["ignored_hints"]
    assert ignored[0] == "predicateHints[0]: no column 'unknown'"
    assert ignored[1].startswith("predicateHints[1]: no column '0\\u{1f600}")
    assert len(line) < select.PIPE_BUF


async def test_the_deprecated_head_request_returns_the_version(client: Client) -> None:
    for method, path in (("HEAD", TABLE), ("GET", f"{TABLE}/version")):
        response = await client.request(method, path, headers=bearer())
        assert (response.status, response.headers["Delta-Table-Version"]) == (200, "3")


def uncounted(root: Path) -> _native.Snapshot:
    """The latest version of the table with a checkpoint: its files have to be counted."""
    log = root / "_delta_log"
    name = f"{VERSIONS - 1:020}.checkpoint.80a083e8-7026-4e79-81be-64bd76c43a11.json"
    commits = [(log / f"{version:020}.json").read_text() for version in range(VERSIONS)]
    (log / name).write_text("".join(commits))
    return _native.Table(_native.Storage.local(), str(root)).snapshot()


def test_counting_files_ends_at_the_deadline_and_when_the_client_leaves(root: Path) -> None:
    snapshot = uncounted(root)
    stop = _native.Stop(seconds=3600)
    stop.cancel()
    with pytest.raises(_native.Cancelled):
        snapshot.totals(stop)
    with pytest.raises(_native.DeadlineExceeded):
        snapshot.totals(_native.Stop(seconds=0))
    assert snapshot.totals(_native.Stop(seconds=3600))[0] == VERSIONS * FILES_PER_VERSION


async def test_a_disconnected_request_stops_its_blocking_call(root: Path) -> None:
    state = GatewayState.of(loads(f"version: 1\n{configuration(root)}"))
    loop = asyncio.get_running_loop()
    started, stopped = asyncio.Event(), asyncio.Event()

    def count_for_ever(_opened: OpenTable, stop: _native.Stop) -> None:
        try:
            while True:
                uncounted(root).totals(stop)
                loop.call_soon_threadsafe(started.set)
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
        codings=("identity", "identity"),
        stop=stop,
    )
    reading = asyncio.create_task(request.read(count_for_ever, stop))
    async with asyncio.timeout(30):
        await started.wait()
        reading.cancel()
        await stopped.wait()
    state.tables.close()


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
async def test_the_last_line_is_there_on_request(
    client: Client, body: dict[str, Any], headers: dict[str, str], wanted: bool, announced: bool
) -> None:
    response, lines = await query(client, body, headers=headers)
    assert ("endStreamAction" in lines[-1]) is wanted
    said = response.headers["delta-sharing-capabilities"]
    assert ("includeendstreamaction=true" in said) is announced


async def test_an_asynchronous_query_is_answered_at_once(client: Client) -> None:
    headers = {"delta-sharing-capabilities": "responseformat=parquet;asyncquery=true"}
    response, lines = await query(client, {"idempotencyKey": "k"}, headers=headers)
    assert response.headers["delta-sharing-capabilities"] == "responseformat=parquet"
    assert len(ids(lines)) == 12
    answer = await client.post(f"{TABLE}/queries/1", data=b"{}", headers=bearer())
    assert (answer.status, error_of(await answer.read())) == (404, "RESOURCE_DOES_NOT_EXIST")


@pytest.mark.parametrize("response_format", ["parquet", "delta"])
@pytest.mark.parametrize(
    "unknown",
    [
        "cdfonviews=true",
        "cdfOnViews=true;asyncquery=true",
        "x;y=;=z;;newcapability=1,2",
        "readerfeatures=none",
    ],
)
@pytest.mark.parametrize(
    ("method", "route", "body"),
    [
        ("GET", "/metadata", None),
        ("POST", "/query", {}),
        ("POST", "/query", {"startingVersion": 1}),
        ("GET", "/changes?startingVersion=1", None),
    ],
)
async def test_unknown_capabilities_are_ignored_and_never_echoed(
    client: Client, *, response_format: str, unknown: str, method: str, route: str, body: Any
) -> None:
    known = f"responseformat={response_format}"

    async def answer(capabilities: str) -> tuple[int, list[str], str | None, list[Any]]:
        headers = bearer() | {"delta-sharing-capabilities": capabilities}
        response = await client.request(method, f"{TABLE}{route}", json=body, headers=headers)
        chosen = response.headers.getall("delta-sharing-capabilities")
        return (
            response.status,
            chosen,
            response.headers.get("Delta-Table-Version"),
            shown(await response.read()),
        )

    plain = await answer(known)
    # Of a view, changes would have no version; of a table they always have one.
    assert plain[:2] == (200, [known])
    assert plain[2] is not None
    assert await answer(f"{known};{unknown}") == plain
    assert await answer(f"{unknown};{known}") == plain


def shown(body: bytes) -> list[Any]:
    """The lines of an answer without their URLs, which are signed anew."""
    lines = [json.loads(line) for line in body.splitlines()]
    for line in lines:
        for action in line.values():
            action.pop("url", None)
            action.pop("expirationTimestamp", None)
            for inner in action.get("deltaSingleAction", {}).values():
                inner.pop("path", None)
    return lines


async def test_every_request_is_a_line_without_its_query_string(
    client: Client, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "gateway.access")
    _, lines = await query(client, {"predicateHints": ["p = 'part-1'"]})
    url = lines[2]["file"]["url"]
    await client.session.get(url)
    logged = [json.loads(record.message) for record in caplog.records if record.name == "gateway.access"]
    line = logged[0]
    assert (line["status"], line["recipient"], line["table"], line["version"]) == (
        200,
        "alice",
        "s.d.t",
        3,
    )
    assert (line["considered"], line["pruned_by_partition"], line["returned"]) == (12, 8, 4)
    assert "signature" not in caplog.text
    assert "token-of-alice" not in caplog.text


REQUESTS = {
    "query": ("POST", "query", {"data": b'{"limitHint": 3}'}, 200),
    "an older version": ("POST", "query", {"data": b'{"version": 1}'}, 200),
    "pages": ("POST", "query", {"data": b'{"maxFiles": 2}'}, 200),
    "metadata": ("GET", "metadata", {}, 200),
    "version": ("GET", "version", {}, 200),
    "changes": ("GET", "changes?startingVersion=0", {}, 200),
    "an error": ("POST", "query", {"data": b"[]"}, 400),
}


@pytest.mark.parametrize("name", REQUESTS)
async def test_a_request_is_freed_at_its_end_without_a_garbage_collection(client: Client, name: str) -> None:
    method, path, options, status = REQUESTS[name]

    async def requests(count: int) -> None:
        for _ in range(count):
            response = await client.request(method, f"{TABLE}/{path}", headers=bearer(), **options)
            await response.read()
            assert response.status == status

    await requests(3)
    gc.collect()
    gc.disable()
    try:
        await requests(5)
        # The connection keeps the last one until the next request.
        assert sum(isinstance(found, RequestContext) for found in gc.get_objects()) <= 1
    finally:
        gc.enable()
