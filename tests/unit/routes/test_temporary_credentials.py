"""Temporary credentials of tables: what recipients see of directory access, and who gets which credential."""

import asyncio
import json
import threading
from collections.abc import AsyncIterator, Iterator
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import yaml
from aiohttp.test_utils import TestClient
from support.aws_identity import ROLE, Sts, running_sts
from support.gateway_app import PREFIX, TOKEN_KEYS, TOKENS, Clock, bearer, error_of, serve
from support.google_identity import GoogleIdentity
from support.google_identity import running as running_identity
from support.google_storage import GoogleStorage
from support.google_storage import running as running_storage
from support.history_table import VERSIONS, commit

from gateway.authentication.credential_table import CredentialTable, token_hash
from gateway.config import Config, Location, loads
from gateway.state import GatewayState
from gateway.telemetry.audit import AuditLog
from gateway.telemetry.metrics import Metrics
from gateway.times import epoch_ms
from gateway.web.pipeline import RequestPipeline

Client = TestClient[Any, Any]
TABLES = f"{PREFIX}/shares/s/schemas/d/tables"
BOTH = ["url", "dir"]


@pytest.fixture
def google(tmp_path: Path) -> Iterator[GoogleIdentity]:
    for version in range(VERSIONS):
        commit(tmp_path / "t", version)
    with running_storage() as storage, running_identity(GoogleIdentity(storage)) as google:
        storage.upload(tmp_path / "t", "bucket", "tables/t")
        storage.upload(tmp_path / "t", "bucket", "tables/only")
        yield google


@pytest.fixture
def sts() -> Iterator[Sts]:
    with running_sts(Sts("AKIA", "secret")) as service:
        yield service


def configuration(google: GoogleIdentity, sts: Sts, directory: Path, **changes: Any) -> str:
    def table(name: str, location: str, *modes: str, **keys: Any) -> dict[str, Any]:
        return {"name": name, "location": location, "accessModes": modes, "historyShared": True} | keys

    file = google.service_account_file(directory)
    s3 = {
        "prefix": "s3://bucket/",
        "region": "eu-west-1",
        "accessKeyId": "AKIA",
        "secretAccessKey": "secret",
        "roleArn": ROLE,
        "stsEndpoint": sts.url,
    }
    gs = {
        "prefix": "gs://bucket/",
        "endpoint": google.storage.endpoint,
        "credentialsFile": str(file),
        "stsEndpoint": google.url,
    }
    auxiliary = ["s3a://bucket/source"]
    tables = [
        table("t", "gs://bucket/tables/t", *BOTH),
        table("only", "gs://bucket/tables/only", "dir"),
        table("urls", "gs://bucket/tables/urls", "url"),
        table("aws", "s3a://bucket/tables/aws", *BOTH, auxiliaryLocations=auxiliary),
    ]
    recipients = [
        {"name": name, "tokens": [{"sha256": token_hash(TOKENS[name]).hex()}], "shares": shares}
        for name, shares in (("alice", ["s"]), ("bob", ["s"]), ("nobody", []))
    ]
    gateway = {"storages": [s3, gs], "recipients": recipients, "allowedRoots": auxiliary} | changes
    shares = [{"name": "s", "schemas": [{"name": "d", "tables": tables}]}]
    return f"shares: {json.dumps(shares)}\ngateway:\n{TOKEN_KEYS}" + "".join(
        f"  {key}: {json.dumps(value)}\n" for key, value in gateway.items()
    )


@pytest.fixture
async def client(google: GoogleIdentity, sts: Sts, tmp_path: Path) -> AsyncIterator[Client]:
    started, _ = await serve(configuration(google, sts, tmp_path))
    yield started
    await started.close()


