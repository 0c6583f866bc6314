"""Limits: buckets against an honest twin, places given back whatever happens, waits that clients survive."""

from __future__ import annotations

import asyncio
import ctypes
import math
import subprocess
import sys
from contextlib import asynccontextmanager
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.config import loads
from gateway.config.operation import RecipientLimits
from gateway.limits.admission import RETRY_AFTER_CEILING_SECONDS, Admission, LimitExceeded, LimitKind
from gateway.limits.drain_rate import DrainRate
from gateway.limits.memory import MemoryGate
from gateway.limits.process_memory import machine_bytes, remembered, resident_bytes, return_memory
from gateway.limits.recipient import RecipientGate, RecipientGates, TokenBucket, share_of
from gateway.web.request_limits import RequestLimits


@asynccontextmanager
async def inside(gate):
    taken = await gate.enter_stream()
    try:
        yield
    finally:
        gate.leave_stream(*([] if taken is None else [taken]))


class Clock:
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


def test_a_clock_that_steps_back_gives_nothing_and_goes_on():
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


async def test_waiting_requests_are_let_in_at_the_rate():
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
        async with inside(gate):
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
    async with inside(gate):
        with pytest.raises(LimitExceeded) as refused:
            async with inside(gate):
                pytest.fail("let in")
    assert refused.value.limit is LimitKind.STREAMS
    async with inside(gate):
        pass


async def test_files_are_paid_after_they_were_signed():
    clock = Clock()
    gate = RecipientGate(RecipientLimits(files_per_minute=60), clock)
    async with inside(gate):
        gate.charge_files(63)
    with pytest.raises(LimitExceeded) as refused:
        async with inside(gate):
            pytest.fail("let in")
    assert (refused.value.limit, refused.value.retry_after_seconds) == (LimitKind.FILES, 3)
    clock.now += 3
    async with inside(gate):
        gate.charge_files(1_000_000)
    with pytest.raises(LimitExceeded) as refused:
        async with inside(gate):
            pytest.fail("let in")
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


async def test_a_query_that_does_not_fit_waits_or_is_refused():
    resident = [50]
    gate = MemoryGate(
        100, stream_bytes=60, queue_length=4, queue_seconds=0.02, resident_bytes=lambda: resident[0]
    )
    async with inside(gate):
        assert gate.used_bytes == 60
        with pytest.raises(LimitExceeded) as refused:
            async with inside(gate):
                pytest.fail("let in")
        assert refused.value.limit is LimitKind.MEMORY
    resident[0] = 101
    with pytest.raises(LimitExceeded):
        async with inside(gate):
            pytest.fail("let in")
    resident[0] = 99
    async with inside(gate):
        pass
    # The refused are not counted: what was let in may have left memory behind.
    assert (gate.used_bytes, gate.admitted) == (0, 2)


async def test_under_pressure_what_can_be_had_anew_is_given_back_and_who_waits_gets_in():
    resident, relieved = [500], []

    def relieve():
        relieved.append(resident[0])
        resident[0] -= 150

    gate = MemoryGate(
        250,
        stream_bytes=1,
        queue_length=3,
        queue_seconds=5,
        resident_bytes=lambda: resident[0],
        relieve=relieve,
    )

    async def one():
        async with inside(gate):
            return resident[0]

    ended = await asyncio.gather(*(one() for _ in range(5)), return_exceptions=True)
    # As many wait as may; others come again.
    assert [isinstance(end, LimitExceeded) for end in ended] == [False] * 3 + [True] * 2
    assert ended[:3] == [200] * 3
    assert relieved == [500, 350]


def test_memory_is_read_from_the_system():
    assert 5_000_000 < resident_bytes() < machine_bytes()


def test_freed_memory_goes_back_to_the_system():
    held = [bytearray(100_000) for _ in range(2000)]
    kept = held[::100]
    full = resident_bytes()
    del held
    return_memory()
    assert resident_bytes() < full - 50_000_000
    assert kept


