"""Listings through a real socket: grants, pages, names, and errors in the protocol's shape."""

import asyncio
import json
import threading
import time
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from typing import Any

import pytest
from aiohttp.test_utils import TestClient
from support.gateway_app import PREFIX, TOKENS, Clock, bearer, error_of, recipients, serve
from support.waiting import until
from yarl import URL

from gateway.catalog import catalog
from gateway.catalog.catalog import Catalog, Recipient

SHARES = """
shares:
- name: Sales
  id: sales-id
  schemas:
  - name: public
    tables:
    - {name: orders, location: /o, id: orders-id}
    - {name: big orders, location: /b}
  - name: private
    tables: [{name: ORDERS, location: /p}]
- name: other
- name: third
  displayName: The third share
  comment: |-
    For clients that
    show texts.
  properties: {owner: Ann, "cost centre": "007"}
"""
Client = TestClient[Any, Any]
POWER_QUERY = {"User-Agent": "Microsoft.Data.Mashup (https://go.microsoft.com/fwlink/?LinkID=304225)"}


@pytest.fixture
def clock() -> Clock:
    return Clock(1_700_000_000_000)


@pytest.fixture
async def client(clock: Clock) -> AsyncIterator[Client]:
    started, _ = await serve(SHARES + recipients(alice="sales, THIRD", bob="'*'", nobody=""), clock=clock)
    yield started
    await started.close()


async def get(client: Client, path: str, name: str = "alice") -> Any:
    response = await client.get(PREFIX + path, headers=bearer(name))
    assert response.status == 200, await response.text()
    assert response.headers["Content-Type"] == "application/json; charset=utf-8"
    return await response.json()


async def test_shares_are_those_that_were_granted(client: Client) -> None:
    assert [share["name"] for share in (await get(client, "/shares"))["items"]] == ["Sales", "third"]
    assert [share["name"] for share in (await get(client, "/shares", "bob"))["items"]] == [
        "Sales",
        "other",
        "third",
    ]
    assert await get(client, "/shares", "nobody") == {"items": []}


async def test_the_answers_hold_the_protocols_fields(client: Client) -> None:
    assert await get(client, "/shares/SALES") == {"share": {"name": "Sales", "id": "sales-id"}}
    assert await get(client, "/shares/sales/schemas") == {
        "items": [{"name": "public", "share": "Sales"}, {"name": "private", "share": "Sales"}]
    }
    tables = await get(client, "/shares/sales/schemas/PUBLIC/tables")
    assert tables["items"][0] == {
        "name": "orders",
        "schema": "public",
        "share": "Sales",
        "shareId": "sales-id",
        "id": "orders-id",
    }
    table = await get(client, "/shares/sales/schemas/PUBLIC/tables/ORDERS")
    assert table == {**tables["items"][0], "format": "delta"}
    every = await get(client, "/shares/sales/all-tables")
    assert [table["name"] for table in every["items"]] == ["orders", "big orders", "ORDERS"]


async def test_a_share_has_the_texts_of_the_configuration(client: Client) -> None:
    third = (await get(client, "/shares/third"))["share"]
    del third["id"]
    assert third == {
        "name": "third",
        "displayName": "The third share",
        "comment": "For clients that\nshow texts.",
        "properties": {"owner": "Ann", "cost centre": "007"},
    }
    listed = (await get(client, "/shares"))["items"]
    assert listed[1]["displayName"] == "The third share"
    assert set(listed[0]) == {"name", "id"}


async def test_an_alias_leads_to_the_same_routes_and_tokens() -> None:
    gateway = recipients(alice="sales, third").replace(
        "gateway:\n", "gateway:\n  endpointAliases: [/api/2.1/opensharing, /delta-sharing/]\n"
    )
    client, _ = await serve(SHARES + gateway)
    try:
        first = await get(client, "/shares?maxResults=1")
        for prefix in ("/api/2.1/opensharing", "/api/2.1/opensharing/", PREFIX):
            second = await client.get(f"{prefix}/shares?pageToken={first['nextPageToken']}", headers=bearer())
            assert [share["name"] for share in (await second.json())["items"]] == ["third"]
            refused = await client.get(f"{prefix}/shares/other", headers=bearer())
            assert (refused.status, (await client.get(f"{prefix}/shares")).status) == (404, 401)
        for path in ("/api/2.1/shares", "/api/2.1/opensharing/files/r/k", "/api/2.1/opensharing/healthz"):
            assert (await client.get(path, headers=bearer())).status == 404
    finally:
        await client.close()