async def credentials(
    client: Client, table: str, body: Any = None, *, recipient: str = "alice"
) -> tuple[int, Any]:
    data = None if body is None else json.dumps(body)
    path = f"{TABLES}/{table}/temporary-table-credentials"
    answer = await client.post(path, headers=bearer(recipient), data=data)
    text = await answer.text()
    if answer.status == 200:
        assert "\n" not in text
        assert answer.headers["Cache-Control"] == "no-store"
        assert answer.headers["Content-Type"] == "application/json; charset=utf-8"
        return 200, json.loads(text)["credentials"]
    assert "bucket" not in text
    return answer.status, error_of(text.encode())


async def listed(client: Client) -> dict[str, dict[str, Any]]:
    found = {}
    for path in (TABLES, f"{PREFIX}/shares/s/all-tables"):
        answer = await client.get(path, headers=bearer())
        items = (await answer.json())["items"]
        found = {item["name"]: {key: item[key] for key in item if key in FIELDS} for item in items}
    for name in found:
        single = await (await client.get(f"{TABLES}/{name}", headers=bearer())).json()
        assert {key: single[key] for key in single if key in FIELDS} == found[name]
    return found


FIELDS = ("location", "auxiliaryLocations", "accessModes")


async def test_listings_show_the_location_of_tables_with_directory_access_alone(client: Client) -> None:
    assert await listed(client) == {
        "t": {"location": "gs://bucket/tables/t", "accessModes": BOTH},
        "only": {"location": "gs://bucket/tables/only", "accessModes": ["dir"]},
        "urls": {},
        "aws": {
            "location": "s3a://bucket/tables/aws",
            "auxiliaryLocations": ["s3a://bucket/source"],
            "accessModes": BOTH,
        },
    }


@pytest.mark.parametrize("form", ["parquet", "delta"])
async def test_the_metadata_of_every_answer_has_the_same_fields(client: Client, form: str) -> None:
    headers = bearer() | {"delta-sharing-capabilities": f"responseformat={form}"}
    query = await client.post(f"{TABLES}/t/query", headers=headers, data="{}")
    changes = await client.get(f"{TABLES}/t/changes?startingVersion=1", headers=headers)
    since = await client.post(f"{TABLES}/t/query", headers=headers, data='{"startingVersion": 1}')
    metadata = await client.get(f"{TABLES}/t/metadata", headers=headers)
    for answer in (query, changes, since, metadata):
        assert answer.status == 200, await answer.text()
        found = json.loads((await answer.text()).splitlines()[1])["metaData"]
        assert {name: found[name] for name in FIELDS if name in found} == {
            "location": "gs://bucket/tables/t",
            "accessModes": BOTH,
        }
        assert ("deltaMetadata" in found) is (form == "delta")


async def test_a_table_with_directory_access_only_has_no_urls(client: Client) -> None:
    refused = [
        await client.post(f"{TABLES}/only/query", headers=bearer(), data="{}"),
        await client.get(f"{TABLES}/only/changes?startingVersion=0", headers=bearer()),
    ]
    for answer in refused:
        assert answer.status == 400
        assert error_of(await answer.read()) == "UNSUPPORTED_OPERATION"
        assert "temporary-table-credentials" in await answer.text()
    for path in ("version", "metadata"):
        answer = await client.get(f"{TABLES}/only/{path}", headers=bearer())
        assert answer.status == 200
    assert (await credentials(client, "only"))[0] == 200


async def test_a_token_of_google_reads_the_table(client: Client, google: GoogleIdentity) -> None:
    status, found = await credentials(client, "t")
    assert status == 200
    assert set(found) == {"location", "gcpOauthToken", "expirationTime"}
    assert found["location"] == "gs://bucket/tables/t"
    boundary = google.storage.boundaries[found["gcpOauthToken"]["oauthToken"]]
    assert boundary.names == ("projects/_/buckets/bucket/objects/tables/t/",)


