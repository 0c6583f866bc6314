"""Servers whose recipients are in a database: replicas, outages, restarts, and a move to another place."""

import http.client
import json
import os
import secrets
import signal
import time
from contextlib import ExitStack, closing, suppress
from pathlib import Path

import pytest
from support.gateway_directory import Gateway
from support.nightly import at_night
from support.postgresql_server import running as postgresql_running
from support.postgresql_server import running_on_small_disk
from support.processes import processor_wait_seconds, server_process
from support.waiting import everywhere, wait_until

from gateway.config.database import DatabasePlace
from gateway.governance.credential_store import LOOK_SECONDS
from gateway.governance.reading_thread import elapsed_seconds
from gateway.governance.recipient_store import RecipientDatabase
from gateway.times import epoch_ms

pytestmark = pytest.mark.processes

CHANGES = int(os.environ.get("DATABASE_CHANGES", "5"))
CONNECTIONS = 8


def at(place):
    return f"sqlite:///{place.path}" if place.url is None else place.url.reveal()


def added(gateway, name="bob", *options):
    profile = gateway.directory / f"{name}.share"
    done = gateway.command("add", name, "--share", "logs", "--profile", str(profile), *options)
    assert done.returncode == 0, done.stderr
    return json.loads(profile.read_text())["bearerToken"]


def readable(gateway):
    return b"delta_gateway_recipients_readable 1.0" in gateway.admin("GET", "/metrics")[1]


def statuses(connections, token):
    """The status of each connection, which stays with one worker."""
    found = []
    for connection in connections:
        connection.request("GET", "/delta-sharing/shares/sales", headers={"Authorization": f"Bearer {token}"})
        response = connection.getresponse()
        response.read()
        found.append(response.status)
    return found


@pytest.mark.parametrize("place", ["postgresql", *at_night("sqlite")], indirect=True)
def test_every_worker_of_every_replica_sees_a_change_within_a_second(place, tmp_path):
    """Measured from before the change to the answer of the last worker.

    The time that other programs had the processor is not counted. DATABASE_CHANGES sets how many changes.
    """
    replicas = [Gateway(tmp_path / name, database=at(place)) for name in made(tmp_path, "a", "b")]
    with ExitStack() as running:
        for replica in replicas:
            running.enter_context(replica.running(workers=2))
        token = added(replicas[0])
        for replica in replicas:
            replica.until(lambda replica=replica: replica.shares(token) == (200, ["logs"]))
        connections = [
            running.enter_context(closing(http.client.HTTPConnection("127.0.0.1", replica.port, timeout=20)))
            for replica in replicas
            for _ in range(CONNECTIONS)
        ]
        database = running.enter_context(RecipientDatabase(place, now_ms=epoch_ms))
        seconds = []
        for number in range(CHANGES):
            granted = number % 2 == 0
            before, started = waits(replicas), time.monotonic()
            if granted:
                database.grant("bob", ["sales"])
            else:
                database.revoke("bob", shares=["sales"])
            while {*statuses(connections, token)} != {200 if granted else 404}:
                assert time.monotonic() - started < 60
                # The workers need the processors on which this looks.
                time.sleep(0.05)
            taken = time.monotonic() - started
            here, *servers = (now - then for now, then in zip(waits(replicas), before, strict=True))
            seconds.append(taken - here - max(servers))
    assert sorted(seconds)[int(len(seconds) * 0.99)] < 1


def made(directory, *names):
    for name in names:
        (directory / name).mkdir()
        yield name


def waits(replicas):
    """How long this process has waited for a processor, and each of the servers' workers."""
    processes = [os.getpid(), *(worker for replica in replicas for worker in workers(replica))]
    return [processor_wait_seconds(process) for process in processes]


