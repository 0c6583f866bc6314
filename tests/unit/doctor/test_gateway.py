"""The doctor with the gateway as the server: what it answers well, and each of its refusals."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
from aiohttp.test_utils import TestClient, unused_port
from support.findings import Examine, failed, steps
from support.gateway_app import PREFIX, TOKENS, recipients, serve
from support.http_service import Response
from support.ratified_log import RatifiedLog
from support.unity_catalog import running_catalog
from tables.demo import ROWS
from tables.small_tables import SECRET_PLACE, configuration, lay_out

Client = TestClient[Any, Any]


def profile_of(client: Client, directory: Path, **changes: Any) -> Path:
    endpoint = str(client.make_url(PREFIX))
    fields = {"shareCredentialsVersion": 1, "endpoint": endpoint, "bearerToken": TOKENS["alice"], **changes}
    profile = directory / "a.share"
    profile.write_text(json.dumps(fields))
    profile.chmod(0o600)
    return profile


@pytest.fixture(scope="module")
def tables(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp(SECRET_PLACE)
    lay_out(root)
    return root


@pytest.fixture
async def client(tables: Path) -> AsyncIterator[Client]:
    started, _ = await serve(configuration(tables, unused_port()))
    yield started
    await started.close()


@pytest.mark.parametrize(
    ("table", "step", "owner", "message"),
    [
        ("fancy", "table", "provider", "400 UNSUPPORTED_OPERATION"),
        ("absent", "table", "provider", "404 RESOURCE_DOES_NOT_EXIST"),
        ("corrupt", "table", "provider", "500 INTERNAL_ERROR"),
        ("down", "table", "provider", "503 TEMPORARILY_UNAVAILABLE"),
        ("no_schema", "table", "provider", "500 INTERNAL_ERROR"),
    ],
)
async def test_a_table_that_the_gateway_cannot_answer_is_the_providers(
    *, client: Client, tmp_path: Path, examine: Examine, table: str, step: str, owner: str, message: str
) -> None:
    found = failed(await asyncio.to_thread(examine, f"{profile_of(client, tmp_path)}#s.d.{table}"))
    assert (found.step, str(found.owner)) == (step, owner)
    assert message in found.message
    assert ("a reader feature removed from the table" in found.advice) is (table == "fancy")
    assert ("its location is wrong, or its files are gone" in found.advice) is (table == "absent")
    assert SECRET_PLACE not in repr(found)


@pytest.mark.parametrize(
    ("is_named", "status", "message", "advice"),
    [
        (
            False,
            200,
            "the table's latest commits are in a catalog",
            "a catalog that it names has to be configured",
        ),
        (
            True,
            403,
            "the table's catalog denies access",
            "the server's rights in the store and in the table's",
        ),
        (
            True,
            503,
            "the table's catalog is unavailable",
            "look at the server, its store and the table's catalog",
        ),
    ],
)
async def test_the_catalog_of_a_table_is_the_providers(
    *, tmp_path: Path, examine: Examine, is_named: bool, status: int, message: str, advice: str
) -> None:
    log = RatifiedLog(tmp_path / SECRET_PLACE)
    with running_catalog(managed={"a/b/c": log}, loading={"a/b/c": Response(status)}) as catalog:
        named = f", catalog: {{url: '{catalog.url}', name: a.b.c, allowPrivateAddresses: true}}"
        table = f"{{name: t, location: '{log.root}'{named if is_named else ''}}}"
        shares = f"shares: [{{name: s, schemas: [{{name: d, tables: [{table}]}}]}}]\n"
        client, _ = await serve(f"{shares}{recipients(alice='s')}")
        found = failed(await asyncio.to_thread(examine, f"{profile_of(client, tmp_path)}#s.d.t"))
        await client.close()
    assert (found.step, str(found.owner)) == ("table", "provider")
    assert message in found.message
    assert advice in found.advice
    assert SECRET_PLACE not in repr(found)


async def test_a_table_with_deletion_vectors_needs_the_delta_format(
    client: Client, tmp_path: Path, examine: Examine
) -> None:
    findings = await asyncio.to_thread(examine, f"{profile_of(client, tmp_path)}#s.d.vector")
    results = dict(steps(findings))
    assert (results["query parquet"], results["query delta"]) == ("warn", "ok")
    (metadata,) = [one.message for one in findings if one.step == "metadata"]
    assert metadata == "the table needs deletionVectors: read by Python 1.4, Spark 4"


@pytest.mark.parametrize(
    ("change", "owner", "message"),
    [
        (lambda client: {"bearerToken": "another-token"}, "provider", "401 UNAUTHENTICATED"),
        (lambda client: {"bearerToken": TOKENS["nobody"]}, "provider", "401 UNAUTHENTICATED"),
        (lambda client: {"endpoint": str(client.make_url("/"))}, "recipient", "with 404"),
        (lambda client: {"endpoint": str(client.make_url("/other/"))}, "recipient", "with 404"),
    ],
    ids=["another token", "unknown token", "no prefix", "another prefix"],
)
async def test_a_profile_that_the_gateway_refuses(
    *,
    client: Client,
    tmp_path: Path,
    examine: Examine,
    change: Callable[[Client], dict[str, Any]],
    owner: str,
    message: str,
) -> None:
    found = failed(await asyncio.to_thread(examine, profile_of(client, tmp_path, **change(client))))
    assert (found.step, str(found.owner)) == ("server", owner)
    assert message in found.message
    if "404" in message:
        assert found.advice == f"write {client.make_url(PREFIX)} as the endpoint of the profile"


@pytest.mark.parametrize(
    ("keys", "owner", "message"),
    [
        ("networks: [192.0.2.0/24]", "provider", "403 PERMISSION_DENIED"),
        ("tokens: []", "provider", "401 UNAUTHENTICATED"),
        (
            "limits: {requestsPerSecond: 0.01, burstRequests: 1, queueSeconds: 0}",
            "recipient",
            "429 RESOURCE_EXHAUSTED",
        ),
    ],
)
async def test_a_recipient_whom_the_gateway_refuses(
    *, tables: Path, tmp_path: Path, examine: Examine, keys: str, owner: str, message: str
) -> None:
    text = configuration(tables, unused_port())
    if keys.startswith("limits"):
        text += "  limits: {recipient: {requestsPerSecond: 0.01, burstRequests: 1, queueSeconds: 0}}\n"
    elif keys.startswith("tokens"):
        text = text.replace(
            "name: alice, tokens: [{sha256: ",
            "name: alice, tokens: [{expires: '2001-01-01T00:00:00Z', sha256: ",
        )
    else:
        text = text.replace("name: alice,", f"name: alice, {keys},")
    client, _ = await serve(text)
    try:
        found = failed(await asyncio.to_thread(examine, f"{profile_of(client, tmp_path)}#s.d.whole"))
    finally:
        await client.close()
    assert str(found.owner) == owner
    assert message in found.message


async def test_a_gateway_with_a_table_in_a_directory_has_no_problem(
    demo_tables: Path, tmp_path: Path, examine: Examine
) -> None:
    names = sorted(ROWS)
    tables = ", ".join(f"{{name: {name}, location: {demo_tables / name}}}" for name in names)
    shares = f"shares: [{{name: demo, schemas: [{{name: default, tables: [{tables}]}}]}}]\n"
    client, _ = await serve(shares + recipients(alice="demo"))
    try:
        profile = profile_of(client, tmp_path)
        for name in names:
            findings = await asyncio.to_thread(examine, f"{profile}#demo.default.{name}")
            assert not [one for one in findings if one.status == "fail"], (name, findings)
            assert steps(findings)[-1] == ("file", "ok")
    finally:
        await client.close()


@pytest.mark.parametrize(("history", "status"), [("false", "warn"), ("true", "ok")])
async def test_a_feed_that_is_on_is_examined_whether_it_is_shared_or_not(
    demo_tables: Path, tmp_path: Path, examine: Examine, history: str, status: str
) -> None:
    table = f"{{name: orders, location: {demo_tables / 'orders'}, historyShared: {history}}}"
    shares = f"shares: [{{name: demo, schemas: [{{name: default, tables: [{table}]}}]}}]\n"
    client, _ = await serve(shares + recipients(alice="demo"))
    try:
        findings = await asyncio.to_thread(examine, str(profile_of(client, tmp_path)))
    finally:
        await client.close()
    (changes,) = (finding for finding in findings if finding.step == "changes")
    assert changes.status == status
    assert ("historyShared" in str(changes.advice)) is (status == "warn")
