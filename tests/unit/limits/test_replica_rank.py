"""The parts of several replicas are a limit as a whole."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.config.operation import RecipientLimits
from gateway.limits.replica_rank import ALONE, ReplicaRank


@given(st.integers(1, 9), st.integers(1, 200), st.integers(1, 200))
def test_the_parts_of_all_replicas_are_the_whole_or_one_each(replicas: int, limit: int, burst: int) -> None:
    limits = RecipientLimits(
        requests_per_second=limit,
        burst_requests=burst,
        concurrent_streams=limit,
        files_per_minute=limit,
        credentials_per_minute=limit,
    )
    parts = [ReplicaRank(rank, replicas).of(limits) for rank in range(replicas)]
    for name, whole in (
        ("burst_requests", burst),
        ("concurrent_streams", limit),
        ("files_per_minute", limit),
        ("credentials_per_minute", limit),
    ):
        assert sum(getattr(part, name) for part in parts) == max(whole, replicas)
    assert math.isclose(sum(part.requests_per_second or 0 for part in parts), limit)


@pytest.mark.parametrize("share", [ALONE, ReplicaRank(2, 3)])
def test_what_has_no_limit_stays_without_one(share: ReplicaRank) -> None:
    part = share.of(RecipientLimits())
    assert part.requests_per_second is part.concurrent_streams is part.files_per_minute is None
    assert share is not ALONE or part == RecipientLimits()
