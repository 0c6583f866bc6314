"""A TCP proxy that injects faults; it runs in a thread.

It stands between the gateway and its store, or between a client and the gateway. Bytes pass unchanged (so a
signature over the Host header stays valid) until a fault says otherwise; the fault may be changed at any
time and holds for bytes and connections from then on. HTTP is looked at only to answer a request with a
given status.
"""

import asyncio
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass

PIECE_BYTES = 16 * 1024


@dataclass(frozen=True)
class Fault:
    """A fault. Byte counts are of the answer to one piece of requests."""

    delay_seconds: float = 0.0
    """Before each piece of an answer."""
    bytes_per_second: int | None = None
    cut_after_bytes: int | None = None
    corrupt_at_byte: int | None = None
    """This byte of each answer is flipped."""
    status: int | None = None
    """Answer requests with it, without asking the other side."""
    refuse: bool = False
    """Close each connection at once, and a kept one at its next request."""
    hang: bool = False
    """Take requests and never answer."""
    only: Callable[[bytes], bool] = lambda _request: True
    """Selects the requests by their heads; a connection's bytes are those of its latest request."""


HEALTHY = Fault()


class FaultProxy:
    """One listening port in front of another; `fault` is what goes wrong from now on."""

    def __init__(self, upstream_port: int) -> None:
        self.upstream_port = upstream_port
        self.port = 0
        self.fault = HEALTHY
        # The first lines of requests.
        self.requests: list[str] = []
        self.connections = 0
        self.open_connections = 0
        # Connections on which an answer has started.
        self.answered = 0
        # Connections that were left without an answer.
        self.hanging = 0
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        self.open_connections += 1
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        try:
            await self._relay(reader, writer)
        except (OSError, asyncio.CancelledError):
            pass
        finally:
            self._tasks.discard(task)
            self.open_connections -= 1
            writer.transport.abort()

    async def _relay(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self.fault.refuse:
            return
        first = await reader.read(PIECE_BYTES)
        if not first:
            return
        up_reader, up_writer = await asyncio.open_connection("127.0.0.1", self.upstream_port)
        try:
            last_request = [first]
            requests = asyncio.create_task(self._requests(last_request, reader, writer, up_writer))
            answers = asyncio.create_task(self._answers(last_request, up_reader, writer))
            done, pending = await asyncio.wait({requests, answers}, return_when=asyncio.FIRST_COMPLETED)
            for task in pending:
                task.cancel()
            for task in done | pending:
                with suppress(OSError, asyncio.CancelledError):
                    await task
        finally:
            up_writer.transport.abort()

    async def _requests(
        self,
        last_request: list[bytes],
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        up_writer: asyncio.StreamWriter,
    ) -> None:
        piece = last_request[0]
        while piece:
            last_request[0] = piece
            self.requests.append(piece.partition(b"\r\n")[0].decode("latin-1"))
            fault = self.fault
            if fault.refuse:
                return
            if fault.only(piece):
                if fault.status is not None:
                    writer.write(
                        b"HTTP/1.1 %d Fault\r\nContent-Length: 0\r\nConnection: close\r\n\r\n" % fault.status
                    )
                    await writer.drain()
                    return
                if fault.hang:
                    self.hanging += 1
                    while await reader.read(PIECE_BYTES):
                        pass
                    return
            up_writer.write(piece)
            await up_writer.drain()
            piece = await reader.read(PIECE_BYTES)

    async def _answers(
        self, last_request: list[bytes], up_reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        sent, request = 0, last_request[0]
        while piece := await up_reader.read(PIECE_BYTES):
            if request is not last_request[0]:
                sent, request = 0, last_request[0]
            self.answered += not sent
            fault = self.fault if self.fault.only(last_request[0]) else HEALTHY
            if fault.delay_seconds:
                await asyncio.sleep(fault.delay_seconds)
            if fault.corrupt_at_byte is not None and sent <= fault.corrupt_at_byte < sent + len(piece):
                at = fault.corrupt_at_byte - sent
                piece = piece[:at] + bytes([piece[at] ^ 0x20]) + piece[at + 1 :]
            if fault.cut_after_bytes is not None and sent + len(piece) >= fault.cut_after_bytes:
                writer.write(piece[: max(0, fault.cut_after_bytes - sent)])
                await writer.drain()
                return
            sent += len(piece)
            await self._send(writer, piece, fault.bytes_per_second)
        # The other side has ended its answers; those that wait here still go out.
        writer.close()
        await writer.wait_closed()

    async def _send(self, writer: asyncio.StreamWriter, piece: bytes, bytes_per_second: int | None) -> None:
        if bytes_per_second is None:
            writer.write(piece)
            await writer.drain()
            return
        step = max(1, bytes_per_second // 20)
        for start in range(0, len(piece), step):
            part = piece[start : start + step]
            writer.write(part)
            await writer.drain()
            await asyncio.sleep(len(part) / bytes_per_second)


@contextmanager
def running(upstream_port: int) -> Iterator[FaultProxy]:
    """A proxy in front of a port of this machine, until the block ends."""
    proxy = FaultProxy(upstream_port)
    started, loop = threading.Event(), asyncio.new_event_loop()
    stop: asyncio.Future[None] = loop.create_future()

    async def serve() -> None:
        server = await asyncio.start_server(proxy._serve, "127.0.0.1", 0)
        proxy.port = server.sockets[0].getsockname()[1]
        started.set()
        await stop
        server.close()
        # A connection that was just accepted has a task that has not begun, which would not close it.
        await asyncio.sleep(0.05)
        for task in list(proxy._tasks):
            task.cancel()
        await asyncio.gather(*proxy._tasks, return_exceptions=True)

    def run() -> None:
        asyncio.set_event_loop(loop)
        try:
            loop.run_until_complete(serve())
        finally:
            loop.close()

    thread = threading.Thread(target=run, name="fault-proxy")
    thread.start()
    started.wait(10)
    try:
        yield proxy
    finally:
        loop.call_soon_threadsafe(stop.set_result, None)
        thread.join(10)
