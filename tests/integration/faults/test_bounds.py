"""Upper bounds of a server: hot columns of all workers, memory for many queries, work past a deadline."""

import asyncio
import hashlib
import math
import os
import socket
import time
import urllib.request
from pathlib import Path

import aiohttp
import pytest
from support.file_answers import HEADERS, Broken, query
from support.gateway_process import PREFIX, RunningGateway, running_gateway, share, table_path
from support.process_resources import resident
from support.processes import free_port
from support.waiting import until
from tables.large_logs import make_log

ADDS = 10_000
TABLES = 8
BUDGET_BYTES = 16 * 1024 * 1024
"""More than one table's columns, and less than those of all in two processes."""
OPERATOR = "a-token-of-the-operator"
HELD = "delta_gateway_cache_bytes"


@pytest.fixture(scope="module")
def tables(tmp_path_factory) -> dict[str, str]:
    root = tmp_path_factory.mktemp("bounds")
    maker = make_log()
    for number in range(TABLES):
        maker.make_log(root / f"t{number}", maker.LogOptions(adds=ADDS, commits=0, seed=number))
    return {f"t{number}": str(root / f"t{number}") for number in range(TABLES)}


def listens(port: int) -> bool:
    with socket.socket() as connection:
        return connection.connect_ex(("127.0.0.1", port)) == 0


def metric_value(port: int, metric: str) -> float:
    request = urllib.request.Request(
        f"http://127.0.0.1:{port}/metrics", headers={"Authorization": f"Bearer {OPERATOR}"}
    )
    with urllib.request.urlopen(request, timeout=20) as response:
        lines = response.read().decode().splitlines()
    return sum(float(line.rpartition(" ")[2]) for line in lines if line.startswith(metric))


async def query_once(gateway: RunningGateway, table: str) -> None:
    # A connection of its own, so that any of the workers may take it.
    connector = aiohttp.TCPConnector(force_close=True)
    async with aiohttp.ClientSession(connector=connector) as session:
        answer = await query(session, f"http://127.0.0.1:{gateway.port}", f"s.default.{table}")
        assert answer.files.count == ADDS


@pytest.mark.nightly
async def test_workers_hold_no_more_hot_columns_together_than_one_server_would(tables, tmp_path):
    admin = {"port": free_port(), "tokenSha256": hashlib.sha256(OPERATOR.encode()).hexdigest()}

    async def most_held(workers: int, budget_bytes: int) -> float:
        directory = tmp_path / f"{workers}-{budget_bytes}"
        directory.mkdir()
        section = {"admin": admin, "cache": {"memoryBytes": budget_bytes}, "drainDelaySeconds": 0}
        with running_gateway(directory, [share("s", tables)], section, workers=workers) as gateway:
            # The operator's listener comes when all workers are there.
            await until(lambda: listens(admin["port"]))
            most = 0.0
            for number in range(40):
                await query_once(gateway, f"t{number % TABLES}")
                most = max(most, await asyncio.to_thread(metric_value, admin["port"], HELD))
            # The workers tell what they hold twice a second.
            await asyncio.sleep(1.5)
            return max(most, await asyncio.to_thread(metric_value, admin["port"], HELD))

    ample = await most_held(2, 64 * BUDGET_BYTES)
    assert ample > 2 * BUDGET_BYTES, "two processes would hold much more, each all tables"
    assert BUDGET_BYTES / 4 < await most_held(2, BUDGET_BYTES) <= BUDGET_BYTES


LARGE_ADDS = 200_000
AT_ONCE = 40
NOTHING = {"predicateHints": ["value < -1"]}
"""Drops every file by its statistics, after all of them were read."""


def processor_seconds(gateway: RunningGateway) -> float:
    fields = Path(f"/proc/{gateway.process.pid}/stat").read_text().rpartition(")")[2].split()
    return sum(map(int, fields[11:13])) / os.sysconf("SC_CLK_TCK")


@pytest.fixture(scope="module")
def large(tmp_path_factory) -> dict[str, str]:
    root = tmp_path_factory.mktemp("large") / "t"
    maker = make_log()
    maker.make_log(root, maker.LogOptions(adds=LARGE_ADDS, commits=0))
    return {"t": str(root)}


