"""The breaker: a failing storage is not called, is probed, and does not delay others."""

import asyncio
import threading

import pytest

from gateway.config.operation import StorageFaults
from gateway.storage.breaker import FORGOTTEN_SECONDS, Breaker, State, StorageDown
from gateway.storage.calls import Caller, StorageCalls

CALLER = Caller("a", "t")


class Unreachable(Exception):
    pass


def breaker(**settings):
    return Breaker(StorageFaults(**settings), jitter=lambda: 0.5)


def test_failures_in_a_row_open_it_and_a_success_between_does_not():
    one = breaker(failures=3, open_seconds=10)
    for outcome in (one.failed, one.failed):
        outcome(0)
    one.succeeded(0)
    one.failed(0)
    one.failed(0)
    assert one.state is State.CLOSED
    one.failed(0)
    assert one.state is State.OPEN
    assert one.refused_for(4) == 6


def test_after_a_while_one_call_probes_and_its_success_closes_it():
    one = breaker(failures=1, open_seconds=10)
    one.failed(0)
    assert one.refused_for(10) == 0
    assert one.refused_for(10) == 10
    one.succeeded(0)
    assert one.refused_for(10) == 0


def test_a_storage_that_nobody_calls_after_its_failures_fails_for_a_time_only():
    """Another process, or nobody, may find it well again."""
    one = breaker(failures=1, open_seconds=10)
    assert not one.is_failing(0)
    one.failed(0)
    assert one.is_failing(10 + FORGOTTEN_SECONDS - 1)
    assert not one.is_failing(10 + FORGOTTEN_SECONDS)
    assert one.refused_for(2000) == 0
    one.failed(2000)
    assert one.is_failing(2000)
    assert one.refused_for(2010) == 0
    one.succeeded(0)
    assert not one.is_failing(2010)


def test_a_failed_probe_opens_it_again():
    one = breaker(failures=5, open_seconds=10)
    for _ in range(5):
        one.failed(0)
    assert one.refused_for(11) == 0
    one.failed(11)
    assert one.state is State.OPEN
    assert one.refused_for(12) == 9


def test_a_storage_that_answers_calls_and_breaks_streams_is_given_up_too():
    one = breaker(failures=3, open_seconds=10)
    for whole in (False, False, True, False, False):
        one.stream_ended(0, whole=whole)
        one.succeeded(0)
        assert one.state is State.CLOSED
    one.stream_ended(0, whole=False)
    one.succeeded(0)
    assert one.refused_for(1) == 9, "a call that was under way does not speak for the streams"
    assert one.refused_for(10) == 0
    one.succeeded(0)
    one.stream_ended(10, whole=False)
    assert one.state is State.CLOSED, "after a probe the count of streams restarts"


def test_failures_of_one_table_do_not_open_it_while_others_are_answered():
    """A store may refuse the requests for one prefix alone."""
    one = breaker(failures=3, open_seconds=10)
    one.succeeded(0, "well")
    one.stream_ended(0, "well", whole=True)
    for _ in range(9):
        one.failed(1, "ill")
        one.stream_ended(1, "ill", whole=False)
        assert one.state is State.CLOSED
    one.failed(1, "other")
    assert one.state is State.OPEN, "two tables fail"
    one.succeeded(1, "well")
    assert one.refused_for(2, "ill") == one.refused_for(2, "other") == 9
    assert one.refused_for(2, "well") == 0, "a table that has not failed probes at once"
    assert one.refused_for(2, "fresh") == 10
    one.succeeded(3, "well")
    assert one.refused_for(3, "ill") == 0
    for _ in range(3):
        one.failed(14, "ill")
    assert one.state is State.OPEN, "no other table was answered lately"


def test_a_probe_that_never_reports_back_does_not_close_the_storage_for_ever():
    one = breaker(failures=1, open_seconds=10)
    one.failed(0)
    assert one.refused_for(10) == 0
    assert one.refused_for(19) == 1
    assert one.refused_for(20) == 0


def calls(name="s", call_seconds=None, **settings):
    return StorageCalls(
        name,
        StorageFaults(**settings),
        call_seconds=call_seconds,
        now_seconds=asyncio.get_running_loop().time,
        is_fault=lambda error: isinstance(error, Unreachable),
    )


def fail(error):
    raise error


async def test_results_and_errors_come_through_and_only_faults_count():
    storage = calls(failures=2, open_seconds=60)
    assert await storage.run(CALLER, divmod, 7, 2) == (3, 1)
    for _ in range(5):
        with pytest.raises(KeyError):
            await storage.run(CALLER, fail, KeyError("of the table"))
    for _ in range(2):
        with pytest.raises(Unreachable):
            await storage.run(CALLER, fail, Unreachable())
    with pytest.raises(StorageDown) as refused:
        await storage.run(CALLER, divmod, 7, 2)
    assert 0 < refused.value.retry_after_seconds <= 75
    storage.close()


