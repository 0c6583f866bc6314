"""Every key of the configuration is changed under a running server, and takes effect as its row says."""

import asyncio
import json
import logging
import re
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from copy import deepcopy
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import parse_qsl, urlsplit

import aiohttp
import pytest
import yaml
from support.configuration_reference import keys
from support.gateway_app import PREFIX, TOKENS, Clock, bearer
from support.gateway_process import storage
from support.identity_provider import public_jwk, signed
from support.live_process import HASHES, TABLE, Live, base, put, running_process
from support.processes import free_port
from support.sign_in_provider import (
    CALLBACK,
    PAGE,
    START,
    ConsoleClient,
    SignInProvider,
    admin_section,
    console_client,
)
from support.versitygw import VersityGw
from tables.small_tables import lay_out
from tools import ROOT

from gateway.authentication.access_tokens import issue
from gateway.authentication.credential_table import configured_recipients, token_hash
from gateway.config import Location, Secret, load
from gateway.config.effects import EFFECTS, Effect
from gateway.config.file_stamps import stamp
from gateway.server.accepted_config import RestartRequired, accepted
from gateway.server.process import ServerProcess
from gateway.server.start import Start
from gateway.server.worker_secrets import WorkerSecrets
from gateway.telemetry.request_record import REFUSALS

CONFIGURATION = ROOT / "docs/configuration-reference.md"
EXPIRED, FOREVER = "2001-01-01T00:00:00Z", "2100-01-01T00:00:00Z"
DEEP = [f"s3://demo/deep/{number}" for number in range(2)]


