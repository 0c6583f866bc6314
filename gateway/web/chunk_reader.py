"""Reads native chunks without blocking the event loop.

Native threads make chunks ahead into a bounded queue. The reader takes the chunks that are ready, and
otherwise waits until the queue's file descriptor becomes readable.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from msgspec import Struct

from gateway.web.answer import Answer


class ChunkReader(Struct, eq=False):
    """Reads the chunks of an answer, and reports to the answer how they ended.

    `require_access` raises an error before a chunk is taken that may not be sent.
    """

    answer: Answer
    require_access: Callable[[], None]
    first: memoryview | None = None
    descriptor: int | None = None
    deadline: asyncio.TimerHandle | None = None
    readable: asyncio.Future[None] | None = None

    async def begin(self) -> None:
        """Wait for the `first` chunk. Raises the error that ended the native work before it."""
        self.first = await self._read()

    async def next(self) -> memoryview | None:
        """Return the next chunk, beginning with the first; None at the end. Raises errors of native work."""
        chunk, self.first = self.first, None
        return chunk or await self._read()

    async def _read(self) -> memoryview | None:
        chunks = self.answer.chunks
        while True:
            # A coded body that lacks a chunk could not be ended by a line that clients read.
            self.require_access()
            try:
                chunk = chunks.next_chunk()
            except Exception as error:  # noqa: BLE001 - it is raised as the client may see it
                self.answer.ended(error)
                raise self.answer.shared_error(error) from None
            if chunk is not None:
                return memoryview(chunk)
            if chunks.done:
                self.answer.ended(None)
                return None
            await self._wait()

    def close(self) -> None:
        """Stop waiting. Call it before the chunks are cancelled, which closes the descriptor."""
        if self.descriptor is not None:
            asyncio.get_running_loop().remove_reader(self.descriptor)
            self.descriptor = None
        if self.deadline is not None:
            self.deadline.cancel()
            self.deadline = None

    async def _wait(self) -> None:
        """Wait until a chunk may be ready, or the deadline has passed."""
        loop, chunks = asyncio.get_running_loop(), self.answer.chunks
        self.readable = loop.create_future()
        if self.descriptor is None:
            # It is readable only while a reader waits, so it stays registered from the first wait on.
            self.descriptor = chunks.fileno()
            loop.add_reader(self.descriptor, self._wake)
        if self.deadline is None and (seconds_left := chunks.seconds_left) is not None:
            self.deadline = loop.call_later(seconds_left, self._expire)
        await self.readable

    def _expire(self) -> None:
        self.deadline = None
        self._wake()

    def _wake(self) -> None:
        if self.readable is not None and not self.readable.done():
            self.readable.set_result(None)
