"""Volumes of OpenSharing through a real socket: listings, single volumes and temporary credentials."""

import asyncio
import json
import time
from collections.abc import AsyncIterator, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from aiohttp.test_utils import TestClient
from support.aws_identity import ROLE, Sts, running_sts
from support.gateway_app import PREFIX, bearer, error_of, recipients, serve
from support.waiting import wait_until

from gateway.catalog.catalog import Catalog, Recipient
from gateway.config.networks import parse_networks
from gateway.errors import PermissionDenied
from gateway.telemetry.audit import AuditLog
from gateway.telemetry.metrics import Metrics
from gateway.times import epoch_ms

Client = TestClient[Any, Any]
KEYS = ("AKIATESTS", "the-long-lived-secret")
VOLUMES = f"{PREFIX}/shares/sales/schemas/public/volumes"
CREDENTIALS = "temporary-volume-credentials"
SHARES = """
shares:
- name: Sales
  id: sales-id
  schemas:
  - name: public
    tables: [{name: pictures, location: /t}]
    volumes:
    - {name: Pictures, location: "s3a://lake/private/pictures", comment: Photographs}
    - {name: models, location: "s3://lake/private/models", id: models-id}
  - name: more
    volumes: [{name: models, location: "s3://lake/private/more"}]
- {name: empty, schemas: [{name: none}]}
"""


@pytest.fixture
def sts() -> Iterator[Sts]:
    service = Sts(*KEYS)
    with running_sts(service):
        yield service


def storage(sts: Sts) -> str:
    """The entry of the volumes' bucket."""
    return (
        f"  storages:\n  - {{prefix: 's3://lake/', endpoint: '{sts.url}', stsEndpoint: '{sts.url}', "
        f"region: eu-central-1, pathStyle: true, accessKeyId: {KEYS[0]}, secretAccessKey: {KEYS[1]}, "
        f"directoryRoleArn: '{ROLE}'}}\n"
    )


@pytest.fixture
async def client(sts: Sts) -> AsyncIterator[Client]:
    started, _ = await serve(
        SHARES + recipients(alice="sales, empty", bob="empty") + storage(sts), clock=epoch_ms
    )
    yield started
    await started.close()


async def get(client: Client, path: str) -> Any:
    response = await client.get(path, headers=bearer())
    assert response.status == 200, await response.text()
    assert response.headers["Content-Type"] == "application/json; charset=utf-8"
    return await response.json()


async def test_the_answers_have_the_fields_of_opensharing(client: Client) -> None:
    listed = await get(client, VOLUMES)
    first, second = listed["items"]
    assert first.pop("id")
    assert first == {
        "name": "Pictures",
        "schema": "public",
        "share": "Sales",
        "shareId": "sales-id",
        # As configured, for clients that know one form.
        "storageLocation": "s3a://lake/private/pictures",
        "comment": "Photographs",
    }
    assert second == {
        "name": "models",
        "schema": "public",
        "share": "Sales",
        "shareId": "sales-id",
        "id": "models-id",
        "storageLocation": "s3://lake/private/models",
    }
    assert await get(client, f"{VOLUMES}/MODELS") == second
    every = await get(client, f"{PREFIX}/shares/SALES/all-volumes")
    assert [(item["schema"], item["name"]) for item in every["items"]] == [
        ("public", "Pictures"),
        ("public", "models"),
        ("more", "models"),
    ]
    assert await get(client, f"{PREFIX}/shares/empty/all-volumes") == {"items": []}


async def test_ids_are_stable_and_no_ids_of_tables(client: Client) -> None:
    pictures = (await get(client, f"{VOLUMES}/pictures"))["id"]
    table = (await get(client, VOLUMES.replace("volumes", "tables") + "/pictures"))["id"]
    more = (await get(client, VOLUMES.replace("public", "more") + "/models"))["id"]
    assert len({pictures, table, more}) == 3


