"""The OpenAPI document of the recipient protocol against the routes, real answers and drawn requests."""

import json
import re
from collections.abc import Iterator
from datetime import date, datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import aiohttp
import jsonschema_rs
import msgspec
import orjson
import pytest
import schemathesis
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support.aws_identity import ROLE, Sts, running_sts
from support.gateway_app import PREFIX, bearer
from support.gateway_process import TOKEN, RunningGateway, running_gateway, share
from support.history_table import TABLE, Client

from gateway.app import protocol_routes
from gateway.authentication.credential_table import token_hash
from gateway.protocol import messages
from gateway.protocol.queries import TableQuery
from gateway.routes.openapi import DESCRIPTIONS, NEVER_ANSWERED, document

DOCUMENT = document(protocol_routes(PREFIX), PREFIX, f"https://sharing.example.com{PREFIX}")
# Of each parameter, and of each operation, which takes longer.
VALUES, REQUESTS = settings().max_examples // 2, settings().max_examples // 3
CLIENT = "client-of-the-tests"
NAMES = {"share": "s", "schema": "default", "table": "cities", "volume": "pictures"}
DELTA = {"delta-sharing-capabilities": "responseformat=delta;includeendstreamaction=true"}


def test_the_document_and_the_routes_are_the_same() -> None:
    routes = {(route.method.lower(), route.path.removeprefix(PREFIX)) for route in protocol_routes(PREFIX)}
    described = {
        (method, path)
        for path, item in DOCUMENT["paths"].items()
        for method in item
        if method != "parameters"
    }
    assert described == routes
    assert {route.name for route in protocol_routes(PREFIX)} == set(DESCRIPTIONS)


def test_every_schema_that_is_named_is_there_and_every_operation_has_a_name_of_its_own() -> None:
    assert set(re.findall(r"#/components/schemas/(\w+)", str(DOCUMENT))) == set(
        DOCUMENT["components"]["schemas"]
    )
    names = [
        operation["operationId"]
        for item in DOCUMENT["paths"].values()
        for method, operation in item.items()
        if method != "parameters"
    ]
    assert len(names) == len(set(names))


async def test_it_is_answered_without_a_token_and_names_the_public_url(client: Client) -> None:
    answer = await client.get(f"{PREFIX}/openapi.json")
    assert answer.status == 200
    found = await answer.json()
    assert found["paths"] == DOCUMENT["paths"]
    assert found["servers"] == [{"url": str(client.make_url(PREFIX))}]


@pytest.mark.parametrize("headers", [{}, DELTA], ids=["parquet", "delta"])
@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("GET", "/metadata", None),
        ("POST", "/query", {}),
        ("POST", "/query", {"startingVersion": 2, "includeHistoricalProtocol": True}),
        ("POST", "/query", {"maxFiles": 1}),
        ("POST", "/query", {"includeRefreshToken": True}),
        ("GET", "/changes?startingVersion=1&includeHistoricalMetadata=true", None),
    ],
)
async def test_every_line_of_an_answer_has_the_described_fields(
    client: Client, method: str, path: str, body: Any, headers: dict[str, str]
) -> None:
    answer = await client.request(method, TABLE + path, json=body, headers=bearer() | headers)
    assert answer.status == 200
    lines = (await answer.read()).splitlines()
    assert len(lines) >= 2
    for line in lines:
        # A field without a description would be lost.
        described = msgspec.json.encode(msgspec.json.decode(line, type=messages.Line))
        assert orjson.loads(described) == orjson.loads(line)


@pytest.mark.parametrize("name", messages.QueryBody.__struct_encode_fields__)
async def test_every_field_of_a_body_is_read_by_its_type(client: Client, name: str) -> None:
    answer = await client.post(f"{TABLE}/query", json={name: {"no": "value"}}, headers=bearer())
    # Hints never fail a request.
    assert answer.status == (200 if name == "jsonPredicateHints" else 400), await answer.text()


def values_of(schema: dict[str, Any]) -> st.SearchStrategy[Any]:
    """The values that a schema of a field allows."""
    texts = st.text(st.characters(codec="utf-8"))
    match schema:
        case {"pattern": pattern}:
            return st.from_regex(pattern.removesuffix("$"), fullmatch=True)
        case {"type": "string", "anyOf": _}:
            offsets = st.integers(-18 * 60, 18 * 60).map(lambda minutes: timezone(timedelta(minutes=minutes)))
            moments = st.datetimes(datetime(1970, 1, 2), datetime(9999, 12, 30), timezones=offsets)  # noqa: DTZ001
            return moments.map(datetime.isoformat) | st.dates().map(date.isoformat)
        case {"anyOf": options}:
            return st.one_of(*map(values_of, options))
        case {"type": "integer", "minimum": minimum, "maximum": maximum}:
            return st.integers(minimum, maximum)
    kinds = {
        "string": texts,
        "boolean": st.booleans(),
        "null": st.none(),
        "array": st.lists(texts),
        "object": st.dictionaries(texts, st.integers(0, 9)),
    }
    return kinds[schema["type"]]


