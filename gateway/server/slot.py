"""The slot of a worker: its sockets, and what it and its supervisor send each other.

The control socket is one of a connected pair. The supervisor first sends the length and the bytes of the
secrets, which belong neither on a command line nor in a file. Then both sides send lines of JSON: the worker
reports that it is ready, the supervisor requests a reload or asks a question of the console, the worker
answers with its result.
"""

from __future__ import annotations

import asyncio
import json
import logging
import socket
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Mapping

log = logging.getLogger("gateway.workers")

SLOT_VARIABLE = "DELTA_GATEWAY_WORKER"
LENGTH_BYTES = 4
READ_BYTES = 65_536


@dataclass(frozen=True, slots=True)
class Slot:
    """A worker's index and count, its sockets, the file of the shared limits and its secrets."""

    index: int
    count: int
    listener: socket.socket
    control_socket: socket.socket
    limits: int
    """The descriptor of the file of the limits that all workers share."""
    secrets: bytes = field(default=b"", repr=False)

    @staticmethod
    def of_environment(environment: Mapping[str, str]) -> Slot | None:
        """Return the slot that a supervisor gave to this process; None for a process that serves alone.

        Raises ConnectionResetError when the supervisor has ended.
        """
        text = environment.get(SLOT_VARIABLE)
        if text is None:
            return None
        index, workers, listener, descriptor, limits = (int(part) for part in text.split(","))
        slot = Slot(index, workers, socket.socket(fileno=listener), socket.socket(fileno=descriptor), limits)
        return slot.with_secrets()

    def with_secrets(self) -> Slot:
        """Return the slot with the secrets, once they have arrived. Raises ConnectionResetError."""
        length = int.from_bytes(_received(self.control_socket, LENGTH_BYTES), "big")
        return replace(self, secrets=_received(self.control_socket, length))

    def ready(self) -> None:
        """Report to the supervisor that this worker serves."""
        with suppress(OSError):
            self.control_socket.sendall(message_line(ready=True))

    async def follow(
        self,
        reload: Callable[[], Awaitable[str | None]] | None = None,
        answer: Callable[[Any], Awaitable[Any]] | None = None,
    ) -> None:
        """Reload and answer whenever the supervisor requests it; return when the supervisor has ended.

        `reload` returns None when the configuration was accepted, else the reason. `answer` returns the
        answer to a question of the console, while further messages are read.
        """
        self.control_socket.setblocking(False)
        sending, answering = asyncio.Lock(), set[asyncio.Task[None]]()
        try:
            with suppress(OSError):
                async for message in messages(self.control_socket):
                    if "ask" in message:
                        task = asyncio.create_task(self._answer(message, answer, sending))
                        answering.add(task)
                        task.add_done_callback(answering.discard)
                        continue
                    refused = await reload() if reload is not None else "this worker reloads nothing"
                    await self._send(message_line(reload=message["reload"], refused=refused), sending)
        finally:
            # Nobody is left to read the answers.
            for task in tuple(answering):
                task.cancel()

    async def _answer(
        self,
        message: Mapping[str, Any],
        answer: Callable[[Any], Awaitable[Any]] | None,
        sending: asyncio.Lock,
    ) -> None:
        try:
            value = None if answer is None else await answer(message["question"])
        except Exception:
            # A question of the console never ends a worker.
            log.exception("a request of the console failed in this worker")
            value = None
        with suppress(OSError):
            await self._send(message_line(ask=message["ask"], answer=value), sending)

    async def _send(self, text: bytes, sending: asyncio.Lock) -> None:
        """Send a line whole: the socket takes long lines in several parts."""
        async with sending:
            await asyncio.get_running_loop().sock_sendall(self.control_socket, text)


def _received(control_socket: socket.socket, length: int) -> bytes:
    received = b""
    while len(received) < length:
        part = control_socket.recv(length - len(received))
        if not part:
            raise ConnectionResetError("the supervisor ended before it sent the secrets of this worker")
        received += part
    return received


def message_line(**message: Any) -> bytes:
    """Return a message as a line."""
    return json.dumps(message).encode() + b"\n"


async def messages(control_socket: socket.socket) -> AsyncIterator[dict[str, Any]]:
    """Iterate over the messages of the other side until it closes its end."""
    loop, received = asyncio.get_running_loop(), bytearray()
    while part := await loop.sock_recv(control_socket, READ_BYTES):
        received += part
        # A long line arrives in many parts, and is split once.
        if b"\n" in part:
            *whole, received = received.split(b"\n")
            for text in whole:
                yield json.loads(text)
