"""Asks one question over many connections as fast as a server answers: the client that costs least.

    python bench/load.py PORT PATH --connections 64 --requests 20000 --bytes N

Every answer must be a 200 of exactly so many bytes. Prints how many were answered in a second.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import time
from functools import partial
from typing import cast

import uvloop
from drain import TOKEN

GIVE_UP_SECONDS = 120


class Client(asyncio.Protocol):
    """One connection: the next request leaves when the answer is whole."""

    def __init__(self, request: bytes, body_bytes: int, left: list[int], ended: asyncio.Future[None]) -> None:
        self.request, self.body_bytes, self.left, self.ended = request, body_bytes, left, ended
        self.received = b""
        self.whole_bytes = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Ask for the first time."""
        # uvloop's transports are no subclass of asyncio.Transport.
        self.transport = cast("asyncio.Transport", transport)
        self._ask()

    def data_received(self, data: bytes) -> None:
        """Take a piece; ask again after the last one."""
        self.received += data
        if not self.whole_bytes:
            head, separator, _ = self.received.partition(b"\r\n\r\n")
            if not separator:
                return
            if not head.startswith(b"HTTP/1.1 200 ") or b"Content-Length: %d" % self.body_bytes not in head:
                self.ended.set_exception(AssertionError(f"wrong answer: {head!r}"))
                return
            self.whole_bytes = len(head) + len(separator) + self.body_bytes
        if len(self.received) == self.whole_bytes:
            self._ask()

    def connection_lost(self, error: Exception | None) -> None:
        """A server must not leave."""
        if not self.ended.done():
            self.ended.set_exception(error or ConnectionResetError("the server has left"))

    def _ask(self) -> None:
        self.received, self.whole_bytes = b"", 0
        if not self.left[0]:
            if not self.ended.done():
                self.ended.set_result(None)
            self.transport.close()
            return
        self.left[0] -= 1
        self.transport.write(self.request)


async def requests_per_second(
    port: int, path: str, *, connections: int, requests: int, body_bytes: int
) -> float:
    """How many are answered in a second."""
    body = b"{}"
    head = [
        f"POST {path} HTTP/1.1",
        f"Host: 127.0.0.1:{port}",
        f"Authorization: Bearer {TOKEN}",
        "Content-Type: application/json; charset=utf-8",
        "User-Agent: bench",
        "Accept: */*",
        f"Content-Length: {len(body)}",
    ]
    request = "\r\n".join([*head, "", ""]).encode() + body
    loop = asyncio.get_running_loop()
    left = [requests]
    ends = [loop.create_future() for _ in range(connections)]
    started = time.perf_counter()
    for end in ends:
        client = partial(Client, request, body_bytes, left, end)
        await loop.create_connection(client, "127.0.0.1", port)
    async with asyncio.timeout(GIVE_UP_SECONDS):
        await asyncio.gather(*ends)
    return requests / (time.perf_counter() - started)


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description="Measures requests per second.")
    parser.add_argument("port", type=int)
    parser.add_argument("path")
    parser.add_argument("--connections", type=int, default=64)
    parser.add_argument("--requests", type=int, default=10_000)
    parser.add_argument("--bytes", type=int, required=True)
    arguments = parser.parse_args()
    answered = requests_per_second(
        arguments.port,
        arguments.path,
        connections=arguments.connections,
        requests=arguments.requests,
        body_bytes=arguments.bytes,
    )
    print(json.dumps({"requests_per_second": uvloop.run(answered)}))


if __name__ == "__main__":
    main()
