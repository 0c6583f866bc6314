"""The first workers of a server are forked from its supervisor: one reading, and sockets of their own."""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest
from support.gateway_directory import Gateway
from support.processes import PACKAGE, children, gateway_command, package_environment
from support.waiting import everywhere

from gateway.access.recipient_store import RecipientDatabase
from gateway.access.share_store import ShareDatabase
from gateway.access.stored_recipients import DatabaseReader
from gateway.access.stored_shares import StoredShare
from gateway.config import loads
from gateway.config.database import DatabasePlace
from gateway.server import start as starting
from gateway.server.start import started
from gateway.telemetry.clock import epoch_ms

pytestmark = [
    pytest.mark.processes,
    pytest.mark.skipif(sys.platform != "linux", reason="workers are forked on Linux alone"),
]

UNREADABLE = "recipient 'bob' cannot be read and is refused"


def run(code, *arguments):
    """What a new process prints. It shows no warning of a fork beside threads."""
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", code, *map(str, arguments)],
        cwd=PACKAGE,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def url(place):
    return f"sqlite:///{place.path}" if place.url is None else place.url.reveal()


def command_lines(gateway):
    """The command line of each worker: a forked one has that of its supervisor."""
    supervisor = Path(f"/proc/{gateway.process.pid}/cmdline").read_bytes()
    return [
        Path(f"/proc/{worker}/cmdline").read_bytes() == supervisor for worker in children(gateway.process.pid)
    ]


def requests(gateway):
    """The ids of requests in the log."""
    return [line["request"] for line in map(json.loads, gateway.log().splitlines()) if "request" in line]


def test_workers_of_a_start_have_one_reading_and_a_restarted_one_its_own(place, tmp_path):
    """By the log line of an unreadable recipient, which each reading of its rows writes."""
    gateway = Gateway(tmp_path, database=url(place))
    tokens = {}
    with RecipientDatabase(place, now_ms=epoch_ms) as database:
        for name in ("bob", "carla"):
            tokens[name] = database.add(name, shares=["logs"]).token
        with database.database.changing() as connection:
            connection.exec_driver_sql("UPDATE recipients SET properties = 'none' WHERE key = 'bob'")
    with gateway.running(workers=4):
        gateway.until(lambda: "serving by 4 workers" in gateway.log())
        assert command_lines(gateway) == [True] * 4
        assert {gateway.shares(tokens["carla"]) == (200, ["logs"]) for _ in range(20)} == {True}
        assert {gateway.shares(tokens["bob"])[0] for _ in range(20)} == {401}
        gateway.until(lambda: UNREADABLE in gateway.log() and len(requests(gateway)) > 40)
        assert len(set(requests(gateway))) == len(requests(gateway))
        assert gateway.log().count(UNREADABLE) == 1
        left_out = b"delta_gateway_stored_recipients_left_out 1.0"
        gateway.until(lambda: left_out in gateway.admin("GET", "/metrics")[1])
        victim = children(gateway.process.pid)[0]
        os.kill(victim, signal.SIGKILL)
        gateway.until(lambda: gateway.log().count(UNREADABLE) == 2)
        gateway.until(lambda: sorted(command_lines(gateway)) == [False, True, True, True])
        assert gateway.command("revoke", "carla").returncode == 0
        gateway.until(everywhere(lambda: gateway.shares(tokens["carla"])[0], 401))


def test_a_start_that_fails_after_the_fork_writes_its_lines_once(tmp_path):
    gateway = Gateway(tmp_path, audit={"file": str(tmp_path)}, unknown=1)
    done = subprocess.run(
        gateway_command("serve", "-c", gateway.path, "--workers", "3"),
        env=package_environment(),
        stderr=subprocess.PIPE,
        text=True,
        check=False,
        timeout=60,
    )
    # The pipe ends when the last worker has ended.
    warning, reason = done.stderr.splitlines()
    assert "unknown key gateway.unknown" in warning
    assert (done.returncode, reason.endswith("cannot be opened: Is a directory")) == (1, True)


@pytest.mark.parametrize("workers", [1, 2])
def test_a_start_that_waits_for_its_database_has_written_its_lines(tmp_path, workers):
    place = DatabasePlace(tmp_path / "recipients.db")
    gateway = Gateway(tmp_path, database=url(place), unknown=1)
    RecipientDatabase(place, now_ms=epoch_ms).close()
    with closing(sqlite3.connect(place.path, isolation_level=None)) as other:
        other.execute("BEGIN EXCLUSIVE")
        with subprocess.Popen(
            gateway_command("serve", "-c", gateway.path, "--workers", str(workers)),
            env=package_environment(),
            stderr=subprocess.PIPE,
            text=True,
        ) as process:
            assert "unknown key gateway.unknown" in process.stderr.readline()
            process.terminate()
            assert process.stderr.read() == "", "it had not given up"
    assert process.returncode == -signal.SIGTERM


