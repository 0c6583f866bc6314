"""The server with real processes: recipients, reloads, limits, workers and drains."""

import json
import os
import re
import resource
import signal
import socket
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import pytest
from support.gateway_directory import HEAD, Gateway
from support.nightly import at_night
from support.processes import PACKAGE, children, free_port, processor_wait_seconds
from support.waiting import everywhere, server_end, wait_until

from gateway.__main__ import main

pytestmark = pytest.mark.processes

pytest.importorskip("gateway._native", reason="the native module is not built", exc_type=ImportError)


@pytest.fixture
def gateway(tmp_path):
    return Gateway(tmp_path)


@pytest.mark.alone
@pytest.mark.parametrize("place", [None, *at_night("state/recipients.db")])
def test_recipients_of_the_command_line_are_seen_within_a_second(gateway, place):
    # Without a place the database is made beside the file, by the first who is added while the server runs.
    gateway.settings["gateway"] |= {"recipientsDatabase": place} if place else {}
    gateway.write()
    with gateway.running():
        added = gateway.command(
            "add", "bob", "--share", "logs", "--profile", str(gateway.directory / "bob.share")
        )
        assert added.returncode == 0, added.stderr
        profile = json.loads((gateway.directory / "bob.share").read_text())
        first = profile["bearerToken"]
        assert profile["endpoint"] == f"http://127.0.0.1:{gateway.port}/delta-sharing"
        assert gateway.seconds_until(lambda: gateway.shares(first) == (200, ["logs"])) < 1
        assert gateway.command("grant", "bob", "sales").returncode == 0
        assert gateway.seconds_until(lambda: gateway.shares(first)[1] == ["sales", "logs"]) < 1
        rotated = gateway.command("rotate", "bob", "--old-expires", "1h")
        second = json.loads(rotated.stdout)["bearerToken"]
        assert gateway.seconds_until(lambda: gateway.shares(second)[0] == 200) < 1
        assert gateway.shares(first)[0] == 200
        assert gateway.command("revoke", "bob").returncode == 0
        assert gateway.seconds_until(lambda: gateway.shares(first)[0] == gateway.shares(second)[0] == 401) < 1
        assert gateway.shares() == (200, ["sales"])
    actions = [record["actionName"] for record in gateway.records()]
    assert [action for action in actions if "ecipient" in action or "Permissions" in action] == [
        "createRecipient",
        "updateSharePermissions",
        "rotateRecipientToken",
        "revokeRecipientTokens",
    ]
    output = (gateway.directory / "audit.jsonl").read_text() + gateway.log()
    assert first not in output
    assert second not in output


def test_an_added_recipient_is_enough_to_serve(gateway):
    del gateway.settings["gateway"]["recipients"]
    gateway.write()
    refused = gateway.command(operation="check")
    assert "delta-gateway recipient add" in refused.stderr
    token = json.loads(gateway.command("add", "bob", "--share", "logs").stdout)["bearerToken"]
    with gateway.running():
        assert gateway.shares(token) == (200, ["logs"])


def test_networks_keep_a_recipient_out_and_trusted_proxies_are_believed(tmp_path):
    gateway = Gateway(tmp_path, trustedProxies=["127.0.0.1"])
    gateway.settings["gateway"]["recipients"][0]["networks"] = ["192.0.2.0/24"]
    gateway.write()
    with gateway.running():
        assert gateway.shares()[0] == 403
        assert gateway.shares(headers={"X-Forwarded-For": "192.0.2.9"}) == (200, ["sales"])
        assert gateway.shares(headers={"X-Forwarded-For": "192.0.2.9, 203.0.113.1"})[0] == 403
        assert gateway.shares("wrong", headers={"X-Forwarded-For": "192.0.2.9"})[0] == 401
    assert [record["sourceIPAddress"] for record in gateway.records()] == [
        "127.0.0.1",
        "192.0.2.9",
        "203.0.113.1",
        "192.0.2.9",
    ]


