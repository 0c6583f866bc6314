"""Several workers are one server: each accepts tokens of the others, and a second server is refused."""

import json
import os
import signal
import ssl
import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from itertools import count

import pytest
from support.gateway_directory import TOKEN, Gateway, sha256
from support.nightly import at_night
from support.processes import children, free_port
from support.waiting import everywhere
from tables.small_tables import lay_out

pytestmark = pytest.mark.processes

TABLE = "/delta-sharing/shares/sales/schemas/s/tables/t"


@pytest.fixture
def gateway(tmp_path):
    """A gateway without token keys, with a local table of four files."""
    lay_out(tmp_path / "tables")
    gateway = Gateway(tmp_path)
    del gateway.settings["gateway"]["tokenKeys"]
    tables = [{"name": "t", "location": str(tmp_path / "tables/whole"), "historyShared": True}]
    gateway.settings["shares"][0]["schemas"] = [{"name": "s", "tables": tables}]
    gateway.settings["shares"].append({"name": "third"})
    gateway.settings["gateway"]["recipients"][0]["shares"] = ["sales", "third"]
    gateway.write()
    return gateway


def query(gateway, **body):
    """The lines of a query; each request is a connection of its own, so any worker may answer it."""
    status, lines, _ = gateway.get(f"{TABLE}/query", method="POST", body=body)
    assert status == 200, lines
    parsed = [json.loads(line) for line in lines.splitlines()]
    assert "errorMessage" not in parsed[-1].get("endStreamAction", {}), parsed[-1]
    return parsed


def tokens(gateway):
    """A token of each kind, and a local URL's path."""
    page = query(gateway, maxFiles=1)
    refresh = query(gateway, includeRefreshToken=True)[-1]["endStreamAction"]["refreshToken"]
    listing = json.loads(gateway.get("/delta-sharing/shares?maxResults=1")[1])["nextPageToken"]
    url = page[2]["file"]["url"].removeprefix(f"http://127.0.0.1:{gateway.port}")
    return page[-1]["endStreamAction"]["nextPageToken"], refresh, listing, url


def work_everywhere(gateway, made, times=12):
    """Use each of the tokens so often that every worker has met it."""
    page, refresh, listing, url = made
    for _ in range(times):
        assert query(gateway, maxFiles=1, pageToken=page)[2]["file"]
        assert len(query(gateway, refreshToken=refresh)) == 7
        assert gateway.get(f"/delta-sharing/shares?pageToken={listing}")[0] == 200
        assert gateway.get(url)[:2] == (200, b"0123456789")


@pytest.mark.parametrize("workers", [2, *at_night(4)])
def test_page_tokens_refresh_tokens_and_local_urls_work_on_any_worker(gateway, workers):
    with gateway.running(workers=workers):
        work_everywhere(gateway, tokens(gateway))


@pytest.mark.nightly
def test_tokens_outlive_a_worker_and_reloads_that_bring_keys_and_take_them(gateway):
    with gateway.running(workers=2):
        gateway.until(lambda: "serving by 2 workers" in gateway.log())
        made = tokens(gateway)
        for victim in children(gateway.process.pid):
            os.kill(victim, signal.SIGKILL)
        work_everywhere(gateway, made, times=6)
        gateway.settings["gateway"]["tokenKeys"] = [{"id": "k1", "secret": "k" * 32}]
        gateway.write()
        assert reload(gateway)["reloaded"]
        work_everywhere(gateway, made, times=6)
        del gateway.settings["gateway"]["tokenKeys"]
        gateway.write()
        assert reload(gateway)["reloaded"]
        work_everywhere(gateway, made, times=6)
        work_everywhere(gateway, tokens(gateway), times=6)


def test_a_recipient_has_one_budget_over_all_workers_also_when_some_are_killed(gateway):
    limits = {"requestsPerSecond": 0.01, "burstRequests": 40, "queueSeconds": 0}
    gateway.settings["gateway"]["limits"] = {"recipient": limits}
    other = {"name": "bob", "tokens": [{"sha256": sha256("token-of-bob")}], "shares": ["sales"]}
    gateway.settings["gateway"]["recipients"].append(other)
    gateway.write()

    def status(_, token=TOKEN):
        return gateway.get("/delta-sharing/shares", token)[0]

    def admitted(requests):
        with ThreadPoolExecutor(8) as threads:
            statuses = Counter(threads.map(status, range(requests)))
        assert set(statuses) <= {200, 429}
        return statuses[200]

    with gateway.running(workers=4):
        gateway.until(lambda: "serving by 4 workers" in gateway.log())
        first = admitted(25)
        victims = children(gateway.process.pid)[:2]
        for victim in victims:
            os.kill(victim, signal.SIGKILL)
        gateway.until(lambda: len({*children(gateway.process.pid)} - {*victims}) == 4)
        assert first + admitted(135) == 40
        assert status(0, "token-of-bob") == 200


