"""The loop by which a server follows changes."""

from __future__ import annotations

import asyncio

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
