"""Failed attempts are limited by client and address, and hold nobody else back."""

from contextlib import ExitStack
from ipaddress import ip_address

import pytest

from gateway.limits.admission import LimitExceeded, LimitKind
from gateway.limits.attempts import ADDRESS_FAILURES, PAIR_FAILURES, PAIR_SECONDS, FailedAttempts, network_of
from gateway.limits.shared_memory import LimitsFile, SharedLimits


class Clock:
    now_seconds = 100.0

    def __call__(self) -> float:
        return self.now_seconds


kinds: set[LimitKind] = set()


def fail(made: FailedAttempts, address: str, client: str, times: int) -> int:
    """Fail as often as permitted; returns how often."""
    for number in range(times):
        try:
            made.check(address, client)
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
    made.check("192.0.2.2", "c1")
    made.check("192.0.2.1", "c2")
    assert kinds == {LimitKind.ATTEMPTS}
    clock.now_seconds += PAIR_SECONDS
    assert fail(made, "192.0.2.1", "c1", 100) == 1


def test_an_address_that_tries_many_clients_waits() -> None:
    made = FailedAttempts(Clock())
    assert sum(fail(made, "192.0.2.1", f"c{number}", 1) for number in range(200)) == ADDRESS_FAILURES
    made.check("192.0.2.2", "another")
    with pytest.raises(LimitExceeded):
        made.check("192.0.2.1", "another")


def test_workers_share_the_failures() -> None:
    file, clock = LimitsFile(2), Clock()
    one, two = (
        FailedAttempts(clock, SharedLimits(file.descriptor, workers=2, worker=worker)) for worker in (0, 1)
    )
    file.close()
    assert fail(one, "192.0.2.1", "c1", 6) == 6
    assert fail(two, "192.0.2.1", "c1", 100) == PAIR_FAILURES - 6
    with pytest.raises(LimitExceeded):
        one.check("192.0.2.1", "c1")


def test_many_failures_displace_none_that_waits_longer() -> None:
    clock = Clock()
    made = FailedAttempts(clock)
    for number in range(100_000):
        clock.now_seconds += 0.00001
        for _ in range(PAIR_FAILURES if number in {0, 99_999} else 1):
            made.failed(f"192.0.2.{number}", f"c{number}\udcff")
    for number in (0, 99_999):
        with pytest.raises(LimitExceeded):
            made.check(f"192.0.2.{number}", f"c{number}\udcff")


def test_an_attempt_without_a_result_counts_as_one_that_failed() -> None:
    clock = Clock()
    made = FailedAttempts(clock)
    with ExitStack() as stack:
        for _ in range(PAIR_FAILURES):
            stack.enter_context(made.running("192.0.2.1", "c1"))
        with pytest.raises(LimitExceeded):
            made.check("192.0.2.1", "c1")
        made.check("192.0.2.1", "c2")
    # None of them was charged.
    assert fail(made, "192.0.2.1", "c1", 100) == PAIR_FAILURES


def test_an_ipv6_network_counts_as_one_address() -> None:
    addresses = ("2001:db8::1", "2001:db8::ffff:0:0:1", "2001:db8:0:1::1", "192.0.2.1")
    networks = [network_of(ip_address(text)) for text in addresses]
    assert networks == ["2001:db8::/64", "2001:db8::/64", "2001:db8:0:1::/64", "192.0.2.1"]
