"""Limits failed attempts of clients to authenticate.

In: the address and the id that each attempt names, and its result. Out: LimitExceeded once too many have
failed. A pair of address and id has a budget, and so have all ids of an address together. A pair that has
succeeded is not held back by failures of others at its address, which may be that of a proxy. No budget is
shared by addresses, so nobody can lock a client out. The numbers of budgets and pairs are bounded.
"""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from typing import TYPE_CHECKING

from gateway.limits.admission import LimitExceeded, LimitKind
from gateway.limits.recipient import TokenBucket

if TYPE_CHECKING:
    from collections.abc import Callable

MAX_KEYS = 10_000
PAIR_FAILURES, PAIR_SECONDS = 10, 6.0
"""Failures of a pair at once, and the time in which one is forgiven."""
ADDRESS_FAILURES, ADDRESS_SECONDS = 60, 1.0


class FailedAttempts:
    """The budgets of a process."""

    def __init__(self, now_seconds: Callable[[], float]) -> None:
        self._now_seconds = now_seconds
        self._budgets: OrderedDict[bytes, TokenBucket] = OrderedDict()
        self._succeeded: OrderedDict[bytes, None] = OrderedDict()

    def check(self, address: str, client_id: str) -> None:
        """Raise LimitExceeded if an attempt has to wait."""
        pair = _key(address, client_id)
        self._require(pair)
        if pair not in self._succeeded:
            self._require(_key(address))

    def failed(self, address: str, client_id: str) -> None:
        """Charge a failed attempt."""
        self._charge(_key(address, client_id), PAIR_FAILURES, PAIR_SECONDS)
        self._charge(_key(address), ADDRESS_FAILURES, ADDRESS_SECONDS)

    def succeeded(self, address: str, client_id: str) -> None:
        """Remember a pair that is authenticated."""
        pair = _key(address, client_id)
        self._succeeded[pair] = None
        self._succeeded.move_to_end(pair)
        if len(self._succeeded) > MAX_KEYS:
            self._succeeded.popitem(last=False)

    def _require(self, key: bytes) -> None:
        budget = self._budgets.get(key)
        if budget is not None and (wait_seconds := budget.wait_seconds(1, self._now_seconds())) > 0:
            raise LimitExceeded(LimitKind.ATTEMPTS, wait_seconds)

    def _charge(self, key: bytes, failures: int, seconds: float) -> None:
        now_seconds = self._now_seconds()
        budget = self._budgets.get(key) or TokenBucket(1 / seconds, failures, now_seconds)
        budget.take(1, now_seconds)
        self._budgets[key] = budget
        self._budgets.move_to_end(key)
        if len(self._budgets) > MAX_KEYS:
            self._budgets.popitem(last=False)


def _key(*parts: str) -> bytes:
    """Return a key of a fixed size."""
    return hashlib.sha256("\0".join(parts).encode("utf-8", "surrogatepass")).digest()
