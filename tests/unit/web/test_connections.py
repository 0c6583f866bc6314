"""Connections that are kept: what a client sends before the handler of its last request has ended."""

import asyncio
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import ExitStack, asynccontextmanager
from itertools import combinations

import pytest
import uvloop
from aiohttp import web

from gateway.web import connections, strangers
from gateway.web.accepting import Site
from gateway.web.connections import Handler, Runner

REQUEST = b"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 3\r\n\r\nabc"
HEAD = len(REQUEST) - 3
MIB = 1024 * 1024


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

    async with serving(handler) as connect, asyncio.timeout(20):
        reader, writer = await connect()
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
        writer.close()
    assert bodies == [b"abc"] * 3


async def test_requests_in_parts_that_end_beside_their_ends_are_answered() -> None:
    """A part may hold the end of a request, a whole one and the beginning of the next one."""
    requests = [REQUEST, b"GET / HTTP/1.1\r\nHost: h\r\n\r\n", REQUEST, b"GET / HTTP/1.1\r\nHost: h\r\n\r\n"]
    sent = b"".join(requests)
    ends = [sum(map(len, requests[:count])) for count in range(1, len(requests))]
    cuts = sorted({HEAD - 1, HEAD} | {end + beside for end in ends for beside in range(-2, 3)})
    may_end, bodies = asyncio.Event(), []

    async def handler(request: web.BaseRequest) -> web.StreamResponse:
        bodies.append(await request.read())
        await may_end.wait()
        return web.Response(text="ok")

    async with serving(handler) as connect, asyncio.timeout(20):
        opened = []
        for first, second in combinations(cuts, 2):
            reader, writer = await connect()
            opened.append((reader, writer))
            for part in (sent[:first], sent[first:second], sent[second:]):
                writer.write(part)
                # Until the server has it.
                await asyncio.sleep(0.002)
        may_end.set()
        for reader, writer in opened:
            for _ in requests:
                await reader.readuntil(b"ok")
            writer.close()
    assert sorted(bodies) == sorted([b"abc", b"", b"abc", b""] * len(opened))


@pytest.mark.parametrize("is_recipient", [False, True])
@pytest.mark.parametrize("kind", ["chunks", "long head"])
async def test_requests_over_a_kept_connection_are_no_part_of_later_heads(
    monkeypatch: pytest.MonkeyPatch, kind: str, *, is_recipient: bool
) -> None:
    """What is not exact in the count of a head's bytes does not add up."""
    monkeypatch.setattr(connections, "MAX_HEAD_BYTES", 6000)

    async def handler(request: web.BaseRequest) -> web.StreamResponse:
        if is_recipient:
            connections.authenticated(request)
        return web.Response(text=str(len(await request.read())))

    head, body = b"POST / HTTP/1.1\r\nHost: h\r\n", b"x" * 5000
    requests, size = {
        "chunks": (
            [head + b"Transfer-Encoding: chunked\r\n\r\n1388\r\n" + body + b"\r\n0\r\n\r\n"] * 4,
            5000,
        ),
        "long head": ([head + b"Content-Length: 3\r\nX: " + body + b"\r\n\r\n", b"abc"] * 70, 3),
    }[kind]
    async with serving(handler) as connect, asyncio.timeout(20):
        reader, writer = await connect()
        for part in requests:
            writer.write(part)
            # The server reads a head and its body apart.
            await asyncio.sleep(0.001)
            if part.endswith((b"abc", b"0\r\n\r\n")):
                head_of_answer = await reader.readuntil(b"\r\n\r\n")
                assert head_of_answer.startswith(b"HTTP/1.1 200"), head_of_answer
                assert await reader.readexactly(len(str(size))) == str(size).encode()
        # No answer to nothing.
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(reader.read(1), 0.05)
        writer.close()


@pytest.mark.parametrize("is_recipient", [False, True])
async def test_requests_that_strangers_send_ahead_in_a_flood_leave_turns_to_others(
    monkeypatch: pytest.MonkeyPatch, *, is_recipient: bool
) -> None:
    monkeypatch.setattr(strangers, "MAX_HELD_BYTES", 0)
    monkeypatch.setattr(connections, "AHEAD_SECONDS", 3600.0)

    async def handler(request: web.BaseRequest) -> web.StreamResponse:
        if is_recipient:
            connections.authenticated(request)
        return web.Response(text=str(len(await request.read())))

    async with serving(handler) as connect, asyncio.timeout(20):
        reader, writer = await connect()
        writer.write(2 * REQUEST)
        await reader.readuntil(b"\r\n\r\n3")
        second = asyncio.ensure_future(reader.readuntil(b"\r\n\r\n3"))
        done, _ = await asyncio.wait([second], timeout=20 if is_recipient else 0.1)
        assert bool(done) == is_recipient
        second.cancel()
        writer.close()
        # One that does not send ahead.
        reader, writer = await connect()
        for _ in range(2):
            writer.write(REQUEST)
            await reader.readuntil(b"\r\n\r\n3")
        writer.close()


