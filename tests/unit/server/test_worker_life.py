"""Servers that end or lose a worker during answers, as real processes: what is sent, recorded and counted."""

import json
import os
import signal
import socket
import time
from contextlib import ExitStack, suppress

import pytest
from support.gateway_directory import TOKEN, Gateway
from support.nightly import at_night
from support.processes import children, server_process
from support.waiting import everywhere, wait_until
from tables.large_logs import make_log

pytestmark = pytest.mark.processes

QUERY = "/delta-sharing/shares/sales/schemas/s/tables/t/query"
CAPABILITIES = "responseformat=delta;includeendstreamaction=true"


@pytest.fixture(scope="module")
def table(tmp_path_factory):
    root = tmp_path_factory.mktemp("worker-life") / "table"
    maker = make_log()
    maker.make_log(root, maker.LogOptions(adds=15_000, commits=5))
    return root


@pytest.fixture
def gateway(tmp_path, table):
    gateway = Gateway(tmp_path)
    entry = {"name": "t", "location": str(table), "historyShared": True}
    gateway.settings["shares"][0]["schemas"] = [{"name": "s", "tables": [entry]}]
    gateway.settings["gateway"] |= {"drainDelaySeconds": 0, "drainSeconds": 3}
    gateway.write()
    return gateway


def begun(gateway):
    """A client that has read the begin of an answer, and its receive buffer is full."""
    client = socket.socket()
    client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65536)
    client.settimeout(30)
    client.connect(("127.0.0.1", gateway.port))
    client.sendall(
        f"POST {QUERY} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {TOKEN}\r\n"
        f"delta-sharing-capabilities: {CAPABILITIES}\r\nContent-Length: 2\r\n\r\n{{}}".encode()
    )
    assert client.recv(1024).startswith(b"HTTP/1.1 200")
    return client


def rest(client):
    received = b""
    with suppress(ConnectionResetError):
        while piece := client.recv(1 << 16):
            received += piece
    return received


def queries(gateway):
    """The records of queries, by their responses."""
    records = [record for record in gateway.records() if record["actionName"].startswith("deltaSharingQuer")]
    return [(record["actionName"], record["response"]) for record in records]


@pytest.mark.parametrize("workers", [2, *at_night(1)])
def test_a_drain_ends_in_its_time_and_cut_answers_have_their_last_line_and_records(gateway, workers):
    with gateway.running(workers=workers):
        gateway.until(lambda: "serving" in gateway.log())
        reading, silent = begun(gateway), begun(gateway)
        with reading, silent:
            began = time.monotonic()
            gateway.process.terminate()
            received = b""
            # One client reads a little at a time: its answer is not whole when the drain ends, and its last
            # line has room within half a second.
            while "cut off" not in gateway.log():
                received += reading.recv(20_000)
                time.sleep(0.02)
            received += rest(reading)
            assert gateway.process.wait(60) == 0
            took = time.monotonic() - began
            last = json.loads(received.removesuffix(b"\r\n0\r\n\r\n").splitlines()[-1])
            assert last["endStreamAction"]["errorMessage"] == "the server is shutting down"
            assert not rest(silent).endswith(b"0\r\n\r\n"), "what looks whole"
    # With time for a busy machine. It was twice the drain and more.
    assert took < 8
    assert [response["result"]["complete"] for _, response in queries(gateway) if response] == [False, False]
    lines = [json.loads(line) for line in gateway.log().splitlines() if '"path"' in line and QUERY in line]
    assert [line["outcome"] for line in lines] == ["shutdown", "shutdown"]


def test_a_drain_that_is_longer_than_its_delay_counts_from_the_signal(gateway):
    gateway.settings["gateway"] |= {"drainDelaySeconds": 60, "drainSeconds": 1}
    gateway.write()
    with gateway.running():
        began = time.monotonic()
        gateway.process.terminate()
        assert gateway.process.wait(60) == 0
        assert time.monotonic() - began < 20


def test_new_connections_go_to_the_other_workers_while_one_drains_alone(gateway):
    gateway.settings["gateway"] |= {"drainSeconds": 60}
    gateway.write()
    with gateway.running(workers=2), ExitStack() as stack:
        for _ in range(12):
            stack.enter_context(begun(gateway))
        worker = children(gateway.process.pid)[0]
        os.kill(worker, signal.SIGTERM)
        gateway.until(lambda: "draining" in gateway.log())
        # Those that reach its socket before it is replaced are reset.
        gateway.until(everywhere(lambda: gateway.get("/healthz")[0], 200))
        # Others would wait until it has drained.
        assert worker in children(gateway.process.pid)
        for other in children(gateway.process.pid):
            os.kill(other, signal.SIGKILL)


