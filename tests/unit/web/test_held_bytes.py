"""What the connections of recipients hold together."""

import asyncio
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from types import SimpleNamespace

import pytest
from aiohttp import web

from gateway.web import connections, held_bytes
from gateway.web.accepting import Site
from gateway.web.connections import Handler, Runner, Server
from gateway.web.held_bytes import GRACE_SECONDS, IN_GRACE, HeldBytes
from gateway.web.response import WholeResponse

BOUND = 1000
BOUND_BYTES = 1024 * 1024
ANSWER_BYTES = 10_000
MANY = 60
GET = b"GET / HTTP/1.1\r\nHost: h\r\n\r\n"
POST = b"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: %d\r\n\r\n"
Opened = tuple[asyncio.StreamReader, asyncio.StreamWriter]
Serve = Callable[[Handler], Awaitable[tuple[Server, Callable[[], Awaitable[Opened]]]]]


class Connection:
    def __init__(self) -> None:
        self.held = 0
        self.is_open = True

    def held_bytes(self) -> int:
        return self.held

    def abort(self) -> None:
        self.is_open = False


class Held:
    """Connections, and a clock that is set."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 0.0
        monkeypatch.setattr(held_bytes, "time", SimpleNamespace(monotonic=lambda: self.now))
        self.bytes = HeldBytes()
        self.bytes.bound_bytes = BOUND
        self.connections = [Connection() for _ in range(5)]

    def count(self, *held: int) -> None:
        for connection, connection.held in zip(self.connections, held, strict=False):
            self.bytes.count(connection)

    def open(self) -> list[bool]:
        return [connection.is_open for connection in self.connections]


@pytest.fixture
def held(monkeypatch: pytest.MonkeyPatch) -> Held:
    return Held(monkeypatch)


def test_the_connection_that_holds_for_longest_is_cut_off(held: Held) -> None:
    held.count(600)
    held.now = GRACE_SECONDS
    held.count(600, 300)
    assert held.open() == [True] * 5
    held.count(600, 300, 200)
    assert held.open() == [False, True, True, True, True]
    assert held.bytes.used_bytes == 500


def test_new_connections_may_hold_more_for_a_while(held: Held) -> None:
    held.count(BOUND, BOUND, BOUND, BOUND)
    assert held.open() == [True] * 5
    assert held.bytes.used_bytes == IN_GRACE * BOUND
    held.connections[4].held = 1
    held.bytes.count(held.connections[4])
    assert held.open() == [False, True, True, True, True]
    held.now = GRACE_SECONDS
    held.bytes.count(held.connections[4])
    assert held.open() == [False, False, False, False, True]


def test_what_clients_have_read_meanwhile_is_not_held(held: Held) -> None:
    held.count(900)
    held.now = GRACE_SECONDS
    held.connections[0].held = 0
    held.count(0, 900)
    assert held.open() == [True] * 5
    held.now = GRACE_SECONDS + 1
    # The time of the second began when it began to hold.
    held.count(200, 900)
    assert held.open() == [True] * 5


def test_a_closed_connection_holds_nothing(held: Held) -> None:
    held.count(900, 900)
    held.bytes.lost(held.connections[0])
    held.bytes.lost(held.connections[0])
    assert held.bytes.used_bytes == 900


@pytest.fixture
async def serve() -> AsyncIterator[Serve]:
    """What serves recipients by a handler within a bound. Returns the server and what opens a connection."""
    async with AsyncExitStack() as stack:

        async def serve(handler: Handler) -> tuple[Server, Callable[[], Awaitable[Opened]]]:
            runner = Runner(handler)
            server = runner._connections
            runner.limit(65, server.drain_rate, BOUND_BYTES)
            await runner.setup()
            listener = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
            await Site(runner, listener).start()
            stack.push_async_callback(runner.close)

            async def connect() -> Opened:
                reader, writer = await asyncio.open_connection(*listener.getsockname(), limit=1024)
                stack.callback(writer.close)
                return reader, writer

            return server, connect

        yield serve


async def answer(request: web.BaseRequest) -> web.StreamResponse:
    connections.authenticated(request)
    await request.read()
    return web.Response(body=b"x" * ANSWER_BYTES)


async def ask(opened: Opened) -> None:
    reader, writer = opened
    writer.write(GET)
    await reader.readuntil(b"\r\n\r\n")
    await reader.readexactly(ANSWER_BYTES)


@pytest.mark.parametrize(
    "sent",
    [
        pytest.param(GET * 2000, id="requests ahead"),
        pytest.param(GET[:-2] + (b"X: " + b"x" * 4000 + b"\r\n") * 5, id="head"),
        pytest.param(POST % 50_000 + b"x" * 40_000, id="body"),
    ],
)
async def test_what_recipients_send_and_do_not_read_is_bounded(
    monkeypatch: pytest.MonkeyPatch, serve: Serve, sent: bytes
) -> None:
    monkeypatch.setattr(held_bytes, "GRACE_SECONDS", 0.0)
    server, connect = await serve(answer)
    opened = []
    async with asyncio.timeout(20):
        for _ in range(MANY):
            opened.append(await connect())
            await ask(opened[-1])
            opened[-1][1].write(sent)
        while len(server.open) == MANY:
            await asyncio.sleep(0.001)
        assert BOUND_BYTES // 2 < server.held.used_bytes <= BOUND_BYTES
        assert len(server.open) > 1
        for _, writer in opened:
            writer.transport.abort()
        while server.held.used_bytes:
            await asyncio.sleep(0.001)


async def test_requests_whose_bodies_come_apart_hold_nothing(serve: Serve) -> None:
    counted = []

    async def handler(request: web.BaseRequest) -> web.StreamResponse:
        response = await answer(request)
        counted.append(server.held.used_bytes)
        return response

    server, connect = await serve(handler)
    reader, writer = await connect()
    async with asyncio.timeout(20):
        for _ in range(5):
            writer.write(POST % 2000)
            # The server reads a head and its body apart.
            await asyncio.sleep(0.01)
            writer.write(b"x" * 2000)
            await reader.readuntil(b"\r\n\r\n")
            await reader.readexactly(ANSWER_BYTES)
    assert counted == [0] * 5


@pytest.mark.parametrize("is_admitted", [False, True])
async def test_an_answer_with_memory_of_its_own_is_not_counted(
    monkeypatch: pytest.MonkeyPatch, serve: Serve, *, is_admitted: bool
) -> None:
    monkeypatch.setattr(held_bytes, "GRACE_SECONDS", 0.0)

    async def handler(request: web.BaseRequest) -> web.StreamResponse:
        connections.authenticated(request)
        if is_admitted:
            connections.admitted(request)
        return web.Response(body=bytes(16 * BOUND_BYTES))

    server, connect = await serve(handler)
    reader, writer = await connect()
    writer.write(GET)
    async with asyncio.timeout(20):
        await reader.readuntil(b"\r\n\r\n")
        await asyncio.sleep(0.05)
        assert len(server.open) == is_admitted
        if is_admitted:
            assert len(await reader.readexactly(16 * BOUND_BYTES)) == 16 * BOUND_BYTES


async def test_a_kept_connection_does_not_hold_its_last_answer(serve: Serve) -> None:
    responses = []

    async def handler(request: web.BaseRequest) -> web.StreamResponse:
        connections.authenticated(request)
        responses.append(WholeResponse(b"x" * ANSWER_BYTES, "Content-Type: text/plain\r\n"))
        return responses[-1]

    _, connect = await serve(handler)
    opened = await connect()
    async with asyncio.timeout(20):
        await ask(opened)
        while responses[0].body:
            await asyncio.sleep(0.001)
        await ask(opened)


async def test_strangers_that_close_take_no_room_of_recipients(
    monkeypatch: pytest.MonkeyPatch, serve: Serve
) -> None:
    monkeypatch.setattr(held_bytes, "GRACE_SECONDS", 0.0)
    server, connect = await serve(answer)
    head = GET[:-2] + (b"X: " + b"x" * 4000 + b"\r\n") * 5
    async with asyncio.timeout(20):
        recipient = await connect()
        await ask(recipient)
        recipient[1].write(head)
        while not server.held.used_bytes:
            await asyncio.sleep(0.001)
        server.held.bound_bytes = server.held.used_bytes
        for _ in range(3):
            _, writer = await connect()
            writer.write(head)
            await asyncio.sleep(0.02)
            writer.close()
        while len(server.open) > 1:
            await asyncio.sleep(0.001)
        recipient[1].write(b"\r\n")
        await recipient[0].readuntil(b"\r\n\r\n")
