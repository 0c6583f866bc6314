"""The minimum rate at which a client may read an answer."""

from gateway.limits.drain_rate import DrainRate


def test_a_chunk_may_take_the_grace_and_its_time_at_the_slowest_rate():
    assert DrainRate(minimum_bytes_per_second=1000, grace_seconds=5).write_seconds(64_000) == 69
    assert DrainRate(minimum_bytes_per_second=0).write_seconds(1) is None
