"""The access log: a line for each request once its answer is over, and the client behind trusted proxies."""

import asyncio
import json
import select
import socket
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from aiohttp import web
from support.gateway_app import PREFIX, bearer, recipients, serve
from support.gateway_directory import Gateway

from gateway import _native
from gateway.authentication.sealed_tokens import Sealer
from gateway.config import Location, Secret, TokenKey
from gateway.storage.local.store import directory_key
from gateway.telemetry.audit import AuditLog

FILE_BYTES = 32 * 1024 * 1024


def lines(text: str) -> list[dict[str, Any]]:
    return [line for line in map(json.loads, text.splitlines()) if "request" in line]


@pytest.mark.processes
def test_a_data_file_is_logged_when_it_has_left_with_its_bytes(tmp_path: Path) -> None:
    table = tmp_path / "table"
    table.mkdir()
    (table / "large.parquet").write_bytes(b"\0" * FILE_BYTES)
    gateway = Gateway(tmp_path)
    gateway.settings["shares"] = [
        {
            "name": "sales",
            "schemas": [{"name": "d", "tables": [{"name": "t", "location": str(table), "id": "id-1"}]}],
        }
    ]
    gateway.settings["host"] = "127.0.0.1"
    gateway.write()
    url_key = Sealer([TokenKey("k1", Secret("k" * 32))]).derived_keys(b"files")[0]
    key = directory_key(url_key, Location("file", "", str(table)))
    signer = _native.Signer.local(f"http://127.0.0.1:{gateway.port}{PREFIX}/files/id-1", key=key)
    url, _ = signer.sign("large.parquet", now_ms=0, lifetime_seconds=2**31)
    target = url.partition(str(gateway.port))[2]

    def logged() -> list[dict[str, Any]]:
        return [line for line in lines(gateway.log()) if line["path"].startswith(f"{PREFIX}/files")]

    with gateway.running():
        with socket.create_connection(("127.0.0.1", gateway.port), 20) as connection:
            connection.sendall(f"GET {target} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n".encode())
            received = len(connection.recv(1000))
            # Another request is logged meanwhile.
            gateway.get("/absent")
            gateway.until(lambda: "/absent" in gateway.log())
            assert logged() == []
            while piece := connection.recv(1 << 20):
                received += len(piece)
        assert received > FILE_BYTES
        gateway.until(lambda: len(logged()) == 1)
        with socket.create_connection(("127.0.0.1", gateway.port), 20) as connection:
            connection.sendall(f"GET {target} HTTP/1.1\r\nHost: x\r\n\r\n".encode())
            connection.recv(1000)
        # It leaves in the middle.
        gateway.until(lambda: len(logged()) == 2)
        assert gateway.get(target, headers={"Range": "bytes=0-9"})[:2] == (206, b"\0" * 10)
        assert gateway.get(target, method="HEAD")[0] == 200
        gateway.until(lambda: len(logged()) == 4)
    whole, left, part, head = logged()
    assert (whole["status"], whole["bytes"]) == (200, received)
    assert left["status"] == 499
    assert part["status"] == 206
    assert 10 < part["bytes"] < 1000
    assert (head["status"], head["method"]) == (200, "HEAD")
    assert head["bytes"] < 1000


@pytest.mark.parametrize(
    ("trusted", "forwarded", "remote", "proxy"),
    [
        ("[127.0.0.0/8]", "192.0.2.7", "192.0.2.7", "127.0.0.1"),
        ("[127.0.0.0/8]", "203.0.113.9, 192.0.2.7", "192.0.2.7", "127.0.0.1"),
        ("[127.0.0.0/8]", None, "127.0.0.1", None),
        ("[127.0.0.0/8]", "nonsense", "127.0.0.1", None),
        ("[10.0.0.0/8]", "192.0.2.7", "127.0.0.1", None),
        ("[]", "192.0.2.7", "127.0.0.1", None),
    ],
)
@pytest.mark.parametrize("peer", ["127.0.0.1", "::ffff:127.0.0.1"])
async def test_the_client_behind_trusted_proxies_is_logged(  # noqa: PLR0917 - the cases
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
    trusted: str,
    forwarded: str | None,
    remote: str,
    proxy: str | None,
    peer: str,
) -> None:
    caplog.set_level("INFO", "gateway.access")
    monkeypatch.setattr(web.BaseRequest, "remote", peer)
    client, _ = await serve(f"shares: []\n{recipients(alice='')}  trustedProxies: {trusted}\n")
    try:
        headers = bearer() | ({"X-Forwarded-For": forwarded} if forwarded else {})
        assert (await client.get(f"{PREFIX}/shares", headers=headers)).status == 200
        await asyncio.sleep(0)
    finally:
        await client.close()
    (line,) = lines("\n".join(record.message for record in caplog.records if record.name == "gateway.access"))
    assert (line["remote"], line.get("proxy")) == (remote, proxy)


@pytest.mark.parametrize("text", ["s", "\x9b", '"'])
async def test_a_line_with_a_long_path_is_one_that_a_pipe_takes_whole(
    caplog: pytest.LogCaptureFixture, text: str
) -> None:
    caplog.set_level("INFO", "gateway.access")
    client, _ = await serve(f"shares: []\n{recipients(alice='')}")
    try:
        for count in (300, 1200):
            assert (await client.get(f"/{quote(text * count)}")).status == 404
            await asyncio.sleep(0)
    finally:
        await client.close()
    short, long = [record.message for record in caplog.records if record.name == "gateway.access"]
    assert json.loads(short)["path"] == "/" + text * 300
    assert json.loads(long)["path"].startswith("/" + text * 500)
    assert len(long) < select.PIPE_BUF


async def test_head_sends_no_bytes_of_a_body(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", "gateway.access")
    client, _ = await serve(f"shares: []\n{recipients(alice='')}")
    try:
        for method in ("GET", "HEAD"):
            assert (await client.request(method, f"{PREFIX}/shares", headers=bearer())).status == 200
        await asyncio.sleep(0)
    finally:
        await client.close()
    logged = lines("\n".join(record.message for record in caplog.records if record.name == "gateway.access"))
    assert [line.get("bytes") for line in logged] == [len(b'{"items":[]}'), None]


async def test_a_question_for_a_query_by_its_id_is_audited(tmp_path: Path) -> None:
    table = f"{{name: t, location: '{tmp_path}'}}"
    audit = AuditLog(tmp_path / "audit.jsonl")
    client, _ = await serve(
        f"shares: [{{name: s, schemas: [{{name: d, tables: [{table}]}}]}}]\n{recipients(alice='s')}",
        audit=audit,
    )
    try:
        path = f"{PREFIX}/shares/s/schemas/d/tables/t/queries/some-id"
        assert (await client.post(path, data=b"{}", headers=bearer())).status == 404
    finally:
        await client.close()
        audit.close()
    (record,) = [json.loads(line) for line in (tmp_path / "audit.jsonl").read_bytes().splitlines()]
    assert record["actionName"] == "deltaSharingGetQueryInfo"
    assert record["recipientName"] == "alice"
    assert record["requestParams"] == {"share": "s", "schema": "d", "table": "t"}
    assert record["response"]["statusCode"] == 404
