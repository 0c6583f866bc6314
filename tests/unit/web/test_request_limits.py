"""The limits of a running server over reloads of its configuration."""

from __future__ import annotations

from gateway.config import loads
from gateway.web.request_limits import RequestLimits


def test_a_configuration_that_is_taken_keeps_the_gates():
    before = RequestLimits.of(loads("version: 1\ngateway: {anonymous: true}"))
    limits = "{memoryBytes: 100000000, bodySeconds: 7, recipient: {concurrentStreams: 4}}"
    after = RequestLimits.of(
        loads(f"version: 1\ngateway: {{anonymous: true, limits: {limits}}}"), workers=2, previous=before
    )
    assert (after.recipients, after.memory) == (before.recipients, before.memory)
    assert (after.memory.limit_bytes, after.body_seconds) == (50_000_000, 7)
