"""Bad input and its answer: the rows of the protocol's error table, on every route that they apply to."""

import io
import json
import re
import shutil
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import orjson
import pytest
from aiohttp import ClientResponse
from aiohttp.test_utils import TestClient, unused_port
from support.gateway_app import PREFIX, Clock, bearer, error_of, serve
from tables.small_tables import (
    FIRST_MS,
    SECRET_PLACE,
    TABLE,
    configuration,
    lay_out,
    metadata,
)

from gateway import _native
from gateway.errors import (
    AccessRevoked,
    AddressDenied,
    GatewayError,
    InvalidClient,
    MethodNotAllowed,
    NotShared,
)
from gateway.protocol.headers import CAPABILITIES_HEADER
from gateway.tables.rules import InvalidRule
from gateway.web.error_response import STATUS_OF, error_answer

Client = TestClient[Any, Any]

DELTA = {CAPABILITIES_HEADER: "responseformat=delta;readerfeatures=deletionvectors"}

QUERY, METADATA, VERSION, CHANGES = "query", "metadata", "version", "changes"
INVALID = (400, "INVALID_PARAMETER_VALUE")
MALFORMED = (400, "MALFORMED_REQUEST")
UNSUPPORTED = (400, "UNSUPPORTED_OPERATION")
MISSING = (404, "RESOURCE_DOES_NOT_EXIST")


@pytest.fixture
def clock() -> Clock:
    return Clock(FIRST_MS + 86_400_000)


@pytest.fixture
async def client(tables: Path, clock: Clock) -> AsyncIterator[Client]:
    started, _ = await serve(configuration(tables, unused_port()), clock=clock)
    yield started
    await started.close()


async def ask(
    client: Client,
    route: str,
    table: str = "whole",
    *,
    body: Any = None,
    headers: dict[str, str] | None = None,
    name: str = "alice",
) -> ClientResponse:
    """Ask one of a table's routes: its name and query string."""
    path = f"{TABLE}/{table}/{route}"
    sent = bearer(name) | (headers or {})
    if route.startswith(QUERY):
        data = body if isinstance(body, bytes) else orjson.dumps(body or {})
        return await client.post(path, data=io.BytesIO(data), headers=sent)
    return await client.get(path, headers=sent)


async def expect(response: ClientResponse, expected: tuple[int, str]) -> str:
    """Check status, code and shape; give the message."""
    body = await response.read()
    assert (response.status, error_of(body)) == expected, body
    assert response.headers["Content-Type"] == "application/json; charset=utf-8"
    assert SECRET_PLACE.encode() not in body
    message: str = orjson.loads(body)["message"]
    return message


EVERY_ROUTE = [QUERY, METADATA, VERSION, f"{CHANGES}?startingVersion=0", "queries/1"]


@pytest.mark.parametrize("route", EVERY_ROUTE)
async def test_not_granted_and_unknown_are_one_answer(client: Client, route: str) -> None:
    method = "POST" if route.startswith("quer") else "GET"
    answers = []
    for path, name in (
        (f"{TABLE}/whole/{route}", "bob"),
        (f"{TABLE}/nothing/{route}", "alice"),
        (f"{PREFIX}/shares/s/schemas/nothing/tables/whole/{route}", "alice"),
        (f"{PREFIX}/shares/nothing/schemas/d/tables/whole/{route}", "alice"),
    ):
        refused = await client.request(method, path, headers=bearer(name))
        answers.append(await expect(refused, MISSING))
    assert len(set(answers)) == 1


@pytest.mark.parametrize("body", [b"no json", b"[]", b'{"version": "x"}', b'{"a":' * 200 + b"1" + b"}" * 200])
async def test_a_body_that_cannot_be_read(client: Client, body: bytes) -> None:
    await expect(await ask(client, QUERY, body=body), MALFORMED)


async def test_a_body_over_a_mebibyte(client: Client) -> None:
    body = orjson.dumps({"predicateHints": ["x" * (1 << 20)]})
    await expect(await ask(client, QUERY, body=body), (413, "MALFORMED_REQUEST"))


