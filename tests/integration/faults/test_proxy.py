"""The fault proxy injects the configured faults only, as the fault tests require."""

import asyncio
import time
from dataclasses import replace

import aiohttp
import pytest
from aiohttp import web
from support.fault_proxy import HEALTHY, Fault, running

BODY = bytes(range(256)) * 400


@pytest.fixture
async def proxy(aiohttp_server):
    async def answer(request):
        if request.path == "/small":
            return web.Response(text="small")
        return web.Response(body=BODY)

    app = web.Application()
    app.router.add_get("/{name}", answer)
    server = await aiohttp_server(app)
    with running(server.port) as proxy:
        yield proxy


async def get(proxy, path="/large"):
    connector = aiohttp.TCPConnector(force_close=True)
    async with (
        aiohttp.ClientSession(connector=connector) as session,
        session.get(proxy.endpoint + path) as response,
    ):
        return response.status, await response.read()


async def test_healthy_bytes_pass_unchanged(proxy):
    assert await get(proxy) == (200, BODY)


async def test_a_cut_answer_is_an_error_for_the_client(proxy):
    proxy.fault = Fault(cut_after_bytes=5000)
    with pytest.raises(aiohttp.ClientPayloadError):
        await get(proxy)


async def test_one_byte_is_corrupted(proxy):
    proxy.fault = Fault(corrupt_at_byte=50_000)
    status, body = await get(proxy)
    assert status == 200
    assert len(body) == len(BODY)
    assert sum(ours != theirs for ours, theirs in zip(body, BODY, strict=True)) == 1


async def test_a_status_is_answered_only_where_it_is_meant(proxy):
    proxy.fault = Fault(status=503, only=lambda request: b"GET /large" in request)
    assert await get(proxy) == (503, b"")
    assert await get(proxy, "/small") == (200, b"small")


async def test_delays_and_slow_bytes_take_their_time(proxy):
    proxy.fault = Fault(delay_seconds=0.1)
    started = time.monotonic()
    assert (await get(proxy, "/small"))[0] == 200
    assert time.monotonic() - started >= 0.1
    proxy.fault = Fault(bytes_per_second=1000)
    started = time.monotonic()
    assert (await get(proxy, "/small"))[0] == 200
    assert time.monotonic() - started >= 0.05


async def test_refused_and_hanging_connections(proxy):
    proxy.fault = Fault(refuse=True)
    with pytest.raises(aiohttp.ClientConnectionError):
        await get(proxy)
    proxy.fault = replace(HEALTHY, hang=True)
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.2):
            await get(proxy)
    proxy.fault = HEALTHY
    assert await get(proxy) == (200, BODY)
    while proxy.open_connections:
        await asyncio.sleep(0.01)