async def test_volumes_are_listed_in_pages(client: Client) -> None:
    path, seen, token = f"{PREFIX}/shares/sales/all-volumes", [], ""
    for _ in range(3):
        page = await get(client, f"{path}?maxResults=1{f'&pageToken={token}' if token else ''}")
        seen += [(item["schema"], item["name"]) for item in page["items"]]
        token = page.get("nextPageToken", "")
    assert seen == [("public", "Pictures"), ("public", "models"), ("more", "models")]
    assert not token
    # A token is of one listing.
    other = (await get(client, f"{path}?maxResults=1"))["nextPageToken"]
    refused = await client.get(f"{VOLUMES}?pageToken={other}", headers=bearer())
    assert (refused.status, error_of(await refused.read())) == (400, "INVALID_PARAMETER_VALUE")


@pytest.mark.parametrize("body", [None, b"{}", b'{"anything": 1}'])
async def test_credentials_have_one_form_and_no_wrapper(client: Client, sts: Sts, body: bytes | None) -> None:
    answer = await client.post(f"{VOLUMES}/models/{CREDENTIALS}", headers=bearer(), data=body)
    assert answer.status == 200, await answer.text()
    assert answer.headers["Cache-Control"] == "no-store"
    found = await answer.json()
    (session,) = sts.sessions
    assert found == {
        "awsTempCredentials": {
            "accessKeyId": session.access_key_id,
            "secretAccessKey": session.secret_access_key,
            "sessionToken": session.session_token,
        },
        "expirationTime": int(session.ends.timestamp() * 1000),
    }
    assert found["expirationTime"] > time.time() * 1000
    (request,) = sts.service.requests
    policy = json.loads(request.form["Policy"])
    assert policy["Statement"][0]["Resource"] == "arn:aws:s3:::lake/private/models/*"
    assert sts.names == ["alice"]


async def test_a_recipient_gets_the_same_credential_until_half_of_its_life(client: Client, sts: Sts) -> None:
    async def keys(volume: str) -> Any:
        answer = await client.post(f"{VOLUMES}/{volume}/{CREDENTIALS}", headers=bearer())
        return (await answer.json())["awsTempCredentials"]["accessKeyId"]

    first = await asyncio.gather(keys("models"), keys("models"))
    assert first == [await keys("models")] * 2
    assert await keys("pictures") not in first
    assert len(sts.sessions) == 2


@pytest.mark.parametrize("method", ["GET", "POST"])
async def test_absent_and_not_granted_look_alike(client: Client, method: str) -> None:
    bodies = set()
    tail = f"/{CREDENTIALS}" if method == "POST" else ""
    for name, path in (
        ("bob", f"{VOLUMES}/models"),
        ("alice", f"{VOLUMES}/none"),
        ("bob", f"{VOLUMES}/none"),
    ):
        refused = await client.request(method, path + tail, headers=bearer(name))
        assert refused.status == 404
        bodies.add(await refused.read())
    assert len(bodies) == 1


async def test_a_table_is_no_volume_and_a_volume_is_no_table(client: Client) -> None:
    for path in (f"{VOLUMES}/orders", VOLUMES.replace("volumes", "tables") + "/models/version"):
        assert (await client.get(path, headers=bearer())).status == 404


async def test_a_refusal_of_the_token_service_is_the_providers(client: Client, sts: Sts) -> None:
    sts.failures = [(403, "AccessDenied", "User is not authorized to perform sts:AssumeRole")]
    refused = await client.post(f"{VOLUMES}/models/{CREDENTIALS}", headers=bearer())
    body = await refused.read()
    assert (refused.status, error_of(body)) == (403, "PERMISSION_DENIED")
    assert b"private" not in body
    assert b"AssumeRole" not in body


