"""Cross-origin requests: the origins that may read answers, and the answers to preflights."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from aiohttp import hdrs
from aiohttp.test_utils import TestClient
from multidict import CIMultiDict
from support.gateway_app import PREFIX, bearer, serve
from tables.small_tables import TABLE, configuration, lay_out

Client = TestClient[Any, Any]
PAGE, OTHER = "https://app.example", "https://evil.example"
ALLOW = "Access-Control-Allow-Origin"
QUERY = f"{TABLE}/whole/query"


@pytest.fixture(scope="module")
def text(tmp_path_factory: pytest.TempPathFactory) -> str:
    root = tmp_path_factory.mktemp("cors")
    lay_out(root)
    return configuration(root, 9)


@pytest.fixture
async def client(text: str) -> AsyncIterator[Client]:
    started, _ = await serve(f"{text}  cors: {{origins: [{PAGE}, 'http://localhost:3000']}}\n")
    yield started
    await started.close()


def varies(headers: Any) -> set[str]:
    return {word.strip().lower() for line in headers.getall("Vary", []) for word in line.split(",")}


PATHS = [
    ("GET", f"{PREFIX}/shares", bearer(), 200),
    ("GET", f"{PREFIX}/shares", {}, 401),
    ("GET", f"{PREFIX}/shares/none", bearer(), 404),
    ("GET", "/nothing", {}, 404),
    ("GET", QUERY, bearer(), 405),
    ("HEAD", f"{TABLE}/whole/metadata", bearer(), 200),
    ("GET", f"{TABLE}/whole/changes?startingVersion=0", bearer(), 200),
    ("POST", QUERY, bearer(), 200),
    ("GET", f"{PREFIX}/files/r/k", {}, 403),
    ("GET", "/healthz", {}, 200),
]


@pytest.mark.parametrize(("method", "path", "headers", "status"), PATHS)
async def test_pages_of_an_allowed_origin_may_read_every_answer(
    client: Client, method: str, path: str, headers: dict[str, str], status: int
) -> None:
    for origin in (PAGE, "http://localhost:3000", PAGE.upper()):
        answer = await client.request(method, path, headers=headers | {"Origin": origin})
        assert (answer.status, answer.headers[ALLOW]) == (status, origin)
        assert "origin" in varies(answer.headers)
        exposed = answer.headers["Access-Control-Expose-Headers"].lower().split(", ")
        assert {"delta-table-version", "delta-sharing-capabilities", "retry-after"} <= {*exposed}
        assert "Access-Control-Allow-Credentials" not in answer.headers
    for origin in ({"Origin": OTHER}, {"Origin": "null"}, {"Origin": f"{PAGE}.evil.example"}, {}):
        answer = await client.request(method, path, headers=headers | origin)
        assert answer.status == status
        assert ALLOW not in answer.headers
        # A cache may not give one origin what was made for another.
        assert "origin" in varies(answer.headers)


async def test_a_shared_answer_has_the_origin_of_each_request(client: Client) -> None:
    for origin in (PAGE, "http://localhost:3000", None, PAGE):
        headers = bearer() | ({"Origin": origin} if origin else {})
        answer = await client.post(QUERY, json={}, headers=headers)
        assert answer.headers.getall(ALLOW, []) == ([origin] if origin else [])
        assert varies(answer.headers) == {"origin", "accept-encoding"}


@pytest.mark.parametrize(
    ("path", "methods"),
    [
        (f"{PREFIX}/shares", "GET, HEAD"),
        (f"{PREFIX}/shares/whatever/schemas", "GET, HEAD"),
        (QUERY, "POST"),
        (f"{TABLE}/none/query", "POST"),
    ],
)
async def test_a_preflight_needs_no_token_and_reveals_no_share(
    client: Client, path: str, methods: str
) -> None:
    headers = {"Origin": PAGE, "Access-Control-Request-Method": "POST"}
    headers["Access-Control-Request-Headers"] = "authorization, content-type, delta-sharing-capabilities"
    answer = await client.options(path, headers=headers)
    assert (answer.status, await answer.read()) == (200, b"")
    assert answer.headers[ALLOW] == PAGE
    assert answer.headers["Access-Control-Allow-Methods"] == methods
    allowed = answer.headers["Access-Control-Allow-Headers"].lower().split(", ")
    assert {"authorization", "content-type", "delta-sharing-capabilities", "fileidhash"} <= {*allowed}
    assert int(answer.headers["Access-Control-Max-Age"]) > 0
    assert varies(answer.headers) == {
        "origin",
        "access-control-request-method",
        "access-control-request-headers",
    }


ASKED = "Traceparent, x-requested-with,X-Engine, bad name, é, x" + ", y" * 100


async def allowed_headers(client: Client) -> list[str]:
    headers = {
        "Origin": PAGE,
        "Access-Control-Request-Method": "POST",
        "Access-Control-Request-Headers": ASKED,
    }
    answer = await client.options(QUERY, headers=headers)
    assert answer.status == 200
    return answer.headers["Access-Control-Allow-Headers"].lower().split(", ")


async def test_a_page_may_send_what_headers_it_asks_for(client: Client) -> None:
    allowed = await allowed_headers(client)
    assert {"traceparent", "x-requested-with", "x-engine", "authorization", "fileidhash"} <= {*allowed}
    assert not {"bad name", "é"} & {*allowed}
    assert len(allowed) == len({*allowed}) < 64


async def test_a_key_restricts_the_headers_of_pages(text: str) -> None:
    client, _ = await serve(f"{text}  cors: {{origins: [{PAGE}], requestHeaders: [X-Engine]}}\n")
    allowed = await allowed_headers(client)
    await client.close()
    assert {"x-engine", "authorization"} <= {*allowed}
    assert not {"traceparent", "x-requested-with"} & {*allowed}


@pytest.mark.parametrize(
    ("path", "headers", "status"),
    [
        (f"{PREFIX}/shares", {"Origin": OTHER, "Access-Control-Request-Method": "GET"}, 405),
        (f"{PREFIX}/shares", {"Origin": PAGE}, 405),
        (f"{PREFIX}/shares", {}, 405),
        ("/nothing", {"Origin": PAGE, "Access-Control-Request-Method": "GET"}, 404),
    ],
)
async def test_other_requests_than_preflights_of_allowed_origins_are_unchanged(
    client: Client, path: str, headers: dict[str, str], status: int
) -> None:
    answer = await client.options(path, headers=headers)
    assert answer.status == status
    assert "Access-Control-Allow-Methods" not in answer.headers


async def test_every_origin_may_read_where_the_star_is_configured(text: str) -> None:
    client, _ = await serve(f"{text}  cors: {{origins: ['*']}}\n")
    try:
        # A browser caches a file that it loads without an origin, and gives it to a page that asks with one.
        for origin in ({"Origin": PAGE}, {"Origin": "null"}, {}):
            answer = await client.get(f"{PREFIX}/shares", headers=bearer() | origin)
            assert answer.headers[ALLOW] == "*"
            assert "Vary" not in answer.headers
    finally:
        await client.close()


@pytest.mark.parametrize(("method", "path", "headers", "status"), PATHS)
async def test_it_is_off_unless_configured(
    text: str, method: str, path: str, headers: dict[str, str], status: int
) -> None:
    client, _ = await serve(text)
    try:
        answer = await client.request(method, path, headers=headers | {"Origin": PAGE})
        assert answer.status == status
        assert not [name for name in answer.headers if name.lower().startswith("access-control")]
        preflight = {"Origin": PAGE, "Access-Control-Request-Method": "GET"}
        if status != 404:
            assert (await client.options(path, headers=preflight)).status == 405
    finally:
        await client.close()


async def test_a_long_stream_carries_the_headers_too(tmp_path: Path) -> None:
    from tables.large_logs import make_log  # noqa: PLC0415 - polars

    maker = make_log()
    maker.make_log(tmp_path / "large", maker.LogOptions(adds=20_000, commits=2))
    table = f"tables: [{{name: large, location: '{tmp_path}/large'}}]"
    client, _ = await serve(
        f"shares: [{{name: s, schemas: [{{name: d, {table}}}]}}]\n"
        f"gateway: {{anonymous: true, cors: {{origins: ['{PAGE}']}}}}\n"
    )
    try:
        answer = await client.post(f"{TABLE}/large/query", json={}, headers={"Origin": PAGE})
        assert answer.headers[hdrs.TRANSFER_ENCODING] == "chunked"
        assert answer.headers[ALLOW] == PAGE
        assert varies(answer.headers) == {"origin", "accept-encoding"}
        assert (await answer.read()).count(b"\n") > 20_000
        head = CIMultiDict({"Origin": PAGE})
        assert (await client.head(f"{TABLE}/large/metadata", headers=head)).headers[ALLOW] == PAGE
    finally:
        await client.close()