def test_a_changed_file_applies_as_a_whole_and_an_invalid_one_keeps_the_old(gateway):
    with gateway.running():
        gateway.settings["shares"].append({"name": "news", "schemas": []})
        gateway.settings["gateway"]["recipients"][0]["shares"].append("news")
        gateway.write()
        gateway.until(lambda: gateway.shares()[1] == ["sales", "news"])
        gateway.settings["gateway"]["recipients"][0]["shares"] = ["not there"]
        gateway.write()
        gateway.until(lambda: "is refused, the current one stays in force" in gateway.log())
        assert gateway.shares() == (200, ["sales", "news"])
        gateway.settings["gateway"]["recipients"][0]["shares"] = ["logs"]
        gateway.settings["port"] = free_port()
        gateway.write()
        gateway.until(lambda: "port: a change of this needs a restart" in gateway.log())
        assert gateway.shares() == (200, ["sales", "news"])
        gateway.settings["port"] = gateway.port
        gateway.write()
        gateway.until(lambda: gateway.shares()[1] == ["logs"])


@pytest.mark.parametrize("workers", [2, *at_night(1)])
def test_reloads_by_a_signal_and_by_a_changed_file_are_in_the_audit_log(gateway, workers):
    def reloads():
        found = [one for one in gateway.records() if one["actionName"] == "reloadConfiguration"]
        return [(one["requestParams"]["actor"], one["response"]["statusCode"]) for one in found]

    with gateway.running(workers):
        # A supervisor ignores the signal until then.
        gateway.until(lambda: "listening on" in gateway.log())
        gateway.process.send_signal(signal.SIGHUP)
        gateway.until(lambda: reloads() == [("signal", 200)])
        assert gateway.shares() == (200, ["sales"])
        gateway.settings["gateway"]["recipients"][0]["shares"] = ["not there"]
        gateway.write()
        gateway.until(lambda: reloads()[1:] == [("file", 400)])


def test_a_quick_recipient_gets_429_with_a_time_and_others_are_not_held(tmp_path):
    gateway = Gateway(
        tmp_path, limits={"recipient": {"requestsPerSecond": 1, "burstRequests": 3, "queueSeconds": 0}}
    )
    with gateway.running():
        gateway.admin("POST", "/recipients", {"name": "bob", "shares": ["logs"]})
        answers = [gateway.get("/delta-sharing/shares") for _ in range(8)]
        assert [status for status, _, _ in answers][:3] == [200] * 3
        refused = [answer for answer in answers if answer[0] == 429]
        assert refused
        for _, body, headers in refused:
            assert json.loads(body)["errorCode"] == "RESOURCE_EXHAUSTED"
            assert 1 <= int(headers["Retry-After"]) < 7
        assert gateway.get("/healthz")[0] == 200


TABLE_QUERY = "/delta-sharing/shares/sales/schemas/s/tables/t/query"
SLOW = {
    "half a head": (HEAD, []),
    "a head and half of its body": (
        HEAD.replace("GET /delta-sharing/shares", f"POST {TABLE_QUERY}") + "Content-Length: 9\r\n\r\n{",
        [400],
    ),
    "a request and nothing more": (HEAD + "\r\n", [200]),
}


@pytest.mark.parametrize(
    ("sent", "answered"),
    [SLOW["half a head"], *at_night(*(SLOW[name] for name in SLOW if name != "half a head"))],
)
def test_a_stalled_client_is_disconnected_and_costs_others_nothing(tmp_path, sent, answered):
    gateway = Gateway(tmp_path, limits={"idleConnectionSeconds": 1, "bodySeconds": 1})
    with gateway.running(), socket.create_connection(("127.0.0.1", gateway.port), 20) as connection:
        start = time.monotonic()
        connection.sendall(sent.encode())
        assert gateway.shares()[0] == 200
        content = b""
        while piece := connection.recv(4096):
            content += piece
        assert 0.5 < time.monotonic() - start < 10
        assert [int(status) for status in re.findall(rb"HTTP/1.1 (\d+)", content)] == answered
        assert gateway.shares()[0] == 200


def test_readiness_fails_before_connections_are_refused(tmp_path):
    # So long that a request of a busy machine meets it.
    gateway = Gateway(tmp_path, drainDelaySeconds=3)
    with gateway.running():
        gateway.process.terminate()
        gateway.until(lambda: gateway.get("/readyz")[0] == 503)
        assert gateway.shares() == (200, ["sales"])
        gateway.process.wait(30)
    with pytest.raises(ConnectionRefusedError):
        gateway.get("/healthz")


