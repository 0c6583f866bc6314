"""Reads native chunks without blocking the event loop.

Native threads make chunks ahead into a bounded queue. The reader takes the chunks that are ready, and
otherwise waits until the queue's descriptor becomes readable.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    pass
from gateway.web.answer import Answer


class Pieces:
    """The pieces of an answer's body, when they are there."""

    __slots__ = ("_deadline", "_descriptor", "_sent", "_woken", "first")

    def __init__(self, sent: Answer) -> None:
        self.first: memoryview | None = None
        self._sent = sent
        self._descriptor: int | None = None
        self._deadline: asyncio.TimerHandle | None = None
        self._woken: asyncio.Future[None] | None = None

    async def begin(self) -> None:
        """Wait for the `first` piece. Raises what ended the native work before it."""
        self.first = await self._made()

    async def next(self) -> memoryview | None:
        """The next piece, beginning with the first; None at the end. Raises what ended the native work."""
        piece, self.first = self.first, None
        return piece or await self._made()

    async def _made(self) -> memoryview | None:
        chunks = self._sent.chunks
        while True:
            try:
                chunk = chunks.next_chunk()
            except Exception as error:  # noqa: BLE001 - it is raised as the client may see it
                self._sent.ended(error)
                raise self._sent.shared_error(error) from None
            if chunk is not None:
                return memoryview(chunk)
            if chunks.done:
                self._sent.ended(None)
                return None
            await self._readable()

    def close(self) -> None:
        """Listen no more. Before the native work is let go, which closes the descriptor."""
        if self._descriptor is not None:
            asyncio.get_running_loop().remove_reader(self._descriptor)
            self._descriptor = None
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    async def _readable(self) -> None:
        """Wait until there may be something new to say, which at the deadline there is."""
        loop, chunks = asyncio.get_running_loop(), self._sent.chunks
        self._woken = loop.create_future()
        if self._descriptor is None:
            # It is readable only while somebody waits, so it may stay registered from the first time on.
            self._descriptor = chunks.fileno()
            loop.add_reader(self._descriptor, self._wake)
        if self._deadline is None and (seconds_left := chunks.seconds_left) is not None:
            self._deadline = loop.call_later(seconds_left, self._late)
        await self._woken

    def _late(self) -> None:
        self._deadline = None
        self._wake()

    def _wake(self) -> None:
        if self._woken is not None and not self._woken.done():
            self._woken.set_result(None)
