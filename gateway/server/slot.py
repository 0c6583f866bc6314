"""The slot of a worker: its sockets, and the messages between the worker and its supervisor.

The control socket is one of a connected pair. The supervisor first sends the length and the bytes of the
secrets, which belong neither on a command line nor in a file. Then both sides send lines of JSON: the worker
reports that it is ready, that it drains and which streams run for long, the supervisor requests a reload,
asks a question of the console or whether the worker lives, and the worker answers with its result.
"""

from __future__ import annotations

import asyncio
import faulthandler
import json
import logging
import signal
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

log = logging.getLogger("gateway.workers")

SLOT_VARIABLE = "DELTA_GATEWAY_WORKER"
STACKS_SIGNAL = signal.SIGUSR2
"""Lets a worker write the stacks of its threads."""
LENGTH_BYTES = 4
READ_BYTES = 65_536
MAX_WAITING_BYTES = 64 * 1024 * 1024
"""Of lines that the supervisor has not read; further lines are lost."""


class OutgoingLines:
    """Lines to the supervisor, in their order."""

    def __init__(self, control_socket: socket.socket) -> None:
        self._control_socket = control_socket
        self._waiting = bytearray()
        self._sending: asyncio.Task[None] | None = None

    def put(self, line: bytes) -> None:
        """Send a line soon. Never waits; call it on the event loop."""
        if len(self._waiting) + len(line) > MAX_WAITING_BYTES:
            log.error("the supervisor reads nothing: a message to it is lost")
            return
        self._waiting += line
        if self._sending is None or self._sending.done():
            self._sending = asyncio.ensure_future(self._send())

    async def _send(self) -> None:
        loop = asyncio.get_running_loop()
        with suppress(OSError):
            while self._waiting:
                lines = bytes(self._waiting)
                self._waiting.clear()
                # The socket takes long lines in several parts.
                await loop.sock_sendall(self._control_socket, lines)


@dataclass(frozen=True, slots=True)
class Slot:
    """A worker's index and count, its sockets, the files shared with its supervisor, and its secrets."""

    index: int
    count: int
    listener: socket.socket
    control_socket: socket.socket
    limits: int
    """The descriptor of the file of the limits that all workers share."""
    values: tuple[int, int]
    """The descriptors of the files of its metrics: counters and gauges."""
    secrets: bytes = field(repr=False)
    lines: OutgoingLines = field(repr=False)
    """To the supervisor, once its messages are followed."""

    @staticmethod
    def of_environment(environment: Mapping[str, str]) -> Slot | None:
        """Return the slot that a supervisor gave to this process; None for a process that serves alone.

        Raises ConnectionResetError when the supervisor has ended.
        """
        text = environment.get(SLOT_VARIABLE)
        if text is None:
            return None
        index, workers, listener, control, limits, counters, gauges, stacks = map(int, text.split(","))
        # They are written also while the event loop hangs.
        faulthandler.register(STACKS_SIGNAL, file=stacks, all_threads=True)
        control_socket = socket.socket(fileno=control)
        length = int.from_bytes(_received(control_socket, LENGTH_BYTES), "big")
        return Slot(
            index,
            workers,
            socket.socket(fileno=listener),
            control_socket,
            limits,
            (counters, gauges),
            _received(control_socket, length),
            OutgoingLines(control_socket),
        )

    def ready(self) -> None:
        """Report to the supervisor that this worker serves."""
        with suppress(OSError):
            self.control_socket.sendall(message_line(ready=True))

    async def follow(
        self,
        reload: Callable[[], Awaitable[str | None]],
        answer: Callable[[Any], Awaitable[Any]],
    ) -> None:
        """Reload and answer whenever the supervisor requests it; return when the supervisor has ended.

        `reload` returns None when the configuration was accepted, else the reason. `answer` returns the
        answer to a question of the console. Further messages are read meanwhile.
        """
        self.control_socket.setblocking(False)
        answering = set[asyncio.Task[None]]()
        try:
            with suppress(OSError):
                async for message in messages(self.control_socket):
                    if "ping" in message:
                        self.lines.put(message_line(pong=True))
                        continue
                    task = asyncio.create_task(self._respond(message, reload, answer))
                    answering.add(task)
                    task.add_done_callback(answering.discard)
        finally:
            # Nobody is left to read the answers.
            for task in tuple(answering):
                task.cancel()

    async def _respond(
        self,
        message: Mapping[str, Any],
        reload: Callable[[], Awaitable[str | None]],
        answer: Callable[[Any], Awaitable[Any]],
    ) -> None:
        value: Any = None
        try:
            if "question" in message:
                value = await answer(message["question"])
            else:
                value = {"refused": await reload()}
        except Exception:
            # No request ends a worker.
            log.exception("a request of the supervisor failed in this worker")
        self.lines.put(message_line(number=message["number"], answer=value))


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
