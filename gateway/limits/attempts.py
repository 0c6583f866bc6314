"""Limits failed attempts of clients to authenticate.

In: the address, id and secret of each attempt, and its result. Out: LimitExceeded once too many have failed.
A pair of address and id has a budget, and so have all ids of an address together. An attempt that equals one
that has succeeded needs no budget: failures of others at its address, which may be that of a proxy, do not
hold it back, and whoever guesses does not know its secret. The numbers of budgets and successes are bounded.
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

    def check(self, address: str, client_id: str, secret_sha256: bytes) -> None:
        """Raise LimitExceeded if an attempt has to wait."""
        if _success(address, client_id, secret_sha256) not in self._succeeded:
            self._require(_key(address, client_id))
            self._require(_key(address))

    def failed(self, address: str, client_id: str) -> None:
        """Charge a failed attempt."""
        self._charge(_key(address, client_id), PAIR_FAILURES, PAIR_SECONDS)
        self._charge(_key(address), ADDRESS_FAILURES, ADDRESS_SECONDS)

    def succeeded(self, address: str, client_id: str, secret_sha256: bytes) -> None:
        """Remember an attempt that is authenticated."""
        success = _success(address, client_id, secret_sha256)
        self._succeeded[success] = None
        self._succeeded.move_to_end(success)
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


def _success(address: str, client_id: str, secret_sha256: bytes) -> bytes:
    return _key(address, client_id, secret_sha256.hex())
