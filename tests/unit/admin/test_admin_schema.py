"""Schemathesis draws requests from the admin API's OpenAPI document, valid and invalid ones."""

import hashlib
from collections.abc import Iterator
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, given, settings
from support.gateway_process import running_gateway, share
from support.processes import free_port, wait_for_port

pytestmark = pytest.mark.processes

TOKEN = "token-of-the-admin"
# Of each operation.
EXAMPLES = settings().max_examples // 5


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


# Drawn as of a property, within the test.
@pytest.mark.hypothesis
def test_every_answer_is_one_that_the_document_names(admin: Any) -> None:
    checks = schemathesis.specs.openapi.checks
    named = [checks.status_code_conformance, checks.response_schema_conformance]
    assert send_all(admin, schemathesis.GenerationMode.POSITIVE, named) > EXAMPLES


@pytest.mark.hypothesis
def test_a_body_that_the_document_does_not_allow_is_refused(admin: Any) -> None:
    checks = schemathesis.specs.openapi.checks
    refused = [checks.negative_data_rejection, checks.response_schema_conformance]
    assert send_all(admin, schemathesis.GenerationMode.NEGATIVE, refused) > EXAMPLES


def send_all(admin: Any, mode: Any, checks: list[Any]) -> int:
    """Sends requests of every operation that can have them, and returns their number."""
    requested = 0
    for found in admin.get_all_operations():
        operation = found.ok()
        if mode == schemathesis.GenerationMode.NEGATIVE and not operation.body:
            continue

        @given(case=operation.as_strategy(generation_mode=mode))
        @settings(max_examples=EXAMPLES, suppress_health_check=list(HealthCheck))
        def send(case: Any) -> None:
            nonlocal requested
            response = case.call(headers={"Authorization": f"Bearer {TOKEN}"})
            assert response.status_code < 500, response.text
            # A drawn body may be over the limit, before its schema matters.
            if response.status_code != 413:
                case.validate_response(response, checks=checks)
            requested += 1

        send()
    return requested