@pytest.mark.parametrize(
    ("path", "expected"),
    [("/shares", 2), ("/shares/sales/schemas", 2), ("/shares/sales/all-tables", 3)],
)
@pytest.mark.parametrize("size", [1, 2, 5])
async def test_pages_make_up_the_listing(client: Client, path: str, expected: int, size: int) -> None:
    whole = (await get(client, path))["items"]
    assert len(whole) == expected
    page = await get(client, f"{path}?maxResults={size}")
    seen = page["items"]
    while "nextPageToken" in page:
        page = await get(client, f"{path}?maxResults={size}&pageToken={page['nextPageToken']}")
        assert 0 < len(page["items"]) <= size
        seen += page["items"]
    assert seen == whole


async def test_a_client_that_reads_one_page_sees_a_large_schema() -> None:
    tables = "".join(f"    - {{name: t{number}, location: /t{number}}}\n" for number in range(1200))
    schemas = f"shares:\n- name: large\n  schemas:\n  - name: all\n    tables:\n{tables}"
    client, _ = await serve(schemas + recipients(alice="large"))
    try:
        for asked in ("", "?maxResults=100000"):
            page = await get(client, f"/shares/large/schemas/all/tables{asked}")
            assert [table["name"] for table in page["items"]] == [f"t{number}" for number in range(1200)]
            assert "nextPageToken" not in page
    finally:
        await client.close()


@pytest.mark.parametrize(
    ("path", "name"),
    [("/shares", "nobody"), ("/shares/third/schemas", "bob"), ("/shares/third/all-tables", "bob")],
)
async def test_power_query_gets_no_items_where_nothing_is_listed(
    client: Client, path: str, name: str
) -> None:
    for agent in (POWER_QUERY, {"User-Agent": "Delta-Sharing-PowerBI/1.0.4"}):
        response = await client.get(PREFIX + path, headers=bearer(name) | agent)
        assert (response.status, await response.json()) == (200, {})
    assert await get(client, path, name) == {"items": []}


async def test_power_query_gets_the_same_fields_of_each_item() -> None:
    shares = """
shares:
- name: first
  comment: described
  properties: {owner: Ann}
  schemas:
  - name: public
    tables:
    - {name: orders, location: "s3://b/o", accessModes: [url, dir], historyShared: true}
    - {name: lines, location: "s3://b/l"}
- name: second
"""
    role = "arn:aws:iam::123456789012:role/tables"
    storage = (
        f"{{prefix: 's3://b/', region: r, accessKeyId: a, secretAccessKey: s, directoryRoleArn: '{role}'}}"
    )
    gateway = recipients(alice="'*'").replace("gateway:\n", f"gateway:\n  storages: [{storage}]\n")
    client, _ = await serve(shares + gateway)
    try:
        for path in ("/shares", "/shares/first/schemas/public/tables", "/shares/first/all-tables"):
            ordinary = (await get(client, path))["items"]
            response = await client.get(PREFIX + path, headers=bearer() | POWER_QUERY)
            items = (await response.json())["items"]
            assert ordinary[0].keys() > ordinary[1].keys() == items[0].keys() == items[1].keys()
            assert [item["name"] for item in items] == [item["name"] for item in ordinary]
    finally:
        await client.close()


async def test_zero_results_are_a_valid_page_size(client: Client) -> None:
    page = await get(client, "/shares?maxResults=0")
    assert page["items"] == []
    assert (await get(client, f"/shares?pageToken={page['nextPageToken']}"))["items"][0]["name"] == "Sales"
    assert await get(client, "/shares/third/schemas?maxResults=0") == {"items": []}


