"""Limits failed attempts of clients to authenticate.

In: the address and the id of each attempt, and its result. Out: LimitExceeded once too many have failed.
A pair of address and id has a budget, and so have all ids of an address together; the workers of a server
share them. Where a secret is compared in memory, only one that is wrong needs a budget: failures of others at
an address, which may be a shared proxy, never delay a right secret. Secrets are too long to be guessed at any
rate.
Budgets have memory of a fixed size: of too many, those that end first are forgotten.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from ipaddress import IPv6Address, IPv6Network

from gateway._native import SharedLimits
from gateway.config.networks import Address
from gateway.limits.admission import LimitExceeded, LimitKind
from gateway.limits.shared_memory import limits_of_one

PAIR_FAILURES, PAIR_SECONDS = 10, 6.0
"""Failures of a pair at once, and the time in which one is forgiven."""
ADDRESS_FAILURES, ADDRESS_SECONDS = 60, 1.0
TOO_MANY = "Too many attempts have failed. Wait a while and try again."
"""What people read at a page that counts attempts."""
KEY_BYTES = 16
SITE_BITS = 64
"""One host may have any address of an IPv6 network of this length."""


class FailedAttempts:
    """The budgets of a server."""

    def __init__(self, now_seconds: Callable[[], float], shared: SharedLimits | None = None) -> None:
        """`shared`: the limits that all workers share; without it each process has its limits."""
        self._now_seconds = now_seconds
        self._shared = shared or limits_of_one()
        self._seed = self._shared.seed
        self._running: Counter[bytes] = Counter()
        """Attempts of this process without a result yet, by the keys of their budgets."""

    def check(self, address: str, client_id: str) -> None:
        """Raise LimitExceeded if an attempt has to wait."""
        self._require(self._key(address, client_id), PAIR_FAILURES, PAIR_SECONDS)
        self._require(self._key(address), ADDRESS_FAILURES, ADDRESS_SECONDS)

    @contextmanager
    def running(self, address: str, client_id: str) -> Iterator[None]:
        """Admit an attempt whose result takes a while. Until then it counts as one that has failed.

        Raises LimitExceeded. The caller charges a failure.
        """
        self.check(address, client_id)
        keys = (self._key(address, client_id), self._key(address))
        self._running.update(keys)
        try:
            yield
        finally:
            self._running.subtract(keys)
            for key in keys:
                if not self._running[key]:
                    del self._running[key]

    def failed(self, address: str, client_id: str) -> None:
        """Charge a failed attempt."""
        self._charge(self._key(address, client_id), PAIR_FAILURES, PAIR_SECONDS)
        self._charge(self._key(address), ADDRESS_FAILURES, ADDRESS_SECONDS)

    def _require(self, key: bytes, failures: int, seconds: float) -> None:
        left = failures - self._running[key]
        if left <= 0:
            raise LimitExceeded(LimitKind.ATTEMPTS, seconds)
        wait_seconds = self._shared.failures_wait_seconds(
            key, failures=left, seconds=seconds, now_seconds=self._now_seconds()
        )
        if wait_seconds > 0:
            raise LimitExceeded(LimitKind.ATTEMPTS, wait_seconds)

    def _charge(self, key: bytes, failures: int, seconds: float) -> None:
        self._shared.charge_failure(key, failures=failures, seconds=seconds, now_seconds=self._now_seconds())

    def _key(self, *parts: str) -> bytes:
        """Return a key of a fixed size. Its hash has a seed: clients choose no names that displace others."""
        text = "\0".join(parts).encode("utf-8", "surrogatepass")
        return hashlib.blake2b(text, digest_size=KEY_BYTES, key=self._seed).digest()


def network_of(address: Address | None) -> str:
    """Return the address by which attempts are counted, or its network."""
    if isinstance(address, IPv6Address):
        return str(IPv6Network((address.packed, SITE_BITS), strict=False))
    return str(address)
