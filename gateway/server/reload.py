"""Reading the configuration again when its files change, on SIGHUP and on request; it is swapped whole.

In: which files, how to read them, and what to do with what was read. Out: `apply` is called with a whole
new value or not at all; when reading fails the old one stays in force and the log says why, once for each
state of the files. Files are looked at by polling: editors, ConfigMaps and secrets that are swapped by
symbolic links all look alike.
"""

from __future__ import annotations

import asyncio
import logging
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING, Generic, TypeVar

from gateway.config.file_stamps import Stamp, stamp

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
    from pathlib import Path

log = logging.getLogger("gateway.reload")

POLL_SECONDS = 0.5

T = TypeVar("T")


class Reloader(Generic[T]):
    """Watches files and swaps what is read from them."""

    def __init__(
        self,
        paths: Callable[[], Sequence[Path]],
        load: Callable[[], T],
        apply: Callable[[T], Awaitable[None]],
        *,
        what: str = "configuration",
        outcome: Callable[[bool], None] = lambda _ok: None,
        poll_seconds: float = POLL_SECONDS,
    ) -> None:
        """`load` runs in a thread and may raise anything; `paths` is called again after each reading.

        `what` is read, in the words of the log.
        """
        self._what = what
        self._paths = paths
        self._load = load
        self._apply = apply
        self._outcome = outcome
        self._poll_seconds = poll_seconds
        self._asked = asyncio.Event()
        self._one_at_a_time = asyncio.Lock()

    def ask(self) -> None:
        """Read again even if no file changed (SIGHUP). From the event loop."""
        self._asked.set()

    @asynccontextmanager
    async def watching(self, read: Stamp = ()) -> AsyncIterator[None]:
        """Watch for as long as the context lives.

        `read`: the stamp of the first of the files, from before they were read. The others count as read in
        the state at the beginning; without `read`, all do.
        """
        task = asyncio.ensure_future(self._recorder(read + stamp(self._paths())[len(read) :]))
        try:
            yield
        finally:
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task

    async def _recorder(self, seen: Stamp) -> None:
        while True:
            asked = await self._asked_within(self._poll_seconds)
            # In a thread, as the reading: the files may lie on a mount that hangs.
            found = await asyncio.to_thread(stamp, self._paths())
            if asked or found != seen:
                # The stamp is from before the reading: a change during it is read again.
                seen = found
                await self.reload()

    async def _asked_within(self, seconds: float) -> bool:
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._asked.wait()
        asked = self._asked.is_set()
        self._asked.clear()
        return asked

    async def reload(self) -> str | None:
        """Read and swap. None when that is done, else why it is refused and the old one stays in force."""
        # Of two readings at a time, the older could be the one that is applied last.
        async with self._one_at_a_time:
            try:
                loaded = await asyncio.to_thread(self._load)
                await self._apply(loaded)
            except Exception as error:  # noqa: BLE001 - whatever is wrong with the files, the old state stays
                log.error("the changed %s is refused, the old one goes on: %s", self._what, error)  # noqa: TRY400
                self._outcome(False)
                return str(error) or type(error).__name__
            log.info("the %s was read anew", self._what)
            self._outcome(True)
            return None