def reload(gateway):
    """The answer of POST /reload."""
    gateway.until(lambda: gateway.admin("GET", "/healthz")[0] == 200)
    status, body = gateway.admin("POST", "/reload")
    assert status == 200
    return json.loads(body)


@pytest.mark.nightly
def test_all_workers_show_one_self_signed_certificate(gateway):
    gateway.settings["ssl"] = {"selfSigned": True}
    gateway.write()

    def certificate(_):
        return ssl.get_server_certificate(("127.0.0.1", gateway.port), timeout=20)

    gateway.get = lambda *_, **__: (certificate(0) and 200,)
    with gateway.running(workers=3), ThreadPoolExecutor(4) as threads:
        assert len(set(threads.map(certificate, range(40)))) == 1


@pytest.mark.parametrize("workers", [1, 2])
def test_a_reload_returns_the_result_of_each_worker(gateway, workers):
    with gateway.running(workers=workers):
        answer = reload(gateway)
        assert (answer["reloaded"], answer["refused"]) == (True, None)
        serving = {gateway.process.pid} if workers == 1 else {*children(gateway.process.pid)}
        assert {worker["processId"] for worker in answer["workers"]} == serving
        assert all(worker["reloaded"] for worker in answer["workers"])
        gateway.settings["port"] = free_port()
        gateway.write()
        refused = reload(gateway)
        assert (refused["reloaded"], refused["workers"]) == (False, [])
        assert refused["refused"] == "port: a change of this needs a restart"


@pytest.mark.parametrize("change", ["a grant of nothing", "no secret", *at_night("another port", "no YAML")])
def test_a_worker_is_started_again_while_the_file_is_refused(gateway, change):
    secret = gateway.directory / "token-key"
    secret.write_text("k" * 32)
    gateway.settings["gateway"]["tokenKeys"] = [{"id": "k1", "secretFile": "token-key"}]
    gateway.write()
    with gateway.running(workers=2):
        gateway.until(lambda: "serving by 2 workers" in gateway.log())
        # The one in force is not that of the start. All processes have it: each reads the file by itself.
        gateway.settings["gateway"]["recipients"][0]["shares"] = ["third"]
        gateway.write()
        assert reload(gateway)["reloaded"]
        if change == "a grant of nothing":
            gateway.settings["gateway"]["recipients"][0]["shares"] = ["not there"]
        elif change == "another port":
            gateway.settings["port"] = free_port()
            gateway.settings["gateway"]["recipients"][0]["shares"] = ["sales"]
        gateway.write()
        if change == "no YAML":
            gateway.path.write_text("shares: [")
        if change == "no secret":
            secret.unlink()
        gateway.until(lambda: gateway.log().count("is refused, the current one stays in force") >= 3)
        victims = children(gateway.process.pid)
        for victim in victims:
            os.kill(victim, signal.SIGKILL)
        assert everywhere(gateway.shares, (200, ["third"]))()
        gateway.until(lambda: gateway.log().count("this worker starts by the one in force") == 2)
        gateway.until(lambda: gateway.log().count("is refused, the current one stays in force") >= 5)
        assert not {*victims} & {*children(gateway.process.pid)}
        secret.write_text("k" * 32)
        gateway.settings["port"] = gateway.port
        gateway.settings["gateway"]["recipients"][0]["shares"] = ["logs"]
        gateway.write()
        gateway.until(everywhere(gateway.shares, (200, ["logs"])))


@contextmanager
def written_slowly(path, text):
    """A file that is valid at any time, and complete at the end of the block."""
    is_done = threading.Event()

    def write():
        for number in count(1):
            path.write_text(text + " " * number)
            if is_done.wait(0.1):
                return

    with ThreadPoolExecutor(1) as threads:
        writing = threads.submit(write)
        try:
            yield
        finally:
            is_done.set()
            writing.result()


