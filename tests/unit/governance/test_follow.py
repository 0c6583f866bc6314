"""The loop by which a server follows changes."""

import asyncio
import time

import pytest

from gateway.governance import follow
from gateway.governance.follow import following


async def nothing(_value: object) -> None:
    pass


async def test_a_reading_ends_with_the_context() -> None:
    begun, ended = asyncio.Event(), asyncio.Event()

    async def read() -> None:
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    async with following(read, nothing, nothing, retry_seconds=0.0):
        await begun.wait()
    assert ended.is_set()


async def test_time_in_which_the_process_was_stopped_is_no_silence_of_what_it_follows(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(follow, "LATE_SECONDS", 0.05)
    patience_seconds, begun = 0.1, asyncio.Event()
    reported: asyncio.Future[float] = asyncio.get_running_loop().create_future()

    async def read() -> None:
        begun.set()
        await asyncio.Event().wait()

    async def report(error: Exception | None) -> None:
        assert isinstance(error, TimeoutError)
        if not reported.done():
            reported.set_result(time.monotonic())

    async with following(read, nothing, report, retry_seconds=0.0, patience_seconds=patience_seconds):
        await begun.wait()
        # Nothing of the process runs.
        time.sleep(3 * patience_seconds)  # noqa: ASYNC251
        went_on_seconds = time.monotonic()
        assert await reported - went_on_seconds > 0.9 * patience_seconds
