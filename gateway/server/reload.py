"""Reloads the configuration when its files change, on SIGHUP and on request; it is replaced as a whole.

In: the files, how to read them, and how to apply the result. Out: `apply` is called with a complete new
value or not at all. When reading fails, the current value stays in force and the log has the reason, once for
each state of the files. Files are polled: edits, ConfigMaps and secrets that are replaced by symbolic links
all look alike. A file is read once two looks find it the same: one that is still being written may be valid
without its last lines, such as those with the condition of a grant.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractContextManager, asynccontextmanager, nullcontext, suppress
from pathlib import Path
from typing import Generic, TypeVar

from gateway.config import ConfigError
from gateway.config.file_stamps import FileStamp, Stamp, stamp
from gateway.governance.follow import Failures, following, patiently

log = logging.getLogger("gateway.reload")

POLL_SECONDS = 0.5
PATIENCE_SECONDS = 10.0
"""A look at the files, or a reading, that lasts longer is reported: no change takes effect meanwhile."""

T = TypeVar("T")


class Reloader(Generic[T]):
    """Watches files and applies their content."""

    def __init__(
        self,
        paths: Callable[[], Sequence[Path]],
        load: Callable[[], T],
        apply: Callable[[T], Awaitable[None]],
        *,
        what: str = "configuration",
        outcome: Callable[[str | None], None] = lambda _refused: None,
        poll_seconds: float = POLL_SECONDS,
    ) -> None:
        """`load` runs in a thread and may raise anything; `paths` is called again after each reading.

        `outcome` is called after each reload with the reason why the content is refused, or None.
        `what` names the content in the log.
        """
        self._what = what
        self._paths = paths
        self._load = load
        self._apply = apply
        self._outcome = outcome
        self._poll_seconds = poll_seconds
        self.within: Callable[[], AbstractContextManager[None]] = nullcontext
        """Makes the context of each reload."""
        self.noticed: Callable[[str, str | None], None] = lambda _cause, _refused: None
        """Called after a reload by itself, with its cause and why the content is refused, or None."""
        self._failures = Failures(
            log,
            logging.ERROR,
            f"the {what} was not looked at, and will be: %s",
            f"the {what} can be looked at again",
        )
        self._seen: Stamp = ()
        self._named: Mapping[Path, FileStamp | None] = {}
        self._last_look: Stamp = ()
        self._requested = asyncio.Event()
        self._lock = asyncio.Lock()

    def ask(self) -> None:
        """Reload even if no file has changed (SIGHUP). Call it on the event loop."""
        self._requested.set()

    @asynccontextmanager
    async def watching(self, read: Stamp = ()) -> AsyncIterator[None]:
        """Watch within the context.

        `read`: the stamp of the first files, from before they were read. The other files count as read in
        their state at the beginning.
        """
        self._seen = read + stamp(self._paths())[len(read) :]
        async with following(
            self._look,
            self._take,
            self._report,
            retry_seconds=self._poll_seconds,
            patience_seconds=PATIENCE_SECONDS,
        ):
            yield

    async def _look(self) -> tuple[bool, bool]:
        """Return whether a reload is requested and whether files have changed, after a request or a time."""
        requested = await self._requested_within(self._poll_seconds)
        seen = self._seen
        try:
            # On a thread: the files may be on a mount that hangs.
            current = await asyncio.to_thread(stamp, [*self._paths(), *self._named])
        except Exception:
            if requested:
                self._requested.set()
            raise
        is_whole, self._last_look = current == self._last_look, current
        # They may have been read meanwhile, by a request of the admin API.
        return requested, is_whole and current not in (seen, self._seen)

    async def _take(self, look: tuple[bool, bool]) -> None:
        requested, has_changed = look
        if requested or has_changed:
            self.noticed("signal" if requested else "file", await self.reload())

    async def _report(self, error: Exception | None) -> None:
        self._failures.report(error)

    async def _requested_within(self, seconds: float) -> bool:
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._requested.wait()
        requested = self._requested.is_set()
        self._requested.clear()
        return requested

    async def reload(self) -> str | None:
        """Read and apply the files. Returns None, or why the current value stays in force."""
        # Of two concurrent readings, the older one could be applied last.
        async with self._lock:
            with self.within():
                return await self._reload()

    async def _reload(self) -> str | None:
        try:
            # The state of a file may be known while its mount hangs, but not its content.
            reading = patiently(lambda: asyncio.to_thread(self._read), self._report, PATIENCE_SECONDS)
            await self._apply(await reading)
        except Exception as error:  # noqa: BLE001 - any error keeps the current configuration
            log.error("the changed %s is refused, the current one stays in force: %s", self._what, error)  # noqa: TRY400
            refused = str(error) or type(error).__name__
            self._outcome(refused)
            return refused
        log.info("the %s was reloaded", self._what)
        self._outcome(None)
        return None

    def _read(self) -> T:
        # The stamp is older than the reading, so a change during the reading is read again.
        self._named, self._seen = {}, stamp(self._paths())
        try:
            return self._load()
        except ConfigError as refused:
            # A file of a secret may come after the file that names it.
            self._named = refused.secret_files
            self._seen += tuple(self._named.values())
            raise
