"""The request pipeline: paths and their routes, answers in one write, bodies sent on 100 Continue only."""

import asyncio
import gzip
import itertools
import logging
import select
import time
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.parse import quote

import orjson
import pytest
from aiohttp import web
from aiohttp.test_utils import TestClient
from hypothesis import given
from hypothesis import strategies as st
from support.gateway_app import PREFIX, bearer, recipients, serve
from support.waiting import ESTABLISHED, server_end, until

from gateway.app import routes
from gateway.catalog.catalog import Catalog
from gateway.errors import MethodNotAllowed, NoSuchPath
from gateway.telemetry.audit import AuditLog
from gateway.web.context import RequestContext, Route
from gateway.web.response import WholeResponse
from gateway.web.router import Router

Client = TestClient[Any, Any]
ROUTER = Router(routes(PREFIX))
SHARES = f"{PREFIX}/shares"
MIB = 1 << 20
ZIPPED = gzip.compress(b" " * 20 * MIB, mtime=0)
SMALL = gzip.compress(b"{}", mtime=0)


@pytest.mark.parametrize(
    ("method", "path", "route", "names"),
    [
        ("GET", SHARES, "list_shares", {}),
        ("GET", f"{SHARES}/schemas", "get_share", {"share": "schemas"}),
        ("GET", f"{SHARES}/a%2Fb/schemas", "list_schemas", {"share": "a/b"}),
        ("GET", f"{SHARES}/a%252Fb/schemas", "list_schemas", {"share": "a%2Fb"}),
        ("GET", f"{SHARES}/a b/all-tables", "list_all_tables", {"share": "a b"}),
        ("HEAD", f"{SHARES}/s/schemas/d/tables/t", "version", {"share": "s", "schema": "d", "table": "t"}),
        ("GET", f"{PREFIX}/files/r/a/b.parquet", "file", {"root": "r", "key": "a/b.parquet"}),
        ("HEAD", f"{PREFIX}/files/r/a", "file", {"root": "r", "key": "a"}),
        ("HEAD", "/healthz", "alive", {}),
    ],
)
def test_a_path_leads_to_its_route(method: str, path: str, route: str, names: dict[str, str]) -> None:
    found = ROUTER.find(method, path)
    assert (found.route.name, dict(found.names)) == (route, names)


def test_a_long_path_is_not_kept() -> None:
    router = Router(routes(PREFIX))
    for path in (f"{SHARES}/s", f"{SHARES}/{'a' * 8000}"):
        assert router.find("GET", path).route.name == "get_share"
    assert router._found.cache_info().currsize == 1


@pytest.mark.parametrize(
    "path",
    [
        "",
        "/",
        "*",
        PREFIX,
        f"{SHARES}/",
        f"{SHARES}//schemas",
        f"{SHARES}/s/other",
        f"{SHARES}/s/schemas/d/tables/t/query/",
        f"{SHARES.upper()}",
        f"x{SHARES}",
        f"{PREFIX}/files",
        f"{PREFIX}/files/r",
        f"{PREFIX}/files/r/",
    ],
)
async def test_a_path_that_no_route_has(path: str) -> None:
    with pytest.raises(NoSuchPath):
        await ROUTER.find("GET", path).route.handler(None)  # type: ignore[arg-type]


async def test_the_error_of_an_unsupported_method_names_the_supported_ones() -> None:
    with pytest.raises(MethodNotAllowed) as refused:
        await ROUTER.find("PUT", "/healthz").route.handler(None)  # type: ignore[arg-type]
    assert refused.value.allow == "GET, HEAD"
    assert str(refused.value) == "method PUT is not allowed here; allowed: GET, HEAD"


@given(
    st.lists(st.text("a%2F/{}+\u00e9 .", max_size=4), max_size=9), st.sampled_from(["GET", "POST", "HEAD"])
)
def test_any_unknown_path_gets_the_same_answer(segments: list[str], method: str) -> None:
    path = "/".join([SHARES, *segments])
    found = ROUTER.find(method, path)
    assert found.route.is_public or found.route.path.count("/") == path.count("/")