@pytest.mark.parametrize("workers", [1, *at_night(2)])
def test_metrics_and_recipients_by_the_admin_listener(gateway, workers):
    with gateway.running(workers=workers):
        gateway.until(lambda: gateway.admin("GET", "/healthz")[0] == 200)
        for port, users in ((gateway.port, "recipients"), (gateway.admin_port, "the admin API")):
            # The supervisor starts its workers first, and they may answer before it logs.
            line = f"listening on 127.0.0.1:{port} for {users}"
            gateway.until(lambda line=line: line in gateway.log())
        # That of a token without an end, or with a late one, is no label of the page.
        for name, life in (("eve", {"expiresInSeconds": None}), ("fay", {"expiresInSeconds": 40 * 86400})):
            assert gateway.admin("POST", "/recipients", {"name": name, "shares": ["logs"], **life})[0] == 201
        added = {"name": "bob", "shares": ["logs"], "expiresInSeconds": 86400}
        status, body = gateway.admin("POST", "/recipients", added)
        assert status == 201
        token = json.loads(body)["profile"]["bearerToken"]
        gateway.until(everywhere(lambda: gateway.shares(token), (200, ["logs"])))
        status, page = gateway.admin("GET", "/metrics")
        assert status == 200
        assert b'delta_gateway_requests_total{route="list_shares",status="200"}' in page
        # Ends are reported after the change is in force.
        ends = b'delta_gateway_token_expires_timestamp_seconds{recipient="bob"}'
        gateway.until(lambda: ends in gateway.admin("GET", "/metrics")[1])
        assert gateway.admin("GET", "/metrics")[1].count(b"token_expires_timestamp_seconds{") == 1
        # It is gone with its recipient.
        assert gateway.admin("DELETE", "/recipients/bob")[0] in (200, 204)
        gateway.until(lambda: b"token_expires_timestamp_seconds{" not in gateway.admin("GET", "/metrics")[1])
        assert gateway.get("/metrics")[0] == 404
        assert_administers_by_a_changed_file(gateway, "eve")


def assert_administers_by_a_changed_file(gateway, recipient):
    """The admin API knows a share that a reload brings; its changes and the reload are in the audit log."""
    gateway.settings["shares"].append({"name": "news", "schemas": []})
    gateway.write()
    part = {"share": "news", "schema": "s"}
    gateway.until(lambda: gateway.admin("PUT", f"/recipients/{recipient}/grants", part)[0] == 200)
    recorded = {"createRecipient", "reloadConfiguration"}
    gateway.until(lambda: recorded <= {record["actionName"] for record in gateway.records()})


def test_workers_share_one_port_their_metrics_are_summed_and_a_dead_one_is_restarted(gateway):
    with gateway.running(workers=2):
        for _ in range(40):
            assert gateway.shares() == (200, ["sales"])
        gateway.until(lambda: total(gateway, "delta_gateway_requests_total", "list_shares") == 40)
        assert total(gateway, "delta_gateway_workers") == 2
        victim = children(gateway.process.pid)[0]
        os.kill(victim, signal.SIGKILL)
        for _ in range(40):
            assert gateway.shares() == (200, ["sales"])
        gateway.until(lambda: total(gateway, "delta_gateway_worker_restarts_total") == 1)
        gateway.until(lambda: total(gateway, "delta_gateway_workers") == 2)
        assert gateway.admin("POST", "/recipients", {"name": "bob", "shares": ["logs"]})[0] == 201
        gateway.settings["gateway"]["recipients"][0]["shares"] = ["logs"]
        gateway.write()
        gateway.until(everywhere(lambda: gateway.shares()[1], ["logs"]))
        assert_administers_by_a_changed_file(gateway, "bob")
    assert children(gateway.process.pid) == []


def total(gateway, name, route=None):
    page = gateway.admin("GET", "/metrics")[1].decode()
    lines = [line for line in page.splitlines() if line.startswith(name) and (not route or route in line)]
    return sum(float(line.rpartition(" ")[2]) for line in lines)


