"""The limits of a running server over reloads of its configuration."""

import pytest

from gateway.config import loads
from gateway.web import request_limits
from gateway.web.request_limits import MIB, RequestLimits, cache_of_worker


def test_a_configuration_that_is_taken_keeps_the_gates():
    before = RequestLimits.of(loads("version: 1\ngateway: {anonymous: true}"))
    limits = "{memoryBytes: 100000000, bodySeconds: 7, recipient: {concurrentStreams: 4}}"
    after = RequestLimits.of(
        loads(f"version: 1\ngateway: {{anonymous: true, limits: {limits}}}"), workers=2, previous=before
    )
    assert (after.recipients, after.memory) == (before.recipients, before.memory)
    assert (after.memory.limit_bytes, after.body_seconds) == (50_000_000, 7)


@pytest.mark.parametrize(
    ("machine_mib", "workers", "cache", "expected_mib"),
    [
        (64 * 1024, 1, "{}", 512),
        (64 * 1024, 4, "{}", 128),
        # 80% of it are for the process, 60 MiB of them for a process at rest.
        (640, 1, "{}", 226),
        (640, 2, "{}", 98),
        (75, 1, "{}", 0),
        (640, 2, "{memoryBytes: 1073741824}", 512),
        (640, 1, "{memoryBytes: 0}", 0),
    ],
)
def test_a_cache_without_a_size_leaves_half_of_a_small_machine_to_streams(
    machine_mib: int, workers: int, cache: str, expected_mib: int, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(request_limits, "machine_bytes", lambda: machine_mib * MIB)
    config = loads(f"version: 1\ngateway: {{anonymous: true, cache: {cache}}}")
    assert cache_of_worker(config, workers) == expected_mib * MIB
