"""Sends one kind of request over many connections as fast as the server answers, at little cost.

    python bench/load.py PORT PATH [--token TOKEN] [--connections 64] [--requests 10000]
        [--get | --different-bodies] [--new-connections] [--version N] [--digest HEX]

Every answer must have status 200, the expected table version in its header, and the expected digest of its
files. Bodies are kept while the clock runs and checked afterwards. Prints the requests per second.
"""

import argparse
import asyncio
import json
import os
import time
from collections import Counter
from dataclasses import dataclass, field
from functools import partial
from itertools import count
from typing import cast

import uvloop
from drain import TOKEN_VARIABLE, digest_of

TIMEOUT_SECONDS = 300
FIRST_LIMIT = 1_000_000
"""`limitHint` of the first of different bodies: more than the table has files; all have the same length."""


@dataclass
class Load:
    """The requests of one run and the bodies of their answers."""

    port: int
    path: str
    token: str
    requests: int
    is_get: bool = False
    different_bodies: bool = False
    new_connections: bool = False
    version: int | None = None
    bodies: Counter[bytes] = field(default_factory=Counter)

    def __post_init__(self) -> None:
        self.left = self.requests
        self._received: list[bytes] = []
        self._limits = count(FIRST_LIMIT)
        body = b"" if self.is_get else self._body()
        head = [
            f"{'GET' if self.is_get else 'POST'} {self.path} HTTP/1.1",
            f"Host: 127.0.0.1:{self.port}",
            f"Authorization: Bearer {self.token}",
            "User-Agent: bench",
            "Accept: */*",
        ]
        if not self.is_get:
            head += ["Content-Type: application/json; charset=utf-8", f"Content-Length: {len(body)}"]
        self._head = "\r\n".join([*head, "", ""]).encode()
        self._same = self._head + body

    def next_request(self) -> bytes | None:
        """Return the bytes of the next request; None after the last one."""
        if not self.left:
            return None
        self.left -= 1
        return self._head + self._body() if self.different_bodies else self._same

    def take(self, body: bytes) -> None:
        """Keep the body of an answer."""
        self._received.append(body)

    def check(self, digest: str | None) -> None:
        """Check all bodies. Raises AssertionError for a wrong one."""
        self.bodies.update(self._received)
        if self.bodies.total() != self.requests:
            raise AssertionError(f"{self.bodies.total()} answers to {self.requests} requests")
        for body in self.bodies if digest else ():
            if digest_of(body)[1] != digest:
                raise AssertionError(f"wrong files: {body[:2000]!r}")

    def _body(self) -> bytes:
        return b'{"limitHint":%d}' % next(self._limits) if self.different_bodies else b"{}"


class Client(asyncio.Protocol):
    """One connection: the next request leaves when the answer is whole."""

    def __init__(self, load: Load, ended: asyncio.Future[None]) -> None:
        self.load, self.ended = load, ended
        self.received = b""
        self.body_from = self.whole_bytes = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Send the first request of the connection."""
        # uvloop's transports are no subclass of asyncio.Transport.
        self.transport = cast("asyncio.Transport", transport)
        self._send()

    def data_received(self, data: bytes) -> None:
        """Take a piece; send the next request after the last one."""
        self.received += data
        if not self.whole_bytes and not self._parse_head():
            return
        if len(self.received) == self.whole_bytes:
            self.load.take(self.received[self.body_from :])
            if self.load.new_connections:
                self.transport.close()
                self._end()
            else:
                self._send()

    def connection_lost(self, error: Exception | None) -> None:
        """Fail the run: the server must not close a connection."""
        if not self.ended.done():
            self.ended.set_exception(error or ConnectionResetError("the server closed the connection"))

    def _parse_head(self) -> bool:
        """Return whether the head is whole and right."""
        head, separator, _ = self.received.partition(b"\r\n\r\n")
        if not separator:
            return False
        lines = head.lower().split(b"\r\n")
        headers = dict(line.split(b": ", 1) for line in lines[1:])
        version = self.load.version
        if (
            not lines[0].startswith(b"http/1.1 200")
            or b"content-length" not in headers
            or (version is not None and headers.get(b"delta-table-version") != b"%d" % version)
        ):
            self.ended.set_exception(AssertionError(f"wrong answer: {head!r}"))
            self.transport.close()
            return False
        self.body_from = len(head) + len(separator)
        self.whole_bytes = self.body_from + int(headers[b"content-length"])
        return True

    def _send(self) -> None:
        self.received, self.whole_bytes = b"", 0
        request = self.load.next_request()
        if request is None:
            self._end()
            self.transport.close()
        else:
            self.transport.write(request)

    def _end(self) -> None:
        if not self.ended.done():
            self.ended.set_result(None)


async def connection(load: Load) -> None:
    """Send requests over one connection, or each over a new one, until none is left."""
    loop = asyncio.get_running_loop()
    while load.left:
        ended = loop.create_future()
        await loop.create_connection(partial(Client, load, ended), "127.0.0.1", load.port)
        await ended


async def requests_per_second(load: Load, connections: int) -> float:
    """Send all requests and return the rate of their answers."""
    started = time.perf_counter()
    async with asyncio.timeout(TIMEOUT_SECONDS):
        await asyncio.gather(*(connection(load) for _ in range(connections)))
    return load.requests / (time.perf_counter() - started)


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(description="Measures requests per second.")
    parser.add_argument("port", type=int)
    parser.add_argument("path")
    parser.add_argument("--token", default=os.environ.get(TOKEN_VARIABLE, ""))
    parser.add_argument("--connections", type=int, default=64)
    parser.add_argument("--requests", type=int, default=10_000)
    parser.add_argument("--get", action="store_true")
    parser.add_argument("--different-bodies", action="store_true")
    parser.add_argument("--new-connections", action="store_true")
    parser.add_argument("--version", type=int)
    parser.add_argument("--digest")
    arguments = parser.parse_args()
    load = Load(
        arguments.port,
        arguments.path,
        arguments.token,
        arguments.requests,
        arguments.get,
        arguments.different_bodies,
        arguments.new_connections,
        arguments.version,
    )
    rate = uvloop.run(requests_per_second(load, arguments.connections))
    load.check(arguments.digest)
    print(json.dumps({"requests_per_second": rate, "distinct": len(load.bodies)}))


if __name__ == "__main__":
    main()
