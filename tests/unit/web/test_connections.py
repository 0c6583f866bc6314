"""Connections that are kept: what a client sends before the handler of its last request has ended."""

import asyncio

import pytest
from aiohttp import web

from gateway.web.connections import Runner

REQUEST = b"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 3\r\n\r\nabc"
HEAD = len(REQUEST) - 3


@pytest.mark.parametrize("early", [0, 10, HEAD - 1, HEAD, HEAD + 1, len(REQUEST), len(REQUEST) + HEAD])
async def test_requests_that_come_in_parts_while_a_handler_goes_on_are_answered(early: int) -> None:
    """Clients send a head and its body apart, and a handler may go on when its answer is whole."""
    may_end, bodies = asyncio.Event(), []

    async def handler(request: web.BaseRequest) -> web.StreamResponse:
        bodies.append(await request.read())
        response = web.StreamResponse(headers={"Content-Length": "2"})
        await response.prepare(request)
        await response.write(b"ok")
        await response.write_eof()
        await may_end.wait()
        return response

    runner = Runner(handler)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    (address, *_) = runner.addresses
    reader, writer = await asyncio.open_connection(*address)
    try:
        async with asyncio.timeout(20):
            writer.write(REQUEST)
            await reader.readuntil(b"ok")
            later = 2 * REQUEST
            writer.write(later[:early])
            # Until the server has it.
            await asyncio.sleep(0.05)
            may_end.set()
            await asyncio.sleep(0.05)
            writer.write(later[early:])
            for _ in range(2):
                await reader.readuntil(b"ok")
    finally:
        writer.close()
        await runner.cleanup()
    assert bodies == [b"abc"] * 3
