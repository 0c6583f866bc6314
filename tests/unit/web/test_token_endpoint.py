"""The token endpoint, and requests with its tokens, through real sockets."""

import json
import logging
from base64 import b64encode
from collections import Counter
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from aiohttp.test_utils import TestClient
from support.gateway_app import PREFIX, TOKENS, Clock, PipelineServer, serve

from gateway.authentication.credential_table import token_hash
from gateway.config import loads
from gateway.limits.attempts import ADDRESS_FAILURES, PAIR_FAILURES
from gateway.state import GatewayState
from gateway.telemetry.audit import AuditLog
from gateway.telemetry.metrics import Metrics
from gateway.web.context import RequestContext, Route
from gateway.web.response import WholeResponse
from gateway.web.router import Router

NOW_MS = 1_700_000_000_000
SECRET = "a-secret-of-alice"
TOKEN_PATH = f"{PREFIX}/oauth/token"
FORM = "grant_type=client_credentials&scope=all:read other"
Client = TestClient[Any, Any]


@pytest.fixture
def clock() -> Clock:
    return Clock(NOW_MS)


def configuration(**changes: Any) -> str:
    """A share for alice, by a client and a bearer token, and one for bob."""
    secrets = [{"sha256": token_hash(SECRET).hex(), "expires": "2023-11-15T00:00:00Z"}]
    alice = {
        "name": "alice",
        "shares": ["sales"],
        "tokens": [{"sha256": token_hash(TOKENS["alice"]).hex()}],
        "clients": [{"id": "c1", "secrets": secrets}],
    }
    gateway = {
        "endpointAliases": ["/alias"],
        "tokenKeys": [{"id": "k1", "secret": "a secret for the tests"}],
        "recipients": [alice | changes],
    }
    return f"shares: [{{name: sales}}, {{name: other}}]\ngateway: {json.dumps(gateway)}\n"


@pytest.fixture
async def client(clock: Clock) -> AsyncIterator[Client]:
    started, _ = await serve(configuration(), clock=clock)
    yield started
    await started.close()


def basic(client_id: str = "c1", secret: str = SECRET) -> dict[str, str]:
    return {
        "Authorization": f"Basic {b64encode(f'{client_id}:{secret}'.encode()).decode()}",
        "Content-Type": "application/x-www-form-urlencoded",
    }


async def token_of(client: Client, path: str = TOKEN_PATH, **options: Any) -> str:
    answer = await client.post(path, **({"data": FORM, "headers": basic()} | options))
    assert answer.status == 200, await answer.text()
    assert answer.headers["Cache-Control"] == "no-store"
    found = await answer.json()
    assert (found["token_type"], found["expires_in"]) == ("Bearer", 3600)
    assert set(found) == {"access_token", "token_type", "expires_in"}
    return str(found["access_token"])


async def shares(client: Client, token: str, prefix: str = PREFIX) -> list[str] | int:
    answer = await client.get(f"{prefix}/shares", headers={"Authorization": f"Bearer {token}"})
    if answer.status != 200:
        assert answer.headers["WWW-Authenticate"].endswith('error="invalid_token"')
        return answer.status
    return [share["name"] for share in (await answer.json())["items"]]


async def error_of(client: Client, status: int, **options: Any) -> str:
    answer = await client.post(TOKEN_PATH, **({"data": FORM, "headers": basic()} | options))
    found = await answer.json()
    assert answer.status == status, found
    assert answer.headers["Cache-Control"] == "no-store"
    assert set(found) == {"error", "error_description", "errorCode", "message"}
    assert found["error_description"] == found["message"]
    assert ("WWW-Authenticate" in answer.headers) == (status == 401)
    return str(found["error"])


def pipeline_of(client: Client) -> Any:
    server = client.server
    assert isinstance(server, PipelineServer)
    return server.pipeline


def metrics_of(client: Client) -> str:
    return str(pipeline_of(client).recorder._metrics.page().decode())