async def test_a_page_token_is_of_one_recipient_one_listing_and_its_time(
    client: Client, clock: Clock
) -> None:
    token = (await get(client, "/shares?maxResults=1"))["nextPageToken"]
    # It holds no name, so only the listing can be wrong.
    of_begin = (await get(client, "/shares?maxResults=0"))["nextPageToken"]
    for path, name, other in (
        ("/shares", "bob", token),
        ("/shares/sales/schemas", "alice", token),
        ("/shares/sales/schemas", "alice", of_begin),
    ):
        refused = await client.get(f"{PREFIX}{path}?pageToken={other}", headers=bearer(name))
        assert (refused.status, error_of(await refused.read())) == (400, "INVALID_PARAMETER_VALUE")
    clock.now_ms += 259_200_000
    refused = await client.get(f"{PREFIX}/shares?pageToken={token}", headers=bearer())
    assert (refused.status, error_of(await refused.read())) == (400, "INVALID_PARAMETER_VALUE")


@pytest.mark.parametrize("path", ["/shares/third", "/shares/sales", "/shares/absent"])
async def test_absent_and_not_granted_are_one_answer(client: Client, path: str) -> None:
    refused = await client.get(PREFIX + path, headers=bearer("nobody"))
    absent = await client.get(f"{PREFIX}/shares/absent", headers=bearer("alice"))
    assert refused.status == absent.status == 404
    assert await refused.read() == await absent.read()


@pytest.mark.parametrize(
    ("authorization", "token_sent"),
    [
        (None, False),
        ("", False),
        ("Bearer", False),
        ("Bearer ", False),
        ("Bearer wrong", True),
        ("Basic dG9rZW4=", False),
        ("Bearer token-of-alice extra", True),
        ("token-of-alice", False),
    ],
)
async def test_all_invalid_tokens_get_the_same_answer(
    client: Client, authorization: str | None, token_sent: bool
) -> None:
    headers = {} if authorization is None else {"Authorization": authorization}
    refused = await client.get(f"{PREFIX}/shares", headers=headers)
    assert (refused.status, error_of(await refused.read())) == (401, "UNAUTHENTICATED")
    assert refused.headers["WWW-Authenticate"] == 'Bearer realm="delta-sharing"' + (
        ', error="invalid_token"' if token_sent else ""
    )
    assert refused.headers["Content-Type"] == "application/json; charset=utf-8"
    advice = "ask the provider for a new profile" if token_sent else "Authorization: Bearer <token>"
    assert advice in (await refused.json())["message"]


@pytest.mark.parametrize("scheme", ["Bearer", "bearer", "BEARER"])
async def test_the_scheme_has_no_case(client: Client, scheme: str) -> None:
    answer = await client.get(f"{PREFIX}/shares", headers={"Authorization": f"{scheme} token-of-alice"})
    assert answer.status == 200


ANY_TEXT = ["abc:def", "a b  c", '{curly} "quoted", comma', "=", "p\u00e4ss", "\u2603", "x" * 4000]


@pytest.mark.parametrize("token", ANY_TEXT)
async def test_the_one_token_is_any_text_that_a_header_carries(token: str) -> None:
    client, _ = await serve(f"shares: [{{name: s}}]\nauthorization: {{bearerToken: {json.dumps(token)}}}\n")
    try:
        for encoding in ("utf-8", "latin-1"):
            with suppress(UnicodeEncodeError):
                status = await status_of(client, f"Bearer {token}".encode(encoding))
                assert status == 200, encoding
        assert await status_of(client, f"Bearer {token}x".encode()) == 401
    finally:
        await client.close()


async def status_of(client: Client, authorization: bytes) -> int:
    """Return the status of a listing whose request has exactly these bytes."""
    reader, writer = await asyncio.open_connection("127.0.0.1", client.port)
    writer.write(f"GET {PREFIX}/shares HTTP/1.1\r\nHost: x\r\nConnection: close\r\n".encode())
    writer.write(b"Authorization: " + authorization + b"\r\n\r\n")
    answer = await reader.read()
    writer.close()
    await writer.wait_closed()
    return int(answer.split()[1])