async def test_a_body_of_nearly_a_mebibyte_is_read(client: Client) -> None:
    body = orjson.dumps({"predicateHints": ["x" * ((1 << 20) - 100)]})
    assert (await ask(client, QUERY, body=body)).status == 200


async def test_unknown_fields_are_ignored(client: Client) -> None:
    assert (await ask(client, QUERY, body={"unheardOf": {"a": [1]}})).status == 200


LAST = "2023-11-14T22:13:23Z"  # the commit of version 3
BEFORE, AFTER = "2023-11-14T22:13:19Z", "2023-11-14T22:13:24Z"


@pytest.mark.parametrize(
    "body",
    [
        {"version": 1, "timestamp": LAST},
        {"version": 1, "startingVersion": 1},
        {"version": -1},
        {"startingVersion": -1},
        {"limitHint": -1},
        {"maxFiles": 0},
        {"maxFiles": -1},
        {"version": 4},
        {"timestamp": BEFORE},
        {"timestamp": AFTER},
        {"timestamp": "a while ago"},
        {"startingVersion": 3, "endingVersion": 2},
        {"startingVersion": 4},
        {"refreshToken": "x", "version": 1},
        {"includeRefreshToken": True, "timestamp": LAST},
        {"includeRefreshToken": True, "startingVersion": 1},
        {"includeRefreshToken": True, "pageToken": "x"},
        {"pageToken": "x"},
        {"refreshToken": "x"},
        {"maxFiles": 1, "pageToken": "AQ"},
    ],
)
async def test_query_values_outside_of_the_accepted_range_are_refused(
    client: Client, body: dict[str, Any]
) -> None:
    await expect(await ask(client, QUERY, body=body), INVALID)


@pytest.mark.parametrize(
    "route",
    [
        f"{METADATA}?version=1&timestamp={LAST}",
        f"{METADATA}?version=x",
        f"{METADATA}?version=4",
        f"{METADATA}?timestamp={BEFORE}",
        f"{METADATA}?timestamp={AFTER}",
        f"{VERSION}?startingTimestamp=soon",
        f"{VERSION}?startingTimestamp={AFTER}",
        CHANGES,
        f"{CHANGES}?startingVersion=-1",
        f"{CHANGES}?startingVersion=0&startingTimestamp={LAST}",
        f"{CHANGES}?startingVersion=0&endingVersion=1&endingTimestamp={LAST}",
        f"{CHANGES}?startingVersion=3&endingVersion=2",
        f"{CHANGES}?startingVersion=4",
        f"{CHANGES}?startingTimestamp={AFTER}",
        f"{CHANGES}?startingVersion=0&endingTimestamp={BEFORE}",
        f"{CHANGES}?startingVersion=0&maxFiles=0",
        f"{CHANGES}?startingVersion=0&pageToken=x",
    ],
)
async def test_parameters_outside_of_the_accepted_range_are_refused(client: Client, route: str) -> None:
    await expect(await ask(client, route), INVALID)


@pytest.mark.parametrize(
    ("route", "version"),
    [
        (f"{VERSION}?startingTimestamp={BEFORE}", "0"),
        (f"{VERSION}?startingTimestamp=2023-11-14T22:13:21Z", "1"),
        (f"{VERSION}?startingTimestamp=2023-11-14T22:13:21.001Z", "2"),
        (f"{CHANGES}?startingTimestamp={BEFORE}", "0"),
        (f"{CHANGES}?startingVersion=1&endingTimestamp={AFTER}", "1"),
        (f"{CHANGES}?startingVersion=1&endingVersion=99", "1"),
        (f"{METADATA}?timestamp={LAST}", "3"),
    ],
)
async def test_accepted_versions_and_timestamps_beyond_the_ends_of_the_log(
    client: Client, route: str, version: str
) -> None:
    answered = await ask(client, route)
    assert (answered.status, answered.headers.get("Delta-Table-Version")) == (200, version)