def reload(client: Client, clock: Clock, text: str) -> None:
    """Apply another configuration, as a reload does."""
    pipeline = pipeline_of(client)
    config = loads(f"version: 1\nhost: 127.0.0.1\nport: 1\n{text}")
    pipeline.state = GatewayState.of(config, now_ms=clock, previous=pipeline.state)


async def test_a_client_gets_a_token_by_either_method_and_reads_with_it(client: Client) -> None:
    form = {"grant_type": "client_credentials", "client_id": "c1", "client_secret": SECRET}
    for options in ({}, {"data": form, "headers": {}}):
        token = await token_of(client, **options)
        assert await shares(client, token) == ["sales"]
    # An alias leads to the same endpoint, and tokens are those of all.
    assert await shares(client, await token_of(client, "/alias/oauth/token")) == ["sales"]
    assert await shares(client, token, "/alias") == ["sales"]


async def test_a_secret_is_accepted_form_encoded_and_as_it_is_sent(client: Client, clock: Clock) -> None:
    encoded = basic("%631", "a%2Dsecret%2Dof%2Dalice")
    assert await shares(client, await token_of(client, headers=encoded)) == ["sales"]
    odd = "100%25+x"
    secrets = [{"sha256": token_hash(odd).hex()}]
    reload(client, clock, configuration(clients=[{"id": "c1", "secrets": secrets}]))
    for headers in (basic(secret=odd), basic(secret="100%2525%2Bx")):
        assert await shares(client, await token_of(client, headers=headers)) == ["sales"]
    assert await error_of(client, 401, headers=basic(secret="100%25%2Bx")) == "invalid_client"


async def test_every_failed_authentication_has_one_answer(
    client: Client, clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "gateway.clients")
    reload(client, clock, configuration(networks=["127.0.0.0/8"]))
    answers = set()
    for headers in (basic("c2"), basic(secret="another"), basic("", ""), {"Authorization": "Basic !"}):
        answer = await client.post(TOKEN_PATH, data=FORM, headers=basic() | headers)
        answers.add((answer.status, answer.headers["WWW-Authenticate"], await answer.text()))
    clock.now_ms += 86_400_000
    answer = await client.post(TOKEN_PATH, data=FORM, headers=basic())
    answers.add((answer.status, answer.headers["WWW-Authenticate"], await answer.text()))
    clock.now_ms = NOW_MS
    reload(client, clock, configuration(networks=["192.0.2.0/24"]))
    answer = await client.post(TOKEN_PATH, data=FORM, headers=basic())
    answers.add((answer.status, answer.headers["WWW-Authenticate"], await answer.text()))
    [(status, challenge, text)] = answers
    assert (status, challenge) == (401, 'Basic realm="delta-sharing"')
    assert json.loads(text)["error"] == "invalid_client"
    reasons = [record.message.rpartition(": ")[2] for record in caplog.records]
    assert reasons == ["client", "secret", "client", "expired", "address"]
    for reason, requests in Counter([*reasons, "client"]).items():
        assert f'delta_gateway_refused_requests_total{{reason="{reason}"}} {requests}.0' in metrics_of(client)
    assert SECRET not in caplog.text


@pytest.mark.parametrize(
    ("status", "error", "options"),
    [
        (400, "invalid_request", {"data": "scope=a"}),
        (400, "invalid_request", {"data": FORM + "&scope=twice"}),
        (400, "invalid_request", {"headers": basic() | {"Content-Type": "application/json"}}),
        (400, "unsupported_grant_type", {"data": "grant_type=authorization_code"}),
        (413, "invalid_request", {"data": FORM + "&a=" + "a" * 20_000}),
        (401, "invalid_client", {"headers": {"Authorization": f"Bearer {TOKENS['alice']}"}, "data": ""}),
    ],
)
async def test_errors_are_those_of_oauth(
    client: Client, status: int, error: str, options: dict[str, Any]
) -> None:
    assert await error_of(client, status, **options) == error


