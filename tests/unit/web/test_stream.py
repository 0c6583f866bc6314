"""Streamed answers: codings, faults after the first byte, disconnected clients, many at a time."""

import asyncio
import gzip
import shutil
from collections.abc import AsyncIterator
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime
from importlib import import_module
from pathlib import Path
from typing import Any

import orjson
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from aiohttp import ClientPayloadError
from aiohttp.test_utils import TestClient
from support.gateway_app import PREFIX, bearer, recipients, serve
from support.waiting import until
from tables.large_logs import make_log

from gateway.config import Compression, Config, GrantEntry, Location
from gateway.state import GatewayState
from gateway.telemetry.audit import AuditLog
from gateway.web.body_writer import BodyWriter
from gateway.web.content_coding import content_codings

Client = TestClient[Any, Any]
ADDS, ROWS_PER_GROUP = 30_000, 5_000
TABLE = f"{PREFIX}/shares/s/schemas/d/tables"
ENDING = {"delta-sharing-capabilities": "responseformat=parquet;includeendstreamaction=true"}


@pytest.fixture(scope="module")
def tables(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same log twice; in `broken`, the stats of the last row group are noise, which comes late."""
    maker = make_log(rows_per_group=ROWS_PER_GROUP)
    root = tmp_path_factory.mktemp("stream")
    maker.make_log(root / "whole", maker.LogOptions(adds=ADDS, commits=0))
    shutil.copytree(root / "whole", root / "broken")
    break_last_stats(next((root / "broken/_delta_log").glob("*.checkpoint.parquet")))
    # Nothing replaces the checkpoint.
    for commit in (root / "broken/_delta_log").glob("*.json"):
        commit.unlink()
    return root


def break_last_stats(checkpoint: Path) -> None:
    found = pq.ParquetFile(checkpoint).metadata
    # The last row group may hold no adds.
    for index in reversed(range(found.num_row_groups)):
        group = found.row_group(index)
        columns = {
            group.column(number).path_in_schema: group.column(number) for number in range(group.num_columns)
        }
        stats = columns["add.stats"]
        if stats.num_values > 1000:
            break
    start = min(offset for offset in (stats.dictionary_page_offset, stats.data_page_offset) if offset)
    content, part = bytearray(checkpoint.read_bytes()), stats.total_compressed_size // 4
    for at in range(start + part, start + 2 * part):
        content[at] ^= 0xFF
    checkpoint.write_bytes(content)


@pytest.fixture
async def client(tables: Path) -> AsyncIterator[Client]:
    entries = ", ".join(f"{{name: {name}, location: '{tables / name}'}}" for name in ("whole", "broken"))
    started, _ = await serve(
        f"shares: [{{name: s, schemas: [{{name: d, tables: [{entries}]}}]}}]\n"
        f"queryTablePageSizeLimit: {ADDS}\ngateway: {{anonymous: true}}\n"
    )
    yield started
    await started.close()


async def test_a_long_answer_is_whole_and_chunked(client: Client) -> None:
    response = await client.post(f"{TABLE}/whole/query", headers={"Accept-Encoding": "identity"})
    body = await response.read()
    assert response.headers["Transfer-Encoding"] == "chunked"
    assert body.count(b"\n") == ADDS + 2
    assert len({orjson.loads(line)["file"]["id"] for line in body.splitlines()[2:]}) == ADDS


@pytest.mark.parametrize("coding", ["gzip", "zstd"])
async def test_a_coded_answer_is_the_same(client: Client, coding: str) -> None:
    async with client.session.post(
        client.make_url(f"{TABLE}/whole/query"),
        headers={"Accept-Encoding": coding} | ENDING,
        auto_decompress=False,
    ) as response:
        body = await response.read()
        assert response.headers["Content-Encoding"] == coding
    plain = gzip.decompress(body) if coding == "gzip" else unzstd(body)
    assert len(body) * 3 < len(plain)
    assert plain.count(b"\n") == ADDS + 3
    assert b"minUrlExpirationTimestamp" in plain.splitlines()[-1]


def unzstd(body: bytes) -> bytes:
    return pa.input_stream(pa.BufferReader(body), compression="zstd").read()


@pytest.mark.parametrize("coding", ["identity", "gzip", "zstd"])
async def test_a_late_fault_is_the_last_line_on_request(client: Client, coding: str) -> None:
    async with client.session.post(
        client.make_url(f"{TABLE}/broken/query"),
        headers={"Accept-Encoding": coding} | ENDING,
        auto_decompress=False,
    ) as response:
        assert response.status == 200
        body = await response.read()
    plain = {"identity": bytes, "gzip": gzip.decompress, "zstd": unzstd}[coding](body)
    lines = plain.splitlines()
    end = orjson.loads(lines[-1])["endStreamAction"]
    assert set(end) == {"errorMessage", "httpStatusErrorCode"}
    assert end["httpStatusErrorCode"] == 500
    assert "quote request id" in end["errorMessage"]
    assert ADDS // 2 < len(lines) < ADDS
    assert all(orjson.loads(line) for line in lines)


@pytest.mark.parametrize("body", [{}, {"includeRefreshToken": True}, {"maxFiles": ADDS}])
async def test_a_late_fault_closes_the_connection_of_clients_that_read_no_error_in_the_last_line(
    client: Client, body: dict[str, Any]
) -> None:
    url, plain = f"{TABLE}/broken/query", {"Accept-Encoding": "identity"}
    response = await client.post(url, json=body, headers=plain)
    assert response.status == 200
    with pytest.raises(ClientPayloadError):
        await response.read()


@pytest.mark.parametrize("kept", ["", "Connection: keep-alive\r\n"])
@pytest.mark.parametrize("name", ["broken", "whole"])
async def test_a_cut_answer_of_http_1_0_is_detectable(client: Client, name: str, kept: str) -> None:
    reader, writer = await asyncio.open_connection(client.host, client.port)
    writer.write(f"POST {TABLE}/{name}/query HTTP/1.0\r\n{kept}Content-Length: 0\r\n\r\n".encode())
    try:
        async with asyncio.timeout(30):
            head, _, body = (await reader.read()).partition(b"\r\n\r\n")
        assert b"keep-alive" not in head
        assert (name, body.count(b"\n")) == ("whole", ADDS + 2)
    except ConnectionResetError:
        assert name == "broken"
    finally:
        writer.close()
        with suppress(ConnectionError):
            await writer.wait_closed()


async def test_a_fault_before_the_first_byte_has_its_status(client: Client) -> None:
    response = await client.post(f"{TABLE}/absent/query")
    assert response.status == 404


async def test_a_client_that_leaves_stops_its_stream(
    client: Client, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "gateway.access")
    response = await client.post(f"{TABLE}/whole/query", headers={"Accept-Encoding": "identity"})
    await response.content.readany()
    response.close()
    await until(lambda: any("/query" in record.message for record in caplog.records))
    lines = [line for record in caplog.records for line in record.message.splitlines()]
    line = orjson.loads(next(line for line in lines if "/query" in line))
    assert line.get("returned", 0) < ADDS
    assert line.get("returned", 0) <= line["considered"] <= ADDS
    assert line["bytes"] > 0
    assert (await client.get("/healthz")).status == 200


async def test_urls_that_were_sent_before_a_client_left_are_in_the_audit_log(
    tables: Path, tmp_path: Path
) -> None:
    audit = AuditLog(tmp_path / "audit.jsonl")
    table = f"{{name: whole, location: '{tables / 'whole'}'}}"
    client, _ = await serve(
        f"shares: [{{name: s, schemas: [{{name: d, tables: [{table}]}}]}}]\ngateway: {{anonymous: true}}\n",
        audit=audit,
    )
    response = await client.post(f"{TABLE}/whole/query", headers={"Accept-Encoding": "identity"})
    await response.content.readany()
    response.close()
    await until(lambda: audit.counts.written)
    await client.close()
    audit.close()
    record = orjson.loads((tmp_path / "audit.jsonl").read_bytes())
    assert record["actionName"] == "deltaSharingQueriedTable"
    result = record["response"]["result"]
    assert not result["complete"]
    assert 0 < result["returned"] < ADDS
    assert result["returned"] <= result["considered"] <= ADDS


async def test_others_are_answered_while_long_answers_run(client: Client) -> None:
    async def listing() -> int:
        response = await client.post(f"{TABLE}/whole/query", headers={"Accept-Encoding": "identity"})
        return (await response.read()).count(b"\n")

    running = [asyncio.create_task(listing()) for _ in range(4)]
    while not all(task.done() for task in running):
        assert (await client.get(f"{PREFIX}/shares")).status == 200
    assert {task.result() for task in running} == {ADDS + 2}


@pytest.mark.parametrize(
    ("accepted", "files", "coding"),
    [
        ("", 1000, "identity"),
        ("gzip, deflate", 1000, "gzip"),
        ("gzip, deflate", 63, "identity"),
        ("gzip, zstd", 1000, "gzip"),
        ("zstd, gzip;q=0.9", 1000, "zstd"),
        ("gzip;q=0.5, zstd;q=0", 1000, "gzip"),
        ("*", 1000, "gzip"),
        ("*;q=0, gzip", 1000, "gzip"),
        ("br, identity", 1000, "identity"),
        ("gzip;q=nonsense", 1000, "identity"),
        # Weights decide, whatever we prefer.
        ("gzip;q=1.0, zstd;q=0.9", 1000, "gzip"),
        ("gzip;q=0.5, zstd;q=0.50", 1000, "gzip"),
        ("gzip;q=0.5, identity", 1000, "identity"),
        ("gzip;q=0.5, identity;q=0.4", 1000, "gzip"),
        ("gzip;q=0.001", 1000, "gzip"),
        # `*` brings nothing before what was named.
        ("gzip;q=1.0, *;q=0.5", 1000, "gzip"),
        ("gzip;q=0.1, *;q=1", 1000, "gzip"),
        ("gzip;q=0, *", 1000, "zstd"),
        ("zstd;q=0, *", 1000, "gzip"),
        ("identity;q=0.1, *", 1000, "identity"),
        ("*;q=0", 1000, "identity"),
        # What is not coded can be excluded, also for small answers.
        ("identity;q=0, gzip", 1, "gzip"),
        ("gzip, *;q=0", 1, "gzip"),
        ("identity;q=0, *;q=0.5", 1, "gzip"),
        ("*;q=0, identity", 1000, "identity"),
        ("identity;q=0", 1, "identity"),
        ("gzip, identity;q=0", 63, "gzip"),
        # Spellings.
        ("GZIP;Q=1, Zstd;q=0.0", 1000, "gzip"),
        ("x-gzip", 1000, "gzip"),
        (" gzip ; q=1 ,, ;q=1", 1000, "gzip"),
        ("gzip;level=1;q=0, zstd", 1000, "zstd"),
        ("zstd;q=nan, gzip;q=0.1", 1000, "gzip"),
        ("zstd;q=inf, gzip;q=0.1", 1000, "gzip"),
        ("zstd;q=2, gzip;q=0.1", 1000, "gzip"),
        ("zstd;q=-1, gzip;q=0.1", 1000, "gzip"),
    ],
)
def test_a_coding_is_chosen_when_it_is_accepted_and_pays(accepted: str, files: int, coding: str) -> None:
    compression = Compression()
    small, large = content_codings(accepted, "10.0.0.1", compression)
    assert (small if files < compression.minimum_files else large) == coding


def test_loopback_clients_may_be_spared_the_coding() -> None:
    spared = Compression(skip_loopback=True)
    for remote in ("127.0.0.1", "::1", "127.8.8.8"):
        assert content_codings("gzip", remote, spared) == ("identity", "identity")
        assert content_codings("gzip", remote, Compression()) == ("identity", "gzip")
    assert content_codings("gzip", "10.0.0.1", spared) == ("identity", "gzip")


def test_codings_longer_than_a_header_field_count_as_none() -> None:
    assert content_codings("gzip," * 2000, "10.0.0.1", Compression()) == ("identity", "identity")


@pytest.fixture
async def granted(tables: Path) -> AsyncIterator[Client]:
    """The table in two shares, of which each recipient was granted one."""
    entry = f"{{name: whole, location: '{tables / 'whole'}', id: the-id, historyShared: true}}"
    shares = ", ".join(f"{{name: {name}, schemas: [{{name: d, tables: [{entry}]}}]}}" for name in "st")
    started, _ = await serve(f"shares: [{shares}]\n{recipients(alice='s', bob='t')}")
    yield started
    await started.close()


EVERYTHING = (GrantEntry("*"),)
NARROWED: dict[str, Any] = {
    "history": {"history_shared": False},
    "first version": {"start_version": 1},
    "location": {"location": Location.parse("s3://another/table"), "id": "another-id"},
}


def changed(config: Config, change: str) -> Config:
    """A configuration in which alice may read no more, or all that has nothing to do with her is another."""
    alice, bob = config.gateway.recipients
    if change == "token":
        alice = replace(alice, tokens=())
    elif change == "expiry":
        alice = replace(alice, tokens=(replace(alice.tokens[0], expires=datetime.now(UTC)),))
    elif change == "owner":
        alice, bob = replace(alice, tokens=bob.tokens), replace(bob, tokens=alice.tokens, shares=EVERYTHING)
    elif change == "grant":
        alice = replace(alice, shares=(GrantEntry("t"),))
    elif change == "rule":
        alice = replace(alice, shares=(GrantEntry("s", condition="true"),))
    elif change == "network":
        alice = replace(alice, networks=("192.0.2.0/24",))
    elif change == "table":
        config = replace(config, shares=(replace(config.shares[0], schemas=()), config.shares[1]))
    elif change in NARROWED:
        share = config.shares[0]
        (schema,) = share.schemas
        narrowed = replace(schema, tables=(replace(schema.tables[0], **NARROWED[change]),))
        config = replace(config, shares=(replace(share, schemas=(narrowed,)), config.shares[1]))
    else:
        alice, bob = replace(alice, shares=EVERYTHING, networks=("127.0.0.0/8",)), replace(bob, tokens=())
    return replace(config, gateway=replace(config.gateway, recipients=(alice, bob)))


@pytest.mark.parametrize("with_end", [False, True])
async def test_a_running_stream_ends_with_the_next_chunk_once_its_token_expires(
    tables: Path, with_end: bool
) -> None:
    now_ms = [int(datetime.now(UTC).timestamp() * 1000)]
    expires = datetime.fromtimestamp(now_ms[0] / 1000 + 60, UTC).isoformat()
    text = recipients(alice="s").replace("}], shares", f", expires: {expires}}}], shares")
    entry = f"{{name: whole, location: '{tables / 'whole'}'}}"
    shares = f"shares: [{{name: s, schemas: [{{name: d, tables: [{entry}]}}]}}]\n"
    client, _ = await serve(shares + text, clock=lambda: now_ms[0])
    try:
        sent = bearer() | {"Accept-Encoding": "identity"} | (ENDING if with_end else {})
        response = await client.post(f"{TABLE}/whole/query", headers=sent)
        received = await response.content.readany()
        now_ms[0] += 60_000
        if with_end:
            lines = (received + await response.content.read()).splitlines()
            assert len(lines) < ADDS // 2
            assert orjson.loads(lines[-1])["endStreamAction"]["httpStatusErrorCode"] == 403
        else:
            with pytest.raises(ClientPayloadError):
                await response.content.read()
    finally:
        await client.close()


@pytest.mark.parametrize("with_end", [False, True])
@pytest.mark.parametrize(
    "change", ["token", "expiry", "owner", "grant", "rule", "network", "table", *NARROWED, "others"]
)
async def test_a_running_stream_ends_with_the_next_chunk_once_access_is_revoked(
    granted: Client, change: str, with_end: bool
) -> None:
    pipeline = granted.server.pipeline
    sent = bearer() | {"Accept-Encoding": "identity"} | (ENDING if with_end else {})
    response = await granted.post(f"{TABLE}/whole/query", headers=sent)
    received = await response.content.readany()
    pipeline.state = GatewayState.of(changed(pipeline.state.config, change), previous=pipeline.state)
    cut = False
    try:
        received += await response.content.read()
    except ClientPayloadError:
        cut = True
    lines = received.splitlines()
    if change == "others":
        assert not cut
        assert len(lines) == ADDS + 2 + with_end
        assert not with_end or "errorMessage" not in orjson.loads(lines[-1])["endStreamAction"]
        return
    assert len(lines) < ADDS // 2
    assert cut != with_end
    if with_end:
        end = orjson.loads(lines[-1])["endStreamAction"]
        assert end == {
            "errorMessage": "the access was revoked while the answer was under way",
            "httpStatusErrorCode": 403,
        }


@pytest.mark.parametrize("revoked_after", [1, 5])
@pytest.mark.parametrize("coding", ["gzip", "zstd", "identity"])
async def test_a_coded_answer_whose_access_is_revoked_is_decoded_up_to_its_last_line(
    granted: Client, monkeypatch: pytest.MonkeyPatch, coding: str, revoked_after: int
) -> None:
    pipeline = granted.server.pipeline
    after = GatewayState.of(changed(pipeline.state.config, "token"), previous=pipeline.state)
    write, written = BodyWriter.write, 0

    async def write_and_revoke(self: BodyWriter, chunk: memoryview) -> None:
        nonlocal written
        await write(self, chunk)
        written += 1
        # By then more chunks are ready, which are not sent.
        if written == revoked_after:
            pipeline.state = after

    monkeypatch.setattr(BodyWriter, "write", write_and_revoke)
    sent = bearer() | {"Accept-Encoding": coding} | ENDING
    async with granted.session.post(
        granted.make_url(f"{TABLE}/whole/query"), headers=sent, auto_decompress=False
    ) as response:
        assert response.headers.get("Content-Encoding", "identity") == coding
        body = await response.read()
    decode = {"gzip": gzip.decompress, "zstd": unzstd, "identity": bytes}[coding]
    lines = decode(body).splitlines()
    assert 2 < len(lines) < ADDS // 2
    assert orjson.loads(lines[-1])["endStreamAction"]["httpStatusErrorCode"] == 403


@pytest.mark.parametrize("change", ["token", "expiry", "owner", "grant", "network", "table", "others"])
async def test_a_request_whose_body_comes_late_is_answered_by_what_its_recipient_may_read_then(
    granted: Client, change: str
) -> None:
    pipeline = granted.server.pipeline
    reader, writer = await asyncio.open_connection(granted.host, granted.port)
    sent = bearer() | {"Expect": "100-continue", "Content-Length": "2", "Connection": "close"}
    fields = "".join(f"{name}: {value}\r\n" for name, value in sent.items())
    async with asyncio.timeout(30):
        writer.write(f"POST {TABLE}/whole/query HTTP/1.1\r\nHost: x\r\n{fields}\r\n".encode())
        await reader.readuntil(b"100 Continue\r\n\r\n")
        pipeline.state = GatewayState.of(changed(pipeline.state.config, change), previous=pipeline.state)
        writer.write(b"{}")
        answer = await reader.read()
    writer.close()
    status = {"others": b"200", "grant": b"404", "table": b"404"}.get(change, b"403")
    assert answer.split(b" ", 2)[1] == status
    assert (b"signature=" in answer) == (change == "others")


@pytest.mark.parametrize("change", ["token", "grant", "rule", "first version", "others"])
@pytest.mark.parametrize(
    "reading", ["POST query.start_snapshot", "GET table.read_metadata", "GET table.read_version"]
)
async def test_a_whole_answer_is_not_sent_once_access_is_revoked(
    granted: Client, monkeypatch: pytest.MonkeyPatch, reading: str, change: str
) -> None:
    method, _, place = reading.partition(" ")
    module, _, name = place.partition(".")
    read = getattr(import_module(f"gateway.routes.{module}"), name)
    pipeline = granted.server.pipeline
    after = GatewayState.of(changed(pipeline.state.config, change), previous=pipeline.state)

    def changed_meanwhile(*arguments: Any, **options: Any) -> Any:
        found = read(*arguments, **options)
        pipeline.state = after
        return found

    monkeypatch.setattr(f"gateway.routes.{place}", changed_meanwhile)
    path = "query" if method == "POST" else name.removeprefix("read_")
    body = {"limitHint": 1} if method == "POST" else None
    # On a slow machine the query may be answered by a stream.
    answer = await granted.request(method, f"{TABLE}/whole/{path}", headers=bearer() | ENDING, json=body)
    assert (b"was revoked" in await answer.read()) == (change != "others")