@pytest.mark.parametrize("value", ["a\r\nSet-Cookie: b", "a\nb", "a\rb", "a\0"])
def test_a_header_that_would_be_two_is_refused(value: str) -> None:
    with pytest.raises(ValueError, match="line break"):
        WholeResponse(b"", {"X": value})


@pytest.fixture
async def client() -> AsyncIterator[Client]:
    started, _ = await serve(f"shares: [{{name: s}}]\n{recipients(alice='s')}")
    yield started
    await started.close()


async def raw(client: Client, *parts: bytes) -> bytes:
    """What is answered to each part in turn, up to what follows a blank line."""
    reader, writer = await asyncio.open_connection(client.host, client.port)
    received = b""
    try:
        async with asyncio.timeout(10):
            for part in parts:
                writer.write(part)
                received += await reader.readuntil(b"\r\n\r\n")
            await asyncio.sleep(0.05)
            return received + await reader.read(4096)
    finally:
        writer.close()
        await writer.wait_closed()


def head(*, token: str, extra: str = "", version: str = "1.1") -> bytes:
    path = f"{SHARES}/s/schemas/d/tables/t/query"
    return f"POST {path} HTTP/{version}\r\nHost: x\r\n{token}Connection: close\r\n{extra}\r\n".encode()


TOKEN = f"Authorization: {bearer()['Authorization']}\r\n"
EXPECT = "Expect: 100-continue\r\nContent-Length: 2\r\n"


