"""Admission by cost: capacity is always returned, and large costs do not starve."""

import asyncio

from gateway.limits.admission import Admission


async def test_a_large_cost_is_not_starved_by_small_ones():
    admission = Admission(10, queue_length=10, queue_seconds=5)
    assert await admission.enter(6)
    large = asyncio.ensure_future(admission.enter(9))
    await asyncio.sleep(0)
    small = asyncio.ensure_future(admission.enter(1))
    await asyncio.sleep(0)
    assert not small.done()
    admission.leave(6)
    assert await large
    assert await small
    assert (admission.used, admission.waiting) == (10, 0)


async def test_a_cost_above_the_capacity_goes_alone():
    admission = Admission(10, queue_length=1, queue_seconds=0.01)
    assert await admission.enter(100)
    assert not await admission.enter(1)
    admission.leave(100)
    assert admission.used == 0


async def test_storms_of_cancelled_and_timed_out_waiters_give_every_place_back():
    admission = Admission(3, queue_length=1000, queue_seconds=0.05)

    async def one(number):
        if await admission.enter(1 + number % 3):
            try:
                await asyncio.sleep(0.001 * (number % 7))
            finally:
                admission.leave(1 + number % 3)

    tasks = [asyncio.ensure_future(one(number)) for number in range(300)]
    for number, task in enumerate(tasks):
        if number % 4 == 0:
            asyncio.get_running_loop().call_later(0.0005 * number, task.cancel)
    await asyncio.gather(*tasks, return_exceptions=True)
    assert (admission.used, admission.waiting) == (0, 0)
    assert await admission.enter(3)


async def test_a_queue_that_is_full_refuses_at_once():
    admission = Admission(1, queue_length=1, queue_seconds=60)
    assert await admission.enter()
    waiting = asyncio.ensure_future(admission.enter())
    await asyncio.sleep(0)
    assert not await admission.enter()
    admission.leave()
    assert await waiting
    assert (admission.used, admission.waiting) == (1, 0)
