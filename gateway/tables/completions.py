"""Native work that an event loop starts and whose results it takes without a Python thread.

In: a table to probe. Out: a call with the result, on the event loop. The loop watches one descriptor for all
probes: its own thread sends and receives the requests of a probe, or native threads add results to a queue.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from gateway import _native

Probed = _native.Snapshot | Exception | None
"""The latest version, an error, or None if the log has to be listed."""


class Completions:
    """The probes of one event loop. Not thread-safe: for the event loop only."""

    def __init__(self) -> None:
        self._native: _native.Completions | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._ended: dict[int, Callable[[Probed], None]] = {}
        self._number = 0

    def probe(self, table: _native.Table, ended: Callable[[Probed], None]) -> bool:
        """Start a refresh of a table without a listing. False if its log has to be listed.

        `ended` is called on the event loop, later and once. It must not raise. Raises LogError.
        """
        self._number += 1
        if not table.start_probe(self._number, self._registered()):
            return False
        self._ended[self._number] = ended
        return True

    def close(self) -> None:
        """Stop waking the event loop; probes in flight have no end."""
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
            self._ended.pop(number)(result)
