"""Schemathesis draws requests from the admin API's own document; every answer is one that it names."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, given, settings
from support.gateway_process import running_gateway, share
from support.processes import free_port, wait_for_port

TOKEN = "token-of-the-admin"
EXAMPLES = 30


@pytest.fixture(scope="module")
def admin(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    directory = tmp_path_factory.mktemp("admin")
    port = free_port()
    section = {
        "recipientsDatabase": "recipients.db",
        "drainDelaySeconds": 0,
        "admin": {"port": port, "tokenSha256": hashlib.sha256(TOKEN.encode()).hexdigest()},
    }
    with running_gateway(directory, [share("s", {})], section) as gateway:
        url = f"http://127.0.0.1:{port}"
        headers = {"Authorization": f"Bearer {TOKEN}"}
        wait_for_port(port, gateway.process)
        yield schemathesis.openapi.from_url(f"{url}/openapi.json", headers=headers)
        assert "Traceback" not in gateway.log.read_text()
        assert TOKEN not in gateway.log.read_text()


def test_every_answer_is_one_that_the_document_names(admin: Any) -> None:
    checks = schemathesis.specs.openapi.checks
    named = [checks.status_code_conformance, checks.response_schema_conformance]
    requested = 0
    for found in admin.get_all_operations():

        @given(case=found.ok().as_strategy())
        @settings(max_examples=EXAMPLES, deadline=None, suppress_health_check=list(HealthCheck))
        def ask(case: Any) -> None:
            nonlocal requested
            response = case.call(headers={"Authorization": f"Bearer {TOKEN}"})
            assert response.status_code < 500, response.text
            case.validate_response(response, checks=named)
            requested += 1

        ask()
    assert requested > EXAMPLES