async def test_a_body_without_a_length_is_bounded(client: Client) -> None:
    async def endless() -> AsyncIterator[bytes]:
        for _ in range(10_000):
            yield b"a" * 1000

    try:
        answer = await client.post(TOKEN_PATH, data=endless(), headers=basic())
    except ConnectionError:
        return
    assert answer.status == 413


async def test_the_path_has_no_other_method_and_reads_no_query_string(client: Client) -> None:
    assert (await client.get(TOKEN_PATH)).status == 405
    query = f"?grant_type=client_credentials&client_id=c1&client_secret={SECRET}"
    answer = await client.post(TOKEN_PATH + query)
    assert (answer.status, (await answer.json())["error"]) == (401, "invalid_client")


async def test_guesses_are_limited_and_hold_no_other_client_back(client: Client) -> None:
    for _ in range(PAIR_FAILURES):
        assert await error_of(client, 401, headers=basic(secret="guess")) == "invalid_client"
    assert await error_of(client, 429, headers=basic(secret="guess")) == "temporarily_unavailable"
    assert await error_of(client, 401, headers=basic("c2")) == "invalid_client"
    assert 'delta_gateway_limited_requests_total{limit="attempts"} 1.0' in metrics_of(client)
    for number in range(ADDRESS_FAILURES):
        await client.post(TOKEN_PATH, data=FORM, headers=basic(f"unknown-{number}"))
    assert await error_of(client, 429, headers=basic("another")) == "temporarily_unavailable"
    # Whose secret is right comes in, although neither the client nor its address has a budget left.
    await token_of(client)


async def test_a_recipient_over_its_limit_gets_no_token(client: Client, clock: Clock) -> None:
    pipeline = pipeline_of(client)
    limits = {"requestsPerSecond": 0.01, "burstRequests": 2, "queueSeconds": 0}
    config = loads(f"version: 1\n{configuration(limits=limits)}")
    pipeline.limits = type(pipeline.limits).of(config, previous=pipeline.limits)
    assert clock.now_ms == NOW_MS
    for _ in range(2):
        await token_of(client)
    assert await error_of(client, 429) == "temporarily_unavailable"


async def test_a_removed_client_ends_its_tokens_at_once_with_a_reason(
    client: Client, clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "gateway.federation")
    token = await token_of(client)
    reload(client, clock, configuration())
    assert await shares(client, token) == ["sales"]
    reload(client, clock, configuration(clients=[]))
    assert await shares(client, token) == 401
    assert "the client of the token does not exist" in caplog.text
    assert 'delta_gateway_refused_requests_total{reason="client"} 1.0' in metrics_of(client)
    assert token not in caplog.text


async def test_a_token_ends_after_its_lifetime(client: Client, clock: Clock) -> None:
    token = await token_of(client)
    clock.now_ms += 3600_000
    assert await shares(client, token) == 401
    assert 'delta_gateway_refused_requests_total{reason="expired"} 1.0' in metrics_of(client)


async def test_bearer_tokens_can_be_forbidden(
    client: Client, clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "gateway.federation")
    assert await shares(client, TOKENS["alice"]) == ["sales"]
    token = await token_of(client)
    reload(client, clock, configuration(forbidBearerTokens=True))
    assert await shares(client, TOKENS["alice"]) == 401
    assert await shares(client, token) == ["sales"]
    assert "bearer tokens are forbidden to recipient alice" in caplog.text
    assert 'delta_gateway_refused_requests_total{reason="forbidden"} 1.0' in metrics_of(client)
    reload(client, clock, configuration())
    assert await shares(client, TOKENS["alice"]) == ["sales"]