def test_a_server_outlives_a_restart_of_its_database_and_then_sees_changes(postgresql, tmp_path):
    gateway = Gateway(tmp_path, database=postgresql.url(postgresql.new_database()))
    with gateway.running(workers=2):
        token = added(gateway)
        gateway.until(everywhere(lambda: gateway.shares(token), (200, ["logs"])))
        postgresql.kill()
        gateway.until(lambda: not readable(gateway))
        assert gateway.shares(token) == (200, ["logs"])
        assert gateway.get("/readyz")[0] == 200
        status, answer = gateway.admin("POST", "/recipients/bob/rotate", {})
        assert (status, b"cannot be written" in answer) == (503, True)
        refused = gateway.command("rotate", "bob")
        assert (refused.returncode, refused.stderr.count("\n")) == (1, 1)
        postgresql.start()
        gateway.until(lambda: readable(gateway))
        assert gateway.command("revoke", "bob").returncode == 0
        gateway.until(everywhere(lambda: gateway.shares(token)[0], 401))


def test_a_server_that_starts_during_an_outage_says_why_it_does_not_and_what_to_do(tmp_path):
    gateway = Gateway(tmp_path, database=f"postgresql://gateway:secret@/shares?host={tmp_path}")
    with server_process(gateway.path, tmp_path / "log") as process:
        assert process.wait(30) == 1
    (line,) = [line for line in gateway.log().splitlines() if "database cannot be opened" in line]
    assert "connection" in line
    assert "no state is kept on disk" in line
    assert "Make the database reachable and start the server again" in line
    assert "secret" not in gateway.log()
    assert "Traceback" not in gateway.log()


@pytest.mark.nightly
def test_a_worker_that_ends_during_an_outage_waits_and_the_others_serve(postgresql, tmp_path):
    gateway = Gateway(tmp_path, database=postgresql.url(postgresql.new_database()))
    with gateway.running(workers=2):
        token = added(gateway)
        gateway.until(everywhere(lambda: gateway.shares(token), (200, ["logs"])))
        postgresql.kill()
        gateway.until(lambda: not readable(gateway))
        one, other = workers(gateway)
        os.kill(one, signal.SIGKILL)
        gateway.until(lambda: "waits before it starts again" in gateway.log())
        # No connection goes to the socket of the worker that waits.
        assert {gateway.shares(token)[0] for _ in range(30)} == {200}
        # The supervisor looks once a second.
        time.sleep(1.5)
        assert workers(gateway) == [other]
        assert b"delta_gateway_worker_restarts_total 1.0" in gateway.admin("GET", "/metrics")[1]
        assert gateway.log().count("waits before it starts again") == 1
        postgresql.start()
        gateway.until(lambda: len(workers(gateway)) == 2 and readable(gateway))
        assert gateway.command("revoke", "bob").returncode == 0
        gateway.until(everywhere(lambda: gateway.shares(token)[0], 401))


@pytest.mark.nightly
def test_a_failover_to_a_standby_goes_on_with_all_that_it_has(tmp_path):
    """Streaming replication, and a URL with both hosts, of which the one that takes changes is used."""
    with postgresql_running() as primary, primary.standby() as standby:
        name = primary.new_database()
        gateway = Gateway(tmp_path, database=primary.url(name, standby))
        with gateway.running(workers=2):
            token, other = added(gateway), added(gateway, "carol")
            gateway.until(everywhere(lambda: gateway.shares(token), (200, ["logs"])))
            assert gateway.command("revoke", "carol").returncode == 0
            wait_until(lambda: replicated(primary, standby))
            primary.kill()
            gateway.until(lambda: not readable(gateway))
            assert {gateway.shares(token)[0] for _ in range(8)} == {200}
            assert gateway.command("revoke", "bob").returncode == 1
            standby.execute("SELECT pg_promote()")
            gateway.until(lambda: readable(gateway))
            assert {gateway.shares(token)[0] for _ in range(8)} == {200}
            assert gateway.shares(other)[0] == 401
            assert gateway.command("revoke", "bob").returncode == 0
            gateway.until(everywhere(lambda: gateway.shares(token)[0], 401))
        primary.start()


