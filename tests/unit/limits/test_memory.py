"""Admission of streams by memory: a query that does not fit waits or is refused."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from itertools import count
from typing import Any

import pytest
from support.waiting import until

from gateway.limits.admission import LimitExceeded, LimitKind
from gateway.limits.memory import FROM_MEMORY, MemoryGate

NUMBERS = count()


def gate_of(limit_bytes: int, stream_bytes: int, resident: list[int], **options: Any) -> MemoryGate:
    """A gate of a process whose memory the test sets, with a short queue."""
    options = {"queue_length": 4, "queue_seconds": 0.02, "resident_bytes": lambda: resident[0], **options}
    return MemoryGate(limit_bytes, stream_bytes=stream_bytes, **options)


@asynccontextmanager
async def admitted_stream(gate: MemoryGate, recipient: str | None = None) -> AsyncIterator[None]:
    """A stream from its admission to its end, by default of a recipient of its own."""
    name = recipient or f"r{next(NUMBERS)}"
    taken = await gate.enter_stream(name)
    try:
        yield
    finally:
        taken.leave()


async def test_a_large_answer_takes_the_memory_of_several_streams():
    gate = gate_of(100, 20, [50])
    async with admitted_stream(gate):
        taken = await gate.enter_stream("alice", 2)
        assert (taken.bytes, gate.used_bytes) == (40, 60)
        with pytest.raises(LimitExceeded):
            await gate.enter_stream("bob", 3)
        taken.leave()
        assert gate.used_bytes == 20


async def test_a_stream_is_admitted_at_once_only_where_nothing_has_to_wait():
    resident = [50]
    gate = gate_of(100, 40, resident)
    first = gate.enter_stream_at_once("alice")
    assert first is not None
    assert first.bytes == 40
    assert gate.enter_stream_at_once("alice") is None, "the rest is for others"
    assert gate.enter_stream_at_once("bob", 2) is None
    assert gate.used_bytes == 40
    second = gate.enter_stream_at_once("bob")
    assert second is not None
    second.leave()
    resident[0] = 101
    assert gate.enter_stream_at_once("bob") is None, "the process is above its limit"
    first.leave()
    assert gate.used_bytes == 0


async def test_answers_from_memory_have_a_part_that_those_of_logs_leave_them():
    gate = gate_of(160, 70, [0])
    async with admitted_stream(gate), admitted_stream(gate):
        with pytest.raises(LimitExceeded):
            await gate.enter_stream("alice")
        # Here, too, one recipient leaves room for another.
        of_alice = [await gate.enter_stream("alice", FROM_MEMORY) for _ in range(4)]
        with pytest.raises(LimitExceeded):
            await gate.enter_stream("alice", FROM_MEMORY)
        of_bob = gate.enter_stream_at_once("bob", FROM_MEMORY)
        assert of_bob is not None
        assert ([stream.bytes for stream in (*of_alice, of_bob)], gate.used_bytes) == ([4] * 5, 160)
        # What is not in memory takes the part of the logs, and holds nothing while it waits.
        with pytest.raises(LimitExceeded):
            await of_bob.read_log()
        assert (of_bob.bytes, gate.used_bytes) == (0, 156)
        of_bob.leave()
    await of_alice[0].read_log()
    await of_alice[0].read_log()
    assert (of_alice[0].bytes, gate.used_bytes) == (70, 70 + 12)
    for stream in of_alice:
        stream.leave()
    assert gate.used_bytes == 0


async def test_answers_from_memory_may_have_what_no_answer_of_a_log_waits_for():
    gate = gate_of(160, 70, [0], queue_seconds=1)
    unread = [gate.enter_stream_at_once(f"r{number}", FROM_MEMORY) for number in range(40)]
    assert [stream is not None for stream in unread] == [True] * 40
    assert (gate.used_bytes, gate.enter_stream_at_once("late", FROM_MEMORY)) == (160, None)
    waiting = asyncio.ensure_future(gate.enter_stream("of_log"))
    await asyncio.sleep(0)
    for stream in reversed(unread):
        assert stream is not None
        stream.leave()
    assert (await waiting).bytes == gate.used_bytes == 70


async def test_an_answer_from_memory_runs_alone_in_a_full_process():
    gate = gate_of(100, 80, [101], queue_seconds=5)
    alone = await gate.enter_stream("alice", FROM_MEMORY)
    others = [asyncio.ensure_future(gate.enter_stream(name, FROM_MEMORY)) for name in ("bob", "carol")]
    await asyncio.sleep(0.01)
    # It does not wait behind the others.
    await alone.read_log()
    assert gate.used_bytes == alone.bytes == 80
    for other in others:
        assert not other.done()
        alone.leave()
        alone = await other
        assert gate.used_bytes == alone.bytes == 5
    alone.leave()
    assert gate.used_bytes == 0


async def test_a_stream_from_before_the_excess_does_not_take_the_place_of_the_one_that_runs():
    resident = [50]
    gate = gate_of(160, 70, resident, queue_seconds=0.5)
    before = await gate.enter_stream("alice", FROM_MEMORY)
    resident[0] = 161
    alone = await gate.enter_stream("bob", FROM_MEMORY)
    assert before.bytes == alone.bytes == 4
    with pytest.raises(LimitExceeded):
        await before.read_log()
    await alone.read_log()
    assert gate.used_bytes == alone.bytes == 70
    alone.leave()
    assert gate.used_bytes == 0


async def test_streams_that_wait_in_a_full_process_run_together_once_it_is_below_its_limit():
    resident = [101]
    gate = gate_of(100, 10, resident, queue_seconds=5)
    # A slow reader.
    alone = await gate.enter_stream("alice")
    waiting = [asyncio.ensure_future(gate.enter_stream(name)) for name in ("alice", "bob", "carol")]
    await asyncio.sleep(0.01)
    assert gate.used_bytes == 10
    resident[0] = 50
    gate.free()
    for stream in [alone, *await asyncio.wait_for(asyncio.gather(*waiting), 1)]:
        assert stream.bytes == 10
        stream.leave()
    assert gate.used_bytes == 0


async def test_a_stream_that_ran_alone_lets_others_run_once_the_process_is_below_its_limit():
    resident = [101]
    gate = gate_of(100, 10, resident, queue_seconds=0.2)
    for streams, needed_bytes in ((1, 10), (FROM_MEMORY, 1)):
        alone = await gate.enter_stream("alice", streams)
        waiting = asyncio.create_task(gate.enter_stream("bob"))
        with pytest.raises(LimitExceeded):
            await waiting
        assert (alone.bytes, gate.used_bytes) == (needed_bytes, needed_bytes)
        resident[0] = 50
        # A slow reader may keep it for long.
        gate.free()
        assert (alone.bytes, gate.used_bytes) == (needed_bytes, needed_bytes)
        other = gate.enter_stream_at_once("bob")
        assert other is not None
        other.leave()
        await alone.read_log(2)
        assert (alone.bytes, gate.used_bytes) == (20, 20)
        alone.leave()
        assert gate.used_bytes == 0
        resident[0] = 101


async def test_a_stream_that_was_admitted_late_does_not_run_alone():
    resident = [101]
    gate = gate_of(100, 10, resident, queue_seconds=5)
    first = await gate.enter_stream("alice")
    second = asyncio.create_task(gate.enter_stream("bob"))
    await asyncio.sleep(0.1)
    resident[0] = 50
    first.leave()
    assert (await second).bytes == gate.used_bytes == 10


async def test_a_query_that_does_not_fit_waits_or_is_refused():
    resident = [50]
    gate = gate_of(100, 60, resident)
    async with admitted_stream(gate):
        assert gate.used_bytes == 60
        with pytest.raises(LimitExceeded) as refused:
            async with admitted_stream(gate):
                pytest.fail("admitted")
        assert refused.value.limit is LimitKind.MEMORY
    resident[0] = 99
    async with admitted_stream(gate):
        pass
    # Refused requests are not counted: an admitted one may have left memory allocated.
    assert gate.used_bytes == 0


async def test_under_pressure_caches_are_released_and_waiting_streams_are_admitted():
    resident, relieved = [500], []

    def relieve() -> bool:
        relieved.append(resident[0])
        resident[0] -= 150
        return True

    gate = gate_of(250, 1, resident, queue_length=3, queue_seconds=5, relieve=relieve)

    async def one():
        async with admitted_stream(gate):
            return resident[0]

    ended = await asyncio.gather(*(one() for _ in range(5)), return_exceptions=True)
    # As many wait as may; others come again.
    assert [isinstance(end, LimitExceeded) for end in ended] == [False] * 3 + [True] * 2
    assert ended[:3] == [200] * 3
    assert relieved == [500, 350]


async def test_the_memory_gate_keeps_count_of_running_streams_over_reloads():
    gate = gate_of(120, 60, [0])
    async with admitted_stream(gate):
        gate.configure(120, stream_bytes=30, queue_length=4, queue_seconds=0.02)
        assert gate.used_bytes == 60
        async with admitted_stream(gate):
            assert gate.used_bytes == 90
            with pytest.raises(LimitExceeded):
                await gate.enter_stream("other")
            gate.configure(50, stream_bytes=200, queue_length=4, queue_seconds=0.02)
        assert gate.used_bytes == 60
        with pytest.raises(LimitExceeded):
            await gate.enter_stream("other")
    assert gate.used_bytes == 0
    async with admitted_stream(gate):
        # A stream above the whole limit runs alone.
        assert gate.used_bytes == 200


async def test_streams_run_one_at_a_time_while_nothing_more_can_be_freed():
    resident, cached = [500], [2]

    def relieve() -> bool:
        had_some = cached[0] > 0
        cached[0] = max(0, cached[0] - 1)
        return had_some

    gate = gate_of(100, 10, resident, queue_seconds=5, relieve=relieve)
    most = running = 0

    async def one() -> None:
        nonlocal most, running
        async with admitted_stream(gate):
            running += 1
            most = max(most, running)
            await asyncio.sleep(0.01)
            running -= 1

    await asyncio.gather(one(), one(), one())
    assert (cached, most, gate.is_exhausted) == ([0], 1, True)
    # Below the limit they run together again.
    resident[0] = 50
    assert not gate.is_exhausted
    await asyncio.gather(one(), one(), one())
    assert most == 3
    # Above it again, the cache is freed first.
    resident[0], cached[0] = 500, 1
    assert not gate.is_exhausted


async def test_the_gate_frees_and_opens_without_a_request():
    resident, cached = [500], [1]

    def relieve() -> bool:
        had_some = cached[0] > 0
        cached[0] = 0
        return had_some

    gate = gate_of(100, 10, resident, queue_seconds=5, relieve=relieve)
    gate.free()
    await until(lambda: cached == [0])
    await until(lambda: gate.free() or gate.is_exhausted)
    resident[0] = 50
    gate.free()
    resident[0] = 500
    assert not gate.is_exhausted, "the next excess frees again before it is one"


async def test_one_recipient_leaves_room_for_a_stream_of_another():
    gate = gate_of(120, 30, [0], queue_seconds=0.05)
    async with AsyncExitStack() as unread:
        for _ in range(2):
            await unread.enter_async_context(admitted_stream(gate, "hog"))
        waiting = [asyncio.ensure_future(gate.enter_stream("hog")) for _ in range(6)]
        await asyncio.sleep(0)
        async with admitted_stream(gate, "alice"):
            assert gate.used_bytes == 90
        assert all(
            isinstance(end, LimitExceeded) for end in await asyncio.gather(*waiting, return_exceptions=True)
        )
        cancelled = asyncio.ensure_future(gate.enter_stream("hog"))
        await asyncio.sleep(0)
        cancelled.cancel()
        with pytest.raises(asyncio.CancelledError):
            await cancelled
    assert (gate.used_bytes, gate._of_logs._of_recipients) == (0, {})
    # Less memory than for two streams is one recipient's as well.
    gate.configure(40, stream_bytes=30, queue_length=4, queue_seconds=0.05)
    async with admitted_stream(gate, "hog"):
        assert gate.used_bytes == 30


async def test_a_recipient_who_waits_for_others_gives_its_part_back():
    gate = gate_of(120, 50, [0])
    async with admitted_stream(gate), admitted_stream(gate):
        with pytest.raises(LimitExceeded):
            await gate.enter_stream("alice")
    async with admitted_stream(gate, "alice"):
        assert gate.used_bytes == 50