async def test_keys_of_aws_are_those_of_a_session_named_by_the_recipient(client: Client, sts: Sts) -> None:
    status, found = await credentials(client, "aws", {"location": None})
    assert status == 200
    (session,) = sts.sessions
    assert found == {
        "location": "s3a://bucket/tables/aws",
        "awsTempCredentials": {
            "accessKeyId": session.access_key_id,
            "secretAccessKey": session.secret_access_key,
            "sessionToken": session.session_token,
        },
        "expirationTime": int(session.ends.timestamp() * 1000),
    }
    assert sts.names == ["alice"]


async def test_a_location_is_one_of_the_tables_roots(client: Client, sts: Sts) -> None:
    for text in ("s3a://bucket/tables/aws", "s3://bucket/tables/aws/", "s3n://bucket/tables/aws"):
        status, found = await credentials(client, "aws", {"location": text})
        assert (status, found["location"]) == (200, "s3a://bucket/tables/aws")
    assert len(sts.sessions) == 1
    status, found = await credentials(client, "aws", {"location": "s3://bucket/source"})
    assert (status, found["location"]) == (200, "s3a://bucket/source")
    assert len(sts.sessions) == 2
    for text in (
        "s3://bucket/tables",
        "s3://bucket/tables/aws/_delta_log",
        "s3://another/t",
        "",
        "gs://b",
        "x",
    ):
        assert await credentials(client, "aws", {"location": text}) == (400, "INVALID_PARAMETER_VALUE")
    assert len(sts.sessions) == 2


@pytest.mark.parametrize("body", ["[]", "{", '{"location": 1}', "x"])
async def test_a_body_that_cannot_be_read_is_refused(client: Client, sts: Sts, body: str) -> None:
    path = f"{TABLES}/aws/temporary-table-credentials"
    answer = await client.post(path, headers=bearer(), data=body)
    assert (answer.status, error_of(await answer.read())) == (400, "MALFORMED_REQUEST")
    assert sts.sessions == []


async def test_a_table_without_directory_access_and_one_that_is_not_granted_have_no_credentials(
    client: Client, sts: Sts
) -> None:
    assert await credentials(client, "urls") == (400, "UNSUPPORTED_OPERATION")
    assert await credentials(client, "aws", recipient="nobody") == (404, "RESOURCE_DOES_NOT_EXIST")
    assert await credentials(client, "none") == (404, "RESOURCE_DOES_NOT_EXIST")
    assert sts.sessions == []


async def test_recipients_share_no_credential_and_concurrent_requests_of_one_share_a_call(
    client: Client, sts: Sts
) -> None:
    found = await asyncio.gather(*(credentials(client, "aws") for _ in range(8)))
    assert len({answer["awsTempCredentials"]["accessKeyId"] for _, answer in found}) == 1
    await credentials(client, "aws", recipient="bob")
    assert sts.names == ["alice", "bob"]


async def test_a_refusal_of_the_provider_is_denied_without_its_text(
    client: Client, sts: Sts, caplog: pytest.LogCaptureFixture
) -> None:
    sts.failures = [(403, "AccessDenied", "arn:aws:iam::secret is not authorized")]
    assert await credentials(client, "aws") == (403, "PERMISSION_DENIED")
    assert "AccessDenied" in caplog.text
    assert "secret" not in caplog.text
    sts.failures = [(503, "ServiceUnavailable", "later")] * 2
    assert await credentials(client, "aws") == (503, "TEMPORARILY_UNAVAILABLE")
    assert (await credentials(client, "aws"))[0] == 200


async def test_the_limit_of_credentials_leaves_other_requests_alone(
    google: GoogleIdentity, sts: Sts, tmp_path: Path
) -> None:
    limits = {"recipient": {"credentialsPerMinute": 2}}
    client, _ = await serve(configuration(google, sts, tmp_path, limits=limits))
    try:
        found = [(await credentials(client, "aws"))[0] for _ in range(3)]
        assert found == [200, 200, 429]
        assert (await credentials(client, "aws", recipient="bob"))[0] == 200
        assert (await client.get(TABLES, headers=bearer())).status == 200
    finally:
        await client.close()


