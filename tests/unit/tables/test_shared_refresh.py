"""Refreshes of a table are shared by the requests that came before they began."""

import asyncio
from typing import Any

import pytest

from gateway import _native
from gateway.errors import Unavailable
from gateway.tables.shared_refresh import SharedRefresh


class Refreshes:
    """Refreshes that a test ends by hand."""

    def __init__(self) -> None:
        self.begun: list[asyncio.Future[Any]] = []
        self.shared = SharedRefresh(self.refresh)

    async def refresh(self, _requests: Any) -> Any:
        self.begun.append(asyncio.get_running_loop().create_future())
        return await self.begun[-1]

    async def latest(self) -> Any:
        return await self.shared.latest()

    async def requests(self, count: int) -> list[asyncio.Task[Any]]:
        """That many requests, which have arrived."""
        made = [asyncio.create_task(self.latest()) for _ in range(count)]
        await settled()
        return made


async def settled() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


async def test_a_request_during_a_refresh_waits_for_the_next_one_which_all_later_ones_share() -> None:
    refreshes = Refreshes()
    first = await refreshes.requests(3)
    later = await refreshes.requests(1) + await refreshes.requests(4)
    assert len(refreshes.begun) == 1
    refreshes.begun[0].set_result("one")
    assert await asyncio.gather(*first) == ["one"] * 3
    await settled()
    assert len(refreshes.begun) == 2
    assert not any(request.done() for request in later)
    refreshes.begun[1].set_result("two")
    assert await asyncio.gather(*later) == ["two"] * 5
    await settled()
    assert len(refreshes.begun) == 2
    [last] = await refreshes.requests(1)
    refreshes.begun[2].set_result("three")
    assert await last == "three"


async def test_a_request_that_leaves_ends_no_other_one() -> None:
    refreshes = Refreshes()
    leaving, staying = await refreshes.requests(2)
    leaving.cancel()
    await settled()
    refreshes.begun[0].set_result("one")
    assert await staying == "one"
    assert leaving.cancelled()


@pytest.mark.parametrize("error", [_native.StorageUnavailable("down"), Unavailable("down")])
async def test_all_waiting_requests_share_the_failure_of_a_storage_that_is_down(error: Exception) -> None:
    refreshes = Refreshes()
    requests = await refreshes.requests(2) + await refreshes.requests(2)
    refreshes.begun[0].set_exception(error)
    assert await asyncio.gather(*requests, return_exceptions=True) == [error] * 4
    assert len(refreshes.begun) == 1


async def test_another_failure_is_that_of_the_requests_before_it() -> None:
    refreshes = Refreshes()
    first, later = await refreshes.requests(1), await refreshes.requests(1)
    error = _native.TableNotFound("no table")
    refreshes.begun[0].set_exception(error)
    assert await asyncio.gather(*first, return_exceptions=True) == [error]
    await settled()
    refreshes.begun[1].set_result("made")
    assert await asyncio.gather(*later) == ["made"]


class Probes(Refreshes):
    """Refreshes that begin as probes."""

    def __init__(self) -> None:
        super().__init__()
        self.ends: list[Any] = []
        self.error: Exception | None = None
        self.shared = SharedRefresh(self.refresh, self.probe)

    def probe(self, ended: Any, _requests: Any) -> bool:
        if self.error is not None:
            raise self.error
        self.ends.append(ended)
        return True


async def test_a_probe_answers_the_requests_that_came_before_it_without_a_refresh() -> None:
    probes = Probes()
    first, later = await probes.requests(2), await probes.requests(2)
    assert (len(probes.ends), probes.shared.requests()) == (1, 4)
    probes.ends[0]("one")
    assert await asyncio.gather(*first) == ["one"] * 2
    probes.ends[1]("two")
    assert await asyncio.gather(*later) == ["two"] * 2
    assert (len(probes.ends), len(probes.begun)) == (2, 0)


async def test_a_refresh_follows_a_probe_without_an_answer() -> None:
    probes = Probes()
    first, later = await probes.requests(1), await probes.requests(1)
    probes.ends[0](None)
    await settled()
    assert (len(probes.ends), len(probes.begun)) == (1, 1)
    probes.begun[0].set_result("one")
    assert await asyncio.gather(*first) == ["one"]
    probes.ends[1]("two")
    assert await asyncio.gather(*later) == ["two"]


async def test_the_failure_of_a_probe_is_that_of_its_requests() -> None:
    probes = Probes()
    first, later = await probes.requests(1), await probes.requests(1)
    down = _native.StorageUnavailable("down")
    probes.ends[0](down)
    assert await asyncio.gather(*first, *later, return_exceptions=True) == [down] * 2
    probes.error = _native.TableNotFound("no table")
    [request] = await probes.requests(1)
    assert await asyncio.gather(request, return_exceptions=True) == [probes.error]
    probes.error = None
    [last] = await probes.requests(1)
    probes.ends[1]("three")
    assert await last == "three"


async def test_requests_that_arrive_while_others_are_answered_share_the_next_refresh() -> None:
    refreshes = Refreshes()
    again: list[asyncio.Future[Any]] = []
    first = refreshes.shared.latest()
    first.add_done_callback(lambda _: again.append(refreshes.shared.latest()))
    await settled()
    waiting = await refreshes.requests(2)
    refreshes.begun[0].set_result("one")
    await settled()
    assert first.result() == "one"
    assert len(refreshes.begun) == 2
    refreshes.begun[1].set_result("two")
    assert await asyncio.gather(*waiting, *again) == ["two"] * 3
    assert len(refreshes.begun) == 2