THREADS = """
import ctypes, sys, threading
from gateway.limits.process_memory import bound_heaps
bound_heaps(int(sys.argv[1]))
library = ctypes.CDLL(None)
library.malloc.restype, library.free.argtypes = ctypes.c_void_p, [ctypes.c_void_p]
threads = threading.Barrier(12)
def work():
    held = [library.malloc(1000) for _ in range(100)]
    threads.wait()
    for one in held:
        library.free(one)
running = [threading.Thread(target=work) for _ in range(12)]
for one in running:
    one.start()
for one in running:
    one.join()
library.fdopen.restype = ctypes.c_void_p
library.malloc_info(0, ctypes.c_void_p(library.fdopen(1, b"w")))
library.fflush(None)
"""


@pytest.mark.skipif(not hasattr(ctypes.CDLL(None), "mallopt"), reason="not glibc: its heaps are not ours")
@pytest.mark.parametrize("heaps", [1, 3])
def test_threads_share_as_many_heaps_as_they_are_told(heaps):
    told = subprocess.run([sys.executable, "-P", "-c", THREADS, str(heaps)], capture_output=True, check=True)
    assert told.stdout.count(b"<heap nr=") == heaps


def test_a_chunk_may_take_the_grace_and_its_time_at_the_slowest_rate():
    assert DrainRate(minimum_bytes_per_second=1000, grace_seconds=5).write_seconds(64_000) == 69
    assert DrainRate(minimum_bytes_per_second=0).write_seconds(1) is None


def test_a_look_at_the_memory_is_remembered_for_a_while() -> None:
    now, looks = 10.0, iter(range(1, 100))
    look = remembered(lambda: next(looks), seconds=1.0, clock=lambda: now)
    assert [look(), look()] == [1, 1]
    now += 0.9
    assert look() == 1
    now += 0.1
    assert look() == 2


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
async def test_running_streams_count_under_a_limit_that_comes_while_they_run(limit):
    gates = RecipientGates(RecipientLimits(concurrent_streams=limit), {}, Clock())
    async with inside(gates.gate("alice")), inside(gates.gate("alice")):
        gates.configure(RecipientLimits(concurrent_streams=2, queue_seconds=0.02), {})
        with pytest.raises(LimitExceeded):
            await gates.gate("alice").enter_stream()
        gates.configure(RecipientLimits(concurrent_streams=3, queue_seconds=0.02), {})
        async with inside(gates.gate("alice")):
            pass
    gates.configure(RecipientLimits(concurrent_streams=1, queue_seconds=0.02), {})
    async with inside(gates.gate("alice")):
        with pytest.raises(LimitExceeded):
            await gates.gate("alice").enter_stream()


async def test_who_waits_is_admitted_when_a_reload_makes_room():
    gate = RecipientGate(RecipientLimits(concurrent_streams=1, queue_seconds=5), Clock())
    async with inside(gate):
        waiting = asyncio.ensure_future(gate.enter_stream())
        await asyncio.sleep(0)
        gate.configure(RecipientLimits(concurrent_streams=2, queue_seconds=5))
        await waiting
        gate.leave_stream()


async def test_the_memory_gate_keeps_count_of_running_streams_over_reloads():
    gate = MemoryGate(100, stream_bytes=60, queue_length=4, queue_seconds=0.02, resident_bytes=lambda: 0)
    async with inside(gate):
        gate.configure(100, stream_bytes=30, queue_length=4, queue_seconds=0.02)
        assert gate.used_bytes == 60
        async with inside(gate):
            assert gate.used_bytes == 90
            with pytest.raises(LimitExceeded):
                await gate.enter_stream()
            gate.configure(50, stream_bytes=200, queue_length=4, queue_seconds=0.02)
        assert gate.used_bytes == 60
        with pytest.raises(LimitExceeded):
            await gate.enter_stream()
    assert gate.used_bytes == 0
    async with inside(gate):
        # A stream above the whole limit runs alone.
        assert gate.used_bytes == 200


def test_a_configuration_that_is_taken_keeps_the_gates():
    before = RequestLimits.of(loads("version: 1\ngateway: {anonymous: true}"))
    limits = "{memoryBytes: 100000000, bodySeconds: 7, recipient: {concurrentStreams: 4}}"
    after = RequestLimits.of(
        loads(f"version: 1\ngateway: {{anonymous: true, limits: {limits}}}"), workers=2, previous=before
    )
    assert (after.recipients, after.memory) == (before.recipients, before.memory)
    assert (after.memory.limit_bytes, after.body_seconds) == (50_000_000, 7)
