"""The running requests of a process at its end."""

import asyncio
from types import SimpleNamespace
from typing import cast

from gateway.web.context import RequestContext
from gateway.web.running import RunningRequests


async def test_a_request_that_begins_during_the_drain_ends_like_those_before_it() -> None:
    running = RunningRequests()
    may_end = [asyncio.Event(), asyncio.Event()]

    async def request(number: int) -> int:
        running.add(cast("RequestContext", SimpleNamespace(memory=None)))
        await may_end[number].wait()
        return number

    first = asyncio.create_task(request(0))
    await asyncio.sleep(0)
    drained = asyncio.create_task(running.none(30))
    await asyncio.sleep(0)
    second = asyncio.create_task(request(1))
    await asyncio.sleep(0)
    may_end[0].set()
    assert await first == 0
    asyncio.get_running_loop().call_later(0.05, may_end[1].set)
    assert await drained
    assert await second == 1
    assert not await running.end(0)
