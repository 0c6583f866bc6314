"""Limits of a recipient: bounded queues, waits that clients accept, and one budget for all workers."""

import asyncio
from contextlib import asynccontextmanager
from dataclasses import replace

import pytest

from gateway.config.operation import RecipientLimits
from gateway.limits.admission import RETRY_AFTER_CEILING_SECONDS, LimitExceeded, LimitKind
from gateway.limits.recipient import POLL_SECONDS, RecipientGate, RecipientGates
from gateway.limits.shared_memory import LimitsFile, SharedLimits, limits_of_one


class Clock:
    """Seconds that tests turn."""

    def __init__(self):
        self.now = 100.0

    def __call__(self):
        return self.now


def gate_of(limits, clock):
    return RecipientGate(b"0123456789abcdef", limits, clock, limits_of_one())


@asynccontextmanager
async def admitted_stream(gate):
    """A stream from its admission to its end."""
    await gate.enter_stream()
    try:
        yield
    finally:
        gate.leave_stream()


async def refused_stream(gate):
    """The refusal of a stream."""
    with pytest.raises(LimitExceeded) as refused:
        async with admitted_stream(gate):
            pytest.fail("admitted")
    return refused.value


async def test_a_quick_recipient_waits_a_little_and_is_then_refused_with_a_time_its_client_survives():
    gate = gate_of(RecipientLimits(requests_per_second=1, burst_requests=2, queue_seconds=0.0), Clock())
    await gate.request()
    await gate.request()
    with pytest.raises(LimitExceeded) as refused:
        await gate.request()
    assert refused.value.limit is LimitKind.REQUESTS
    assert refused.value.retry_after_seconds == 1


async def test_waiting_requests_are_admitted_at_the_rate():
    loop = asyncio.get_running_loop()
    gate = gate_of(RecipientLimits(requests_per_second=50, burst_requests=1, queue_seconds=1), loop.time)
    start = loop.time()
    await asyncio.gather(*(gate.request() for _ in range(11)))
    assert loop.time() - start >= 0.19


async def test_the_queue_of_requests_is_bounded_in_number():
    gate = gate_of(
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
    gate = gate_of(RecipientLimits(concurrent_streams=1, queue_seconds=5), Clock())
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
    gate = gate_of(RecipientLimits(concurrent_streams=1, queue_seconds=0.02), Clock())
    async with admitted_stream(gate):
        assert (await refused_stream(gate)).limit is LimitKind.STREAMS
    async with admitted_stream(gate):
        pass


async def test_files_are_paid_after_they_were_signed():
    clock = Clock()
    gate = gate_of(RecipientLimits(files_per_minute=60), clock)
    async with admitted_stream(gate):
        gate.charge_files(63)
    refused = await refused_stream(gate)
    assert (refused.limit, refused.retry_after_seconds) == (LimitKind.FILES, 3)
    clock.now += 3
    async with admitted_stream(gate):
        gate.charge_files(1_000_000)
    assert (await refused_stream(gate)).retry_after_seconds == RETRY_AFTER_CEILING_SECONDS < 7


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


@pytest.fixture
def file():
    made = LimitsFile(3)
    yield made
    made.close()


def gates_of(file, limits, clock, **named):
    """The gates of each of three workers."""
    shared = [SharedLimits(file.descriptor, workers=3, worker=worker) for worker in range(3)]
    return [RecipientGates(limits, named, clock, one) for one in shared]


async def admitted(admit, times):
    """How many of so many calls are admitted."""
    count = 0
    for _ in range(times):
        try:
            await admit()
        except LimitExceeded:
            continue
        count += 1
    return count


async def test_workers_admit_exactly_the_requests_of_one_budget(file):
    clock = Clock()
    limits = RecipientLimits(requests_per_second=1, burst_requests=7, queue_seconds=0)
    gates = gates_of(file, limits, clock, bob=replace(limits, burst_requests=2))
    assert [await admitted(one.gate("alice").request, 4) for one in gates] == [4, 3, 0]
    assert [await admitted(one.gate("BOB").request, 4) for one in gates] == [2, 0, 0]
    clock.now += 5
    assert [await admitted(one.gate("Alice").request, 3) for one in gates] == [3, 2, 0]


async def test_workers_share_files_credentials_and_streams(file):
    limits = RecipientLimits(
        files_per_minute=60, credentials_per_minute=3, concurrent_streams=3, queue_seconds=0, queue_length=0
    )
    one, two, three = (gates.gate("alice") for gates in gates_of(file, limits, Clock()))

    async def credential():
        two.charge_credential()

    one.charge_credential()
    assert await admitted(credential, 5) == 2
    assert [await admitted(gate.enter_stream, 2) for gate in (one, two, three)] == [2, 1, 0]
    one.leave_stream()
    assert await admitted(three.enter_stream, 2) == 1
    # The process of the second worker is killed, and the next one starts.
    file.clear_worker(1)
    assert await admitted(three.enter_stream, 2) == 1
    for gate in (one, three, three):
        gate.leave_stream()
    one.charge_files(61)
    with pytest.raises(LimitExceeded) as refused:
        await two.enter_stream()
    assert refused.value.limit is LimitKind.FILES


async def test_a_stream_waits_for_the_place_of_one_in_another_worker(file):
    loop = asyncio.get_running_loop()
    limits = RecipientLimits(concurrent_streams=1, queue_seconds=30)
    one, two, _ = (gates.gate("alice") for gates in gates_of(file, limits, Clock()))
    await one.enter_stream()
    waiting = asyncio.ensure_future(two.enter_stream())
    await asyncio.sleep(3 * POLL_SECONDS)
    assert not waiting.done()
    start = loop.time()
    one.leave_stream()
    await waiting
    assert loop.time() - start < 10
    assert two._streams._poll_timer is None


async def test_streams_that_run_without_a_limit_count_in_all_workers_when_one_is_set(file):
    one, two, _ = every = gates_of(file, RecipientLimits(), Clock())
    async with admitted_stream(one.gate("alice")), admitted_stream(two.gate("alice")):
        for gates in every:
            gates.configure(RecipientLimits(concurrent_streams=3, queue_length=0), {})
        assert [await admitted(gates.gate("alice").enter_stream, 2) for gates in every] == [1, 0, 0]
        for gates in every:
            gates.configure(RecipientLimits(), {})
        assert await admitted(two.gate("alice").enter_stream, 2) == 2
        for gates in every:
            gates.configure(RecipientLimits(concurrent_streams=6, queue_length=0), {})
        assert [await admitted(gates.gate("alice").enter_stream, 2) for gates in every] == [1, 0, 0]


async def test_a_reload_that_each_worker_makes_at_its_time_changes_a_balance_once(file):
    limits = RecipientLimits(requests_per_second=1, burst_requests=10, queue_seconds=0)
    every = gates_of(file, limits, Clock())
    assert await admitted(every[0].gate("alice").request, 8) == 8
    for gates in every:
        gates.gate("alice")
        gates.configure(replace(limits, requests_per_second=2, burst_requests=20), {})
    assert [await admitted(gates.gate("alice").request, 2) for gates in every] == [2, 0, 0]


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
    gate = gate_of(RecipientLimits(concurrent_streams=1, queue_seconds=5), Clock())
    async with admitted_stream(gate):
        waiting = asyncio.ensure_future(gate.enter_stream())
        await asyncio.sleep(0)
        gate.configure(RecipientLimits(concurrent_streams=2, queue_seconds=5))
        await waiting
        gate.leave_stream()
