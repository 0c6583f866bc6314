"""Futures of native work that needs no Python thread.

In: a table to probe. Out: a future of the event loop. Native threads add results to one queue; the loop is
woken by the queue's descriptor and takes all results at once, so no native thread waits for the interpreter.
"""

from __future__ import annotations

import asyncio

from gateway import _native

Probed = _native.Snapshot | None


class Completions:
    """The futures of one event loop. Not thread-safe: for the event loop only."""

    def __init__(self) -> None:
        self._native: _native.Completions | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._futures: dict[int, asyncio.Future[Probed]] = {}
        self._number = 0

    def probe(self, table: _native.Table) -> asyncio.Future[Probed] | None:
        """Start a refresh of a table without a listing; None if its log has to be listed.

        The future's result is the latest version, or None if the log has to be listed after all.
        """
        self._number += 1
        if not table.start_probe(self._number, self._registered()):
            return None
        future = self._futures[self._number] = asyncio.get_running_loop().create_future()
        return future

    def close(self) -> None:
        """Stop waking the event loop; pending futures stay pending."""
        if self._native is not None and self._loop is not None and not self._loop.is_closed():
            self._loop.remove_reader(self._native.fileno())
        self._native = self._loop = None

    def _registered(self) -> _native.Completions:
        loop = asyncio.get_running_loop()
        if self._native is None or self._loop is not loop:
            self.close()
            self._native, self._loop = _native.Completions(), loop
            loop.add_reader(self._native.fileno(), self._take)
        return self._native

    def _take(self) -> None:
        if self._native is None:
            return
        for number, result in self._native.take():
            future = self._futures.pop(number)
            if future.done():
                continue
            if isinstance(result, Exception):
                future.set_exception(result)
            else:
                future.set_result(result)