@pytest.mark.parametrize(
    ("route", "body"),
    [
        (QUERY, {"version": 0}),
        (QUERY, {"timestamp": LAST}),
        (QUERY, {"startingVersion": 0}),
        (f"{METADATA}?version=0", None),
        (f"{METADATA}?timestamp={LAST}", None),
        (f"{VERSION}?startingTimestamp={LAST}", None),
        (f"{CHANGES}?startingVersion=0", None),
    ],
)
async def test_history_that_is_not_shared(client: Client, route: str, body: Any) -> None:
    await expect(await ask(client, route, "plain", body=body), INVALID)


@pytest.mark.parametrize(
    ("route", "body"),
    [
        (QUERY, {"version": 1}),
        (QUERY, {"timestamp": "2023-11-14T22:13:21Z"}),
        (QUERY, {"startingVersion": 1}),
        (f"{METADATA}?version=1", None),
        (f"{METADATA}?timestamp=2023-11-14T22:13:21Z", None),
        (f"{CHANGES}?startingVersion=1", None),
    ],
)
async def test_before_the_first_shared_version(client: Client, route: str, body: Any) -> None:
    message = await expect(await ask(client, route, "late", body=body), INVALID)
    assert "first shared version" in message
    assert "2" in message


EARLY_TIMES = ["2001-01-01", "2023-11-14T22:13:20Z", "2023-11-14T22:13:21Z", "2023-11-14T22:13:21.999Z"]
UNSHARED = [FIRST_MS, FIRST_MS + 1000]


async def test_errors_tell_no_version_and_no_time_of_history_that_is_not_shared(client: Client) -> None:
    # Before the log, at its first commit, at its second, and just before the first shared one.
    for name, ask_at in (
        ("timestamp", lambda at: ask(client, QUERY, "late", body={"timestamp": at})),
        ("timestamp", lambda at: ask(client, f"{METADATA}?timestamp={at}", "late")),
        (
            "endingTimestamp",
            lambda at: ask(client, f"{CHANGES}?startingVersion=2&endingTimestamp={at}", "late"),
        ),
        (
            "endingTimestamp",
            lambda at: ask(client, f"{CHANGES}?startingTimestamp=2001-01-01&endingTimestamp={at}", "late"),
        ),
    ):
        messages = {await expect(await ask_at(at), INVALID) for at in EARLY_TIMES}
        assert messages == {f"{name} is before the first shared version, 2"}
    beyond = [
        await expect(await ask(client, QUERY, "late", body={"version": 99}), INVALID),
        await expect(await ask(client, QUERY, "late", body={"timestamp": AFTER}), INVALID),
        await expect(await ask(client, f"{METADATA}?version=99", "late"), INVALID),
        await expect(await ask(client, f"{METADATA}?timestamp={AFTER}", "late"), INVALID),
        await expect(await ask(client, f"{VERSION}?startingTimestamp={AFTER}", "late"), INVALID),
        await expect(await ask(client, f"{CHANGES}?startingVersion=99", "late"), INVALID),
        await expect(await ask(client, f"{CHANGES}?startingTimestamp={AFTER}", "late"), INVALID),
    ]
    assert beyond[0] == "version 99 is not available, the table has shared versions 2 to 3"
    for message in beyond:
        assert not re.search(r"\b[01]\b", message), message
        assert not any(str(at_ms) in message for at_ms in UNSHARED), message


async def test_the_error_of_a_corrupt_log_names_no_version_that_is_not_shared(
    tables: Path, clock: Clock
) -> None:
    text = configuration(tables, unused_port()).replace(
        "/corrupt', historyShared: true", "/corrupt', historyShared: true, startVersion: 3"
    )
    client, _ = await serve(text, clock=clock)
    try:
        message = await expect(await ask(client, QUERY, "corrupt"), (500, "INTERNAL_ERROR"))
        assert message.startswith("the table's log is corrupt; quote request id ")
    finally:
        await client.close()