def test_an_answer_during_the_delay_of_a_drain_is_the_last_of_its_connection(gateway):
    gateway.settings["gateway"] |= {"drainDelaySeconds": 3, "drainSeconds": 60}
    gateway.write()
    end = f" HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {TOKEN}\r\n"
    requests = [
        f"GET /delta-sharing/shares{end}\r\n".encode(),
        f"POST {QUERY}{end}Content-Length: 2\r\n\r\n{{}}".encode(),
    ]
    with gateway.running(), ExitStack() as stack:
        kept = [
            stack.enter_context(socket.create_connection(("127.0.0.1", gateway.port), 20)) for _ in requests
        ]
        for client in kept:
            client.sendall(requests[0])
            assert b"\r\nConnection: close" not in client.recv(4096)
        gateway.process.terminate()
        gateway.until(lambda: gateway.get("/readyz")[0] == 503)
        for client, request in zip(kept, requests, strict=True):
            client.sendall(request)
            answer = rest(client)
            assert answer.startswith(b"HTTP/1.1 200")
            assert b"\r\nConnection: close\r\n" in answer
    assert answer.endswith(b"\r\n0\r\n\r\n"), "the streamed one is whole"


def test_kept_connections_end_at_the_begin_of_a_drain_and_requests_that_come_are_answered(gateway):
    gateway.settings["gateway"] |= {"drainSeconds": 60}
    gateway.write()
    listing = f"GET /delta-sharing/shares HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {TOKEN}\r\n\r\n"
    query = f"POST {QUERY} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {TOKEN}\r\nContent-Length: 16\r\n\r\n"
    with gateway.running(), ExitStack() as stack:
        stack.enter_context(begun(gateway))
        idle, coming = (
            stack.enter_context(socket.create_connection(("127.0.0.1", gateway.port), 20)) for _ in range(2)
        )
        coming.sendall(query.encode() + b'{"maxFiles"')
        idle.sendall(listing.encode())
        assert idle.recv(4096).startswith(b"HTTP/1.1 200")
        gateway.process.terminate()
        # The drain waits for the answer that nobody reads.
        assert idle.recv(1) == b""
        coming.sendall(b": 1} ")
        assert coming.recv(4096).startswith(b"HTTP/1.1 200")


def test_answers_of_a_killed_worker_are_on_record_and_counted(gateway):
    with gateway.running(workers=2):
        gateway.until(lambda: "serving by 2 workers" in gateway.log())
        with begun(gateway), begun(gateway):
            # What runs for a second is on record, whatever happens to the process.
            wait_until(lambda: queries(gateway) == [("deltaSharingQueryTable", None)] * 2)
            for worker in children(gateway.process.pid):
                os.kill(worker, signal.SIGKILL)
            wait_until(lambda: len(queries(gateway)) == 4)
        ended = {"complete": False, "outcome": "worker ended"}
        for action, response in queries(gateway)[2:]:
            assert (action, response["result"]) == ("deltaSharingQueriedTable", ended)
        broken = b'delta_gateway_broken_streams_total{reason="worker ended"} 2.0'
        gateway.until(lambda: broken in gateway.admin("GET", "/metrics")[1])
        gateway.until(lambda: gateway.shares()[0] == 200)


@pytest.mark.parametrize("workers", [2, *at_night(1)])
def test_an_answer_that_runs_for_long_has_two_records(gateway, workers):
    with gateway.running(workers=workers):
        with begun(gateway) as client:
            wait_until(lambda: queries(gateway) == [("deltaSharingQueryTable", None)])
            assert rest_of_chunks(client)
        wait_until(lambda: len(queries(gateway)) == 2)
        action, response = queries(gateway)[1]
        assert (action, response["result"]["complete"]) == ("deltaSharingQueriedTable", True)


def rest_of_chunks(client):
    """Read until the last chunk."""
    tail = b""
    while not tail.endswith(b"\r\n0\r\n\r\n"):
        piece = client.recv(1 << 16)
        assert piece
        tail = (tail + piece)[-100:]
    return True


def test_a_signal_ends_a_server_whose_workers_hang_at_their_start(gateway, tmp_path):
    (tmp_path / "modules").mkdir()
    hang = "import os, time\nif 'DELTA_GATEWAY_WORKER' in os.environ: time.sleep(60)\n"
    (tmp_path / "modules" / "sitecustomize.py").write_text(hang)
    log = tmp_path / "log"
    with server_process(gateway.path, log, workers=2, modules=tmp_path / "modules") as process:
        wait_until(lambda: len(children(process.pid)) == 2)
        process.terminate()
        assert process.wait(20) == 0, log.read_text()
    assert "serving by" not in log.read_text()


def test_a_hang_up_does_not_end_a_server_that_starts(gateway, tmp_path):
    (tmp_path / "modules").mkdir()
    hung_up = "import os, signal\nos.kill(os.getpid(), signal.SIGHUP)\nraise SystemExit(7)\n"
    (tmp_path / "modules" / "aiohttp.py").write_text(hung_up)
    with server_process(gateway.path, tmp_path / "log", modules=tmp_path / "modules") as process:
        assert process.wait(60) == 7