async def test_two_authorizations_are_none(client: Client) -> None:
    headers = [("Authorization", "Bearer token-of-alice"), ("Authorization", "Bearer token-of-bob")]
    refused = await client.get(f"{PREFIX}/shares", headers=headers)
    assert refused.status == 401
    assert refused.headers["WWW-Authenticate"] == 'Bearer realm="delta-sharing", error="invalid_token"'


async def test_anonymous_readers_see_every_share_but_wrong_tokens_see_none() -> None:
    client, _ = await serve(SHARES + "gateway: {anonymous: true}")
    try:
        assert len((await (await client.get(f"{PREFIX}/shares")).json())["items"]) == 3
        assert (await client.get(f"{PREFIX}/shares", headers=bearer())).status == 401
    finally:
        await client.close()


async def test_anonymous_readers_have_profiles_with_an_empty_token() -> None:
    """The official clients need the field `bearerToken`, and send the scheme before an empty one."""
    client, _ = await serve(SHARES + "gateway: {anonymous: true}")
    try:
        for authorization, status in (("Bearer ", 200), ("bearer", 200), ("Basic", 401), ("Bearer x", 401)):
            answer = await client.get(f"{PREFIX}/shares", headers={"Authorization": authorization})
            assert answer.status == status, authorization
    finally:
        await client.close()


async def test_alive_and_ready_need_no_token(client: Client) -> None:
    for path in ("/healthz", "/readyz"):
        assert (await client.get(path)).status == 200


@pytest.mark.parametrize(
    ("method", "path", "allow"),
    [
        ("POST", "/shares", "GET, HEAD"),
        ("OPTIONS", "/shares", "GET, HEAD"),
        ("GET", "/shares/sales/schemas/public/tables/orders/query", "POST"),
        ("HEAD", "/shares/sales/schemas/public/tables/orders/query", "POST"),
        ("POST", "/shares/sales/schemas/public/tables/orders", "GET, HEAD"),
    ],
)
async def test_a_wrong_method_gets_the_allowed_ones(
    client: Client, method: str, path: str, allow: str
) -> None:
    refused = await client.request(method, PREFIX + path, headers=bearer())
    assert (refused.status, refused.headers["Allow"]) == (405, allow)
    if method != "HEAD":
        assert error_of(await refused.read()) == "UNSUPPORTED_OPERATION"


LISTINGS = ["/shares", "/shares/sales", "/shares/sales/schemas", "/shares/sales/schemas/public/tables"]


@pytest.mark.parametrize("path", [*LISTINGS, "/shares/sales/all-tables", "/shares/absent"])
async def test_head_is_answered_as_get_without_the_body(client: Client, path: str) -> None:
    whole = await client.get(PREFIX + path, headers=bearer())
    head = await client.head(PREFIX + path, headers=bearer())
    length, content_type = "Content-Length", "Content-Type"
    assert (head.status, await head.read()) == (whole.status, b"")
    assert head.headers[length] == whole.headers[length] == str(len(await whole.read()))
    assert head.headers[content_type] == whole.headers[content_type]


@pytest.mark.parametrize("slashes", ["//", "///"])
@pytest.mark.parametrize("path", LISTINGS)
async def test_an_endpoint_may_end_in_a_slash(client: Client, path: str, slashes: str) -> None:
    assert await get(client, path.replace("/", slashes, 1)) == await get(client, path)


async def test_a_page_token_continues_a_listing_in_any_spelling(client: Client) -> None:
    first = await get(client, "/shares/SALES/schemas?maxResults=1")
    following = await get(client, f"//shares/sales/schemas?pageToken={first['nextPageToken']}")
    assert [schema["name"] for schema in following["items"]] == ["private"]


async def test_only_the_endpoint_may_end_in_a_slash(client: Client) -> None:
    for path in ("/shares//sales", "/shares/sales//schemas", "/shares/sales/schemas//public/tables"):
        assert (await client.get(PREFIX + path, headers=bearer())).status == 404


