"""What the connections of recipients hold together."""

from __future__ import annotations

import asyncio
import socket
from types import SimpleNamespace

import pytest
from aiohttp import web

from gateway.web import connections, held_bytes
from gateway.web.connections import Runner, Site
from gateway.web.held_bytes import GRACE_SECONDS, IN_GRACE, HeldBytes

BOUND = 1000
ANSWER_BYTES = 10_000
GET = b"GET / HTTP/1.1\r\nHost: h\r\n\r\n"


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


@pytest.mark.parametrize(
    "sent",
    [
        pytest.param(GET * 2000, id="requests ahead"),
        pytest.param(GET[:-2] + (b"X: " + b"x" * 4000 + b"\r\n") * 5, id="head"),
        pytest.param(
            b"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 50000\r\n\r\n" + b"x" * 40_000, id="body"
        ),
    ],
)
async def test_what_recipients_send_and_do_not_read_is_bounded(
    monkeypatch: pytest.MonkeyPatch, sent: bytes
) -> None:
    monkeypatch.setattr(held_bytes, "GRACE_SECONDS", 0.0)
    bound_bytes, count = 1024 * 1024, 60

    async def handler(request: web.BaseRequest) -> web.StreamResponse:
        connections.authenticated(request)
        await request.read()
        return web.Response(body=b"x" * ANSWER_BYTES)

    runner = Runner(handler)
    server = runner._connections
    runner.limit(server.idle_seconds or 65, server.drain_rate, bound_bytes)
    await runner.setup()
    with socket.create_server(("127.0.0.1", 0)) as listener:
        await Site(runner, listener).start()
        opened = []
        async with asyncio.timeout(20):
            for _ in range(count):
                reader, writer = await asyncio.open_connection(*listener.getsockname(), limit=1024)
                opened.append(writer)
                writer.write(GET)
                await reader.readuntil(b"\r\n\r\n")
                await reader.readexactly(ANSWER_BYTES)
                writer.write(sent)
            while len(server.open) == count:
                await asyncio.sleep(0.001)
            assert bound_bytes // 2 < server.held.used_bytes <= bound_bytes
            assert len(server.open) > 1
            for writer in opened:
                writer.transport.abort()
            while server.held.used_bytes:
                await asyncio.sleep(0.001)
        await runner.cleanup()
