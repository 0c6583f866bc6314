"""The part of a recipient's limits that one of several replicas enforces."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace

from gateway.config.operation import RecipientLimits


def replica_id(secret: bytes) -> str:
    """Return the id of a replica by the secret that its workers share."""
    return hashlib.sha256(b"replica\0" + secret).hexdigest()[:32]


@dataclass(frozen=True, slots=True)
class ReplicaRank:
    """The place of a replica among the live replicas: `rank` is from 0 to `count` - 1."""

    rank: int = 0
    count: int = 1

    def of(self, limits: RecipientLimits) -> RecipientLimits:
        """Return the part of this replica. The parts of all replicas add up to the limit.

        If the limit is below the number of replicas, each has one.
        """
        if self.count == 1:
            return limits
        rate = limits.requests_per_second
        return replace(
            limits,
            requests_per_second=None if rate is None else rate / self.count,
            burst_requests=self._part(limits.burst_requests),
            concurrent_streams=self._part_of_limit(limits.concurrent_streams),
            files_per_minute=self._part_of_limit(limits.files_per_minute),
            credentials_per_minute=self._part_of_limit(limits.credentials_per_minute),
        )

    def _part_of_limit(self, value: int | None) -> int | None:
        return None if value is None else self._part(value)

    def _part(self, value: int) -> int:
        whole, rest = divmod(value, self.count)
        return max(1, whole + (self.rank < rest))


ALONE = ReplicaRank()