async def test_a_key_that_is_gone_is_the_logged_reason(
    clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    """A server without configured keys makes one at each start."""
    caplog.set_level(logging.INFO, "gateway.federation")
    text = configuration().replace('"tokenKeys": [{"id": "k1", "secret": "a secret for the tests"}], ', "")
    assert "tokenKeys" not in text
    workers = [(await serve(text, clock=clock, token_secret=b"1" * 32))[0] for _ in range(2)]
    restarted, _ = await serve(text, clock=clock)
    token = await token_of(workers[0])
    assert await shares(workers[1], token) == ["sales"]
    assert await shares(restarted, token) == 401
    assert "gateway.tokenKeys outlive a restart" in caplog.text
    assert 'delta_gateway_refused_requests_total{reason="key"} 1.0' in metrics_of(restarted)
    for started in (*workers, restarted):
        await started.close()


async def test_issued_and_refused_tokens_are_audited_without_them(tmp_path: Path, clock: Clock) -> None:
    audit = AuditLog(tmp_path / "audit.jsonl")
    started, _ = await serve(
        configuration(forbidBearerTokens=True), clock=clock, audit=audit, metrics=Metrics()
    )
    token = await token_of(started)
    assert await shares(started, token) == ["sales"]
    assert await shares(started, TOKENS["alice"]) == 401
    assert await error_of(started, 401, headers=basic(secret="guess")) == "invalid_client"
    await started.close()
    audit.close()
    text = (tmp_path / "audit.jsonl").read_text()
    assert token not in text
    assert SECRET not in text
    records = [json.loads(line) for line in text.splitlines()]
    assert [(one["actionName"], one["recipientName"], one["response"]["statusCode"]) for one in records] == [
        ("mintOAuthToken", "alice", 200),
        ("deltaSharingListShares", "alice", 200),
        ("deltaSharingListShares", None, 401),
        ("mintOAuthToken", None, 401),
    ]
    results = [one["response"]["result"] for one in records]
    assert results[0]["clientId"] == results[1]["clientId"] == "c1"
    assert (results[2]["refusal"], results[2]["forbiddenTo"]) == ("forbidden", "alice")
    assert results[3]["refusal"] == "secret"


async def test_an_audit_log_that_cannot_be_written_issues_no_token(tmp_path: Path, clock: Clock) -> None:
    directory = tmp_path / "absent"
    text = configuration().replace(
        '"endpointAliases"', '"audit": {"file": "a.jsonl", "failClosed": true}, "endpointAliases"'
    )
    directory.mkdir()
    audit = AuditLog(directory / "audit.jsonl")
    started, _ = await serve(text, clock=clock, audit=audit)
    await token_of(started)
    audit.close()
    answer = await started.post(TOKEN_PATH, data=FORM, headers=basic())
    assert (answer.status, (await answer.json())["error"]) == (503, "temporarily_unavailable")
    await started.close()


async def test_a_state_without_clients_refuses_all(client: Client) -> None:
    pipeline = pipeline_of(client)
    empty = type(pipeline.state.credentials)(())
    pipeline.state = replace(pipeline.state, credentials=empty)
    assert await error_of(client, 401) == "invalid_client"


async def test_a_stream_ends_when_the_client_of_its_token_is_removed(client: Client, clock: Clock) -> None:
    tables = "[{name: sales, schemas: [{name: d, tables: [{name: t, location: /absent}]}]}, {name: other}]"

    def with_table(**changes: Any) -> str:
        return configuration(**changes).replace("[{name: sales}, {name: other}]", tables)

    seen = []

    async def stream(context: RequestContext) -> WholeResponse:
        for changes in ({}, {"forbidBearerTokens": True}, {"clients": []}):
            reload(client, clock, with_table(**changes))
            context.require_access()
            seen.append(changes)
        return WholeResponse()

    reload(client, clock, with_table())
    token = await token_of(client)
    pipeline_of(client)._router = Router([Route("GET", "/{share}/{schema}/{table}", stream, may_stream=True)])
    answer = await client.get("/sales/d/t", headers={"Authorization": f"Bearer {token}"})
    assert (answer.status, (await answer.json())["errorCode"]) == (403, "PERMISSION_DENIED")
    assert seen == [{}, {"forbidBearerTokens": True}]