def test_requests_continue_while_the_audit_disk_is_full_unless_audit_fails_closed(tmp_path):
    for fail_closed, status in ((False, 200), (True, 503)):
        directory = tmp_path / str(fail_closed)
        directory.mkdir()
        gateway = Gateway(directory, audit={"file": "/dev/full", "failClosed": fail_closed})
        with gateway.running():
            assert gateway.get("/delta-sharing/shares")[0] == status
            gateway.until(lambda gateway=gateway: "the audit log cannot be written" in gateway.log())
            # Such a replica should get no requests, where it refuses them.
            assert gateway.get("/readyz")[0] == status
            assert gateway.get("/healthz")[0] == 200
            gateway.until(lambda gateway=gateway: total(gateway, "delta_gateway_audit_healthy") == 0)


@pytest.mark.parametrize("workers", [1, *at_night(2)])
def test_recipients_are_changed_only_with_their_record_where_the_audit_fails_closed(tmp_path, workers):
    gateway = Gateway(tmp_path, audit={"file": "/dev/full", "failClosed": True}, recipientsDatabase="r.db")
    with gateway.running(workers=workers):
        gateway.until(lambda: gateway.admin("GET", "/healthz")[0] == 200)
        status, body = gateway.admin("POST", "/recipients", {"name": "bob", "shares": ["sales"]})
        assert (status, json.loads(body)["errorCode"]) == (503, "TEMPORARILY_UNAVAILABLE")
        assert "bearerToken" not in body.decode()
        refused = gateway.command("add", "bob", "--share", "sales")
        assert refused.returncode == 1
        assert "the audit log cannot be written" in refused.stderr
        assert not refused.stdout, "a profile of a token that does not count"
        assert json.loads(gateway.admin("GET", "/recipients")[1]) == {"recipients": []}
        # What changes nothing needs no record.
        assert gateway.command("list").returncode == 0
    gateway.settings["gateway"]["audit"] = {"file": "audit.jsonl", "failClosed": True}
    gateway.write()
    assert gateway.command("add", "bob", "--share", "sales").returncode == 0
    assert [record["actionName"] for record in gateway.records()] == ["createRecipient"]


def test_an_addition_makes_no_empty_database_while_the_file_is_away(tmp_path):
    gateway = Gateway(tmp_path, recipientsDatabase="r.db")
    with gateway.running():
        gateway.until(lambda: gateway.admin("GET", "/healthz")[0] == 200)
        assert gateway.admin("POST", "/recipients", {"name": "bob"})[0] == 201
        database = gateway.directory / "r.db"
        database.rename(gateway.directory / "away.db")
        for method, path, body in (("POST", "/recipients", {"name": "eve"}), ("GET", "/recipients", None)):
            status, answer = gateway.admin(method, path, body)
            assert (status, json.loads(answer)["errorCode"]) == (503, "TEMPORARILY_UNAVAILABLE")
        assert not database.exists()
        (gateway.directory / "away.db").rename(database)
        assert gateway.admin("POST", "/recipients", {"name": "eve"})[0] == 201


@pytest.mark.parametrize("workers", [1, *at_night(2)])
def test_a_missing_directory_of_the_audit_log_is_noticed_at_the_start_and_by_check(tmp_path, workers):
    gateway = Gateway(tmp_path, audit={"file": "missing/audit.jsonl"})
    started = gateway.command("--workers", str(workers), operation="serve")
    assert started.returncode == 1
    assert "missing/audit.jsonl cannot be opened: No such file or directory" in started.stderr
    checked = gateway.command(operation="check")
    assert checked.returncode == 1
    assert f"the directory {tmp_path / 'missing'} does not exist" in checked.stdout
    (tmp_path / "missing").mkdir()
    assert gateway.command(operation="check").returncode == 0
    assert list((tmp_path / "missing").iterdir()) == []


@pytest.mark.alone
def test_it_starts_in_under_a_second(gateway):
    # From the command to the first answer that it is ready, without the time that others had the processor.
    taken = []
    for _ in range(3):
        start = time.monotonic()
        with gateway.running():
            waited_seconds = processor_wait_seconds(gateway.process.pid)
            taken.append(time.monotonic() - start - waited_seconds)
    assert min(taken) < 1, taken


