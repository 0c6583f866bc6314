"""Descriptors that run short: readers of local files that read nothing, and connections that stay open."""

from __future__ import annotations

import json
import resource
import socket
from contextlib import ExitStack, suppress
from urllib.parse import urlsplit

import pytest
from support.gateway_directory import TOKEN, Gateway

pytestmark = pytest.mark.processes

LIMIT = 256
FILE_BYTES = 16 * 1024 * 1024


def shared_file(directory):
    """Write a table of one large file."""
    log = directory / "_delta_log"
    log.mkdir(parents=True)
    schema = {"type": "struct", "fields": [{"name": "n", "type": "long", "nullable": True, "metadata": {}}]}
    actions = (
        {"protocol": {"minReaderVersion": 1, "minWriterVersion": 2}},
        {
            "metaData": {
                "id": "t",
                "format": {"provider": "parquet", "options": {}},
                "schemaString": json.dumps(schema),
                "partitionColumns": [],
                "configuration": {},
            }
        },
        {
            "add": {
                "path": "one.parquet",
                "partitionValues": {},
                "size": FILE_BYTES,
                "modificationTime": 0,
                "dataChange": True,
            }
        },
    )
    (log / f"{0:020}.json").write_text("".join(json.dumps(action) + "\n" for action in actions))
    (directory / "one.parquet").write_bytes(bytes(FILE_BYTES))


@pytest.fixture
def gateway(tmp_path):
    gateway = Gateway(tmp_path)
    shared_file(tmp_path / "table")
    table = {"name": "t", "location": str(tmp_path / "table")}
    gateway.settings["shares"][0]["schemas"] = [{"name": "d", "tables": [table]}]
    gateway.settings["publicUrl"] = f"http://127.0.0.1:{gateway.port}"
    gateway.write()
    with gateway.running():
        resource.prlimit(gateway.process.pid, resource.RLIMIT_NOFILE, (LIMIT, LIMIT))
        yield gateway


def signed_url(gateway):
    status, body, _ = gateway.get(
        "/delta-sharing/shares/sales/schemas/d/tables/t/query", method="POST", body={}
    )
    assert status == 200, body
    return next(line["file"]["url"] for line in map(json.loads, body.splitlines()) if "file" in line)


def connected(gateway, path, headers=""):
    """A connection that has sent a request, and the status of its answer, of which nothing else is read."""
    connection = socket.socket()
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    connection.settimeout(10)
    with suppress(OSError):
        connection.connect(("127.0.0.1", gateway.port))
        connection.sendall(f"GET {path} HTTP/1.1\r\nHost: x\r\n{headers}\r\n".encode())
        return connection, connection.recv(64).split(b" ")[1].decode()
    return connection, "cut"


def test_readers_of_a_local_file_that_read_nothing_leave_descriptors_to_others(gateway):
    url = urlsplit(signed_url(gateway))
    with ExitStack() as stack:
        statuses = set()
        for _ in range(LIMIT):
            connection, status = connected(gateway, f"{url.path}?{url.query}")
            statuses.add(status)
            if status == "200":
                stack.callback(connection.close)
            else:
                connection.close()
        assert statuses == {"200", "429"}
        assert gateway.shares() == (200, ["sales"])
        status, _, headers = gateway.get(f"{url.path}?{url.query}")
        assert (status, "Retry-After" in headers) == (429, True)
    gateway.until(lambda: gateway.get(f"{url.path}?{url.query}")[0] == 200)


def test_probes_are_answered_while_all_other_descriptors_are_used(gateway):
    token = f"Authorization: Bearer {TOKEN}\r\n"
    with ExitStack() as stack:
        found = [connected(gateway, "/delta-sharing/shares", token) for _ in range(LIMIT)]
        for connection, _ in found:
            stack.callback(connection.close)
        assert {status for _, status in found} == {"200", "503"}
        for path in ("/healthz", "/readyz"):
            assert [gateway.get(path)[0] for _ in range(LIMIT)] == [200] * LIMIT
        # Strangers that send nothing have what is left.
        for _ in range(LIMIT):
            silent = stack.enter_context(socket.socket())
            silent.connect(("127.0.0.1", gateway.port))
        assert [gateway.get("/healthz")[0] for _ in range(20)] == [200] * 20
        status, _, headers = gateway.get("/delta-sharing/shares")
        assert (status, "Retry-After" in headers) == (503, True)
    gateway.until(lambda: gateway.shares() == (200, ["sales"]))
