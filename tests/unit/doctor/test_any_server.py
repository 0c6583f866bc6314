"""The doctor with a server that answers anything: it ends with findings, whatever arrives."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support.http_service import Response, serving
from support.sharing_server import (
    PREFIX,
    STORED_FILE,
    TABLE,
    TOKEN,
    SharingServer,
    ndjson,
    sharing,
)

from gateway.doctor.examination import Examination
from gateway.doctor.findings import Findings, Status

# Drawn as of a property, within each test.
pytestmark = pytest.mark.hypothesis
EXAMPLES = settings().max_examples * 3 // 5
KEYS = [
    "items", "name", "schema", "accessModes", "nextPageToken", "protocol", "metaData", "deltaProtocol",
    "file", "add", "deltaMetadata", "readerFeatures", "deltaSingleAction", "path", "url", "size",
    "expirationTimestamp", "endStreamAction", "errorMessage", "queryStatus", "errorCode", "message",
    "error", "access_token", "expires_in", "credentials", "awsTempCredentials", "r2Credentials",
    "gcpOauthToken", "accessKeyId", "location", "expirationTime",
]  # fmt: skip
TEXTS = st.sampled_from(
    [
        "",
        "dir",
        "url",
        "sales",
        "http://[",
        "https://x:y/",
        "s3://b",
        "abfss://",
        "//",
        "\ud800",
        "a" * 5000,
        "%",
        "é\x00",
    ]
)
LEAVES = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | TEXTS | st.text(max_size=8)
VALUES = st.recursive(
    LEAVES,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(KEYS), inner, max_size=4),
    max_leaves=12,
)
ROUTES = {
    "shares": f"{PREFIX}/shares",
    "schemas": f"{PREFIX}/shares/sales/schemas",
    "tables": f"{PREFIX}/shares/sales/all-tables",
    "version": f"{TABLE}/version",
    "metadata": f"{TABLE}/metadata",
    "query": f"{TABLE}/query",
    "credentials": f"{TABLE}/temporary-table-credentials",
    "file": STORED_FILE,
}
DATE_BEYOND_TIME = "Mon, 01 Jan 2024 00:00:00 +99999999999999999"
STATUSES = st.sampled_from([200, 200, 200, 204, 206, 302, 400, 401, 403, 404, 429, 500, 503])
HEADERS = st.dictionaries(
    st.sampled_from(
        [
            "Location",
            "Date",
            "Retry-After",
            "Delta-Table-Version",
            "delta-sharing-capabilities",
            "X-Request-Id",
        ]
    ),
    st.sampled_from(
        ["", "x", "1", "http://[", "//", "responseformat=delta", "Mon, 99 Foo 0000", "-1", DATE_BEYOND_TIME]
    ),
    max_size=2,
)


@pytest.fixture(scope="module")
def server() -> Iterator[SharingServer]:
    with sharing() as started:
        yield started


def encoded(value: Any) -> bytes:
    return json.dumps(value).encode("utf-8", "surrogatepass")


def examined(profile: Path) -> Findings:
    findings = Findings()
    Examination(profile, None, 5.0, findings).run()
    assert findings.items
    json.dumps(findings.document())
    assert TOKEN not in repr(findings.items)
    assert not [finding for finding in findings.items if finding.step == "doctor"]
    return findings


def places(value: Any) -> list[tuple[Any, ...]]:
    """The paths of all values within a value, itself included."""
    inner: Any = (
        value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    )
    return [(), *((key, *rest) for key, child in inner for rest in places(child))]


def replaced(value: Any, place: tuple[Any, ...], other: Any) -> Any:
    """A copy with another value at a path."""
    if not place:
        return other
    copied = dict(value) if isinstance(value, dict) else list(value)
    copied[place[0]] = replaced(value[place[0]], place[1:], other)
    return copied


def spoiled(document: Any) -> st.SearchStrategy[Any]:
    """A good document with another value somewhere."""
    return st.builds(replaced, st.just(document), st.sampled_from(places(document)), VALUES)


ITEM = {"name": "orders", "schema": "public", "share": "sales", "accessModes": ["dir", "url"]}
KEYS_OF_S3 = {"accessKeyId": "a", "secretAccessKey": "b", "sessionToken": "c"}
EXPIRES = 4_000_000_000_000
GOOD = {
    "shares": {"items": [{"name": "sales"}], "nextPageToken": ""},
    "schemas": {"items": [{"name": "public", "share": "sales"}]},
    "tables": {"items": [ITEM], "nextPageToken": ""},
    "version": {},
    "file": {"errorCode": "X", "message": "no"},
    "s3": {
        "credentials": {"location": "s3://b/k", "awsTempCredentials": KEYS_OF_S3, "expirationTime": EXPIRES}
    },
    "r2": {"location": "r2://b@127.0.0.1/k", "r2Credentials": KEYS_OF_S3, "expirationTime": EXPIRES},
    "azure": {
        "location": "abfss://c@a/k",
        "azureUserDelegationSas": {"sasToken": "?a"},
        "expirationTime": EXPIRES,
    },
}


@pytest.mark.parametrize("route", GOOD)
def test_any_answer_of_a_route_ends_in_findings(
    server: SharingServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, route: str
) -> None:
    profile = server.profile(tmp_path / "a.share")
    # Stores with public addresses are not reached.
    monkeypatch.setenv("AWS_ENDPOINT_URL", server.http.url)
    monkeypatch.setenv("https_proxy", server.http.url)
    is_credential = route in {"s3", "r2", "azure"}

    @settings(max_examples=EXAMPLES, suppress_health_check=list(HealthCheck))
    @given(spoiled(GOOD[route]), st.just(200) if is_credential else STATUSES, HEADERS)
    def examine(value: Any, status: int, headers: dict[str, str]) -> None:
        path = ROUTES["credentials" if is_credential else route]
        server.answers = {ROUTES["tables"]: Response(200, encoded(GOOD["tables"]))} if is_credential else {}
        server.answers[path] = Response(status, encoded(value), headers)
        examined(profile)

    examine()


@pytest.mark.parametrize("response_format", ["parquet", "delta"])
@pytest.mark.parametrize("route", ["metadata", "query"])
def test_any_lines_of_a_table_end_in_findings(
    server: SharingServer, tmp_path: Path, response_format: str, route: str
) -> None:
    profile = server.profile(tmp_path / "a.share")
    lines = server.delta() if response_format == "delta" else server.parquet()
    lines.append({"endStreamAction": {"errorMessage": None}})

    @settings(max_examples=EXAMPLES, suppress_health_check=list(HealthCheck))
    @given(spoiled(lines))
    def examine(spoilt: Any) -> None:
        headers = {
            "delta-sharing-capabilities": f"responseformat={response_format}",
            "Delta-Table-Version": "1",
        }
        written = ndjson(*spoilt) if isinstance(spoilt, list) else encoded(spoilt)
        server.answers = {ROUTES[route]: Response(200, written, headers)}
        examined(profile)

    examine()


@pytest.mark.parametrize("name", ["access_token", "expires_in"])
def test_any_answer_of_a_token_endpoint_ends_in_findings(
    server: SharingServer, tmp_path: Path, name: str
) -> None:
    fields: dict[str, Any] = {}

    @settings(max_examples=EXAMPLES, suppress_health_check=list(HealthCheck))
    @given(
        VALUES
        | st.sampled_from(["a.e30.b", "a.W10.b", "a.!.b", "a.eyJleHAiOiAxZTk5OX0.b", 1e308, "9" * 5000])
    )
    def examine(value: Any) -> None:
        fields.clear()
        fields.update({"access_token": TOKEN, "expires_in": 3600, name: value})
        examined(profile)

    with serving(lambda _: Response(200, encoded(fields))) as tokens:
        client = {"tokenEndpoint": tokens.url, "clientId": "a", "clientSecret": "a-secret"}
        kind = {"shareCredentialsVersion": 2, "type": "oauth_client_credentials", "bearerToken": None}
        profile = server.profile(tmp_path / "a.share", **client, **kind)
        server.answers = {}
        examine()


def test_any_profile_ends_in_findings(tmp_path: Path) -> None:
    profile = tmp_path / "a.share"
    names = [
        "shareCredentialsVersion",
        "type",
        "endpoint",
        "bearerToken",
        "expirationTime",
        "auth",
        "tokenEndpoint",
    ]
    kinds = st.sampled_from(
        [1, 2, "basic", "bearer_token", "oauth_client_credentials", "http://127.0.0.1:1", "x"]
    )
    documents = st.dictionaries(st.sampled_from(names), VALUES | kinds).map(encoded) | st.binary(max_size=40)

    @settings(max_examples=EXAMPLES, suppress_health_check=list(HealthCheck))
    @given(documents)
    def examine(content: bytes) -> None:
        profile.write_bytes(content)
        findings = Findings()
        Examination(profile, None, 5.0, findings).run()
        assert findings.items[-1].status in set(Status)
        assert findings.items[-1].step != "doctor"

    examine()