async def statuses(gateway: RunningGateway, count: int) -> list[int]:
    """How so many requests ended that ask for nothing at once."""
    url = f"http://127.0.0.1:{gateway.port}{PREFIX}{table_path('s.default.t')}/query"

    async def one(session: aiohttp.ClientSession) -> int:
        async with session.post(url, json=NOTHING, headers=HEADERS) as response:
            body = await response.read()
            assert response.status == 200 or b"longer than its time limit" in body
            return response.status

    connector = aiohttp.TCPConnector(limit=0)
    async with aiohttp.ClientSession(connector=connector) as session, asyncio.timeout(90):
        return await asyncio.gather(*(one(session) for _ in range(count)))


@pytest.mark.alone
async def test_native_work_ends_at_the_deadline_of_its_request(large, tmp_path):
    # One thread, so that all of them together take much longer than their time, on any machine.
    section = {"cache": {"memoryBytes": 0, "threads": 1}, "drainDelaySeconds": 0}
    with running_gateway(tmp_path, [share("s", large)], section) as gateway:
        started = time.monotonic()
        assert await statuses(gateway, 1) == [200]
        # A busy machine takes longer for one: its time limit is for some of them, and far from all.
        limit_seconds = max(2, math.ceil(3 * (time.monotonic() - started)))
    limits = {"requestTimeoutSeconds": limit_seconds}
    with running_gateway(tmp_path, [share("s", large)], section, **limits) as gateway:
        before = processor_seconds(gateway)
        assert await statuses(gateway, 1) == [200]
        one_seconds = processor_seconds(gateway) - before
        ended = await statuses(gateway, AT_ONCE)
        assert ended.count(503) > AT_ONCE / 4
        spent_seconds = processor_seconds(gateway) - before - one_seconds
        after_seconds = await seconds_until_idle(gateway)
    assert spent_seconds < 0.75 * AT_ONCE * one_seconds
    # Work that went on would be the rest, more than a quarter.
    assert after_seconds < 0.1 * AT_ONCE * one_seconds


async def seconds_until_idle(gateway) -> float:
    """Wait until a server has nothing to do; return the processor time that it took until then."""
    first = last = processor_seconds(gateway)
    while True:
        await asyncio.sleep(0.2)
        now = processor_seconds(gateway)
        if now - last <= 0.01:
            return now - first
        last = now


LIMIT_BYTES = 256 * 1024 * 1024


@pytest.mark.alone
@pytest.mark.nightly
async def test_queries_that_do_not_fit_wait_or_are_sent_away_and_the_process_stays_below_its_limit(
    large, tmp_path
):
    section = {
        "cache": {"memoryBytes": 0},
        "drainDelaySeconds": 0,
        "limits": {"memoryBytes": LIMIT_BYTES, "queuedStreams": 20, "queueSeconds": 2},
    }
    most_held = 0
    with running_gateway(tmp_path, [share("s", large)], section) as gateway:

        async def watch() -> None:
            nonlocal most_held
            while True:
                most_held = max(most_held, resident(gateway))
                await asyncio.sleep(0.02)

        async def one(session: aiohttp.ClientSession) -> int | str:
            try:
                answer = await query(
                    session, f"http://127.0.0.1:{gateway.port}", "s.default.t", with_end=True
                )
            except Broken as broken:
                return str(broken)
            return answer.files.count

        watching = asyncio.ensure_future(watch())
        connector = aiohttp.TCPConnector(limit=0)
        async with aiohttp.ClientSession(connector=connector) as session, asyncio.timeout(120):
            ended = await asyncio.gather(*(one(session) for _ in range(AT_ONCE)))
        watching.cancel()
        assert gateway.process.poll() is None
    busy = '503 {"errorCode":"TEMPORARILY_UNAVAILABLE","message":"the server is busy"}'
    assert {*ended} == {LARGE_ADDS, busy}
    assert most_held < 1.25 * LIMIT_BYTES