def replicated(primary, standby):
    written = primary.execute("SELECT pg_current_wal_lsn()").strip()
    return standby.execute(f"SELECT pg_last_wal_replay_lsn() >= '{written}'").strip() == "t"


def workers(gateway):
    """The ids of the running workers."""
    process_id = gateway.process.pid
    children = Path(f"/proc/{process_id}/task/{process_id}/children").read_text()
    return sorted(map(int, children.split()))


def test_a_long_outage_ends_what_the_database_gave_and_nothing_else(postgresql, tmp_path):
    url = postgresql.url(postgresql.new_database())
    gateway = Gateway(tmp_path, database={"url": url, "maxOutageSeconds": 1})
    with gateway.running():
        token = added(gateway)
        client = tmp_path / "client.share"
        gateway.command("client", "add", "bob", "--profile", str(client))
        gateway.until(lambda: gateway.shares(token)[0] == 200)
        postgresql.stop()
        gateway.until(lambda: gateway.shares(token)[0] == 503)
        _, body, headers = gateway.get("/delta-sharing/shares", token)
        assert json.loads(body)["message"] == "the server cannot read its recipients"
        assert headers["Retry-After"]
        assert gateway.shares()[0] == 200
        assert gateway.get("/readyz")[0] == 200
        profile = json.loads(client.read_text())
        form = f"grant_type=client_credentials&client_id={profile['clientId']}&client_secret=x"
        assert token_request(gateway, form) == 503
        postgresql.start()
        gateway.until(lambda: gateway.shares(token)[0] == 200)
        assert token_request(gateway, form) == 401
        assert gateway.shares("another token")[0] == 401


def test_a_stopped_process_answers_no_waiting_request_of_a_revoked_token(tmp_path):
    """The state is older than `maxOutageSeconds` when the process runs again, and nothing was read yet."""
    url = f"sqlite:///{tmp_path}/recipients.db"
    gateway = Gateway(tmp_path, database={"url": url, "maxOutageSeconds": 0.5})
    with gateway.running(), ExitStack() as stack:
        token = added(gateway)
        gateway.until(lambda: gateway.shares(token)[0] == 200)
        clients = [
            stack.enter_context(closing(http.client.HTTPConnection("127.0.0.1", gateway.port, timeout=20)))
            for _ in range(CONNECTIONS)
        ]
        assert statuses(clients, token) == [404] * CONNECTIONS
        os.kill(gateway.process.pid, signal.SIGSTOP)
        try:
            stopped = elapsed_seconds()
            assert gateway.command("revoke", "bob").returncode == 0
            for client in clients:
                headers = {"Authorization": f"Bearer {token}"}
                client.request("GET", "/delta-sharing/shares", headers=headers)
            wait_until(lambda: elapsed_seconds() - stopped > 0.5 + LOOK_SECONDS + 0.5)
        finally:
            os.kill(gateway.process.pid, signal.SIGCONT)
        answers = [client.getresponse() for client in clients]
        assert {answer.status for answer in answers} <= {401, 503}
        for answer in answers:
            answer.read()
        gateway.until(lambda: gateway.shares(token)[0] == 401)
        assert gateway.shares()[0] == 200


def token_request(gateway, form):
    with closing(http.client.HTTPConnection("127.0.0.1", gateway.port, timeout=20)) as connection:
        content_type = {"Content-Type": "application/x-www-form-urlencoded"}
        connection.request("POST", "/delta-sharing/oauth/token", form, content_type)
        return connection.getresponse().status


def names(place):
    with RecipientDatabase(place, now_ms=epoch_ms, read_only=True) as database:
        return [record.name for record in database.list()]


