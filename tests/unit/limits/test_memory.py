"""Admission of streams by memory: a query that does not fit waits or is refused."""

from __future__ import annotations

import asyncio

import pytest
from support.admission import admitted_stream

from gateway.limits.admission import LimitExceeded, LimitKind
from gateway.limits.memory import MemoryGate


async def test_a_query_that_does_not_fit_waits_or_is_refused():
    resident = [50]
    gate = MemoryGate(
        100, stream_bytes=60, queue_length=4, queue_seconds=0.02, resident_bytes=lambda: resident[0]
    )
    async with admitted_stream(gate):
        assert gate.used_bytes == 60
        with pytest.raises(LimitExceeded) as refused:
            async with admitted_stream(gate):
                pytest.fail("admitted")
        assert refused.value.limit is LimitKind.MEMORY
    resident[0] = 101
    with pytest.raises(LimitExceeded):
        async with admitted_stream(gate):
            pytest.fail("admitted")
    resident[0] = 99
    async with admitted_stream(gate):
        pass
    # Refused requests are not counted: an admitted one may have left memory allocated.
    assert (gate.used_bytes, gate.admitted) == (0, 2)


async def test_under_pressure_caches_are_released_and_waiting_streams_are_admitted():
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
        async with admitted_stream(gate):
            return resident[0]

    ended = await asyncio.gather(*(one() for _ in range(5)), return_exceptions=True)
    # As many wait as may; others come again.
    assert [isinstance(end, LimitExceeded) for end in ended] == [False] * 3 + [True] * 2
    assert ended[:3] == [200] * 3
    assert relieved == [500, 350]


async def test_the_memory_gate_keeps_count_of_running_streams_over_reloads():
    gate = MemoryGate(100, stream_bytes=60, queue_length=4, queue_seconds=0.02, resident_bytes=lambda: 0)
    async with admitted_stream(gate):
        gate.configure(100, stream_bytes=30, queue_length=4, queue_seconds=0.02)
        assert gate.used_bytes == 60
        async with admitted_stream(gate):
            assert gate.used_bytes == 90
            with pytest.raises(LimitExceeded):
                await gate.enter_stream()
            gate.configure(50, stream_bytes=200, queue_length=4, queue_seconds=0.02)
        assert gate.used_bytes == 60
        with pytest.raises(LimitExceeded):
            await gate.enter_stream()
    assert gate.used_bytes == 0
    async with admitted_stream(gate):
        # A stream above the whole limit runs alone.
        assert gate.used_bytes == 200
