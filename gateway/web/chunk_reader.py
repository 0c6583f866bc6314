"""Reads native chunks without blocking the event loop.

Native threads make chunks ahead into a bounded queue. The reader takes the chunks that are ready, and
otherwise waits until the queue's file descriptor becomes readable.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from gateway.web.answer import Answer


class ChunkReader:
    """Reads the chunks of an answer, and reports to the answer how they ended."""

    __slots__ = ("_answer", "_deadline", "_descriptor", "_readable", "_require_access", "first")

    def __init__(self, answer: Answer, require_access: Callable[[], None]) -> None:
        """`require_access` raises an error before a chunk is taken that may not be sent."""
        self.first: memoryview | None = None
        self._answer = answer
        self._require_access = require_access
        self._descriptor: int | None = None
        self._deadline: asyncio.TimerHandle | None = None
        self._readable: asyncio.Future[None] | None = None

    async def begin(self) -> None:
        """Wait for the `first` chunk. Raises the error that ended the native work before it."""
        self.first = await self._read()

    async def next(self) -> memoryview | None:
        """Return the next chunk, beginning with the first; None at the end. Raises errors of native work."""
        chunk, self.first = self.first, None
        return chunk or await self._read()

    async def _read(self) -> memoryview | None:
        chunks = self._answer.chunks
        while True:
            # A coded body that lacks a chunk could not be ended by a line that clients read.
            self._require_access()
            try:
                chunk = chunks.next_chunk()
            except Exception as error:  # noqa: BLE001 - it is raised as the client may see it
                self._answer.ended(error)
                raise self._answer.shared_error(error) from None
            if chunk is not None:
                return memoryview(chunk)
            if chunks.done:
                self._answer.ended(None)
                return None
            await self._wait()

    def close(self) -> None:
        """Stop waiting. Call it before the chunks are cancelled, which closes the descriptor."""
        if self._descriptor is not None:
            asyncio.get_running_loop().remove_reader(self._descriptor)
            self._descriptor = None
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    async def _wait(self) -> None:
        """Wait until a chunk may be ready, or the deadline has passed."""
        loop, chunks = asyncio.get_running_loop(), self._answer.chunks
        self._readable = loop.create_future()
        if self._descriptor is None:
            # It is readable only while a reader waits, so it stays registered from the first wait on.
            self._descriptor = chunks.fileno()
            loop.add_reader(self._descriptor, self._wake)
        if self._deadline is None and (seconds_left := chunks.seconds_left) is not None:
            self._deadline = loop.call_later(seconds_left, self._expire)
        await self._readable

    def _expire(self) -> None:
        self._deadline = None
        self._wake()

    def _wake(self) -> None:
        if self._readable is not None and not self._readable.done():
            self._readable.set_result(None)
