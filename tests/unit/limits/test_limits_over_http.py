"""Limits of a full server over HTTP: a client waits, or gets the time of its next attempt."""

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Awaitable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from support.file_answers import HEADERS, Broken, Files, Whole, query
from support.gateway_process import PREFIX, RunningGateway, running_gateway, share, table_path
from support.processes import children
from support.waiting import until
from tables.large_logs import make_log

pytestmark = pytest.mark.processes

ADDS = 40_000
TABLE = "s.default.t"
GIBIBYTE = 1 << 30


@pytest.fixture(scope="module")
def table(tmp_path_factory) -> tuple[Path, Files]:
    root = tmp_path_factory.mktemp("admission") / "table"
    maker = make_log()
    found = maker.make_log(root, maker.LogOptions(adds=ADDS, commits=2))
    return root, Files(found["files"], int(found["digest"], 16))


def served(directory: Path, table: tuple[Path, Files], limits: dict[str, Any], workers: int = 1):
    section = {"limits": limits, "drainDelaySeconds": 0, "drainSeconds": 0}
    return running_gateway(directory, [share("s", {"t": str(table[0])})], section, workers=workers)


@asynccontextmanager
async def held(session: aiohttp.ClientSession, gateway: RunningGateway) -> AsyncIterator[Any]:
    """A stream that has started, and whose client does not continue to read."""
    url = f"http://127.0.0.1:{gateway.port}{PREFIX}{table_path(TABLE)}/query"
    async with session.post(url, json={}, headers=HEADERS) as response:
        assert response.status == 200
        await response.content.read(1)
        yield response
        response.close()


async def settled(answer: Awaitable[Whole]) -> Files | str:
    """The files of a whole answer, or what was said instead."""
    try:
        return (await answer).files
    except Broken as broken:
        return str(broken)


async def refused(gateway: RunningGateway) -> tuple[int, str, int]:
    answer = await asyncio.to_thread(gateway.query, TABLE)
    return answer.status, answer.json["errorCode"], int(answer.headers["Retry-After"])


