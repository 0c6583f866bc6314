"""Limits of a recipient: buckets against a slow reference, bounded queues, waits that clients accept."""

from __future__ import annotations

import asyncio
import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.admission import admitted_stream

from gateway.config.operation import RecipientLimits
from gateway.limits.admission import RETRY_AFTER_CEILING_SECONDS, LimitExceeded, LimitKind
from gateway.limits.recipient import RecipientGate, RecipientGates, TokenBucket, share_of


class Clock:
    """Seconds that tests turn."""

    def __init__(self):
        self.now = 100.0

    def __call__(self):
        return self.now


@given(
    st.lists(st.tuples(st.integers(0, 30), st.integers(0, 5)), max_size=40),
    st.integers(1, 9),
    st.integers(1, 20),
)
def test_a_bucket_agrees_with_one_that_counts_second_by_second(steps, rate, capacity):
    bucket, now = TokenBucket(rate, capacity, 0), 0
    level = capacity
    for seconds, taken in steps:
        for _ in range(seconds):
            level = min(capacity, level + rate)
        now += seconds
        assert bucket.balance(now) == level
        bucket.take(taken, now)
        level -= taken
        assert bucket.wait_seconds(1, now) == max(0, (1 - level) / rate)


def test_a_clock_that_steps_back_adds_no_tokens_and_later_time_does():
    bucket = TokenBucket(1, 2, 1000)
    bucket.take(2, 1000)
    assert bucket.balance(10) == 0
    assert bucket.balance(12) == 2


async def test_a_quick_recipient_waits_a_little_and_is_then_refused_with_a_time_its_client_survives():
    gate = RecipientGate(RecipientLimits(requests_per_second=1, burst_requests=2, queue_seconds=0.0), Clock())
    await gate.request()
    await gate.request()
    with pytest.raises(LimitExceeded) as refused:
        await gate.request()
    assert refused.value.limit is LimitKind.REQUESTS
    assert refused.value.retry_after_seconds == 1


async def test_waiting_requests_are_admitted_at_the_rate():
    loop = asyncio.get_running_loop()
    gate = RecipientGate(
        RecipientLimits(requests_per_second=50, burst_requests=1, queue_seconds=1), loop.time
    )
    start = loop.time()
    await asyncio.gather(*(gate.request() for _ in range(11)))
    assert loop.time() - start >= 0.19


async def test_the_queue_of_requests_is_bounded_in_number():
    gate = RecipientGate(
        RecipientLimits(requests_per_second=1, burst_requests=1, queue_seconds=5, queue_length=2), Clock()
    )
    await gate.request()
    waiting = [asyncio.ensure_future(gate.request()) for _ in range(2)]
    await asyncio.sleep(0)
    with pytest.raises(LimitExceeded):
        await gate.request()
    for task in waiting:
        task.cancel()
    await asyncio.gather(*waiting, return_exceptions=True)


async def test_streams_over_the_limit_wait_for_a_place_and_get_it_in_order():
    gate = RecipientGate(RecipientLimits(concurrent_streams=1, queue_seconds=5), Clock())
    order, gates = [], [asyncio.Event() for _ in range(3)]

    async def one(number):
        async with admitted_stream(gate):
            order.append(number)
            await gates[number].wait()

    tasks = [asyncio.ensure_future(one(number)) for number in range(3)]
    for number in range(3):
        await asyncio.sleep(0.01)
        assert order == list(range(number + 1))
        gates[number].set()
    await asyncio.gather(*tasks)


async def test_a_stream_that_finds_no_place_in_time_is_refused():
    gate = RecipientGate(RecipientLimits(concurrent_streams=1, queue_seconds=0.02), Clock())
    async with admitted_stream(gate):
        with pytest.raises(LimitExceeded) as refused:
            async with admitted_stream(gate):
                pytest.fail("admitted")
    assert refused.value.limit is LimitKind.STREAMS
    async with admitted_stream(gate):
        pass


