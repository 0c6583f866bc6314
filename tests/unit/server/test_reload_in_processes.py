"""Effects of a reload on connections and on the shutdown, through a real process."""

import json
import os
import signal
import socket
import time
from contextlib import suppress

import pytest
from support.gateway_directory import HEAD, Gateway
from support.nightly import at_night
from support.processes import children
from support.waiting import everywhere

pytestmark = pytest.mark.processes


def reload(gateway, **section):
    gateway.settings["gateway"] |= section
    gateway.write()
    gateway.until(lambda: gateway.admin("GET", "/healthz")[0] == 200)
    status, body = gateway.admin("POST", "/reload")
    assert (status, b'"reloaded":true' in body) == (200, True)


@pytest.mark.parametrize("workers", [2, *at_night(1)])
def test_the_last_recipient_that_is_removed_has_no_access(tmp_path, workers):
    gateway = Gateway(tmp_path)
    with gateway.running(workers=workers):
        assert gateway.shares()[0] == 200
        reload(gateway, recipients=[])
        gateway.until(lambda: gateway.shares()[0] == 401)
        gateway.until(lambda: "no recipient can read" in gateway.log())


def test_idle_connections_end_after_the_reloaded_timeout(tmp_path):
    gateway = Gateway(tmp_path, limits={"idleConnectionSeconds": 60})
    with gateway.running():
        reload(gateway, limits={"idleConnectionSeconds": 1})
        with socket.create_connection(("127.0.0.1", gateway.port), 30) as connection:
            started = time.monotonic()
            connection.sendall((HEAD + "\r\n").encode())
            while connection.recv(4096):
                pass
            assert 0.5 < time.monotonic() - started < 30


@pytest.mark.parametrize("workers", [1, *at_night(2)])
def test_readiness_fails_for_the_reloaded_drain_delay(tmp_path, workers):
    gateway = Gateway(tmp_path, drainDelaySeconds=0)
    with gateway.running(workers=workers):
        gateway.until(lambda: workers == 1 or "serving by 2 workers" in gateway.log())
        reload(gateway, drainDelaySeconds=4)
        gateway.process.terminate()
        started = time.monotonic()
        gateway.until(lambda: gateway.get("/readyz")[0] == 503)
        assert gateway.process.wait(30) == 0
        assert time.monotonic() - started > 3


@pytest.mark.parametrize("workers", [2, *at_night(1)])
def test_a_drain_lasts_for_the_reloaded_duration(tmp_path, workers):
    gateway = Gateway(tmp_path, drainDelaySeconds=0, drainSeconds=50, limits={"bodySeconds": 60})
    with gateway.running(workers=workers):
        gateway.until(lambda: workers == 1 or "serving by 2 workers" in gateway.log())
        reload(gateway, drainSeconds=1)
        with socket.create_connection(("127.0.0.1", gateway.port), 30) as connection:
            # A request that is under way: its body never comes.
            sent = HEAD.replace("GET /delta-sharing/shares", "GET /delta-sharing/shares/sales")
            connection.sendall((sent + "Content-Length: 9\r\n\r\n{").encode())
            time.sleep(0.2)
            started = time.monotonic()
            gateway.process.terminate()
            with suppress(OSError):
                while connection.recv(4096):
                    pass
            assert gateway.process.wait(40) == 0
            assert time.monotonic() - started < 30


@pytest.mark.parametrize("workers", [1, *at_night(2)])
def test_a_reloaded_password_is_that_of_the_next_connection(postgresql, tmp_path, workers):
    name = postgresql.new_database()
    role = postgresql.new_role("first")
    url = postgresql.url(name).replace("//postgres@", f"//{role}@")
    file = tmp_path / "password"
    file.write_text("first\n")
    gateway = Gateway(tmp_path, database={"url": url, "passwordFile": "password"})

    def readable():
        return b"delta_gateway_recipients_readable 1.0" in gateway.admin("GET", "/metrics")[1]

    def administers():
        return gateway.admin("GET", "/recipients/bob")[0] == 200

    with gateway.running(workers=workers):
        profile = tmp_path / "bob.share"
        assert gateway.command("add", "bob", "--profile", str(profile)).returncode == 0
        token = json.loads(profile.read_text())["bearerToken"]
        gateway.until(lambda: gateway.shares(token)[0] == 200 and administers())
        postgresql.execute(f"ALTER ROLE {role} PASSWORD 'second'")
        postgresql.execute(f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = '{role}'")
        gateway.until(lambda: not readable())
        file.write_text("second\n")
        gateway.until(readable)
        gateway.until(administers)
        assert gateway.command("revoke", "bob").returncode == 0
        gateway.until(lambda: gateway.shares(token)[0] == 401)


@pytest.mark.nightly
def test_memory_that_is_too_little_for_each_worker_is_refused_by_a_reload(tmp_path):
    gateway = Gateway(tmp_path)
    with gateway.running(workers=2):
        gateway.until(lambda: gateway.shares() == (200, ["sales"]))
        gateway.settings["gateway"]["limits"] = {"memoryBytes": 64 << 20}
        gateway.write()
        gateway.until(lambda: "leaves 32 MiB to each of 2 processes" in gateway.log())
        # A worker that starts afterwards reads the same file.
        worker = children(gateway.process.pid)[0]
        os.kill(worker, signal.SIGKILL)
        gateway.until(lambda: "this worker starts by the one in force: gateway.limits" in gateway.log())
        gateway.until(everywhere(gateway.shares, (200, ["sales"])))
        # The admin listener begins after the workers.
        gateway.until(lambda: b'"reloaded":false' in gateway.admin("POST", "/reload")[1])