@pytest.mark.parametrize("workers", [1, *at_night(2)])
def test_a_server_without_standard_streams_writes_its_log_into_no_other_file(gateway, workers):
    closed = 'exec "$0" -m gateway serve -c "$1" --workers "$2" <&- >&- 2>&-'
    process = gateway.process = subprocess.Popen(
        ["/bin/sh", "-c", closed, sys.executable, str(gateway.path), str(workers)],
        env=os.environ | {"PYTHONPATH": str(PACKAGE)},
        cwd=PACKAGE,
    )
    try:
        gateway.until(lambda: gateway.get("/readyz")[0] == 200)
        files = [str(Path(f"/proc/{process.pid}/fd/{descriptor}").readlink()) for descriptor in range(3)]
        assert files == ["/dev/null"] * 3
        assert gateway.shares() == (200, ["sales"])
        for worker in children(process.pid):
            assert str(Path(f"/proc/{worker}/fd/2").readlink()) == "/dev/null"
    finally:
        process.terminate()
        assert process.wait(30) == 0


def test_an_interruption_during_the_first_imports_ends_without_a_word():
    code = """
import sys

class Interrupted:
    def find_spec(self, name, *_rest):
        if name == "gateway.cli.command_line":
            raise KeyboardInterrupt

sys.meta_path.insert(0, Interrupted())
import gateway.__main__
"""
    ended = subprocess.run([sys.executable, "-c", code], check=False, cwd=PACKAGE, capture_output=True)
    assert (ended.returncode, ended.stderr) == (130, b"")


def printing_to(output, *arguments, options=()):
    command = [sys.executable, *options, "-m", "gateway", *arguments]
    ended = subprocess.run(command, check=False, cwd=PACKAGE, stdout=output, stderr=subprocess.PIPE)
    return ended.returncode, ended.stderr


@pytest.mark.parametrize(
    "arguments", [["completion", "bash"], ["doctor", "absent.share"], ["share", "list", "-c"]]
)
def test_a_command_whose_output_nobody_reads_ends_without_a_word(tmp_path, arguments):
    reader, writer = os.pipe()
    os.close(reader)
    file = tmp_path / "share.yaml"
    file.write_text("version: 1\ngateway: {tokenKeys: [{id: k, secret: 0123456789abcdef}]}\n")
    assert main(["share", "add", "sales", "-c", str(file)]) == 0
    with os.fdopen(writer) as output:
        words = [*arguments, file] if arguments[-1] == "-c" else arguments
        assert printing_to(output, *words, options=["-u"]) == (141, b"")


def test_names_of_all_scripts_are_printed_in_any_locale(tmp_path, monkeypatch):
    monkeypatch.setenv("PYTHONIOENCODING", "ascii")
    file = tmp_path / "share.yaml"
    file.write_text("version: 1\nshares: [{name: \u6771}]\n", encoding="utf-8")
    command = [sys.executable, "-m", "gateway", "share", "list", "-c", file]
    output = subprocess.run(command, check=True, cwd=PACKAGE, capture_output=True).stdout
    assert "\u6771" in output.decode("utf-8")


def test_an_output_that_cannot_be_written_is_an_error_in_words():
    with Path("/dev/full").open("w") as output:
        code, error = printing_to(output, "--version")
    assert code == 1
    assert error.count(b"\n") == 1
    assert error.endswith(b": No space left on device\n")


def test_a_defect_is_not_hidden_by_an_output_that_cannot_be_written():
    code = """
import sys
from gateway import __main__

class Defective:
    def parse_args(self, _given):
        print("a line")
        raise RuntimeError("a defect")

__main__.parser = lambda _command: Defective()
sys.exit(__main__.main([]))
"""
    environment = {**os.environ, "PYTHONUNBUFFERED": ""}
    with Path("/dev/full").open("w") as output:
        ended = subprocess.run(
            [sys.executable, "-c", code],
            cwd=PACKAGE,
            env=environment,
            stdout=output,
            stderr=subprocess.PIPE,
            check=False,
        )
    assert ended.returncode == 1
    assert ended.stderr.endswith(b"RuntimeError: a defect\n")


