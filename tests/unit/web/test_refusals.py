"""The one reason of every refused request: in the access log, the metrics, and for the recipient's page."""

import json
import logging
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from support.gateway_app import PREFIX, TOKENS, Clock, PipelineServer, bearer, serve

from gateway.authentication.credential_table import (
    MAX_REVOKED,
    Credential,
    CredentialTable,
    Holder,
    token_hash,
)
from gateway.catalog.catalog import Recipient
from gateway.telemetry.activity import Activity
from gateway.telemetry.metrics import Metrics

NOW_MS = 1_700_000_000_000
ENDED = "2023-11-01T00:00:00Z"
SALES = f"{PREFIX}/shares/sales"
BROKEN = f"{SALES}/schemas/default/tables/broken"


def recipient(name: str, **changes: Any) -> dict[str, Any]:
    tokens = [{"sha256": token_hash(TOKENS[name]).hex()}]
    return {"name": name, "shares": ["sales"], "tokens": tokens} | changes


@pytest.mark.parametrize(
    ("changes", "headers", "request_line", "status", "reason"),
    [
        ({}, {}, f"GET {PREFIX}/shares", 401, "no token"),
        ({}, {"Authorization": "Bearer mistyped"}, f"GET {PREFIX}/shares", 401, "unknown token"),
        ({"networks": ["192.0.2.0/24"]}, bearer(), f"GET {PREFIX}/shares", 403, "address"),
        ({"networks": ["192.0.2.0/24"]}, bearer(), f"POST {BROKEN}/query", 403, "address"),
        ({"limits": {"requestsPerSecond": 0.01, "burstRequests": 1}}, bearer(), f"GET {SALES}", 429, "limit"),
        ({}, bearer(), f"GET {PREFIX}/shares/other", 404, "not granted"),
        ({}, bearer(), f"GET {PREFIX}/shares/other/schemas/default/tables", 404, "not granted"),
        ({}, bearer(), f"POST {PREFIX}/shares/other/schemas/default/tables/t/query", 404, "not granted"),
        ({}, bearer(), f"POST {PREFIX}/shares/other/schemas/default/tables/u/query", 404, "not shared"),
        ({}, bearer(), f"GET {PREFIX}/shares/absent", 404, "not shared"),
        ({}, bearer(), f"GET {SALES}/schemas/default/tables/absent/version", 404, "not shared"),
        ({}, bearer(), f"POST {BROKEN}/query", 404, "table"),
        ({}, bearer(), f"POST {BROKEN}/query?x", 400, "request"),
        ({"tokens": [], "ended": True}, bearer(), f"GET {PREFIX}/shares", 401, "expired"),
        ({"forbidBearerTokens": True}, bearer(), f"GET {PREFIX}/shares", 401, "forbidden"),
    ],
)
async def test_every_refusal_has_its_reason_everywhere(  # noqa: PLR0917 - the cases
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    changes: dict[str, Any],
    headers: dict[str, str],
    request_line: str,
    status: int,
    reason: str,
) -> None:
    caplog.set_level(logging.INFO, "gateway.access")
    method, path = request_line.split()
    if changes.pop("ended", False):
        changes = {"tokens": [{"sha256": token_hash(TOKENS["alice"]).hex(), "expires": ENDED}]}
    table = {"name": "broken", "location": str(tmp_path)}
    shares = [
        {"name": "sales", "schemas": [{"name": "default", "tables": [table]}]},
        {"name": "other", "schemas": [{"name": "default", "tables": [table | {"name": "t"}]}]},
    ]
    gateway = {"recipients": [recipient("alice", **changes)], "allowedRoots": [str(tmp_path)]}
    metrics, activity = Metrics(), Activity()
    client, _ = await serve(
        f"shares: {json.dumps(shares)}\ngateway: {json.dumps(gateway)}\n",
        clock=Clock(NOW_MS),
        metrics=metrics,
        activity=activity,
    )
    assert isinstance(client.server, PipelineServer)
    body = {"json": {"limitHint": "no number"} if path.endswith("?x") else {}} if method == "POST" else {}
    if reason == "limit":
        await client.request(method, path, headers=headers)
    answer = await client.request(method, path, headers=headers, **body)
    text = await answer.text()
    await client.close()
    assert answer.status == status, text
    line = json.loads(caplog.records[-1].message)
    assert (line["status"], line["refusal"]) == (status, reason)
    assert f'delta_gateway_refused_requests_total{{reason="{reason}"}} 1.0' in metrics.page().decode()
    use = activity.use("alice")
    if reason in {"no token", "unknown token"}:
        assert use is None
        return
    assert use is not None
    assert {name: one.requests for name, one in use.refused.items()} == {reason: 1}
    (query,) = activity.queries(recipient="alice")
    assert (query.status, query.failure) == (status, reason)


def holder(name: str, sha256: bytes) -> Holder:
    """A recipient of the database with its token."""
    held = Recipient(name, frozenset())
    return Holder(held, (Credential(sha256, held),))


async def test_a_token_that_was_revoked_counts_for_its_recipient() -> None:
    activity = Activity()
    client, _ = await serve(
        f"gateway: {json.dumps({'recipients': [recipient('bob', shares=[])]})}\n",
        clock=Clock(NOW_MS),
        activity=activity,
    )
    assert isinstance(client.server, PipelineServer)
    pipeline = client.server.pipeline
    alice = holder("alice", token_hash(TOKENS["alice"]))
    table = pipeline.state.credentials
    assert isinstance(table, CredentialTable)
    for gone, new, status in (([], [alice], 200), ([alice], [], 401), ([], [alice], 200)):
        changed = table.replaced(gone, new)
        assert changed is not None
        table = changed
        pipeline.state = replace(pipeline.state, credentials=table)
        answer = await client.get(f"{PREFIX}/shares", headers=bearer())
        assert answer.status == status
    await client.close()
    use = activity.use("alice")
    assert use is not None
    assert {name: one.requests for name, one in use.refused.items()} == {"revoked": 1}
    for number in range(MAX_REVOKED + 5):
        other = holder("other", number.to_bytes(32))
        table = table.replaced([], [other]) or table
        table = table.replaced([other], []) or table
    assert table.revoked((4).to_bytes(32)) is None
    assert table.revoked((MAX_REVOKED + 4).to_bytes(32)) == other.recipient