# Drawn as of a property, within the test.
@pytest.mark.hypothesis
@pytest.mark.parametrize("name", messages.QueryBody.__struct_encode_fields__)
def test_no_value_of_a_body_that_the_document_allows_is_refused(name: str) -> None:
    values = values_of(DOCUMENT["components"]["schemas"]["QueryBody"]["properties"][name])

    @given(values)
    @settings(max_examples=VALUES)
    def read(value: Any) -> None:
        TableQuery.parse(json.dumps({name: value}).encode())

    read()


@pytest.mark.parametrize(
    "body",
    [
        dict.fromkeys(messages.QueryBody.__struct_encode_fields__),
        {"version": 5, "endingVersion": "5", "limitHint": "7.0", "maxFiles": "1"},
        {"version": 100.0, "jsonPredicateHints": {"op": "isNull"}},
        {"timestamp": "2026-01-02T03:04:05.678+01:00", "jsonPredicateHints": "{}"},
        {"timestamp": "2026-01-02"},
    ],
)
def test_what_is_accepted_is_what_the_document_allows(body: dict[str, Any]) -> None:
    components = DOCUMENT["components"]["schemas"]
    assert jsonschema_rs.is_valid(components["QueryBody"], body), body
    TableQuery.parse(json.dumps(body).encode())


def test_headers_of_requests_and_answers_are_described() -> None:
    operation = DOCUMENT["paths"]["/shares/{share}/schemas/{schema}/tables/{table}/query"]["post"]
    (scheme,) = (one for one in operation["parameters"] if one["name"] == "fileidhash")
    assert scheme["schema"] == {"type": "string", "enum": ["parquet", "delta"]}
    names = {"delta-sharing-pruning", "delta-sharing-stale", "delta-sharing-hint-status", "fileidhash"}
    assert names <= set(operation["responses"]["200"]["headers"])


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory, demo_tables: Path) -> Iterator[RunningGateway]:
    directory = tmp_path_factory.mktemp("openapi")
    shared = share("s", {"cities": str(demo_tables / "cities")})
    shared["schemas"][0]["volumes"] = [{"name": "pictures", "location": "s3://lake/pictures"}]
    client = {"id": CLIENT, "secrets": [{"sha256": token_hash(CLIENT).hex()}]}
    own = {"name": "tests", "tokens": [{"sha256": token_hash(TOKEN).hex()}], "shares": ["s"]}
    recipients = [own | {"clients": [client]}]
    with running_sts(Sts("AKIATESTS", "the-long-lived-secret")) as sts:
        keys = {"accessKeyId": sts.access_key_id, "secretAccessKey": sts.secret_access_key}
        lake = {"prefix": "s3://lake/", "region": "r", "stsEndpoint": sts.url, "directoryRoleArn": ROLE}
        with running_gateway(
            directory, [shared], {"storages": [lake | keys], "recipients": recipients}
        ) as gateway:
            yield gateway
            assert "Traceback" not in gateway.log.read_text()


@pytest.mark.hypothesis
@pytest.mark.processes
def test_every_answer_to_drawn_requests_is_one_that_the_document_names(running: RunningGateway) -> None:
    headers = {"Authorization": f"Bearer {running.token}"}
    basic = {"Authorization": aiohttp.encode_basic_auth(CLIENT, CLIENT)}
    schema = schemathesis.openapi.from_url(f"http://127.0.0.1:{running.port}{PREFIX}/openapi.json")
    checks = schemathesis.specs.openapi.checks
    named = [
        checks.status_code_conformance,
        checks.response_schema_conformance,
        checks.content_type_conformance,
    ]
    sent = {
        name: send_drawn(operation, basic if name == "issue_token" else headers, named)
        for name, operation in (
            (found.ok().definition.raw["operationId"], found.ok()) for found in schema.get_all_operations()
        )
    }
    # A drawn range of changes has two starts, or none. A local table has no credentials.
    assert {name for name in sent if 200 not in sent[name]} <= {
        *NEVER_ANSWERED,
        "changes",
        "temporary_table_credentials",
    }, sent


def send_drawn(operation: Any, headers: dict[str, str], checks: list[Any]) -> set[int]:
    """Send drawn requests of an operation, and return the statuses of the checked answers."""
    statuses = set()

    @given(case=operation.as_strategy())
    @settings(max_examples=REQUESTS, suppress_health_check=list(HealthCheck))
    def send(case: Any) -> None:
        # Drawn names would all be absent.
        names = case.path_parameters or {}
        names.update({key: NAMES.get(key, "1") for key in names})
        response = case.call(headers=headers)
        case.validate_response(response, checks=checks)
        statuses.add(response.status_code)

    send()
    return statuses