async def test_a_body_is_requested_from_clients_that_expect_100_continue(client: Client) -> None:
    answered = await raw(client, head(token=TOKEN, extra=EXPECT), b"{}")
    assert answered.startswith(b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 404 Not Found\r\n")


async def test_http_1_0_gets_no_interim_answer(client: Client) -> None:
    reader, writer = await asyncio.open_connection(client.host, client.port)
    writer.write(head(token=TOKEN, extra=EXPECT, version="1.0"))
    await asyncio.sleep(0.1)
    writer.write(b"{}")
    async with asyncio.timeout(10):
        assert (await reader.read()).startswith(b"HTTP/1.0 404 ")
    writer.close()


async def test_a_transfer_coding_in_http_1_0_ends_the_connection(client: Client) -> None:
    sent = head(token=TOKEN, extra="Transfer-Encoding: chunked\r\n", version="1.0") + b"2\r\n{}\r\n0\r\n\r\n"
    kept = sent.replace(b"Connection: close", b"Connection: keep-alive")
    answered = await raw(client, kept + b"GET /healthz HTTP/1.0\r\n\r\n")
    assert answered.startswith(b"HTTP/1.0 400 ")
    assert answered.count(b"HTTP/1.0 ") == 2, "the message names the version, too"


@pytest.mark.parametrize(
    ("extra", "body", "status"),
    [
        ("Content-Encoding: gzip\r\nContent-Length: 4\r\n", b"none", b"400"),
        ("Content-Encoding: deflate\r\nTransfer-Encoding: chunked\r\n", b"4\r\nnone\r\n0\r\n\r\n", b"400"),
        (f"Content-Encoding: gzip\r\nContent-Length: {len(ZIPPED)}\r\n", ZIPPED, b"413"),
        (f"Content-Length: {MIB + 1}\r\n", b" " * (MIB + 1), b"413"),
        ("Content-Encoding: br\r\nContent-Length: 4\r\n", b"none", b"400"),
        ("Content-Encoding: gzip\r\nContent-Encoding: gzip\r\nContent-Length: 4\r\n", b"none", b"400"),
        (f"Content-Encoding: gzip\r\nContent-Length: {len(SMALL) - 1}\r\n", SMALL[:-1], b"400"),
        (f"Content-Encoding: gzip\r\nContent-Length: {len(SMALL) + 1}\r\n", SMALL + b"x", b"400"),
    ],
)
async def test_a_body_that_contradicts_its_headers_or_is_too_large_is_a_client_error(
    client: Client, extra: str, body: bytes, status: bytes
) -> None:
    answered = await raw(client, head(token=TOKEN, extra=extra) + body)
    assert answered.startswith(b"HTTP/1.1 " + status)
    said = orjson.loads(answered.split(b"\r\n\r\n")[1])
    assert said["errorCode"] == "MALFORMED_REQUEST"
    assert said["message"].startswith("a body is at most 1048576 bytes" if status == b"413" else "the body")


@pytest.mark.parametrize("wrong", [b"zz\r\n", b"2\r\n{}}\r\n", b"0\r\nno trailer\r\n\r\n"])
@pytest.mark.parametrize("token", [TOKEN, ""])
@pytest.mark.parametrize("cuts", [(0,), (0, 4), (7,)])
async def test_chunks_that_turn_out_to_be_wrong_are_refused_at_once_and_once(
    client: Client, caplog: pytest.LogCaptureFixture, wrong: bytes, token: str, cuts: tuple[int, ...]
) -> None:
    kept = head(token=token, extra="Transfer-Encoding: chunked\r\n").replace(b"Connection: close\r\n", b"")
    sent = kept + b"2\r\n{}\r\n" + wrong
    places = [0, *(len(kept) + cut for cut in cuts), len(sent)]
    reader, writer = await asyncio.open_connection(client.host, client.port)
    for start, end in itertools.pairwise(places):
        writer.write(sent[start:end])
        await asyncio.sleep(0.05)
    async with asyncio.timeout(10):
        answered = await reader.read()
    writer.close()
    assert answered.count(b"HTTP/1.") == 1, answered
    assert answered.startswith(b"HTTP/1.1 400" if token else b"HTTP/1.1 401")
    assert not [record for record in caplog.records if record.levelno >= logging.ERROR]


@pytest.mark.parametrize(
    ("request_head", "status"),
    [
        (b"GET /healthz HTTP/2.0\r\nHost: x\r\n\r\n", 505),
        (b"GET /healthz HTTP/0.9\r\nHost: x\r\n\r\n", 505),
        (b"GET /healthz\r\n\r\n", 505),
        (head(token=TOKEN, extra="Transfer-Encoding: gzip, chunked\r\n") + b"2\r\n{}\r\n0\r\n\r\n", 501),
        (head(token=TOKEN, extra="Transfer-Encoding: Chunked\r\n") + b"2\r\n{}\r\n0\r\n\r\n", 404),
    ],
)
async def test_other_versions_and_transfer_codings_are_refused_in_http_1_1(
    client: Client, request_head: bytes, status: int
) -> None:
    answered = await raw(client, request_head)
    assert answered.startswith(b"HTTP/1.1 %d " % status)
    if status > 500:
        assert b"\r\nConnection: close\r\n" in answered
        assert orjson.loads(answered.split(b"\r\n\r\n")[1])["errorCode"] == "UNSUPPORTED_OPERATION"


async def test_no_body_is_requested_without_a_valid_token(client: Client) -> None:
    answered = await raw(client, head(token="", extra=EXPECT))
    assert answered.startswith(b"HTTP/1.1 401 ")
    assert b"100 Continue" not in answered


async def test_a_body_without_a_valid_token_is_not_decoded(client: Client) -> None:
    zeros = gzip.compress(bytes(300 * MIB))
    length = f"Content-Length: {len(zeros)}\r\n"

    async def seconds(extra: str) -> float:
        started = time.process_time()
        answered = await raw(client, head(token="", extra=extra) + zeros)
        assert answered.startswith(b"HTTP/1.1 401 ")
        return time.process_time() - started

    skipped = await seconds(length)
    assert await seconds(f"Content-Encoding: gzip\r\n{length}") < 3 * skipped + 0.1


async def test_a_whole_answer_closes_or_keeps_the_connection_as_requested(
    client: Client,
) -> None:
    closed = await raw(client, head(token=TOKEN, extra="Content-Length: 2\r\n") + b"{}")
    assert b"\r\nConnection: close\r\n" in closed
    assert orjson.loads(closed.split(b"\r\n\r\n")[1])["errorCode"] == "RESOURCE_DOES_NOT_EXIST"
    old = b"GET /healthz HTTP/1.0\r\nConnection: keep-alive\r\n\r\n"
    twice = await raw(client, old, old.replace(b"keep-alive", b"close"))
    assert twice.count(b"HTTP/1.0 200 OK\r\n") == 2
    assert twice.count(b"Connection: keep-alive\r\n") == 1


async def test_head_has_the_length_and_no_body(client: Client) -> None:
    answered = await raw(client, b"HEAD /healthz HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
    assert b"\r\nContent-Length: 3\r\n" in answered
    assert answered.endswith(b"\r\n\r\n")


async def test_a_request_with_an_undecodable_header_is_answered_and_recorded(tmp_path: Path) -> None:
    audit = AuditLog(tmp_path / "audit.jsonl")
    client, _ = await serve(f"shares: [{{name: s}}]\n{recipients(alice='s')}", audit=audit)
    sent = f"GET {SHARES} HTTP/1.1\r\nHost: x\r\n{TOKEN}Connection: close\r\n".encode()
    answered = await raw(client, sent + b"User-Agent: spark \xff\xfe\r\n\r\n")
    await client.close()
    audit.close()
    assert answered.startswith(b"HTTP/1.1 200 OK\r\n")
    record = orjson.loads((tmp_path / "audit.jsonl").read_bytes())
    assert record["recipientName"] == "alice"
    assert record["userAgent"] == "spark \ufffd\ufffd"


async def test_a_name_of_any_length_is_recorded_up_to_the_bytes_of_a_name(tmp_path: Path) -> None:
    """Anybody can send long ones, which would fill the queue, and tear lines of several workers in a pipe."""
    audit = AuditLog(tmp_path / "audit.jsonl")
    client, _ = await serve(f"shares: [{{name: s}}]\n{recipients(alice='s')}", audit=audit)
    for name in ("s" * 255, "s" * 7000):
        assert (await client.get(f"{SHARES}/{name}")).status == 401
    await client.close()
    audit.close()
    lines = (tmp_path / "audit.jsonl").read_bytes().splitlines()
    assert [orjson.loads(line)["requestParams"] for line in lines] == [
        {"share": "s" * 255},
        {"share": "s" * 1020},
    ]


@pytest.mark.parametrize("text", ["s", "\x9b", "\x7f", '"', "\N{GRINNING FACE}"])
async def test_texts_of_a_stranger_fit_into_a_record_that_a_pipe_takes_whole(
    tmp_path: Path, text: str
) -> None:
    audit = AuditLog(tmp_path / "audit.jsonl")
    client, _ = await serve(f"shares: [{{name: s}}]\n{recipients(alice='s')}", audit=audit)
    name = quote(text * 220)
    path = f"{SHARES}/{name}/schemas/{name}/tables/{name}/metadata"
    sent = f"GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\nUser-Agent: ".encode()
    answered = await raw(client, sent + b'"' * 7000 + b"\r\n\r\n")
    await client.close()
    audit.close()
    assert answered.startswith(b"HTTP/1.1 401 ")
    line = (tmp_path / "audit.jsonl").read_bytes()
    assert len(line) <= select.PIPE_BUF
    record = orjson.loads(line)
    assert record["userAgent"] == '"' * 150
    assert set(record["requestParams"].values()) <= {text * 220, text * 170}


async def test_a_client_that_sends_requests_and_reads_nothing_is_disconnected() -> None:
    shares = "".join(f"- {{name: a_share_of_a_name_that_is_rather_long {n}}}\n" for n in range(500))
    limits = "  limits: {slowReaderSeconds: 1, minimumBytesPerSecond: 100000000}\n"
    granted = recipients(alice="'*'")
    client, _ = await serve(f"shares:\n{shares}{granted}{limits}")
    times = 500
    reader, writer = await asyncio.open_connection(client.host, client.port)
    writer.write(f"GET {SHARES} HTTP/1.1\r\nHost: x\r\n{TOKEN}\r\n".encode() * times)
    client_port = writer.get_extra_info("sockname")[1]
    await until(lambda: server_end(client.port, client_port) != ESTABLISHED)
    received = b""
    with suppress(ConnectionError, TimeoutError):
        async with asyncio.timeout(10):
            while received.count(b"HTTP/1.1 200") < times and (piece := await reader.read(1 << 20)):
                received += piece
    writer.close()
    await client.close()
    assert received.count(b"HTTP/1.1 200") < times


@pytest.mark.parametrize("asked", ["", "h2c", "websocket"])
@pytest.mark.parametrize("body", [b"", b"{}", b"\r\n\r\n"])
async def test_requests_sent_together_are_answered_wherever_their_bytes_are_cut(
    client: Client, body: bytes, asked: str
) -> None:
    upgrade = f"Connection: Upgrade\r\nUpgrade: {asked}\r\n" if asked else ""
    fields = f"Host: x\r\n{TOKEN}{upgrade}\r\n"
    length = f"Content-Length: {len(body)}\r\n" if body else ""
    request = f"GET {SHARES} HTTP/1.1\r\n{length}{fields}".encode() + body
    sent = request + request.replace(b"Host", b"Connection: close\r\nHost")

    async def statuses(cut: int) -> int:
        reader, writer = await asyncio.open_connection(client.host, client.port)
        for part in (sent[:cut], sent[cut:]):
            writer.write(part)
            await asyncio.sleep(0.05)
        async with asyncio.timeout(10):
            answers = await reader.read()
        writer.close()
        return answers.count(b"HTTP/1.1 200 OK")

    cuts = [*range(len(request) - len(body) - 5, len(request) + 6), len(sent)]
    assert await asyncio.gather(*map(statuses, cuts)) == [2] * len(cuts)


async def test_a_request_behind_an_upgrade_that_is_not_taken_is_answered(client: Client) -> None:
    asked = "Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABk\r\n"
    request = f"GET {SHARES} HTTP/1.1\r\nHost: x\r\n{TOKEN}{asked}\r\n".encode()
    assert (await raw(client, *[request] * 3)).count(b"HTTP/1.1 200 OK") == 3


async def half_an_answer(context: RequestContext) -> web.StreamResponse:
    response = web.StreamResponse()
    await response.prepare(context.request)
    await response.write(b"half of it\n")
    raise ValueError("a defect")


async def test_an_answer_that_fails_halfway_is_cut_and_not_followed_by_another(client: Client) -> None:
    pipeline = client.server.pipeline  # type: ignore[attr-defined]
    pipeline._router = Router([Route("GET", "/half", half_an_answer, is_public=True)])
    received = await raw(client, b"GET /half HTTP/1.1\r\nHost: x\r\n\r\n")
    assert received.startswith(b"HTTP/1.1 200 OK\r\n")
    assert received.endswith(b"\r\n\r\nb\r\nhalf of it\n\r\n")


class Panic(BaseException):
    """As the native code's, which is no Exception."""


async def test_a_panic_is_answered_as_an_internal_error_without_details(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def panic(*_: Any) -> Any:
        raise Panic("a secret of the native code")

    client, _ = await serve("shares: [{name: s}]\n" + recipients(alice="s"))
    try:
        monkeypatch.setattr(Catalog, "shares_of", panic)
        refused = await client.get(SHARES, headers=bearer())
        body = await refused.read()
        assert (refused.status, orjson.loads(body)["errorCode"]) == (500, "INTERNAL_ERROR")
        assert b"secret" not in body
        assert "a secret of the native code" in caplog.text
        page = client.server.pipeline.recorder._metrics.page()  # type: ignore[attr-defined]
        assert b"delta_gateway_native_panics_total 1.0" in page
        monkeypatch.undo()
        assert (await client.get(SHARES, headers=bearer())).status == 200
    finally:
        await client.close()
