"""Descriptors that run short: readers of files and of streams that read nothing, and open connections."""

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
TABLES = "/delta-sharing/shares/sales/schemas/d/tables"


def shared_file(directory, names=("one.parquet",)):
    """Write a table of one large file, or the log of others."""
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
    )
    adds = (
        {
            "add": {
                "path": name,
                "partitionValues": {},
                "size": FILE_BYTES,
                "modificationTime": 0,
                "dataChange": True,
            }
        }
        for name in names
    )
    (log / f"{0:020}.json").write_text("".join(json.dumps(action) + "\n" for action in (*actions, *adds)))
    (directory / "one.parquet").write_bytes(bytes(FILE_BYTES))


@pytest.fixture
def gateway(tmp_path):
    gateway = Gateway(tmp_path)
    shared_file(tmp_path / "table")
    shared_file(tmp_path / "many", (f"{number}.parquet" for number in range(5000)))
    tables = [{"name": name, "location": str(tmp_path / name)} for name in ("table", "many")]
    gateway.settings["shares"][0]["schemas"] = [{"name": "d", "tables": tables}]
    gateway.settings["publicUrl"] = f"http://127.0.0.1:{gateway.port}"
    gateway.write()
    with gateway.running():
        resource.prlimit(gateway.process.pid, resource.RLIMIT_NOFILE, (LIMIT, LIMIT))
        yield gateway


def signed_url(gateway):
    status, body, _ = gateway.get(f"{TABLES}/table/query", method="POST", body={})
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


def test_streams_over_kept_connections_are_refused_for_a_moment(gateway):
    resource.prlimit(gateway.process.pid, resource.RLIMIT_NOFILE, (LIMIT // 2, LIMIT // 2))
    head = f"Authorization: Bearer {TOKEN}\r\nAccept-Encoding: identity\r\n"
    stream = f"POST {TABLES}/many/query HTTP/1.1\r\nHost: x\r\n{head}Content-Length: 2\r\n\r\n{{}}".encode()
    with ExitStack() as stack:
        # Their descriptors are those of connections alone, until each begins a stream.
        kept = [connected(gateway, "/delta-sharing/shares", head) for _ in range(LIMIT // 4)]
        for connection, _ in kept:
            stack.callback(connection.close)
        assert all(status == "200" and connection.recv(4096) for connection, status in kept)
        statuses = set()
        for connection, _ in kept:
            connection.sendall(stream)
            answer = connection.recv(1024).decode()
            statuses.add(answer.split(" ")[1])
            assert ("Retry-After" in answer) == (" 503 " in answer), answer
        assert statuses == {"200", "503"}
    gateway.until(lambda: gateway.get(f"{TABLES}/many/query", method="POST", body={})[0] == 200)
    assert "Traceback" not in gateway.log()


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