@pytest.mark.parametrize(
    ("route", "headers"),
    [
        (VERSION, {}),
        (METADATA, {}),
        (f"{CHANGES}?startingVersion=0", {}),
        (f"{CHANGES}?startingVersion=9", {}),
        (f"{METADATA}?version=x", {}),
    ],
)
async def test_head_answers_as_get_without_a_body(
    client: Client, route: str, headers: dict[str, str]
) -> None:
    sent = bearer() | headers
    whole = await client.get(f"{TABLE}/whole/{route}", headers=sent)
    head = await client.head(f"{TABLE}/whole/{route}", headers=sent)
    assert (head.status, await head.read()) == (whole.status, b"")
    for name in ("Content-Type", "Delta-Table-Version", CAPABILITIES_HEADER):
        assert head.headers.get(name) == whole.headers.get(name), name
    # A small answer that is read from the log is sent in chunks, without a length, where its end is late.
    lengths = {one.headers["Content-Length"] for one in (head, whole) if "Content-Length" in one.headers}
    assert len(lengths) <= 1


@pytest.mark.parametrize(
    "route", [f"{VERSION}?startingTimestamp={BEFORE}", f"{CHANGES}?startingTimestamp={BEFORE}"]
)
async def test_a_start_before_the_shared_history_is_the_first_shared_version(
    client: Client, route: str
) -> None:
    answered = await ask(client, route, "late")
    assert (answered.status, answered.headers["Delta-Table-Version"]) == (200, "2")


async def test_the_error_of_a_missing_version_names_the_available_ones(client: Client) -> None:
    message = await expect(await ask(client, QUERY, body={"version": 99}), INVALID)
    assert "0 to 3" in message


async def test_the_change_data_feed_must_be_enabled(client: Client) -> None:
    message = await expect(await ask(client, f"{CHANGES}?startingVersion=0", "no_feed"), INVALID)
    assert message == (
        "the change data feed is not enabled at version 0; the provider enables it by the table property "
        "delta.enableChangeDataFeed"
    )


async def test_the_error_of_a_change_data_feed_says_from_which_version_it_is(
    tmp_path: Path, clock: Clock
) -> None:
    lay_out(tmp_path)
    with (tmp_path / "no_feed/_delta_log" / f"{2:020}.json").open("a") as commit:
        commit.write(json.dumps(metadata("whole")) + "\n")
    client, _ = await serve(configuration(tmp_path, unused_port()), clock=clock)
    messages = {
        await expect(await ask(client, f"{CHANGES}?startingVersion={start}", "no_feed"), INVALID)
        for start in (0, 1)
    }
    assert (await ask(client, f"{CHANGES}?startingVersion=2", "no_feed")).status == 200
    await client.close()
    assert messages == {
        f"the change data feed is not enabled at version {start}; it is enabled from version 2"
        for start in (0, 1)
    }


@pytest.mark.parametrize(
    ("path", "words"),
    [
        (
            f"{METADATA}?timestamp={BEFORE}",
            f"timestamp {BEFORE[:-1]}.000Z is before the first commit, the table has",
        ),
        (
            f"{CHANGES}?startingTimestamp={AFTER}",
            f"startingTimestamp {AFTER[:-1]}.000Z is after the last commit",
        ),
        (f"{VERSION}?startingTimestamp={AFTER}", "from 2023-11-14T22:13:20.000Z to 2023-11-14T22:13:23.000Z"),
        (f"{CHANGES}?startingVersion=0&endingTimestamp={BEFORE}", "endingTimestamp 2023-11-14"),
        (f"{CHANGES}?startingVersion=9", "startingVersion 9 is not available, the table has versions 0 to 3"),
    ],
)
async def test_errors_about_versions_and_times_name_the_parameter_and_the_range(
    client: Client, path: str, words: str
) -> None:
    assert words in await expect(await ask(client, path), INVALID)


@pytest.mark.parametrize("route", [QUERY, f"{CHANGES}?startingVersion=0"])
async def test_an_unknown_scheme_of_file_ids(client: Client, route: str) -> None:
    await expect(await ask(client, route, headers={"fileidhash": "sha1"}), INVALID)


async def test_capabilities_that_cannot_be_read(client: Client) -> None:
    unknown = await ask(client, METADATA, headers={CAPABILITIES_HEADER: "responseformat=avro"})
    assert "parquet, delta" in await expect(unknown, INVALID)
    fields = [(CAPABILITIES_HEADER, f"readerfeatures={'a,' * 4000}")] * 2
    many = await client.get(f"{TABLE}/whole/{METADATA}", headers=[*bearer().items(), *fields])
    assert "8190" in await expect(many, INVALID)


