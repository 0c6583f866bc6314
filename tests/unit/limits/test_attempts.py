"""Failed attempts are limited by client and address, and hold nobody else back."""

from __future__ import annotations

from contextlib import ExitStack

import pytest

from gateway.limits.admission import LimitExceeded, LimitKind
from gateway.limits.attempts import ADDRESS_FAILURES, PAIR_FAILURES, PAIR_SECONDS, FailedAttempts
from gateway.limits.shared_memory import LimitsFile, map_limits

SECRET, GUESS = b"right", b"wrong"


class Clock:
    now_seconds = 100.0

    def __call__(self) -> float:
        return self.now_seconds


kinds: set[LimitKind] = set()


def fail(made: FailedAttempts, address: str, client: str, times: int) -> int:
    """Fail as often as permitted; returns how often."""
    for number in range(times):
        try:
            made.check(address, client, GUESS)
        except LimitExceeded as exceeded:
            kinds.add(exceeded.limit)
            return number
        made.failed(address, client)
    return times


def test_a_client_fails_so_often_at_an_address_and_then_waits() -> None:
    clock = Clock()
    made = FailedAttempts(clock)
    assert fail(made, "192.0.2.1", "c1", 100) == PAIR_FAILURES
    # Nobody else waits: not the client elsewhere, nor another one at the address.
    made.check("192.0.2.2", "c1", GUESS)
    made.check("192.0.2.1", "c2", GUESS)
    assert kinds == {LimitKind.ATTEMPTS}
    clock.now_seconds += PAIR_SECONDS
    assert fail(made, "192.0.2.1", "c1", 100) == 1


def test_an_address_that_tries_many_clients_waits_but_not_for_a_secret_that_succeeded() -> None:
    made = FailedAttempts(Clock())
    made.succeeded("192.0.2.1", "good", SECRET)
    assert sum(fail(made, "192.0.2.1", f"c{number}", 1) for number in range(200)) == ADDRESS_FAILURES
    made.check("192.0.2.1", "good", SECRET)
    made.check("192.0.2.2", "another", GUESS)
    # Another secret is treated as that of an unknown client.
    for client in ("good", "another"):
        with pytest.raises(LimitExceeded):
            made.check("192.0.2.1", client, GUESS)


def test_guesses_do_not_lock_a_client_out() -> None:
    made = FailedAttempts(Clock())
    made.succeeded("192.0.2.1", "good", SECRET)
    assert fail(made, "192.0.2.1", "good", 100) == PAIR_FAILURES
    made.check("192.0.2.1", "good", SECRET)


def test_workers_share_the_failures_and_the_successes() -> None:
    file, clock = LimitsFile(2), Clock()
    one, two = (
        FailedAttempts(clock, map_limits(file.descriptor, workers=2, worker=worker)) for worker in (0, 1)
    )
    file.close()
    assert fail(one, "192.0.2.1", "c1", 6) == 6
    assert fail(two, "192.0.2.1", "c1", 100) == PAIR_FAILURES - 6
    one.succeeded("192.0.2.1", "c1", SECRET)
    two.check("192.0.2.1", "c1", SECRET)
    with pytest.raises(LimitExceeded):
        one.check("192.0.2.1", "c1", GUESS)


def test_many_attempts_displace_the_oldest_alone() -> None:
    clock = Clock()
    made = FailedAttempts(clock)
    for number in range(100_000):
        clock.now_seconds += 0.001
        made.failed(f"192.0.2.{number}", f"c{number}\udcff")
        made.succeeded(f"192.0.2.{number}", f"c{number}", SECRET)
    shared = made._shared
    latest = range(99_900, 100_000)
    assert all(shared.has_succeeded(made._success(f"192.0.2.{n}", f"c{n}", SECRET)) for n in latest)
    assert not any(shared.has_succeeded(made._success(f"192.0.2.{n}", f"c{n}", SECRET)) for n in range(100))


def test_an_attempt_without_a_result_counts_as_one_that_failed() -> None:
    clock = Clock()
    made = FailedAttempts(clock)
    with ExitStack() as stack:
        for _ in range(PAIR_FAILURES):
            stack.enter_context(made.running("192.0.2.1", "c1", GUESS))
        with pytest.raises(LimitExceeded):
            made.check("192.0.2.1", "c1", GUESS)
        made.check("192.0.2.1", "c2", GUESS)
    # None of them was charged.
    assert fail(made, "192.0.2.1", "c1", 100) == PAIR_FAILURES