@pytest.mark.parametrize(
    "path", ["/", PREFIX, f"{PREFIX}/share", f"{PREFIX}/shares/a/b/c", f"{PREFIX}/shares/"]
)
async def test_an_unknown_path_is_not_found(client: Client, path: str) -> None:
    refused = await client.get(path, headers=bearer())
    assert (refused.status, error_of(await refused.read())) == (404, "RESOURCE_DOES_NOT_EXIST")
    assert "the endpoint of the profile" in (await refused.json())["message"]


@pytest.mark.parametrize("path", ["/shares", "/shares/sales/schemas", "/shares/sales/all-tables"])
async def test_a_file_of_the_reference_server_serves_the_same_with_and_without_our_section(path: str) -> None:
    theirs = SHARES + f"authorization: {{bearerToken: {TOKENS['bob']}}}\n"
    answers = []
    for text in (theirs, theirs + recipients(alice="sales")):
        client, _ = await serve(text)
        answers.append(await get(client, path, "bob"))
        await client.close()
    assert answers[0] == answers[1]
    assert answers[0]["items"]


@pytest.mark.parametrize(
    ("path", "name"),
    [
        ("odd%20name", None),
        ("odd+name", "odd+name"),
        ("odd%2Bname", "odd+name"),
        ("ODD+NAME", "odd+name"),
        ("a%20blank", "a blank"),
        ("a+blank", "a blank"),
        ("a%2Bblank", "a blank"),
        ("both%20of+them", "both of+them"),
        ("both+of%20them", None),
    ],
)
async def test_a_plus_in_a_name_may_be_a_blank_and_a_blank_is_only_a_blank(
    path: str, name: str | None
) -> None:
    names = "[{name: odd+name}, {name: a blank}, {name: both of+them}]"
    client, _ = await serve(f"shares: {names}\n" + recipients(alice="'*'"))
    try:
        answer = await client.get(URL(f"{PREFIX}/shares/{path}", encoded=True), headers=bearer())
        assert answer.status == (404 if name is None else 200)
        if name is not None:
            assert (await answer.json())["share"]["name"] == name
    finally:
        await client.close()


async def test_the_granted_part_of_a_share_is_made_on_a_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a share with 20,000 tables it takes a tenth of a second."""
    on_loop: dict[str, set[bool]] = {}

    def recorded(find: Callable[..., Any]) -> Callable[..., Any]:
        def called(catalog: Catalog, recipient: Recipient, *names: str) -> Any:
            on_loop.setdefault(recipient.name, set()).add(
                threading.current_thread() is threading.main_thread()
            )
            return find(catalog, recipient, *names)

        return called

    for name in ("share", "schema"):
        monkeypatch.setattr(Catalog, name, recorded(getattr(Catalog, name)))
    part = "{share: sales, schema: public, condition: region = 1}"
    client, _ = await serve(SHARES + recipients(alice=part, bob="sales"))
    for name in ("alice", "bob"):
        for path in ("", "/schemas", "/all-tables", "/all-volumes", "/schemas/public/tables"):
            await get(client, f"/shares/sales{path}", name)
        for path in ("/shares/sales/schemas/none/volumes", "/shares/none"):
            assert (await client.get(PREFIX + path, headers=bearer(name))).status == 404
    await client.close()
    assert on_loop == {"alice": {False}, "bob": {True}}


async def test_large_lists_are_made_one_at_a_time_and_recipients_have_their_turns(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Many at once would keep the event loop from running for seconds."""
    running, together, answered = [], [], []
    page = catalog.page

    def slow(names: list[str], **options: Any) -> Any:
        assert threading.current_thread() is not threading.main_thread()
        running.append(names)
        together.append(len(running))
        time.sleep(0.05)
        running.pop()
        return page(names, **options)

    async def listed(name: str) -> None:
        await get(client, "/shares/sales/all-tables", name)
        answered.append(name)

    monkeypatch.setattr("gateway.routes.discovery.FEW", 1)
    monkeypatch.setattr(catalog, "page", slow)
    client, _ = await serve(SHARES + recipients(alice="sales", bob="{share: sales, schema: public}"))
    many = [asyncio.ensure_future(listed("alice")) for _ in range(10)]
    await until(lambda: running)
    await asyncio.gather(*many, listed("bob"))
    await client.close()
    assert together == [1] * 11
    assert answered.index("bob") < 5