@pytest.mark.nightly
@pytest.mark.parametrize("name", ["earlier.db", "recipients.db"])
def test_a_file_is_taken_over_by_postgresql_once(postgresql, tmp_path, name):
    """Also the file of its default name, which needs no key."""
    place = postgresql.place(postgresql.new_database())
    file = tmp_path / name
    with RecipientDatabase(DatabasePlace(file), now_ms=epoch_ms) as database:
        database.add("alice")
        database.add("bob")
    before = file.read_bytes()
    named = {} if name == "recipients.db" else {"recipientsDatabase": name}
    gateway = Gateway(tmp_path, database=at(place), **named)
    checked = gateway.command(operation="check")
    assert checked.returncode == 0, checked.stdout
    with gateway.running():
        assert names(place) == ["alice", "bob"]
    with RecipientDatabase(place, now_ms=epoch_ms) as database:
        database.delete("alice")
    with gateway.running():
        assert names(place) == ["bob"]
    assert file.read_bytes() == before
    # Empty tables in its place: what was deleted since does not come back.
    gateway.settings["gateway"]["database"] = at(postgresql.place(postgresql.new_database()))
    gateway.write()
    refused = gateway.command(operation="serve")
    assert refused.returncode == 1
    assert "restore the database from its backup" in refused.stderr
    assert refused.stderr.count("\n") < 4
    checked = gateway.command(operation="check")
    assert (checked.returncode, "was taken over before" in checked.stdout) == (1, True)
    (tmp_path / f"{name}.taken-over").unlink()
    with gateway.running():
        assert b'"alice"' in gateway.admin("GET", "/recipients")[1]


@pytest.mark.nightly
def test_a_password_is_in_no_output(postgresql, tmp_path):
    """Neither of a server that is not there nor of one that refuses it."""
    password = "pass-word/of:the@database"
    role, absent = postgresql.new_role("another"), tmp_path / "absent"
    url = postgresql.url("postgres").replace("//postgres@", f"//{role}@")
    gateway = Gateway(tmp_path)
    every = ("serve", "check", "recipient")
    for section, operations in (
        ({"url": url, "password": password}, every),
        ({"url": f"postgresql://{role}:pass-word%2Fof@/x?host={absent}"}, every),
        ({"url": f"postgresql://{role}:pass-word@[x/?host={absent}"}, every[:1]),
        ({"url": f"postgresql://{role}:pass-word@/x?host={absent}&nonsense=1"}, every[:1]),
        ({"url": f"mysql://{role}:pass-word@/x"}, every[1:2]),
        ({"url": url, "passwrd": password}, every[1:2]),
    ):
        gateway.settings["gateway"]["database"] = section
        gateway.write()
        for operation in operations:
            ended = gateway.command(*(["list"] if operation == "recipient" else []), operation=operation)
            assert ended.returncode == 1, section
            assert "pass-word" not in ended.stdout + ended.stderr
            assert "Traceback" not in ended.stderr, ended.stderr


@pytest.mark.nightly
def test_a_full_disk_of_postgresql_refuses_changes_and_the_server_goes_on(tmp_path):
    """A real file system without room. Until there is some, nothing is changed and nobody loses access."""
    with running_on_small_disk(megabytes=128) as postgresql:
        gateway = Gateway(tmp_path, database=postgresql.url(postgresql.new_database()))
        with gateway.running():
            token = added(gateway)
            gateway.until(lambda: gateway.shares(token)[0] == 200)
            filler = postgresql.directory.parent / "filler"
            with filler.open("wb", buffering=0) as file, suppress(OSError):
                while file.write(secrets.token_bytes(65_536)):
                    pass
            refused = [gateway.admin("POST", "/recipients", new_recipient(number)) for number in range(5)]
            assert {status for status, _ in refused} == {503}
            assert not any(b"space" in answer or b"/tmp" in answer for _, answer in refused)
            gateway.until(lambda: "No space left on device" in gateway.log())
            assert gateway.shares(token)[0] == 200
            filler.unlink()
            gateway.until(lambda: readable(gateway) and gateway.command("revoke", "bob").returncode == 0)
            gateway.until(lambda: gateway.shares(token)[0] == 401)


def new_recipient(number):
    """A recipient with a comment that is no shorter when it is compressed."""
    return {"name": f"r{number}", "comment": secrets.token_hex(30_000)}