@pytest.mark.parametrize("route", [QUERY, METADATA, f"{CHANGES}?startingVersion=0"])
@pytest.mark.parametrize(
    ("capabilities", "words"),
    [
        ({}, "responseformat=delta;readerfeatures=deletionvectors"),
        ({CAPABILITIES_HEADER: "responseformat=parquet"}, "responseformat=delta"),
        ({CAPABILITIES_HEADER: "responseformat=delta"}, "deletionVectors"),
    ],
)
async def test_a_format_or_feature_that_was_not_announced(
    client: Client, route: str, capabilities: dict[str, str], words: str
) -> None:
    refused = await ask(client, route, "vector", headers=capabilities)
    assert words in await expect(refused, UNSUPPORTED)


@pytest.mark.parametrize("route", [QUERY, METADATA, VERSION, f"{CHANGES}?startingVersion=0"])
async def test_a_feature_that_the_server_does_not_know(client: Client, route: str) -> None:
    assert "fancyFeature" in await expect(await ask(client, route, "fancy", headers=DELTA), UNSUPPORTED)


@pytest.mark.parametrize(
    "hints",
    [
        {"predicateHints": ["SELECT 1", "x ="]},
        {"predicateHints": ["unknown_column = 1"]},
        {"jsonPredicateHints": "not json"},
        {"jsonPredicateHints": '{"op":"unheardOf"}'},
        {"jsonPredicateHints": '{"op":"not","children":[' * 5000},
    ],
)
async def test_a_hint_never_fails_a_request(client: Client, hints: dict[str, Any]) -> None:
    answered = await ask(client, QUERY, body=hints)
    assert answered.status == 200
    assert (await answered.text()).count('"file"') == 4
    assert answered.headers["delta-sharing-hint-status"].startswith("ignored")


@pytest.mark.parametrize("table", ["corrupt", "no_schema"])
@pytest.mark.parametrize("route", [QUERY, METADATA])
async def test_a_corrupt_log_names_a_request_to_quote(client: Client, table: str, route: str) -> None:
    message = await expect(await ask(client, route, table), (500, "INTERNAL_ERROR"))
    assert "quote request id" in message


async def test_one_broken_table_leaves_the_others_alone(client: Client) -> None:
    for broken in ("corrupt", "absent", "fancy"):
        await ask(client, QUERY, broken)
    assert (await ask(client, QUERY)).status == 200


async def test_a_table_that_vanishes_while_it_is_served(tmp_path: Path) -> None:
    lay_out(tmp_path)
    client, _ = await serve(configuration(tmp_path, unused_port()))
    try:
        assert (await ask(client, QUERY)).status == 200
        shutil.rmtree(tmp_path / "whole")
        await expect(await ask(client, QUERY), MISSING)
    finally:
        await client.close()


OWN_TEXTS = {AccessRevoked, AddressDenied, InvalidClient, InvalidRule, MethodNotAllowed, NotShared}


@pytest.mark.parametrize(
    "error", [kind for kind in STATUS_OF if issubclass(kind, GatewayError) and kind not in OWN_TEXTS]
)
def test_every_gateway_error_has_an_answer(error: type[Exception]) -> None:
    said = error_answer(error("page") if error.__name__ == "InvalidToken" else error("text"), "id")
    assert (said.status, said.error_code) == STATUS_OF[error][:2]
    assert said.message == "text"


def test_every_native_error_is_in_the_table() -> None:
    native = {
        kind
        for kind in vars(_native).values()
        if isinstance(kind, type) and issubclass(kind, _native.LogError) and kind is not _native.LogError
    }
    assert native <= set(STATUS_OF)


def test_a_defect_is_named_by_its_request_id_alone(caplog: pytest.LogCaptureFixture) -> None:
    said = error_answer(ValueError(SECRET_PLACE), "the-id")
    assert (said.status, said.error_code) == (500, "INTERNAL_ERROR")
    assert SECRET_PLACE not in said.message
    assert "the-id" in said.message
    assert SECRET_PLACE in caplog.text