async def test_a_stop_closes_connections_whose_next_request_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(strangers, "MAX_HELD_BYTES", 0)
    monkeypatch.setattr(connections, "AHEAD_SECONDS", 3600.0)

    async def handler(_request: web.BaseRequest) -> web.StreamResponse:
        return web.Response(text="ok")

    runner = Runner(handler)
    await runner.setup()
    with socket.create_server(("127.0.0.1", 0)) as listener:
        await Site(runner, listener).start()
        reader, writer = await asyncio.open_connection(*listener.getsockname())
        writer.write(2 * REQUEST)
        async with asyncio.timeout(20):
            await reader.readuntil(b"\r\n\r\nok")
            await runner.stop_accepting()
            assert await reader.read() == b""
        writer.close()
        await runner.close()


def test_a_stop_closes_connections_that_have_just_been_accepted() -> None:
    async def handler(_request: web.BaseRequest) -> web.StreamResponse:
        return web.Response()

    async def stop_after(rounds: int) -> None:
        runner = Runner(handler)
        await runner.setup()
        listener = socket.create_server(("127.0.0.1", 0))
        await Site(runner, listener).start()
        with ExitStack() as sockets:
            for _ in range(20):
                sockets.enter_context(socket.create_connection(listener.getsockname(), 20))
            for _ in range(rounds):
                await asyncio.sleep(0)
            await runner.stop_accepting()
            async with asyncio.timeout(20):
                while runner.strangers:
                    await asyncio.sleep(0)
        await runner.close()

    for rounds in range(8):
        uvloop.run(stop_after(rounds))


async def test_connections_of_a_burst_wait_to_be_accepted() -> None:
    async def handler(_request: web.BaseRequest) -> web.StreamResponse:
        return web.Response()

    runner = Runner(handler)
    await runner.setup()
    with socket.create_server(("127.0.0.1", 0)) as listener, ExitStack() as opened:
        await Site(runner, listener).start()
        # The server accepts none of them meanwhile: this blocks its loop.
        for _ in range(400):
            opened.enter_context(socket.create_connection(listener.getsockname(), 0.9))
        await runner.cleanup()


async def test_the_kernel_takes_little_of_an_answer_that_is_not_read() -> None:
    async def handler(_request: web.BaseRequest) -> web.StreamResponse:
        return web.Response(body=bytes(8 * MIB))

    runner = Runner(handler)
    await runner.setup()
    with socket.create_server(("127.0.0.1", 0)) as listener, socket.socket() as client:
        await Site(runner, listener).start()
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        client.connect(listener.getsockname())
        client.sendall(REQUEST)
        async with asyncio.timeout(20):
            while not (unsent_bytes := sum(found._unsent_bytes() for found in runner._connections.open)):
                await asyncio.sleep(0.01)
        assert 7 * MIB < unsent_bytes < 8 * MIB
        await runner.close()


@asynccontextmanager
async def serving(
    handler: Handler,
) -> AsyncIterator[Callable[[], Awaitable[tuple[asyncio.StreamReader, asyncio.StreamWriter]]]]:
    """Serves a handler until the block ends. Gives what opens a connection."""
    runner = Runner(handler)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    (address, *_) = runner.addresses
    try:
        yield lambda: asyncio.open_connection(*address)
    finally:
        await runner.cleanup()


def test_connections_that_wait_together_are_accepted_in_few_rounds() -> None:
    rounds = 0

    async def handler(_request: web.BaseRequest) -> web.StreamResponse:
        return web.Response()

    async def accept_all(sockets: ExitStack) -> None:
        nonlocal rounds
        runner = Runner(handler)
        await runner.setup()
        listener = socket.create_server(("127.0.0.1", 0))
        await Site(runner, listener).start()
        for _ in range(100):
            sockets.enter_context(socket.create_connection(listener.getsockname(), 20))
        while len(runner.strangers) < 100:
            await asyncio.sleep(0)
            rounds += 1
        await runner.close()

    with ExitStack() as sockets:
        uvloop.run(accept_all(sockets))
    # The event loop by itself takes a round for each.
    assert rounds < 50
