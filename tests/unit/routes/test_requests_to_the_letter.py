"""Valid requests that clients rarely send: coded bodies, repeated parameters, unusual refreshes."""

import asyncio
import gzip
import hashlib
import json
import zlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from aiohttp.test_utils import TestClient
from multidict import CIMultiDict
from support.gateway_app import PREFIX, Clock, bearer, error_of, serve
from tables.small_tables import FIRST_MS, TABLE, configuration, lay_out, metadata

from gateway.limits.process_memory import resident_bytes

Client = TestClient[Any, Any]
CAPABILITIES = "delta-sharing-capabilities"
QUERY = f"{TABLE}/whole/query"


@pytest.fixture(scope="module")
def tables(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("letter")
    lay_out(root)
    # One more commit of `plain`, which changes the table's comment and adds a file.
    change = metadata("plain")
    change["metaData"]["description"] = "another description"
    for version in range(1, 4):
        file = root / "plain/_delta_log" / f"{version:020}.json"
        if version == 2:
            file.write_text(file.read_text() + json.dumps(change) + "\n")
    return root


@pytest.fixture
async def client(tables: Path) -> AsyncIterator[Client]:
    text = configuration(tables, 9).replace(
        f"'{tables / 'plain'}'", f"'{tables / 'plain'}', historyShared: true"
    )
    started, _ = await serve(text, clock=Clock(FIRST_MS + 86_400_000))
    yield started
    await started.close()


async def query(client: Client, body: Any = None, headers: Any = None, path: str = QUERY) -> list[Any]:
    """The lines of an answer."""
    sent = CIMultiDict(bearer())
    sent.extend(headers or {})
    data = body if isinstance(body, bytes) else json.dumps(body or {}).encode()
    answer = await client.post(path, data=data, headers=sent)
    content = await answer.read()
    assert answer.status == 200, content
    return [json.loads(line) for line in content.splitlines()]


def files(lines: list[Any]) -> list[Any]:
    return [line["file"] for line in lines if "file" in line]


def raw_deflate(data: bytes) -> bytes:
    """Without zlib's frame, as some clients misread the name."""
    compressor = zlib.compressobj(wbits=-15)
    return compressor.compress(data) + compressor.flush()


CODINGS = {"gzip": gzip.compress, "deflate": zlib.compress, "raw deflate": raw_deflate}


@pytest.mark.parametrize("coding", CODINGS)
@pytest.mark.parametrize("is_chunked", [False, True])
async def test_a_body_may_be_coded(client: Client, coding: str, is_chunked: bool) -> None:
    coded = CODINGS[coding](json.dumps({"version": 1, "unknown": "x" * 100}).encode())

    async def in_chunks() -> AsyncIterator[bytes]:
        for start in range(0, len(coded), 7):
            yield coded[start : start + 7]

    headers = bearer() | {"Content-Encoding": coding.removeprefix("raw ")}
    data = in_chunks() if is_chunked else coded
    answer = await client.post(QUERY, data=data, headers=headers)
    assert (answer.status, answer.headers["Delta-Table-Version"]) == (200, "1")


@pytest.mark.parametrize("coding", ["gzip", "deflate"])
async def test_a_small_body_that_unfolds_to_a_large_one_is_refused_without_being_held(
    client: Client, coding: str
) -> None:
    zeros = CODINGS[coding](bytes(200 << 20))
    assert len(zeros) < 1 << 20
    await query(client)
    before = resident_bytes()
    refused = await client.post(QUERY, data=zeros, headers=bearer() | {"Content-Encoding": coding})
    assert (refused.status, error_of(await refused.read())) == (413, "MALFORMED_REQUEST")
    assert resident_bytes() - before < 100 << 20


async def test_the_first_of_a_repeated_parameter_counts_and_unknown_ones_are_ignored(client: Client) -> None:
    async def version(parameters: str, route: str = "changes") -> str | None:
        answer = await client.get(f"{TABLE}/whole/{route}?{parameters}", headers=bearer())
        assert answer.status == 200, await answer.text()
        found: str | None = answer.headers.get("Delta-Table-Version")
        return found

    assert await version("startingVersion=1&startingVersion=2") == "1"
    assert await version("startingVersion=2&unheardOf=1&unheardOf=2&=&&x") == "2"
    assert await version("version=1&version=none", "metadata") == "1"
    assert await version("STARTINGTIMESTAMP=never", "version") == "3"
    listing = await client.get(f"{PREFIX}/shares?maxResults=0&maxResults=5&any=thing", headers=bearer())
    assert (await listing.json())["items"] == []


async def test_the_last_of_a_repeated_field_counts(client: Client) -> None:
    lines = await query(client, b'{"version": 3, "version": 0, "unknown": {"version": 1}}')
    assert len(files(lines)) == 1


@pytest.mark.parametrize(
    ("lines", "chosen"),
    [
        (["responseformat=delta", "readerfeatures=deletionvectors"], "responseformat=delta"),
        (["readerfeatures=deletionvectors", "responseformat=delta;x=y"], "responseformat=delta"),
        (
            ["responseformat=parquet,delta;readerfeatures=columnmapping", "readerfeatures=deletionvectors"],
            "responseformat=delta",
        ),
    ],
)
async def test_two_capabilities_headers_equal_one(client: Client, lines: list[str], chosen: str) -> None:
    for path in (f"{TABLE}/vector/metadata", f"{TABLE}/vector/query"):
        headers = CIMultiDict(bearer())
        for line in lines:
            headers.add(CAPABILITIES, line)
        method = "GET" if path.endswith("metadata") else "POST"
        answer = await client.request(method, path, headers=headers)
        assert (answer.status, answer.headers[CAPABILITIES]) == (200, chosen), await answer.read()


@pytest.mark.parametrize("expectation", ["200-ok", "continue", "100-continue, other", "x" * 500])
async def test_an_expectation_other_than_100_is_ignored(client: Client, expectation: str) -> None:
    body = b'{"version": 1}'
    token = bearer()["Authorization"]
    head = f"POST {QUERY} HTTP/1.1\r\nHost: x\r\nConnection: close\r\nAuthorization: {token}\r\n"
    reader, writer = await asyncio.open_connection("127.0.0.1", client.port)
    writer.write(f"{head}Expect: {expectation}\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body)
    answer = await reader.read()
    writer.close()
    await writer.wait_closed()
    assert answer.startswith(b"HTTP/1.1 200 OK\r\n"), answer[:200]
    assert b"Delta-Table-Version: 1\r\n" in answer


@pytest.mark.parametrize("accepted", [None, "identity", "gzip", "zstd", "gzip;q=0", "*"])
async def test_answers_vary_by_accept_encoding(tables: Path, accepted: str | None) -> None:
    text = configuration(tables, 9) + "  compression: {minimumFiles: 0}\n"
    client, _ = await serve(text, clock=Clock(FIRST_MS + 86_400_000))
    try:
        headers = bearer() | ({"Accept-Encoding": accepted} if accepted else {"Accept-Encoding": ""})
        async with aiohttp.ClientSession(auto_decompress=False, headers=headers) as session:
            for method, path in (("POST", QUERY), ("GET", f"{TABLE}/whole/changes?startingVersion=0")):
                body = {} if method == "POST" else None
                async with session.request(method, client.make_url(path), json=body) as answer:
                    assert (answer.status, answer.headers.getall("Vary")) == (200, ["Accept-Encoding"])
                    assert ("Content-Encoding" in answer.headers) is (accepted in ("gzip", "zstd", "*"))
                    assert await answer.read()
    finally:
        await client.close()


@pytest.mark.parametrize(
    "body", [{"limitHint": 0}, {"limitHint": 0, "maxFiles": 3}, {"limitHint": 0, "version": 3}]
)
async def test_a_limit_of_zero_is_none(client: Client, body: dict[str, Any]) -> None:
    lines = await query(client, body)
    expected = 3 if "maxFiles" in body else 4
    assert len(files(lines)) == expected


async def test_historical_metadata_is_on_the_page_of_its_version(client: Client) -> None:
    path = f"{TABLE}/plain/changes?startingVersion=0&includeHistoricalMetadata=true"

    async def page(more: str = "") -> list[Any]:
        answer = await client.get(path + more, headers=bearer())
        content = await answer.read()
        assert answer.status == 200, content
        assert answer.headers["Delta-Table-Version"] == "0"
        return [json.loads(line) for line in content.splitlines()]

    whole = await page()
    assert sum("metaData" in line for line in whole) == 2
    pages = [await page("&maxFiles=1")]
    while token := pages[-1][-1]["endStreamAction"].get("nextPageToken"):
        pages.append(await page(f"&maxFiles=1&pageToken={token}"))
    assert len(pages) == 4
    # The head is the same on every page, and what follows makes up the whole answer.
    assert all(one[:2] == whole[:2] for one in pages)
    bodies = [line for one in pages for line in one[2:-1]]

    def shown(line: Any) -> Any:
        return (
            ["metaData", line["metaData"].get("version")]
            if "metaData" in line
            else next(iter(line.values()))["id"]
        )

    assert [shown(line) for line in bodies] == [shown(line) for line in whole[2:]]


@pytest.mark.parametrize(
    ("body", "headers"),
    [
        ({}, {}),
        ({"predicateHints": [], "limitHint": 2}, {}),
        ({}, {CAPABILITIES: "responseformat=delta"}),
        ({}, {"fileidhash": "delta"}),
        ({"jsonPredicateHints": "{}"}, {CAPABILITIES: "responseformat=delta", "fileidhash": "parquet"}),
    ],
    ids=["the same words", "hints", "another format", "another scheme of ids", "all of it"],
)
async def test_a_refresh_takes_its_version_from_the_token_and_its_words_from_the_request(
    client: Client, body: dict[str, Any], headers: dict[str, str]
) -> None:
    first_answer = await query(client, {"limitHint": 2, "includeRefreshToken": True})
    token = first_answer[-1]["endStreamAction"]["refreshToken"]
    lines = await query(client, {"refreshToken": token} | body, headers)
    is_delta = "delta" in headers.get(CAPABILITIES, "")
    scheme = headers.get("fileidhash", "delta" if is_delta else "parquet")
    hashed = hashlib.sha256 if scheme == "delta" else hashlib.md5
    expected = {hashed(f"{number}.parquet".encode()).hexdigest() for number in range(4)}
    ids = {file["id"] for file in files(lines)}
    assert ids <= expected
    assert len(ids) == (2 if "limitHint" in body else 4)
    assert ("deltaSingleAction" in files(lines)[0]) is is_delta
    assert lines[-1]["endStreamAction"]["refreshToken"]