def test_a_worker_does_not_start_by_a_file_that_is_still_being_written(gateway):
    with gateway.running(workers=2):
        gateway.settings["gateway"]["recipients"][0]["shares"] = ["logs"]
        with written_slowly(gateway.path, json.dumps(gateway.settings)):
            os.kill(children(gateway.process.pid)[0], signal.SIGKILL)
            gateway.until(lambda: "starts by the one in force: it is being changed" in gateway.log())
            # Time for it to serve.
            end = time.monotonic() + 5
            while time.monotonic() < end:
                assert gateway.shares() == (200, ["sales", "third"])
                time.sleep(0.05)
        gateway.until(everywhere(gateway.shares, (200, ["logs"])))


def test_a_worker_is_started_again_without_its_cache_directory_and_audit_log(gateway):
    columns, audit = gateway.directory / "columns", gateway.directory / "audit.jsonl"
    gateway.settings["gateway"]["cache"] = {"directory": str(columns)}
    gateway.write()
    with gateway.running(workers=2):
        assert query(gateway)
        columns.chmod(0o777)
        audit.rename(gateway.directory / "away.jsonl")
        audit.mkdir()
        victims = children(gateway.process.pid)
        for victim in victims:
            os.kill(victim, signal.SIGKILL)
        gateway.until(lambda: len({*children(gateway.process.pid)} - {*victims}) == 2)
        assert query(gateway)
        gateway.until(lambda: "the audit log cannot be written: Is a directory" in gateway.log())
        gateway.until(lambda: gateway.log().count("this worker keeps columns in memory") == 2)
        audit.rmdir()
        gateway.until(lambda: audit.is_file() and gateway.records())
    ended = gateway.command("--workers", "2", operation="serve")
    assert (ended.returncode, "other users can write to it" in ended.stderr) == (1, True)


@pytest.mark.parametrize(
    ("first", "second", "taken"),
    [
        (2, 2, "port"),
        (1, 1, "admin port"),
        *at_night((1, 1, "port"), (1, 2, "port"), (2, 1, "port"), (1, 2, "admin port")),
    ],
)
def test_a_second_server_on_a_busy_port_is_refused_in_one_line(gateway, tmp_path, first, second, taken):
    directory = tmp_path / "second"
    directory.mkdir()
    other = Gateway(directory)
    if taken == "port":
        other.settings["port"] = gateway.port
    else:
        other.settings["gateway"]["admin"]["port"] = gateway.admin_port
    other.write()
    with gateway.running(workers=first):
        refused = other.command("--workers", str(second), operation="serve")
        port = gateway.port if taken == "port" else gateway.admin_port
        assert refused.returncode == 1
        line = f"delta-gateway: cannot listen on 127.0.0.1 port {port}: another program listens there\n"
        assert refused.stderr == line
        assert gateway.shares()[0] == 200


@pytest.mark.parametrize(("named", "later"), [(True, False), *at_night((False, False), (False, True))])
def test_a_worker_restarted_while_the_database_is_missing_rejects_no_recipient(tmp_path, named, later):
    gateway = Gateway(tmp_path, **({"recipientsDatabase": "recipients.db"} if named else {}))
    place, away = tmp_path / "recipients.db", tmp_path / "away"

    def add():
        added = gateway.command("add", "bob", "--share", "logs", "--profile", str(tmp_path / "bob.share"))
        assert added.returncode == 0, added.stderr
        return json.loads((tmp_path / "bob.share").read_text())["bearerToken"]

    token = None if later else add()
    with gateway.running(workers=2):
        gateway.until(lambda: "serving by 2 workers" in gateway.log())
        if later:
            token = add()
            gateway.until(everywhere(lambda: gateway.shares(token)[0], 200))
            # The supervisor looks for the file twice a second.
            time.sleep(2)
        victims = children(gateway.process.pid)
        place.rename(away)
        os.kill(victims[0], signal.SIGKILL)
        gateway.until(lambda: "waits before it starts again" in gateway.log())
        # The other worker serves meanwhile, by what it has read.
        assert everywhere(lambda: gateway.shares(token), (200, ["logs"]))()
        assert "ended with code 1" not in gateway.log()
        assert not place.exists()
        away.rename(place)
        gateway.until(lambda: len({*children(gateway.process.pid)} - {victims[0]}) == 2)
        gateway.until(everywhere(lambda: gateway.shares(token), (200, ["logs"])))
