"""Failed attempts are limited by client and address, and hold nobody else back."""

from __future__ import annotations

import pytest

from gateway.limits import attempts
from gateway.limits.admission import LimitExceeded, LimitKind
from gateway.limits.attempts import ADDRESS_FAILURES, PAIR_FAILURES, PAIR_SECONDS, FailedAttempts

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


def test_the_memory_of_attempts_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attempts, "MAX_KEYS", 50)
    made = FailedAttempts(Clock())
    for number in range(500):
        made.failed(f"192.0.2.{number}", f"c{number}\udcff")
        made.succeeded(f"192.0.2.{number}", f"c{number}", SECRET)
    assert len(made._budgets) == len(made._succeeded) == 50