async def test_the_audit_log_has_the_location_the_end_and_the_key_id_and_no_log_the_secret(
    google: GoogleIdentity, sts: Sts, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("DEBUG")
    metrics, audit = Metrics(), AuditLog(tmp_path / "audit.jsonl")
    client, _ = await serve(configuration(google, sts, tmp_path), metrics=metrics, audit=audit)
    try:
        _, found = await credentials(client, "aws")
        await credentials(client, "aws")
        sts.failures = [(403, "AccessDenied", "no")]
        await credentials(client, "aws", recipient="bob")
    finally:
        await client.close()
        await asyncio.to_thread(audit.close)
    text = (tmp_path / "audit.jsonl").read_text()
    records = [json.loads(line) for line in text.splitlines()]
    assert {record["actionName"] for record in records} == {"deltaSharingGenerateTemporaryTableCredential"}
    results = [record["response"]["result"] for record in records]
    keys = found["awsTempCredentials"]
    for result in results[:2]:
        assert result["location"] == "s3a://bucket/tables/aws"
        assert result["expirationTime"] == found["expirationTime"]
        assert result["keyId"] == keys["accessKeyId"]
    assert "location" not in results[2]
    for secret in (keys["secretAccessKey"], keys["sessionToken"]):
        assert secret not in text
        assert secret not in caplog.text
    assert "bucket/" not in caplog.text
    page = metrics.page().decode()
    for outcome in ("issued", "cached", "failed"):
        assert f'delta_gateway_temporary_credentials_total{{outcome="{outcome}"}} 1.0' in page


def test_the_store_of_these_tests_has_the_table(google: GoogleIdentity) -> None:
    storage: GoogleStorage = google.storage
    assert "tables/t/_delta_log/00000000000000000000.json" in storage.objects["bucket"]


REVOCATIONS = {
    "the recipient is gone": ({"recipients": [("bob", [], [])]}, 403),
    "the grant is gone": ({"recipients": [("alice", [], [])]}, 403),
    "the address is not allowed": ({"recipients": [("alice", ["s"], ["192.0.2.0/24"])]}, 403),
    "the credential has to be limited to networks": (
        {"recipients": [("alice", ["s"], ["127.0.0.0/8"])]},
        503,
    ),
    "the entry of the storage differs": ({"externalId": "another"}, 503),
    "the table offers no directory": ({"modes": ["url"]}, 403),
    "the table has another location": ({"location": "s3a://bucket/tables/moved"}, 503),
}


def changed(text: str, change: dict[str, Any]) -> Config:
    """The configuration after a reload."""
    raw = yaml.safe_load(text)
    gateway = raw["gateway"]
    for table in raw["shares"][0]["schemas"][0]["tables"]:
        table["accessModes"] = change.get("modes", BOTH) if table["name"] == "aws" else ["url"]
        if table["name"] == "aws":
            table["location"] = change.get("location", table["location"])
            del table["auxiliaryLocations"]
    if "externalId" in change:
        gateway["storages"][0]["externalId"] = change["externalId"]
    if "recipients" in change:
        gateway["recipients"] = [
            {"name": name, "tokens": [{"sha256": token_hash(TOKENS[name]).hex()}], "shares": shares}
            | ({"networks": networks} if networks else {})
            for name, shares, networks in change["recipients"]
        ]
    return loads(json.dumps(raw))


@pytest.mark.parametrize("revocation", REVOCATIONS)
async def test_access_that_ends_while_the_provider_answers_gets_no_credential(
    client: Client, sts: Sts, revocation: str
) -> None:
    change, status = REVOCATIONS[revocation]
    pipeline = pipeline_of(client)
    before = pipeline.state
    issue, is_asked, may_answer = sts.issue, threading.Event(), threading.Event()

    def slowly(seconds: int) -> Any:
        is_asked.set()
        may_answer.wait(10)
        return issue(seconds)

    sts.issue = slowly
    running = asyncio.ensure_future(credentials(client, "aws"))
    await asyncio.to_thread(is_asked.wait, 10)
    pipeline.state = GatewayState.of(
        changed(before.config.text, change), now_ms=before.now_ms, previous=before
    )
    may_answer.set()
    code = "PERMISSION_DENIED" if status == 403 else "TEMPORARILY_UNAVAILABLE"
    assert await running == (status, code)
    # Nothing is kept for a later grant.
    pipeline.state = before
    assert len(sts.sessions) == 1
    assert (await credentials(client, "aws"))[0] == 200
    assert len(sts.sessions) == 2


@pytest.mark.parametrize("ends", ["token", "directory access", "nothing"])
async def test_access_that_ends_before_the_body_arrives_gets_no_credential(
    client: Client, sts: Sts, ends: str
) -> None:
    pipeline, rest = pipeline_of(client), asyncio.Event()
    state = pipeline.state

    async def body() -> AsyncIterator[bytes]:
        yield b"{"
        await rest.wait()
        yield b"}"

    path = f"{TABLES}/aws/temporary-table-credentials"
    held = asyncio.ensure_future(client.post(path, headers=bearer(), data=body()))
    await asyncio.sleep(0.2)
    if ends == "token":
        pipeline.state = replace(state, credentials=CredentialTable([]))
    else:
        config = changed(state.config.text, {"modes": ["url"]} if ends == "directory access" else {})
        pipeline.state = GatewayState.of(config, now_ms=state.now_ms, previous=state)
    rest.set()
    expected = {"token": 403, "directory access": 400, "nothing": 200}
    assert (await held).status == expected[ends]
    assert len(sts.sessions) == (ends == "nothing")


async def test_a_token_that_expires_while_the_provider_answers_gets_no_credential(
    google: GoogleIdentity, sts: Sts, tmp_path: Path
) -> None:
    clock = Clock(epoch_ms())
    expires = datetime.fromtimestamp(clock.now_ms / 1000 + 60, UTC).isoformat()
    token = {"sha256": token_hash(TOKENS["alice"]).hex(), "expires": expires}
    recipients = [{"name": "alice", "tokens": [token], "shares": ["s"]}]
    client, _ = await serve(configuration(google, sts, tmp_path, recipients=recipients), clock=clock)
    issue = sts.issue

    def late(seconds: int) -> Any:
        clock.now_ms += 61_000
        return issue(seconds)

    try:
        sts.issue = late
        assert await credentials(client, "aws") == (403, "PERMISSION_DENIED")
        assert len(sts.sessions) == 1
    finally:
        await client.close()


def pipeline_of(client: Client) -> RequestPipeline:
    server: Any = client.server
    pipeline: RequestPipeline = server.pipeline
    return pipeline


async def test_a_long_location_is_refused_before_it_is_parsed(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    parsed: list[int] = []
    parse = Location.parse

    def counted(text: str) -> Location:
        parsed.append(len(text))
        return parse(text)

    monkeypatch.setattr(Location, "parse", counted)
    for text in ("/a" * 400_000, "s3a://bucket/tables/aws" + "/" * 5000):
        assert await credentials(client, "aws", {"location": text}) == (400, "INVALID_PARAMETER_VALUE")
    assert parsed == []
    assert (await credentials(client, "aws", {"location": "s3://bucket/tables/aws"}))[0] == 200
    assert parsed == [len("s3://bucket/tables/aws")]


async def test_the_description_of_the_interface_requires_the_end(client: Client) -> None:
    document = await (await client.get(f"{PREFIX}/openapi.json")).json()
    schemas = document["components"]["schemas"]
    for name in ("TemporaryCredentials", "VolumeCredentials"):
        assert "expirationTime" in schemas[name]["required"]
        assert "default" not in schemas[name]["properties"]["expirationTime"]