def test_a_reader_continues_after_the_reading_that_it_takes_over(place):
    with RecipientDatabase(place, now_ms=epoch_ms) as database:
        database.add("alice", shares=["sales"])
        database.add("bob", shares=["sales"])
        config = loads(f"version: 1\nshares: []\ngateway: {{anonymous: true, database: '{url(place)}'}}\n")
        with ShareDatabase(config, now_ms=epoch_ms) as shares:
            shares.add(StoredShare("first"))
            first = DatabaseReader(lambda: place)
            known, known_shares = first.read(), first.shares
            # While the worker that takes it over is being made.
            database.grant("bob", ["logs"])
            shares.add(StoredShare("second"))
        with closing(first.handed_over(lambda: place)) as reader:
            found = reader.read()
            assert found.by_key["alice"] is known.by_key["alice"]
            assert (*known.by_key["bob"].recipient.shares,) == ("sales",)
            assert found.by_key["bob"].recipient.shares == {"logs", "sales"}
            assert [*reader.shares] == ["first", "second"]
            assert reader.shares["first"] is known_shares["first"]
        assert not first.shares, "what is handed over is not kept"


def test_a_reader_that_takes_over_notices_a_restored_file(tmp_path):
    place, other = (DatabasePlace(tmp_path / name) for name in ("a.db", "b.db"))
    for one, name in ((place, "alice"), (other, "bob")):
        with RecipientDatabase(one, now_ms=epoch_ms) as database:
            database.add(name, shares=["sales"])
    first = DatabaseReader(lambda: place)
    assert [*first.read().by_key] == ["alice"]
    # It has a change of the same number.
    other.path.replace(place.path)
    with closing(first.handed_over(lambda: place)) as reader:
        assert [*reader.read().by_key] == ["bob"]


def test_nothing_is_forked_beside_a_thread():
    code = """
import json, threading
from gateway.server.forking import can_fork
alone = can_fork()
end = threading.Event()
thread = threading.Thread(target=end.wait)
thread.start()
print(json.dumps([alone, can_fork()]))
end.set()
"""
    assert run(code) == [True, False]


def test_workers_are_spawned_where_nothing_can_be_forked(tmp_path, monkeypatch):
    gateway = Gateway(tmp_path)
    monkeypatch.setattr(starting, "can_fork", lambda: False)
    start = started(gateway.path, workers=2)
    for listener in (*start.listeners, start.admin_listener):
        listener.close()
    assert (len(start.listeners), start.forked, start.slot) == (2, None, None)


DESCRIPTORS = """
import asyncio, json, os, resource, signal, socket, sys
from contextlib import suppress
from gateway.server.forking import fork_workers
from gateway.server.slot import LENGTH_BYTES, Slot
from gateway.server.supervisor import bind

def sockets():
    found = []
    for one in os.listdir("/proc/self/fd"):
        with suppress(FileNotFoundError):
            found.append(os.readlink(f"/proc/self/fd/{one}"))
    # Those of processes, too.
    return sorted(one for one in found if one.startswith("socket:") or "pidfd" in one)

# As the launcher may have left it.
signal.signal(signal.SIGCHLD, signal.SIG_IGN)
admin, listeners = socket.socket(), bind("127.0.0.1", 0, 3)
before = sockets()
forked = fork_workers(listeners, [admin], lambda: os.environ.pop("HOME", None))
if isinstance(forked, Slot):
    forked = forked.with_secrets()
    own = [f"socket:[{os.fstat(one.fileno()).st_ino}]" for one in (forked.listener, forked.control_socket)]
    message = [forked.index, sockets() == sorted(own), os.getsid(0) == os.getpid(), "HOME" in os.environ]
    forked.control_socket.sendall(json.dumps(message).encode())
    if forked.index == 2:
        signal.pause()
    sys.exit(forked.index)

async def end(worker):
    loop, text = asyncio.get_running_loop(), b"secret"
    await loop.sock_sendall(worker.control_socket, len(text).to_bytes(LENGTH_BYTES, "big") + text)
    said = json.loads(await loop.sock_recv(worker.control_socket, 1000))
    if worker.index == 2:
        worker.terminate()
    return said, await worker.wait(), worker.returncode

async def main():
    # No descriptor is left.
    resource.setrlimit(resource.RLIMIT_NOFILE, (0, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
    return await asyncio.gather(*map(end, forked.workers))

print(json.dumps([len(before), *asyncio.run(main())]))
"""


def test_a_forked_worker_has_its_own_sockets_alone_and_its_end_is_reported():
    before, *workers = run(DESCRIPTORS)
    assert before == 4
    assert workers == [
        [[index, True, True, False], code, code] for index, code in enumerate((0, 1, -signal.SIGTERM))
    ]


def test_workers_that_no_process_is_left_for_are_not_among_the_forked():
    code = """
import json, os, sys
from gateway.server import forking
from gateway.server.supervisor import bind

fork, count = os.fork, iter(range(3))
def failing():
    if next(count) == 1:
        raise BlockingIOError("no process is left")
    return fork()

os.fork = failing
forked = forking.fork_workers(bind("127.0.0.1", 0, 3), [], lambda: None)
if not isinstance(forked, forking.ForkedWorkers):
    try:
        forked.with_secrets()
    except ConnectionResetError:
        os._exit(7)
(worker,) = forked.workers
worker.control_socket.close()
print(json.dumps([worker.index, os.waitstatus_to_exitcode(os.waitpid(worker.pid, 0)[1])]))
"""
    assert run(code) == [0, 7]