FULL = {
    "memory": (
        {"memoryBytes": GIBIBYTE, "streamBytes": GIBIBYTE // 4, "queuedStreams": 0},
        (503, "TEMPORARILY_UNAVAILABLE"),
    ),
    "streams of a recipient": (
        {"recipient": {"concurrentStreams": 2, "queueLength": 0}},
        (429, "RESOURCE_EXHAUSTED"),
    ),
}


@pytest.mark.parametrize(("limits", "expected"), FULL.values(), ids=FULL.keys())
async def test_a_request_over_the_limit_gets_retry_after_and_then_succeeds(table, tmp_path, limits, expected):
    with served(tmp_path, table, limits) as gateway:
        async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as session:
            async with held(session, gateway), held(session, gateway):
                status, code, seconds = await refused(gateway)
                assert (status, code) == expected
                assert 1 <= seconds < 7, "Spark gives up after 7 s"
                # Small answers are not concerned.
                assert (await asyncio.to_thread(gateway.request, "GET", "/shares")).status == 200
            await until(lambda: gateway.log.read_text().count('"status":499') == 2)
            answer = await query(session, f"http://127.0.0.1:{gateway.port}", TABLE)
        assert answer.files == table[1]


async def test_slow_readers_leave_room_for_files_in_memory(table, tmp_path):
    limits, refusal = FULL["memory"]
    maker = make_log()
    maker.make_log(tmp_path / "small", maker.LogOptions(adds=20))
    tables = share("s", {"t": str(table[0]), "small": str(tmp_path / "small")})
    with running_gateway(tmp_path, [tables], {"limits": limits}) as gateway:
        assert gateway.query("s.default.small").status == 200
        async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as session:
            async with held(session, gateway), held(session, gateway):
                assert (await refused(gateway))[:2] == refusal
                assert gateway.query("s.default.small", {"limitHint": 3}).status == 200
                page: dict[str, Any] = {"maxFiles": 6}
                for _ in range(4):
                    answer = gateway.query("s.default.small", page)
                    assert answer.status == 200
                    page["pageToken"] = answer.lines[-1]["endStreamAction"]["nextPageToken"]
                hints = ["id = 1"] * 20_000
                assert gateway.query("s.default.small", {"predicateHints": hints[:1000]}).status == 200
                for count in (2000, len(hints)):
                    body = {"predicateHints": hints[:count]}
                    assert gateway.query("s.default.small", body).status == 503
                assert gateway.query("s.default.small", {"version": 0}).status == 503
                metadata = f"{table_path('s.default.small')}/metadata"
                assert gateway.request("GET", metadata).status == 200
                assert gateway.request("GET", f"{metadata}?version=0").status == 503
            await until(lambda: gateway.log.read_text().count('"status":499') == 2)
            url = f"http://127.0.0.1:{gateway.port}"
            await query(session, url, TABLE)
            async with held(session, gateway), held(session, gateway), held(session, gateway):
                assert (await query(session, url, TABLE)).files == table[1]
                assert gateway.query(TABLE, {"version": 0}).status == 200


async def test_bodies_under_way_take_the_memory_of_answers(table, tmp_path):
    limits = {"memoryBytes": GIBIBYTE, "streamBytes": GIBIBYTE * 2 // 3, "queuedStreams": 0}
    with served(tmp_path, table, limits) as gateway:
        assert gateway.query(TABLE, {"limitHint": 1}).status == 200
        fields = {"host": "gateway", "content-length": "1000000", **HEADERS}
        head = "".join(f"{name}: {value}\r\n" for name, value in fields.items())
        request = f"POST {PREFIX}{table_path(TABLE)}/query HTTP/1.1\r\n{head}\r\n{{".encode()
        async with AsyncExitStack() as bodies:
            # Two in the part of answers from memory, and sixteen in the one that an answer of a log takes.
            for _ in range(18):
                _, writer = await asyncio.open_connection("127.0.0.1", gateway.port)
                bodies.callback(writer.close)
                writer.write(request)
            await until(lambda: gateway.query(TABLE, {"limitHint": 1}).status == 503)
            # Also a short one that may be long when it is decoded.
            coded = {"content-encoding": "gzip"}
            queries = f"{table_path(TABLE)}/queries/1"
            await until(lambda: gateway.request("POST", queries, {}, coded).status == 503)
            assert gateway.request("POST", queries, {}).status == 404
        await until(lambda: gateway.query(TABLE, {"limitHint": 1}).status == 200)


@pytest.mark.nightly
async def test_streams_are_limited_over_all_workers_and_those_of_a_killed_worker_are_given_back(
    table, tmp_path
):
    limits = {"recipient": {"concurrentStreams": 3, "queueLength": 0}}
    with served(tmp_path, table, limits, workers=4) as gateway:
        await until(lambda: "serving by 4 workers" in gateway.log.read_text())
        async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as session:
            for _ in range(2):
                async with held(session, gateway), held(session, gateway), held(session, gateway):
                    for _ in range(8):
                        assert (await refused(gateway))[:2] == (429, "RESOURCE_EXHAUSTED")
                    killed = children(gateway.process.pid)
                    for worker in killed:
                        os.kill(worker, signal.SIGKILL)
                await until(lambda: len({*children(gateway.process.pid)} - {*killed}) == 4)  # noqa: B023 - at once


async def test_a_waiting_request_is_admitted_when_another_ends(table, tmp_path):
    limits = {"memoryBytes": GIBIBYTE, "streamBytes": GIBIBYTE, "queueSeconds": 6}
    with served(tmp_path, table, limits) as gateway:
        async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as session:
            async with held(session, gateway):
                answer = asyncio.ensure_future(query(session, f"http://127.0.0.1:{gateway.port}", TABLE))
                await asyncio.sleep(0.2)
                assert not answer.done()
            assert (await answer).files == table[1]


def test_a_process_at_its_memory_limit_goes_on_to_answer(table, tmp_path):
    # About what a process without any table takes.
    with served(tmp_path, table, {"memoryBytes": 64 << 20, "queueSeconds": 6}) as gateway:
        for _ in range(4):
            assert gateway.query(TABLE, {"limitHint": 1}).status == 200
        assert gateway.request("GET", "/shares").status == 200