async def test_a_hanging_storage_rejects_its_callers_only():
    release = threading.Event()
    hanging = calls("hanging", concurrent_calls=2, queued_calls=3, queue_seconds=0.05)
    healthy = calls("healthy", concurrent_calls=2)
    stuck = [asyncio.ensure_future(hanging.run(CALLER, release.wait, 20)) for _ in range(2)]
    await asyncio.sleep(0)
    refused = await asyncio.gather(
        *(hanging.run(CALLER, divmod, 1, 1) for _ in range(10)), return_exceptions=True
    )
    assert all(isinstance(error, StorageDown) for error in refused)
    assert await asyncio.wait_for(healthy.run(CALLER, divmod, 7, 2), 1) == (3, 1)
    release.set()
    assert await asyncio.gather(*stuck) == [True, True]
    assert await hanging.run(CALLER, divmod, 7, 2) == (3, 1)
    hanging.close()
    healthy.close()


async def test_a_caller_with_many_calls_leaves_threads_to_others():
    release = threading.Event()
    storage = calls(concurrent_calls=4, queue_seconds=20)
    many = [asyncio.ensure_future(storage.run(Caller("many", "t"), release.wait, 20)) for _ in range(20)]
    await asyncio.sleep(0)
    for other in ("b", "c"):
        assert await asyncio.wait_for(storage.run(Caller(other, "t"), divmod, 7, 2), 1) == (3, 1)
    release.set()
    assert await asyncio.gather(*many) == [True] * 20
    storage.close()


async def test_a_call_that_hangs_fails_in_time_and_opens_the_breaker():
    release = threading.Event()
    outcomes = []
    hanging = calls(failures=2, open_seconds=60, concurrent_calls=2, call_seconds=0.05)
    hanging.observe = lambda _name, outcome, _seconds: outcomes.append(outcome)
    stuck = await asyncio.gather(
        *(hanging.run(CALLER, release.wait, 20) for _ in range(2)), return_exceptions=True
    )
    assert all(isinstance(error, StorageDown) for error in stuck)
    with pytest.raises(StorageDown) as refused:
        await hanging.run(CALLER, divmod, 7, 2)
    assert refused.value.retry_after_seconds > 40
    release.set()
    await asyncio.sleep(0.2)
    # What comes when nobody waits any more speaks for nothing.
    assert outcomes == ["failed", "failed", "refused"]
    assert hanging.breaker.state is State.OPEN
    hanging.close()


async def test_a_caller_that_leaves_does_not_free_the_thread_that_still_works():
    release = threading.Event()
    storage = calls(concurrent_calls=1, queued_calls=0)
    leaving = asyncio.ensure_future(storage.run(CALLER, release.wait, 20))
    await asyncio.sleep(0.01)
    leaving.cancel()
    with pytest.raises(asyncio.CancelledError):
        await leaving
    with pytest.raises(StorageDown):
        await storage.run(CALLER, divmod, 7, 2)
    release.set()
    for _ in range(100):
        await asyncio.sleep(0.01)
        try:
            assert await storage.run(CALLER, divmod, 7, 2) == (3, 1)
            break
        except StorageDown:
            continue
    else:
        pytest.fail("the place was never given back")
    storage.close()


async def test_a_failure_of_a_shared_call_counts_for_each_of_its_requests():
    storage = calls(failures=3, open_seconds=60)
    for callers, state in ((2, State.CLOSED), (1, State.OPEN)):
        with pytest.raises(Unreachable):
            await storage.run_for(CALLER, lambda callers=callers: callers, lambda: fail(Unreachable()))
        assert storage.breaker.state is state
    storage.close()


class Direct:
    """A call without a thread that a test ends by hand, and what its callers got."""

    def __init__(self, storage, callers=1):
        self.found = []
        self.ends = []
        self.started = storage.start_at_once(CALLER, self._start, self.found.append, lambda: callers)

    def _start(self, end):
        self.ends.append(end)
        return True


async def test_a_call_without_a_thread_counts_as_one_with_a_thread():
    outcomes = []
    storage = calls(failures=3, open_seconds=60, concurrent_calls=2)
    storage.observe = lambda _name, outcome, _seconds: outcomes.append(outcome)
    one, other = Direct(storage), Direct(storage)
    assert not Direct(storage).started, "both places are taken"
    error = KeyError("of the table")
    one.ends[0](7)
    other.ends[0](error)
    assert (one.found, other.found) == ([7], [error])
    assert not storage.start_at_once(CALLER, lambda _end: False, pytest.fail, lambda: 1)
    with pytest.raises(Unreachable):
        storage.start_at_once(CALLER, lambda _end: fail(Unreachable()), pytest.fail, lambda: 1)
    assert outcomes == ["answered"] * 2, "nothing was started"
    failed = [Direct(storage, 2), Direct(storage)]
    for call in failed:
        assert storage.breaker.state is State.CLOSED
        call.ends[0](Unreachable())
    assert (outcomes[2:], storage.breaker.state) == (["failed"] * 2, State.OPEN)
    assert not Direct(storage).started
    storage.close()


async def test_a_call_without_a_thread_that_hangs_fails_in_time_and_keeps_its_place_until_its_end():
    outcomes = []
    storage = calls(failures=1, open_seconds=60, concurrent_calls=1, call_seconds=0.01)
    storage.observe = lambda _name, outcome, _seconds: outcomes.append(outcome)
    hanging = Direct(storage)
    await asyncio.sleep(0.05)
    assert isinstance(hanging.found[0], StorageDown)
    assert storage.breaker.state is State.OPEN
    storage.breaker.state = State.CLOSED
    assert not Direct(storage).started
    hanging.ends[0](7)
    assert (len(hanging.found), outcomes) == (1, ["failed"])
    assert Direct(storage).started
    storage.close()