async def test_requests_count_for_the_limit_and_the_metric_of_credentials_and_name_the_volume_in_the_log(
    sts: Sts, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "gateway.access")
    metrics, limits = Metrics(), "  limits: {recipient: {credentialsPerMinute: 2}}\n"
    text = SHARES + recipients(alice="sales") + storage(sts) + limits
    client, _ = await serve(text, clock=epoch_ms, metrics=metrics)
    try:
        path = f"{VOLUMES}/models/{CREDENTIALS}"
        answers = [await client.post(path, headers=bearer()) for _ in range(3)]
        assert [answer.status for answer in answers] == [200, 200, 429]
        assert "Retry-After" in answers[2].headers
        assert (await get(client, VOLUMES))["items"]
    finally:
        await client.close()
    page = metrics.page().decode()
    for outcome in ("issued", "cached"):
        assert f'delta_gateway_temporary_credentials_total{{outcome="{outcome}"}} 1.0' in page
    records = [json.loads(one.message) for one in caplog.records if one.name == "gateway.access"]
    assert [(one.get("volume"), one.get("credential")) for one in records[:2]] == [
        ("Sales.public.models", "issued"),
        ("Sales.public.models", "cached"),
    ]
    assert "private" not in caplog.text


async def test_networks_that_the_store_cannot_hold_are_refused_at_the_request(sts: Sts) -> None:
    text = SHARES.replace("s3://lake/private/models", "gs://lake/private/models")
    google = "  - {prefix: 'gs://lake/', impersonate: a@b.iam.gserviceaccount.com}\n"
    client, config = await serve(text + recipients(alice="sales") + storage(sts) + google, clock=epoch_ms)
    try:
        # As those of a recipient of the database, which a configuration does not know.
        recipient = Recipient("alice", frozenset({"sales"}), parse_networks(["127.0.0.0/8"]))
        state = client.server.pipeline.state
        volume = state.catalog.volume(recipient, "sales", "public", "models")
        with pytest.raises(PermissionDenied, match="cannot be limited to networks"):
            await state.vendor.credential(volume.location, recipient, volume.id)
        assert config.gateway.storages
    finally:
        await client.close()


async def test_the_audit_log_has_the_volume_and_the_id_of_the_key_but_never_the_credential(
    tmp_path: Path, sts: Sts
) -> None:
    file = tmp_path / "audit.jsonl"
    audit = AuditLog(file)
    client, _ = await serve(SHARES + recipients(alice="sales") + storage(sts), clock=epoch_ms, audit=audit)
    try:
        for path in (VOLUMES, f"{PREFIX}/shares/sales/all-volumes", f"{VOLUMES}/models"):
            await get(client, path)
        await client.post(f"{VOLUMES}/models/{CREDENTIALS}", headers=bearer())
        await asyncio.to_thread(wait_until, lambda: len(file.read_bytes().splitlines()) == 4)
    finally:
        await client.close()
        audit.close()
    text = file.read_text()
    records = [json.loads(line) for line in text.splitlines()]
    assert [record["actionName"] for record in records] == [
        "deltaSharingListVolumes",
        "deltaSharingListAllVolumes",
        "deltaSharingGetVolume",
        "deltaSharingGenerateTemporaryVolumeCredential",
    ]
    (session,) = sts.sessions
    last = records[-1]
    assert last["requestParams"] == {"share": "sales", "schema": "public", "volume": "models"}
    assert last["response"]["result"]["keyId"] == session.access_key_id
    assert last["response"]["result"]["location"] == "s3://lake/private/models"
    assert session.secret_access_key not in text
    assert session.session_token not in text


async def test_access_that_ends_while_the_provider_answers_gets_no_credential(
    client: Client, sts: Sts
) -> None:
    server: Any = client.server
    pipeline = server.pipeline
    issue, before = sts.issue, pipeline.state

    def late(seconds: int) -> Any:
        pipeline.state = replace(before, catalog=Catalog.of([]))
        return issue(seconds)

    sts.issue = late
    refused = await client.post(f"{VOLUMES}/models/{CREDENTIALS}", headers=bearer())
    assert (refused.status, error_of(await refused.read())) == (403, "PERMISSION_DENIED")
    assert len(sts.sessions) == 1
    pipeline.state, sts.issue = before, issue
    assert (await client.post(f"{VOLUMES}/models/{CREDENTIALS}", headers=bearer())).status == 200
    assert len(sts.sessions) == 2