@pytest.fixture(scope="module")
def tables(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("tables")
    lay_out(root)
    log = root / "clone/_delta_log"
    log.mkdir(parents=True)
    text = (root / "whole/_delta_log" / f"{0:020}.json").read_text()
    (log / f"{0:020}.json").write_text(
        text.replace('"0.parquet"', json.dumps(f"file://{root}/whole/0.parquet"))
    )
    return root


@pytest.fixture
async def live(tmp_path: Path, tables: Path) -> AsyncIterator[Live]:
    async with running_process(tmp_path / "gateway.yaml", base(tables)) as started:
        yield started


Seen = Callable[[Live], Awaitable[Any]]


class Row(NamedTuple):
    """A key's value before and after, and what is seen of each."""

    before: Any
    after: Any
    seen: Seen
    expected: tuple[Any, Any]
    beside: Mapping[str, Any] = {}
    """Other keys, whose values stay."""


def names_of(path: str, field: str = "name") -> Seen:
    async def seen(live: Live) -> Any:
        return (await live.items(path))[0][field]

    return seen


async def table_of_metadata(live: Live) -> Any:
    lines = (await (await live.answer("GET", f"{TABLE}/metadata")).read()).splitlines()
    return json.loads(lines[1])["metaData"]["id"]


def share_field(name: str) -> Seen:
    async def seen(live: Live) -> Any:
        answer = await live.answer("GET", f"{PREFIX}/shares", headers=bearer())
        return (await answer.json())["items"][0].get(name)

    return seen


def table_field(name: str) -> Seen:
    async def seen(live: Live) -> Any:
        return (await live.items("/shares/s/all-tables"))[0].get(name)

    return seen


def volume_field(name: str) -> Seen:
    async def seen(live: Live) -> Any:
        return (await live.items("/shares/s/all-volumes"))[0].get(name)

    return seen


async def directory_of_the_rule(live: Live) -> Any:
    """Whether the table is in the directory that it had when this was first called."""
    (table,) = live.state.catalog.tables()
    return live.kept.setdefault("directory", table.location.key) == table.location.key


async def publish_every_seconds(live: Live) -> Any:
    ((_, _, table),) = live.state.config.tables
    return table.projection.publish_every_seconds


async def outage_seconds(live: Live) -> Any:
    return live.process.config.max_outage_seconds


async def credential_seconds(live: Live) -> Any:
    return live.state.vendor._seconds


async def share_id(live: Live) -> Any:
    return (await (await live.answer("GET", f"{PREFIX}/shares/s")).json())["share"]["id"]


def status_of(**body: Any) -> Seen:
    async def seen(live: Live) -> Any:
        return (await live.query(**body))[0]

    return seen


def status_with(headers: Mapping[str, str]) -> Seen:
    async def seen(live: Live) -> Any:
        return await live.status(headers=headers)

    return seen


async def number_of_files(live: Live) -> Any:
    lines = (await (await live.answer("GET", f"{TABLE}/metadata")).read()).splitlines()
    return json.loads(lines[1])["metaData"]["numFiles"]


async def properties_of_the_rule(live: Live) -> Any:
    (entry,) = configured_recipients(live.state.config)
    rule = live.state.catalog.table(entry, "s", "d", "t").rule
    return None if rule is None else rule.properties


async def life_of_a_url(live: Live) -> Any:
    lines = await live.query()
    return (lines[3]["file"]["expirationTimestamp"] - live.clock.now_ms) // 1000


async def files_on_a_page(live: Live) -> Any:
    return sum("file" in line for line in (await live.query(maxFiles=100))[1:])


def status_later(**body: Any) -> Seen:
    """Of a token that is made now, 20 seconds later."""

    async def seen(live: Live) -> Any:
        ending = (await live.query(**body))[-1]["endStreamAction"]
        live.clock.now_ms += 20_000
        token = {"pageToken": ending["nextPageToken"]} | body if "maxFiles" in body else {}
        return (await live.query(**(token or {"refreshToken": ending["refreshToken"]})))[0]

    return seen


async def status_of_an_earlier_token(live: Live) -> Any:
    """Of a page token that was made when this was first called."""
    if "token" not in live.kept:
        live.kept["token"] = (await live.query(maxFiles=1))[-1]["endStreamAction"]["nextPageToken"]
    return (await live.query(maxFiles=1, pageToken=live.kept["token"]))[0]


def header(name: str, headers: Mapping[str, str] | None = None, **body: Any) -> Seen:
    async def seen(live: Live) -> Any:
        return (await live.query_headers(headers or {}, **body)).get(name)

    return seen


async def allowed_origin(live: Live) -> Any:
    answer = await live.answer("GET", "/healthz", headers={"Origin": "https://b.example"})
    return answer.headers.get("Access-Control-Allow-Origin")


async def allows_own_header(live: Live) -> Any:
    asked = {"Access-Control-Request-Method": "GET", "Access-Control-Request-Headers": "x-own"}
    answer = await live.answer(
        "OPTIONS", "/delta-sharing/shares", headers={"Origin": "https://b.example"} | asked
    )
    return "x-own" in answer.headers["Access-Control-Allow-Headers"].lower()


async def host_of_a_url(live: Live) -> Any:
    return urlsplit((await live.query())[3]["file"]["url"]).netloc


async def name_of_the_reader(live: Live) -> Any:
    found = live.state.credentials.find(token_hash(TOKENS["alice"]), now_ms=live.clock.now_ms)
    return found.recipient.name


async def limits_of_alice(live: Live) -> Any:
    await live.status()
    return live.limits.recipients.gate("alice")._limits


def limit(name: str) -> Seen:
    async def seen(live: Live) -> Any:
        return getattr(await limits_of_alice(live), name)

    return seen


async def status_of_a_quick_second_request(live: Live) -> Any:
    await live.status()
    return await live.status()


async def statuses_of_requests_while_a_stream_runs(live: Live) -> Any:
    gate = live.limits.recipients.gate("alice")
    await gate.enter_stream()
    try:
        return (await live.query())[0]
    finally:
        gate.leave_stream()


async def bytes_of_a_stream(live: Live) -> Any:
    taken = await live.limits.memory.enter_stream("alice")
    admitted_bytes = taken.bytes
    taken.leave()
    return admitted_bytes


def guard(path: str) -> Seen:
    async def seen(live: Live) -> Any:
        found: Any = live.limits
        for name in path.split("."):
            found = getattr(found, name)
        return found

    return seen


def calls(path: str) -> Seen:
    async def seen(live: Live) -> Any:
        found: Any = live.state.tables.storages.calls(Location("file", "", str(live.file.parent)))
        for name in path.split("."):
            found = getattr(found, name)
        return found

    return seen


def discovery(name: str) -> Seen:
    """What the searches for tables are told; `test_discovery` has the searches."""

    async def seen(live: Live) -> Any:
        (source,) = live.state.config.sources
        value = getattr(source.discovery, name)
        return value.text if name == "discover" else value

    return seen


def catalog(name: str) -> Seen:
    """What the searches of a catalog are told."""

    async def seen(live: Live) -> Any:
        (source,) = live.state.config.sources
        value: Any = source.discovery.unity_catalog
        for word in name.split("."):
            value = getattr(value, word)
        return [one.url for one in value] if name == "within" else value

    return seen


def managing(key: str) -> Seen:
    """What the catalog of a table is called with; `test_managed_tables` has the calls."""

    async def seen(live: Live) -> Any:
        value: Any = next(iter(live.state.catalog.tables())).managed_by
        for word in key.split("."):
            value = getattr(value, word)
        return value

    return seen


async def staleness(live: Live) -> Any:
    table = next(iter(live.state.catalog.tables()))
    return live.state.tables.open(table).max_staleness_ms


async def is_kept_for_a_failing_storage(live: Live) -> Any:
    await live.query()
    table = next(iter(live.state.catalog.tables()))
    return live.state.tables._cached(live.state.tables.open(table)) is not None


GZIP = {"Accept-Encoding": "gzip"}
FORWARDED = bearer() | {"X-Forwarded-For": "192.0.2.9"}
SQL = {"predicateHints": ["x = 1"]}
TREE = {"jsonPredicateHints": '{"op":"isNull","children":[{"op":"column","name":"x","valueType":"long"}]}'}
JSON_OFF = {"evaluateJsonPredicateHints": False, "evaluateJsonPredicateHintsV2": False}
RECIPIENT = "gateway.limits.recipient"
IN_A_BUCKET = {
    "shares[].schemas[].tables[].location": "s3://bucket/t",
    "shares[].schemas[].tables[].historyShared": True,
    "gateway.storages": [{"prefix": "s3://bucket/", "roleArn": "arn:aws:iam::123456789012:role/reader"}],
    "gateway.allowedRoots": ["s3://bucket/one", "s3://bucket/two"],
}
VOLUME = {
    "shares[].schemas[].volumes": [{"name": "v", "location": "s3://bucket/v"}],
    "gateway.storages": IN_A_BUCKET["gateway.storages"],
}
PROJECTION = "shares[].schemas[].tables[].projection"
PROJECTED = {f"{PROJECTION}.source": "/lake/one", f"{PROJECTION}.columns": ["a", "b"]}
IN_PARTS = {
    "shares[].schemas": [
        {"name": "d", "tables": [{"name": name, "location": "/nothing"} for name in ("t", "u")]},
        {"name": "e"},
    ],
    "gateway.recipients[].shares": [{"share": "s"}],
}
SEARCHED = {"shares[].tables.discover": "/a/{schema}/{table}"}
CATALOG = "shares[].tables.unityCatalog"
CATALOGUED = {
    f"{CATALOG}.url": "https://one.example.com",
    f"{CATALOG}.catalog": "one",
    f"{CATALOG}.within": ["s3://one/"],
}
MANAGING = "shares[].schemas[].tables[].catalog"
MANAGED = {f"{MANAGING}.url": "https://one.example.com", f"{MANAGING}.name": "a.b.c"}
CLIENT = {"tokenEndpoint": "https://one.example.com", "clientId": "one", "clientSecret": "one"}
AT_ONCE: Mapping[str, Row] = {
    "shares[].name": Row("s", "renamed", names_of("/shares"), ("s", "renamed")),
    "shares[].id": Row("share-id", "another", share_id, ("share-id", "another")),
    "shares[].displayName": Row("one", "two", share_field("displayName"), ("one", "two")),
    "shares[].comment": Row("one", "two", share_field("comment"), ("one", "two")),
    "shares[].properties": Row({"a": "1"}, {"a": "2"}, share_field("properties"), ({"a": "1"}, {"a": "2"})),
    "shares[].schemas[].name": Row("d", "renamed", names_of("/shares/s/schemas"), ("d", "renamed")),
    "shares[].schemas[].tables[].name": Row(
        "t", "renamed", names_of("/shares/s/all-tables"), ("t", "renamed")
    ),
    "shares[].schemas[].tables[].id": Row(
        "id-1", "id-2", names_of("/shares/s/all-tables", "id"), ("id-1", "id-2")
    ),
    "shares[].schemas[].tables[].location": Row("whole", "plain", table_of_metadata, ("whole", "plain")),
    "shares[].schemas[].tables[].historyShared": Row(True, False, status_of(version=1), (200, 400)),
    "shares[].schemas[].tables[].startVersion": Row(0, 2, status_of(version=1), (200, 400)),
    "shares[].schemas[].tables[].accessModes": Row(
        ["url"], ["url", "dir"], table_field("accessModes"), (None, ["url", "dir"]), IN_A_BUCKET
    ),
    "shares[].schemas[].tables[].auxiliaryLocations": Row(
        ["s3://bucket/one"],
        ["s3://bucket/two"],
        table_field("auxiliaryLocations"),
        (["s3://bucket/one"], ["s3://bucket/two"]),
        IN_A_BUCKET | {"shares[].schemas[].tables[].accessModes": ["dir"]},
    ),
    **{
        f"{PROJECTION}.{key}": Row(before, after, directory_of_the_rule, (True, False), PROJECTED | beside)
        for key, before, after, beside in (
            ("source", "/lake/one", "/lake/two", {}),
            ("columns", ["a", "b"], ["a"], {}),
            ("where", "a > 1", "a > 2", {}),
            ("partitionBy", ["a"], ["b"], {}),
            ("salt", "a" * 16, "b" * 16, {f"{PROJECTION}.columns": [{"name": "a", "function": "sha256"}]}),
            ("columns[].name", "a", "b", {f"{PROJECTION}.columns": [{}]}),
            ("columns[].column", "a", "b", {f"{PROJECTION}.columns": [{"name": "c"}]}),
            ("columns[].function", "month", "year", {f"{PROJECTION}.columns": [{"name": "c"}]}),
            ("columns[].length", 2, 3, {f"{PROJECTION}.columns": [{"name": "c", "function": "prefix"}]}),
            ("columns[].step", 2, 3, {f"{PROJECTION}.columns": [{"name": "c", "function": "floor"}]}),
            ("minimumGroup.rows", 2, 3, {f"{PROJECTION}.minimumGroup.columns": ["a"]}),
            ("minimumGroup.columns", ["a"], ["b"], {f"{PROJECTION}.minimumGroup.rows": 2}),
        )
    },
    f"{MANAGING}.url": Row(
        "https://one.example.com",
        "https://two.example.com",
        managing("url"),
        ("https://one.example.com", "https://two.example.com"),
        MANAGED,
    ),
    f"{MANAGING}.name": Row("a.b.c", "a.b.d", managing("name"), ("a.b.c", "a.b.d"), MANAGED),
    f"{MANAGING}.token": Row("one", "two", managing("token"), (Secret("one"), Secret("two")), MANAGED),
    f"{MANAGING}.allowPrivateAddresses": Row(
        False, True, managing("allow_private_addresses"), (False, True), MANAGED
    ),
    **{
        f"{place}.oauth.{key}": Row(
            before,
            after,
            seen(f"oauth.{name}"),
            (Secret(before), Secret(after)) if key == "clientSecret" else (before, after),
            beside | {f"{place}.oauth": CLIENT},
        )
        for place, seen, beside in ((MANAGING, managing, MANAGED), (CATALOG, catalog, CATALOGUED))
        for key, name, before, after in (
            ("tokenEndpoint", "token_endpoint", "https://one.example.com", "https://two.example.com"),
            ("clientId", "client_id", "one", "two"),
            ("clientSecret", "client_secret", "one", "two"),
            ("scope", "scope", "one", "two"),
        )
    },
    # For `project`, which reads the configuration at each run.
    f"{PROJECTION}.publishEverySeconds": Row(5, 6, publish_every_seconds, (5, 6), PROJECTED),
    "shares[].schemas[].volumes[].name": Row("v", "w", volume_field("name"), ("v", "w"), VOLUME),
    "shares[].schemas[].volumes[].id": Row("one", "two", volume_field("id"), ("one", "two"), VOLUME),
    "shares[].schemas[].volumes[].comment": Row(
        "one", "two", volume_field("comment"), ("one", "two"), VOLUME
    ),
    "shares[].schemas[].volumes[].location": Row(
        "s3://bucket/one",
        "s3a://bucket/two",
        volume_field("storageLocation"),
        ("s3://bucket/one", "s3a://bucket/two"),
        VOLUME,
    ),
    "temporaryCredentialValiditySeconds": Row(900, 1000, credential_seconds, (900, 1000)),
    "authorization.bearerToken": Row(
        "one:token", "another", status_with({"Authorization": "Bearer one:token"}), (200, 401)
    ),
    "preSignedUrlTimeoutSeconds": Row(1800, 2400, life_of_a_url, (1800, 2400)),
    "queryTablePageSizeLimit": Row(100, 2, files_on_a_page, (4, 2)),
    "queryTablePageTokenTtlMs": Row(60_000, 5_000, status_later(maxFiles=1), (200, 400)),
    "refreshTokenTtlMs": Row(60_000, 5_000, status_later(includeRefreshToken=True), (200, 400)),
    "requestTimeoutSeconds": Row(300, 200, calls("_call_seconds"), (300, 200)),
    "evaluatePredicateHints": Row(
        False, True, header("delta-sharing-hint-status", None, **SQL), (None, "ok")
    ),
    "evaluateJsonPredicateHints": Row(
        False, True, header("delta-sharing-hint-status", None, **TREE), (None, "ok"), JSON_OFF
    ),
    "evaluateJsonPredicateHintsV2": Row(
        False, True, header("delta-sharing-hint-status", None, **TREE), (None, "ok"), JSON_OFF
    ),
    "stalenessAcceptable": Row(False, True, staleness, (0, 3_600_000)),
    "shares[].tables.discover": Row(
        "/a/{schema}/{table}",
        "/b/{schema}/{table}",
        discovery("discover"),
        ("/a/{schema}/{table}", "/b/{schema}/{table}"),
    ),
    "shares[].tables.replaceDots": Row(False, True, discovery("replace_dots"), (False, True), SEARCHED),
    "shares[].tables.everySeconds": Row(5, 6, discovery("every_seconds"), (5, 6), SEARCHED),
    "shares[].tables.keepSeconds": Row(5, 6, discovery("keep_seconds"), (5, 6), SEARCHED),
    "shares[].tables.maxDepth": Row(0, 1, discovery("max_depth"), (0, 1), SEARCHED),
    "shares[].tables.maxTables": Row(5, 6, discovery("max_tables"), (5, 6), SEARCHED),
    "shares[].tables.maxCalls": Row(5, 6, discovery("max_calls"), (5, 6), SEARCHED),
    "shares[].tables.historyShared": Row(False, True, discovery("history_shared"), (False, True), SEARCHED),
    f"{CATALOG}.url": Row(
        "https://one.example.com",
        "https://two.example.com",
        catalog("url"),
        ("https://one.example.com", "https://two.example.com"),
        CATALOGUED,
    ),
    f"{CATALOG}.catalog": Row("one", "two", catalog("catalog"), ("one", "two"), CATALOGUED),
    f"{CATALOG}.within": Row(
        ["s3://one/"], ["s3://two/"], catalog("within"), (["s3://one/"], ["s3://two/"]), CATALOGUED
    ),
    f"{CATALOG}.schemas": Row(["a"], ["b"], catalog("schemas"), (("a",), ("b",)), CATALOGUED),
    f"{CATALOG}.names": Row(
        "{schema}.{table}",
        "x.{table}",
        catalog("names"),
        ("{schema}.{table}", "x.{table}"),
        CATALOGUED,
    ),
    f"{CATALOG}.token": Row("one", "two", catalog("token"), (Secret("one"), Secret("two")), CATALOGUED),
    f"{CATALOG}.allowPrivateAddresses": Row(
        False, True, catalog("allow_private_addresses"), (False, True), CATALOGUED
    ),
    "gateway.anonymous": Row(False, True, status_with({}), (401, 200)),
    "gateway.publicUrl": Row(
        "http://one.example", "http://two.example", host_of_a_url, ("one.example", "two.example")
    ),
    "gateway.recipients[].name": Row("alice", "bob", name_of_the_reader, ("alice", "bob")),
    "gateway.recipients[].shares": Row(["s"], ["other"], names_of("/shares"), ("s", "other")),
    "gateway.recipients[].shares[].share": Row(
        "s", "other", names_of("/shares"), ("s", "other"), {"gateway.recipients[].shares": [{}]}
    ),
    "gateway.recipients[].shares[].schema": Row(
        "d", "e", names_of("/shares/s/schemas"), ("d", "e"), IN_PARTS
    ),
    "gateway.recipients[].shares[].table": Row(
        "t",
        "u",
        names_of("/shares/s/all-tables"),
        ("t", "u"),
        IN_PARTS | {"gateway.recipients[].shares[].schema": "d"},
    ),
    "gateway.recipients[].shares[].condition": Row(
        "true", "false", number_of_files, (4, 0), {"gateway.recipients[].shares": [{"share": "s"}]}
    ),
    "gateway.recipients[].properties": Row(
        {"a": "1"},
        {"a": "2"},
        properties_of_the_rule,
        ((("a", "1"),), (("a", "2"),)),
        {"gateway.recipients[].shares": [{"share": "s", "condition": "true"}]},
    ),
    "gateway.recipients[].tokens[].sha256": Row(
        HASHES["alice"], HASHES["bob"], status_with(bearer("bob")), (401, 200)
    ),
    "gateway.recipients[].tokens[].expires": Row(FOREVER, EXPIRED, status_with(bearer()), (200, 401)),
    "gateway.recipients[].networks": Row(
        ["127.0.0.0/8", "::1"], ["192.0.2.0/24"], status_with(bearer()), (200, 403)
    ),
    "gateway.recipients[].limits": Row(
        {"burstRequests": 9},
        {"requestsPerSecond": 0.01, "burstRequests": 1, "queueSeconds": 0},
        status_of_a_quick_second_request,
        (200, 429),
    ),
    "gateway.trustedProxies": Row(
        ["192.0.2.1"],
        ["127.0.0.0/8", "::1"],
        status_with(FORWARDED),
        (403, 200),
        {"gateway.recipients[].networks": ["192.0.2.9"]},
    ),
    "gateway.tokenKeys[].id": Row("k1", "k2", status_of_an_earlier_token, (200, 400)),
    "gateway.tokenKeys[].secret": Row(
        "a secret of the tests", "b" * 32, status_of_an_earlier_token, (200, 400)
    ),
    "gateway.allowedRoots": Row(["/nothing"], ["whole"], status_of(), (403, 200)),
    "gateway.database.maxOutageSeconds": Row(
        60, 30, outage_seconds, (60, 30), {"gateway.database.url": "sqlite:///r.db"}
    ),
    "gateway.maxStalenessSeconds": Row(1.5, 2, staleness, (1500, 2000)),
    "gateway.cors.origins": Row(
        ["https://a.example"], ["https://b.example"], allowed_origin, (None, "https://b.example")
    ),
    "gateway.cors.requestHeaders": Row(
        ["*"],
        ["traceparent"],
        allows_own_header,
        (True, False),
        {"gateway.cors.origins": ["https://b.example"]},
    ),
    "gateway.compression.enabled": Row(True, False, header("Content-Encoding", GZIP), ("gzip", None)),
    "gateway.compression.minimumFiles": Row(0, 9, header("Content-Encoding", GZIP), ("gzip", None)),
    "gateway.compression.skipLoopback": Row(False, True, header("Content-Encoding", GZIP), ("gzip", None)),
    f"{RECIPIENT}.requestsPerSecond": Row(
        1_000_000,
        0.01,
        status_of_a_quick_second_request,
        (200, 429),
        {f"{RECIPIENT}.burstRequests": 1, f"{RECIPIENT}.queueSeconds": 0},
    ),
    f"{RECIPIENT}.burstRequests": Row(9, 8, limit("burst_requests"), (9, 8)),
    f"{RECIPIENT}.concurrentStreams": Row(
        2, 1, statuses_of_requests_while_a_stream_runs, (200, 429), {f"{RECIPIENT}.queueLength": 0}
    ),
    f"{RECIPIENT}.filesPerMinute": Row(9, 8, limit("files_per_minute"), (9, 8)),
    f"{RECIPIENT}.credentialsPerMinute": Row(9, 8, limit("credentials_per_minute"), (9, 8)),
    f"{RECIPIENT}.queueSeconds": Row(0.1, 0.2, guard("recipients._default.queue_seconds"), (0.1, 0.2)),
    f"{RECIPIENT}.queueLength": Row(5, 6, limit("queue_length"), (5, 6)),
    "gateway.limits.memoryBytes": Row(1 << 30, 1 << 29, guard("memory.limit_bytes"), (1 << 30, 1 << 29)),
    "gateway.limits.streamBytes": Row(1000, 2000, bytes_of_a_stream, (1000, 2000)),
    "gateway.limits.queuedStreams": Row(3, 4, guard("memory._queue_length"), (3, 4)),
    "gateway.limits.queueSeconds": Row(3, 4, guard("memory._queue_seconds"), (3, 4)),
    "gateway.limits.minimumBytesPerSecond": Row(
        1024, 512, guard("drain_rate.minimum_bytes_per_second"), (1024, 512)
    ),
    "gateway.limits.slowReaderSeconds": Row(30, 20, guard("drain_rate.grace_seconds"), (30, 20)),
    "gateway.limits.bodySeconds": Row(20, 10, guard("body_seconds"), (20, 10)),
    "gateway.storageFaults.failures": Row(5, 4, calls("breaker._settings.failures"), (5, 4)),
    "gateway.storageFaults.openSeconds": Row(5, 4, calls("breaker._settings.open_seconds"), (5, 4)),
    "gateway.storageFaults.concurrentCalls": Row(16, 8, calls("_admission._of_all.capacity"), (16, 8)),
    "gateway.storageFaults.queuedCalls": Row(9, 8, calls("_admission._queue_length"), (9, 8)),
    "gateway.storageFaults.queueSeconds": Row(9, 8, calls("_admission._queue_seconds"), (9, 8)),
    "gateway.storageFaults.staleSeconds": Row(0, 1000, is_kept_for_a_failing_storage, (False, True)),
}


def located(key: str, value: Any, tables: Path) -> Any:
    """A value whose place is known when the test runs."""
    if key.endswith("tables[].location"):
        return str(tables / value)
    if key == "gateway.allowedRoots":
        return [str(tables / value[0])]
    return value


@pytest.mark.parametrize("key", AT_ONCE)
async def test_a_changed_key_takes_effect_from_the_next_request(
    tmp_path: Path, tables: Path, key: str
) -> None:
    row, settings = AT_ONCE[key], base(tables)
    for other, value in row.beside.items():
        put(settings, other, deepcopy(value))
    if key == "gateway.allowedRoots":
        settings["shares"][0]["schemas"][0]["tables"][0]["location"] = str(tables / "clone")
    put(settings, key, located(key, row.before, tables))
    async with running_process(tmp_path / "gateway.yaml", settings) as live:
        before = await row.seen(live)
        assert await live.change(key, located(key, row.after, tables)) is None
        assert (before, await row.seen(live)) == row.expected


async def is_read(live: Live) -> Any:
    return (await live.query())[0] == 200


def signing(path: str) -> Seen:
    async def seen(live: Live) -> Any:
        found: Any = live.state.tables.storages.store(Location.parse(DEEP[1] + "/t")).keys.get()
        value = getattr(found, path)
        return getattr(value, "reveal", lambda: value)() if value is not None else None

    return seen


async def region_of_a_url(live: Live) -> Any:
    found = re.search(
        r"X-Amz-Credential=[^&]*%2F\d{8}%2F([^%]+)%2Fs3", (await live.query())[3]["file"]["url"]
    )
    return found and found[1]


async def native_storage(live: Live) -> Any:
    """The number of native storages that were made for the bucket so far."""
    made = live.kept.setdefault("natives", [])
    native = live.state.tables.storages.store(Location.parse(DEEP[1] + "/t")).native
    if not any(native is one for one in made):
        made.append(native)
    return len(made)


S3_ROWS: Mapping[str, Row] = {
    "prefix": Row(DEEP[0], DEEP[1], is_read, (False, True)),
    "endpoint": Row("http://127.0.0.1:9", "{endpoint}", is_read, (False, True)),
    "publicEndpoint": Row("http://a.example", "http://b.example", host_of_a_url, ("a.example", "b.example")),
    "region": Row("us-west-9", "us-east-1", is_read, (False, True)),
    "pathStyle": Row(False, True, is_read, (False, True)),
    "timeoutSeconds": Row(20, 10, native_storage, (1, 2)),
    "retrySeconds": Row(0.5, 1, native_storage, (1, 2)),
    "accessKeyId": Row("nobody", "tests-access-key", is_read, (False, True)),
    "secretAccessKey": Row("wrong", "tests-secret-key", is_read, (False, True)),
    "sessionToken": Row("one", "two", signing("session_token"), ("one", "two")),
    "sessionExpires": Row(FOREVER, "2099-01-01T00:00:00Z", signing("expires"), (2100, 2099)),
}


@pytest.mark.parametrize("key", S3_ROWS)
async def test_a_changed_storage_takes_effect_from_the_next_request(
    tmp_path: Path, tables: Path, versitygw: VersityGw, key: str
) -> None:
    row, settings = S3_ROWS[key], base(tables)
    versitygw.upload(tables / "whole", "demo", "deep/1/t")
    put(settings, "shares[].schemas[].tables[].location", f"{DEEP[1]}/t")
    dead = {
        "prefix": "s3://demo",
        "endpoint": "http://127.0.0.1:9",
        "pathStyle": True,
        "accessKeyId": "x",
        "secretAccessKey": "y",
    }
    entry = storage(versitygw, DEEP[1]) | {"retrySeconds": 0}
    settings["gateway"]["storages"] = [entry, dead | {"retrySeconds": 0}]
    before, after = (
        value.format(endpoint=versitygw.endpoint) if isinstance(value, str) else value
        for value in (row.before, row.after)
    )
    if key == "pathStyle":
        entry["endpoint"] = versitygw.endpoint.replace("127.0.0.1", "localhost")
    put(settings, f"gateway.storages[].{key}", before)
    async with running_process(tmp_path / "gateway.yaml", settings) as live:
        seen = [await row.seen(live)]
        assert await live.change(f"gateway.storages[].{key}", after) is None
        seen.append(await row.seen(live))
    assert tuple(getattr(one, "year", one) for one in seen) == row.expected


AZURE, GOOGLE, BUCKET = "abfss://data@acct.dfs.core.windows.net/", "gs://bucket/", "s3://bucket/"
ROLE = {"roleArn": "arn:aws:iam::123456789012:role/reader"}
R2 = {
    "endpoint": f"https://{'0' * 32}.r2.cloudflarestorage.com",
    "accessKeyId": "key",
    "secretAccessKey": "secret",
}
CLIENT = {"tenantId": "tenant", "clientId": "client"}
USER = {"type": "authorized_user", "client_id": "c", "client_secret": "s", "refresh_token": "r"}
IDENTITY_ROWS: Mapping[str, tuple[str, Mapping[str, Any], Any, Any]] = {
    "dualStack": (BUCKET, {}, False, True),
    "fips": (BUCKET, {}, False, True),
    "requesterPays": (BUCKET, {}, False, True),
    "profile": (BUCKET, {}, "one", "two"),
    "roleArn": (BUCKET, {}, ROLE["roleArn"], ROLE["roleArn"] + "2"),
    "externalId": (BUCKET, ROLE, "one", "two"),
    "roleSessionName": (BUCKET, ROLE, "one", "two"),
    "sessionSeconds": (BUCKET, ROLE, 900, 901),
    "stsEndpoint": (BUCKET, ROLE, "https://one", "https://two"),
    "directoryRoleArn": (BUCKET, {}, ROLE["roleArn"], ROLE["roleArn"] + "2"),
    "cloudflareApiToken": (BUCKET, R2, "one", "two"),
    "hierarchicalNamespace": (AZURE, {}, False, True),
    "account": ("az://data/", {}, "acct", "other"),
    "accountKey": (AZURE, {}, "b25l", "dHdv"),
    "tenantId": (AZURE, {"clientId": "client", "clientSecret": "secret"}, "one", "two"),
    "clientId": (AZURE, {"tenantId": "tenant", "clientSecret": "secret"}, "one", "two"),
    "clientSecret": (AZURE, CLIENT, "one", "two"),
    "federatedTokenFile": (AZURE, CLIENT, "/one", "/two"),
    "identity": (AZURE, {}, "managedIdentity", "cli"),
    "authorityHost": (AZURE, {}, "https://one", "https://two"),
    "credentialsFile": (GOOGLE, {}, "one.json", "two.json"),
    "impersonate": (GOOGLE, {}, "one@project.iam.gserviceaccount.com", "two@project.iam.gserviceaccount.com"),
    "userProject": (GOOGLE, {}, "one", "two"),
    "maxRemoteSignatures": (GOOGLE, {}, 1, 2),
}


@pytest.mark.parametrize("key", IDENTITY_ROWS)
async def test_a_changed_identity_of_a_storage_is_that_of_the_next_request(
    tmp_path: Path, tables: Path, key: str
) -> None:
    prefix, beside, before, after = IDENTITY_ROWS[key]
    for name in ("one.json", "two.json"):
        (tmp_path / name).write_text(json.dumps(USER))
    settings = base(tables)
    settings["gateway"]["storages"] = [{"prefix": prefix, **beside, key: before}]
    async with running_process(tmp_path / "gateway.yaml", settings) as live:

        def value() -> Any:
            (entry,) = live.state.config.gateway.storages
            used = live.state.tables.storages.entry(replace(entry.prefix, key="t"))
            return getattr(used, re.sub("[A-Z]", lambda capital: f"_{capital[0].lower()}", key))

        first = value()
        assert await live.change(f"gateway.storages[].{key}", after) is None
        assert first != value()


# Each with what a request gets: its status, or the check that its token failed.
OIDC_ROWS: Mapping[str, tuple[Any, Any, tuple[Any, Any]]] = {
    "oidc.issuers[].issuer": ("https://one", "https://other", ("subject", "issuer")),
    "oidc.issuers[].jwksUri": ("https://127.0.0.1:1/keys", "https://127.0.0.1:1/other", ("keys", "keys")),
    "oidc.issuers[].jwksFile": ("keys.json", "other.json", (200, 401)),
    "oidc.issuers[].algorithms": (["RS256"], ["ES256"], (200, 401)),
    "oidc.issuers[].maxLifetimeSeconds": (3600, 60, (200, 401)),
    "oidc.issuers[].allowPrivateAddresses": (True, False, (200, 200)),
    # The claim `sub` is no address.
    "oidc.issuers[].emailsAreVerified": (False, True, (200, 200)),
    "recipients[].oidc[].issuer": ("https://one", "https://two", (200, 401)),
    "recipients[].oidc[].subjectClaim": ("sub", "azp", (200, 401)),
    "recipients[].oidc[].subject": ("a", "b", (200, 401)),
    "recipients[].oidc[].audiences": (["x"], ["y"], (200, 401)),
    "recipients[].oidc[].claims": ({"tid": "t"}, {"tid": "other"}, (200, 401)),
}


@pytest.mark.parametrize("key", OIDC_ROWS)
async def test_a_changed_trust_in_an_identity_provider_is_that_of_the_next_request(
    tmp_path: Path, tables: Path, key: str
) -> None:
    before, after, expected = OIDC_ROWS[key]
    for file, name in (("keys.json", "k1"), ("other.json", "k2")):
        (tmp_path / file).write_text(json.dumps({"keys": [public_jwk("RS256", name)]}))
    settings = base(tables)
    issuer, second = {"issuer": "https://one", "jwksFile": "keys.json"}, {"issuer": "https://two"}
    if key.endswith("jwksUri"):
        issuer = {"issuer": "https://one", "allowPrivateAddresses": True}
    settings["gateway"]["oidc"] = {"issuers": [issuer, second]}
    # A policy names an issuer that stays in the configuration.
    trusted = second if key == "oidc.issuers[].issuer" else issuer
    policy = {"issuer": trusted["issuer"], "subject": "a", "audiences": ["x"]}
    settings["gateway"]["recipients"][0]["oidc"] = [policy]
    put(settings, f"gateway.{key}", before)
    async with running_process(tmp_path / "gateway.yaml", settings) as live:
        now = live.clock.now_ms // 1000
        claims = {"iss": "https://one", "sub": "a", "aud": "x", "tid": "t", "iat": now, "exp": now + 3600}
        headers = {"Authorization": f"Bearer {signed(claims)}"}
        refused = live.process.metrics.refused
        counts = {reason: refused.labels(reason)._value for reason in REFUSALS}

        async def outcome() -> Any:
            earlier = {reason: count.get() for reason, count in counts.items()}
            status = await live.status(headers=headers)
            reasons = [reason for reason, count in counts.items() if count.get() > earlier[reason]]
            return reasons[0] if status == 401 and isinstance(expected[0], str) else status

        seen = [await outcome()]
        assert await live.change(f"gateway.{key}", after) is None
        seen.append(await outcome())
    assert tuple(seen) == expected


# Each with the statuses of requests by a bearer token, and by an access token of the client.
CLIENTS = "recipients[].clients[]"
OAUTH_ROWS: Mapping[str, tuple[Any, Any, tuple[int, int]]] = {
    "oauth.tokenLifetimeSeconds": (60, 120, (200, 200)),
    f"{CLIENTS}.id": ("c1", "c2", (200, 401)),
    f"{CLIENTS}.secrets[].sha256": (token_hash("s").hex(), token_hash("t").hex(), (200, 401)),
    f"{CLIENTS}.secrets[].expires": (None, "2001-01-01T00:00:00Z", (200, 401)),
    "recipients[].forbidBearerTokens": (False, True, (401, 200)),
}


@pytest.mark.parametrize("key", OAUTH_ROWS)
async def test_a_changed_client_is_that_of_the_next_request(tmp_path: Path, tables: Path, key: str) -> None:
    before, after, expected = OAUTH_ROWS[key]
    settings = base(tables)
    client = {"id": "c1", "secrets": [{"sha256": token_hash("s").hex()}]}
    settings["gateway"]["recipients"][0]["clients"] = [client]
    put(settings, f"gateway.{key}", before)
    async with running_process(tmp_path / "gateway.yaml", settings) as live:
        state = live.process.pipeline.state
        found = state.credentials.clients.authenticate("c1", token_hash("s"), now_ms=live.clock.now_ms)
        token = issue(state.sealer, found, now_ms=live.clock.now_ms, lifetime_seconds=600).text
        assert await live.change(f"gateway.{key}", after) is None
        by_access_token = await live.status(headers={"Authorization": f"Bearer {token}"})
        assert (await live.status(), by_access_token) == expected
        lifetime = live.process.config.gateway.oauth.token_lifetime_seconds
        assert lifetime == (after if key == "oauth.tokenLifetimeSeconds" else 3600)


SignedIn = Callable[[ConsoleClient, SignInProvider], Awaitable[Any]]


async def status_of_a_start(console: ConsoleClient, _provider: SignInProvider) -> Any:
    return (await console.get(START)).status


def sent_to_the_provider(name: str) -> SignedIn:
    async def seen(console: ConsoleClient, _provider: SignInProvider) -> Any:
        return dict(parse_qsl(urlsplit(await console.begin()).query))[name]

    return seen


async def status_of_a_sign_in(console: ConsoleClient, provider: SignInProvider) -> Any:
    return (await console.sign_in(provider)).status


async def client_of_a_sign_in(console: ConsoleClient, provider: SignInProvider) -> Any:
    await console.sign_in(provider)
    return provider.forms[-1]["client"]


async def name_of_a_user(console: ConsoleClient, provider: SignInProvider) -> Any:
    await console.sign_in(provider)
    return re.findall(r"<bdi>(.*?)</bdi>", await (await console.get(PAGE)).text())[0]


async def reason_of_a_failure(console: ConsoleClient, _provider: SignInProvider) -> Any:
    logged: list[str] = []
    handler = logging.Handler()
    handler.emit = lambda record: logged.append(record.getMessage())  # type: ignore[method-assign]
    logger = logging.getLogger("gateway.admin")
    logger.addHandler(handler)
    assert (await console.get(START)).status == 503
    logger.removeHandler(handler)
    (found,) = [text for text in ("private address", "127.0.0.1") if text in logged[0]]
    return found


class ConsoleRow(NamedTuple):
    """As `Row`, of a key of `gateway.admin.oidc`."""

    before: Any
    after: Any
    seen: SignedIn
    expected: tuple[Any, Any]
    beside: Mapping[str, Any] = {}


CONSOLE_ROWS: Mapping[str, ConsoleRow] = {
    "issuer": ConsoleRow(None, "http://127.0.0.1:1", status_of_a_start, (303, 503)),
    "clientId": ConsoleRow("one", "two", sent_to_the_provider("client_id"), ("one", "two")),
    "clientSecret": ConsoleRow("one", "two", client_of_a_sign_in, ("basic console one", "basic console two")),
    "redirectUrl": ConsoleRow(
        f"http://localhost:1{CALLBACK}",
        f"http://localhost:2{CALLBACK}",
        sent_to_the_provider("redirect_uri"),
        (f"http://localhost:1{CALLBACK}", f"http://localhost:2{CALLBACK}"),
    ),
    "scopes": ConsoleRow(
        ["email"], ["groups"], sent_to_the_provider("scope"), ("openid email", "openid groups")
    ),
    "rolesClaim": ConsoleRow("groups", "roles", status_of_a_sign_in, (200, 403)),
    "operatorValues": ConsoleRow(["operators"], ["others"], status_of_a_sign_in, (200, 403)),
    "viewerValues": ConsoleRow(
        ["operators"], ["others"], status_of_a_sign_in, (200, 403), {"operatorValues": ["none"]}
    ),
    "nameClaim": ConsoleRow("sub", "email", name_of_a_user, ("alice", "a@example.com")),
    "algorithms": ConsoleRow(["RS256"], ["ES256"], status_of_a_sign_in, (200, 503)),
    "allowPrivateAddresses": ConsoleRow(
        "false",
        True,
        reason_of_a_failure,
        ("private address", "127.0.0.1"),
        {"issuer": "https://idp.example.com"},
    ),
}


@pytest.mark.parametrize("key", CONSOLE_ROWS)
async def test_a_changed_sign_in_to_the_console_is_that_of_the_next_one(
    tmp_path: Path, tables: Path, key: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def inner(*_: Any, **__: Any) -> list[Any]:
        address = {"host": "127.0.0.1", "port": 1, "family": socket.AF_INET, "proto": 0, "flags": 0}
        return [{"hostname": "idp.example.com", **address}]

    monkeypatch.setattr(aiohttp.ThreadedResolver, "resolve", inner)
    row, settings, clock = CONSOLE_ROWS[key], base(tables), Clock(1_790_000_000_000)
    provider = SignInProvider(
        now_seconds=clock.now_ms / 1000, claim_changes={"groups": ["operators"], "email": "a@example.com"}
    )
    await provider.start()
    settings["gateway"]["admin"] = admin_section(provider, f"http://127.0.0.1:1{CALLBACK}")
    async with (
        running_process(tmp_path / "gateway.yaml", settings) as live,
        console_client(lambda: live.process.config, clock) as console,
    ):
        section = settings["gateway"]["admin"]["oidc"]
        section |= {"redirectUrl": console.redirect_url, **row.beside}
        results = []
        for value in (row.before, row.after):
            assert await live.change(f"gateway.admin.oidc.{key}", value or provider.issuer) is None
            results.append(await row.seen(console, provider))
    await provider.close()
    assert tuple(results) == row.expected


RESTART: Mapping[str, tuple[Any, Any]] = {
    "host": ("127.0.0.1", "localhost"),
    "port": (8080, 8081),
    "endpoint": ("/delta-sharing", "/shared"),
    "gateway.endpointAliases": (["/one"], ["/two"]),
    "ssl.selfSigned": (None, True),
    "ssl.certificateFile": ("a.pem", "b.pem"),
    "ssl.certificateKeyFile": ("a.key", "b.key"),
    "ssl.certificatePasswordFile": ("a", "b"),
    "gateway.database": ("sqlite:///a.db", "sqlite:///b.db"),
    "gateway.database.url": ("sqlite:///a.db", "sqlite:///b.db"),
    "gateway.recipientsDatabase": ("a.db", "b.db"),
    "gateway.cache.memoryBytes": (1 << 20, 1 << 21),
    "gateway.cache.directory": ("a", "b"),
    "gateway.cache.diskBytes": (1 << 20, 1 << 21),
    "gateway.cache.threads": (1, 2),
    "gateway.audit.file": ("a.jsonl", "b.jsonl"),
    "gateway.audit.failClosed": (False, True),
    "gateway.audit.queueRecords": (10, 20),
    "gateway.admin.tokenSha256": ("a" * 64, "b" * 64),
    "gateway.admin.metricsTokenSha256": ("a" * 64, "b" * 64),
    "gateway.admin.viewerTokenSha256": ("a" * 64, "b" * 64),
    "gateway.admin.host": ("127.0.0.1", "::1"),
    "gateway.admin.port": (8081, 8082),
    "gateway.admin.ssl.selfSigned": (False, True),
    "gateway.admin.ssl.certificateFile": ("a.pem", "b.pem"),
    "gateway.admin.ssl.certificateKeyFile": ("a.key", "b.key"),
    "gateway.admin.ssl.certificatePasswordFile": ("a", "b"),
    "gateway.tracing.endpoint": ("http://a.example", "http://b.example"),
    "gateway.tracing.sampleRatio": (0.1, 0.2),
}
BESIDE: Mapping[str, Any] = {
    "ssl": {"certificateFile": "c.pem", "certificateKeyFile": "c.key"},
    "gateway.audit": {"file": "c.jsonl"},
    "gateway.admin": {"tokenSha256": "c" * 64},
    "gateway.tracing": {"endpoint": "http://c.example"},
}


def row_of(key: str) -> str:
    """Return the row of a key: the longest one that it begins with."""
    return max((row for row in EFFECTS if f"{key}.".replace("[]", "").startswith(f"{row}.")), key=len)


@pytest.mark.parametrize("key", RESTART)
def test_a_key_that_needs_a_restart_refuses_the_reload_by_its_name(
    tmp_path: Path, tables: Path, key: str
) -> None:
    file, settings = tmp_path / "gateway.yaml", base(tables)
    section = row_of(key)
    if section in BESIDE and key != "ssl.selfSigned":
        put(settings, section, deepcopy(BESIDE[section]))
    if key.startswith("gateway.admin.ssl"):
        put(settings, "gateway.admin.ssl", deepcopy(BESIDE["ssl"]))
    before, after = RESTART[key]
    configs = []
    for value in (before, after):
        put(settings, key, value)
        if key == "ssl.selfSigned" and value is None:
            settings.pop("ssl", None)
        settings["shares"].append({"name": f"share-{value}".replace("/", "-")})
        file.write_text(yaml.safe_dump(settings))
        configs.append(load(file))
    assert EFFECTS[section] is Effect.RESTART
    with pytest.raises(RestartRequired, match=f"^{re.escape(section)}: a change of this needs a restart$"):
        accepted(file, configs[0], workers=1)
    assert accepted(file, configs[1], workers=1) == configs[1]


async def test_a_refused_reload_changes_nothing(live: Live) -> None:
    put(live.settings, "gateway.anonymous", True)
    refused = await live.change("port", free_port())
    assert refused == "port: a change of this needs a restart"
    assert await live.status(headers={}) == 401
    assert await live.change("port", 8080) is None
    assert await live.status(headers={}) == 200


NO_EFFECT = {"version": (1, 1), "deltaTableCacheSize": (1, 2)}


@pytest.mark.parametrize("key", NO_EFFECT)
async def test_a_key_without_effect_is_taken(live: Live, key: str) -> None:
    assert await live.change(key, NO_EFFECT[key][1]) is None
    assert (await live.query())[0] == 200


IN_PROCESSES = {
    "gateway.limits.idleConnectionSeconds": "test_idle_connections_end_after_the_reloaded_timeout",
    "gateway.database.password": "test_a_reloaded_password_is_that_of_the_next_connection",
    "gateway.drainSeconds": "test_a_drain_lasts_for_the_reloaded_duration",
    "gateway.drainDelaySeconds": "test_readiness_fails_for_the_reloaded_drain_delay",
}


def test_every_key_has_a_row_and_is_changed_by_a_test() -> None:
    every = set(keys())
    tested = {
        Effect.AT_ONCE: {
            *AT_ONCE,
            *(f"gateway.storages[].{key}" for key in (*S3_ROWS, *IDENTITY_ROWS)),
            *(f"gateway.{key}" for key in (*OIDC_ROWS, *OAUTH_ROWS)),
            *(f"gateway.admin.oidc.{key}" for key in CONSOLE_ROWS),
        },
        Effect.RESTART: {*RESTART},
        Effect.NONE: {*NO_EFFECT},
        Effect.NEW_CONNECTIONS: {"gateway.limits.idleConnectionSeconds", "gateway.database.password"},
        Effect.AT_SHUTDOWN: {"gateway.drainSeconds", "gateway.drainDelaySeconds"},
    }
    assert set().union(*tested.values()) == every
    for effect, tested_keys in tested.items():
        assert {key for key in every if EFFECTS[row_of(key)] is effect} == tested_keys
    # No row is without a key.
    assert {row_of(key) for key in every} == set(EFFECTS)
    processes = (Path(__file__).parent / "test_reload_in_processes.py").read_text()
    for test in IN_PROCESSES.values():
        assert f"def {test}(" in processes


def test_the_configuration_page_lists_when_each_key_takes_effect() -> None:
    table = (
        CONFIGURATION.read_text(encoding="utf-8")
        .split("| changed key | takes effect |\n")[1]
        .split("\n\n")[0]
    )
    documented = {
        key: effect
        for cells, effect in re.findall(r"^\| (`.*?) \| (.*) \|$", table, re.MULTILINE)
        for key in re.findall(r"`([^`]+)`", cells)
    }
    assert documented == {row: str(effect) for row, effect in EFFECTS.items() if effect is not Effect.AT_ONCE}
    assert f"| every other key | {Effect.AT_ONCE} |" in table


async def test_a_secret_that_changes_between_its_reading_and_the_watch_is_read_again(tmp_path: Path) -> None:
    file, secret = tmp_path / "gateway.yaml", tmp_path / "token"
    secret.write_text("first")
    file.write_text("version: 1\nshares: []\nauthorization: {bearerTokenFile: token}\n")
    read = stamp([file])
    config = load(file)
    secret.write_text("second one")
    start = Start(file, config, read)
    process = ServerProcess(start, WorkerSecrets.made(config), workers=1, now_ms=Clock(0))

    def opens(token: str) -> bool:
        return process.pipeline.state.credentials.find(token_hash(token), now_ms=0) is not None

    async with process.lifespan(), asyncio.timeout(20):
        assert opens("first")
        while not opens("second one"):
            await asyncio.sleep(0.05)


async def test_a_listing_whose_items_a_reload_moves_between_its_pages_begins_again(live: Live) -> None:
    async def pages(*moved: str) -> list[Any]:
        await live.change("shares", [{"name": name} for name in "abc"])
        first = await (await live.answer("GET", f"{PREFIX}/shares?maxResults=2")).json()
        await live.change("shares", [{"name": name} for name in moved])
        second = await live.answer("GET", f"{PREFIX}/shares?pageToken={first['nextPageToken']}")
        return [second.status, *(item["name"] for item in (await second.json()).get("items", ()))]

    assert await pages("a", "b", "d", "c") == [200, "d", "c"]
    # Without its refusal no page would have c.
    assert await pages("a", "c", "b") == [400]
    assert await pages("a", "c") == [400]