@pytest.mark.skipif(not hasattr(socket, "TCP_USER_TIMEOUT"), reason="the system has no such limit")
def test_a_connection_whose_client_reads_nothing_is_closed(tmp_path):
    limits = {"slowReaderSeconds": 1, "minimumBytesPerSecond": 1 << 20}
    gateway = Gateway(tmp_path, limits=limits, anonymous=True, recipients=[])
    gateway.settings["shares"] = [{"name": f"{'share' * 20}{number}", "schemas": []} for number in range(500)]
    gateway.write()
    with gateway.running(), socket.socket() as client:
        # So little that most of the answer has to wait.
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        client.connect(("127.0.0.1", gateway.port))
        client.sendall(b"GET /delta-sharing/shares HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
        client_port = client.getsockname()[1]
        wait_until(lambda: server_end(gateway.port, client_port) is None)
        received = b""
        client.settimeout(10)
        with suppress(ConnectionResetError):
            while piece := client.recv(1 << 16):
                received += piece
        length = int(re.search(rb"Content-Length: (\d+)", received)[1])
        assert len(received) < length


@pytest.mark.parametrize("workers", ["2", *at_night("1")])
def test_a_corrupt_database_of_recipients_ends_the_start_in_one_line(gateway, workers):
    gateway.settings["gateway"]["recipientsDatabase"] = "recipients.db"
    gateway.write()
    (gateway.directory / "recipients.db").write_bytes(b"no database " * 1000)
    ended = gateway.command("--workers", workers, operation="serve")
    assert ended.returncode == 1
    (line,) = ended.stderr.splitlines()
    reason = "the recipients' database cannot be opened: file is not a database. The server does not start: "
    assert line.startswith(f"delta-gateway: {reason}")


@pytest.mark.parametrize("workers", [1, *at_night(2)])
def test_a_storage_that_a_reload_removes_raises_no_alert(tmp_path, workers):
    entry = {"prefix": "s3://gone/", "endpoint": "http://127.0.0.1:1", "pathStyle": True, "retrySeconds": 0}
    keys = {"accessKeyId": "a", "secretAccessKey": "b", "sessionToken": "t"}
    ends = {"sessionExpires": "2099-01-01T00:00:00Z"}
    table = {"name": "t", "location": "s3://gone/t"}
    faults = {"failures": 1, "openSeconds": 3600}
    gateway = Gateway(tmp_path, storages=[entry | keys | ends], storageFaults=faults)
    gateway.settings["shares"][0]["schemas"] = [{"name": "d", "tables": [table]}]
    gateway.write()
    names = [
        'delta_gateway_storage_breaker_open{storage="s3://gone"}',
        'delta_gateway_storage_credentials_expire_timestamp_seconds{storage="s3://gone/"}',
    ]

    def values():
        page = gateway.admin("GET", "/metrics")[1].decode()
        return [page.partition(f"{name} ")[2].partition("\n")[0] for name in names]

    with gateway.running(workers=workers):
        assert gateway.get("/delta-sharing/shares/sales/schemas/d/tables/t/version")[0] == 503
        gateway.until(lambda: values() == ["1.0", "4.0709088e+09"])
        gateway.settings["shares"][0]["schemas"] = []
        gateway.settings["gateway"]["storages"] = []
        gateway.write()
        gateway.until(lambda: values() == ["", ""])


@pytest.mark.parametrize(
    ("memory_bytes", "workers", "starts"), [(64 << 20, 2, False), *at_night((64 << 20, 1, True))]
)
def test_memory_that_is_too_little_for_each_worker_is_refused_at_the_start_and_by_check(
    tmp_path, memory_bytes, workers, starts
):
    gateway = Gateway(tmp_path, limits={"memoryBytes": memory_bytes})
    reason = "gateway.limits.memoryBytes leaves 32 MiB to each of 2 processes"
    checked = gateway.command("--workers", str(workers), operation="check")
    assert (checked.returncode == 0, reason in checked.stdout) == (starts, not starts)
    if not starts:
        refused = gateway.command("--workers", str(workers), operation="serve")
        assert refused.returncode == 1
        assert reason in refused.stderr


def test_a_server_may_have_as_many_descriptors_as_the_system_allows(gateway):
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(soft, 512), hard))
    try:
        with gateway.running(workers=2):
            gateway.until(lambda: "serving by 2 workers" in gateway.log())
            for process in (gateway.process.pid, *children(gateway.process.pid)):
                assert resource.prlimit(process, resource.RLIMIT_NOFILE) == (hard, hard)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