async def test_files_are_paid_after_they_were_signed():
    clock = Clock()
    gate = RecipientGate(RecipientLimits(files_per_minute=60), clock)
    async with admitted_stream(gate):
        gate.charge_files(63)
    with pytest.raises(LimitExceeded) as refused:
        async with admitted_stream(gate):
            pytest.fail("admitted")
    assert (refused.value.limit, refused.value.retry_after_seconds) == (LimitKind.FILES, 3)
    clock.now += 3
    async with admitted_stream(gate):
        gate.charge_files(1_000_000)
    with pytest.raises(LimitExceeded) as refused:
        async with admitted_stream(gate):
            pytest.fail("admitted")
    assert refused.value.retry_after_seconds == RETRY_AFTER_CEILING_SECONDS < 7


async def test_recipients_do_not_share_their_limits_and_names_ignore_case():
    gates = RecipientGates(
        RecipientLimits(),
        {"Alice": RecipientLimits(requests_per_second=1, burst_requests=1, queue_seconds=0)},
        Clock(),
    )
    await gates.gate("alice").request()
    with pytest.raises(LimitExceeded):
        await gates.gate("ALICE").request()
    for _ in range(100):
        await gates.gate("bob").request()


@pytest.mark.parametrize("workers", [1, 2, 3, 64])
def test_a_workers_share_is_never_nothing(workers):
    limits = RecipientLimits(
        requests_per_second=10, burst_requests=3, concurrent_streams=2, files_per_minute=100
    )
    share = share_of(limits, workers)
    assert math.isclose(share.requests_per_second, 10 / workers)
    assert share.burst_requests >= 1
    assert share.concurrent_streams >= 1
    assert 100 / workers <= share.files_per_minute <= 100


async def test_a_recipient_that_is_over_its_rate_stays_so_over_a_reload():
    clock = Clock()
    quick = RecipientLimits(requests_per_second=1, burst_requests=5, queue_seconds=0)
    gates = RecipientGates(quick, {}, clock)
    for _ in range(5):
        await gates.gate("alice").request()
    gates.configure(quick, {"Alice": replace(quick, burst_requests=50)})
    with pytest.raises(LimitExceeded):
        await gates.gate("alice").request()
    clock.now += 2
    for _ in range(2):
        await gates.gate("alice").request()
    with pytest.raises(LimitExceeded):
        await gates.gate("alice").request()
    # The new rate counts from here on, and the new burst is what may be saved up.
    gates.configure(replace(quick, requests_per_second=10, burst_requests=3), {})
    clock.now += 60
    for _ in range(3):
        await gates.gate("alice").request()
    with pytest.raises(LimitExceeded):
        await gates.gate("alice").request()


async def test_files_that_were_signed_stay_charged_over_a_reload():
    gates = RecipientGates(RecipientLimits(files_per_minute=60), {}, Clock())
    gates.gate("alice").charge_files(70)
    gates.configure(RecipientLimits(files_per_minute=120), {})
    with pytest.raises(LimitExceeded) as refused:
        await gates.gate("alice").enter_stream()
    assert refused.value.limit is LimitKind.FILES


@pytest.mark.parametrize("limit", [None, 5])
async def test_running_streams_count_towards_a_limit_set_while_they_run(limit):
    gates = RecipientGates(RecipientLimits(concurrent_streams=limit), {}, Clock())
    async with admitted_stream(gates.gate("alice")), admitted_stream(gates.gate("alice")):
        gates.configure(RecipientLimits(concurrent_streams=2, queue_seconds=0.02), {})
        with pytest.raises(LimitExceeded):
            await gates.gate("alice").enter_stream()
        gates.configure(RecipientLimits(concurrent_streams=3, queue_seconds=0.02), {})
        async with admitted_stream(gates.gate("alice")):
            pass
    gates.configure(RecipientLimits(concurrent_streams=1, queue_seconds=0.02), {})
    async with admitted_stream(gates.gate("alice")):
        with pytest.raises(LimitExceeded):
            await gates.gate("alice").enter_stream()


async def test_a_waiting_stream_is_admitted_when_a_reload_raises_the_limit():
    gate = RecipientGate(RecipientLimits(concurrent_streams=1, queue_seconds=5), Clock())
    async with admitted_stream(gate):
        waiting = asyncio.ensure_future(gate.enter_stream())
        await asyncio.sleep(0)
        gate.configure(RecipientLimits(concurrent_streams=2, queue_seconds=5))
        await waiting
        gate.leave_stream()
