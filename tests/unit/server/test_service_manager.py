"""Reports of the server to the service manager that started it."""

import asyncio
import os
import signal
import socket
import time
from contextlib import suppress

import pytest
from support.gateway_directory import Gateway
from support.nightly import at_night
from support.waiting import wait_until

from gateway.server.service_manager import ServiceManager, without_service_manager


@pytest.fixture
def notified(tmp_path):
    """The socket of a service manager."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(str(tmp_path / "notify"))
        manager.settimeout(60)
        yield manager


@pytest.mark.parametrize(
    ("variables", "address", "seconds"),
    [
        ({}, None, None),
        ({"NOTIFY_SOCKET": "/run/notify"}, "/run/notify", None),
        ({"NOTIFY_SOCKET": "@notify"}, "\0notify", None),
        ({"NOTIFY_SOCKET": "vsock:2:1"}, None, None),
        ({"NOTIFY_SOCKET": "/n", "WATCHDOG_USEC": "3000000"}, "/n", 3.0),
        ({"NOTIFY_SOCKET": "/n", "WATCHDOG_USEC": "3000000", "WATCHDOG_PID": str(os.getpid())}, "/n", 3.0),
        ({"NOTIFY_SOCKET": "/n", "WATCHDOG_USEC": "3000000", "WATCHDOG_PID": "1"}, "/n", None),
        ({"NOTIFY_SOCKET": "/n", "WATCHDOG_USEC": "soon"}, "/n", None),
    ],
)
def test_the_variables_name_the_socket_and_the_time_of_the_watchdog(variables, address, seconds):
    assert ServiceManager.of_environment(variables) == ServiceManager(address, seconds)


def test_workers_do_not_report():
    assert without_service_manager({"NOTIFY_SOCKET": "/n", "WATCHDOG_USEC": "1", "HOME": "/"}) == {
        "HOME": "/"
    }


def test_a_service_manager_that_is_gone_costs_a_log_line_and_nothing_else(tmp_path, caplog):
    ServiceManager(str(tmp_path / "absent")).ready()
    assert "the service manager was not notified: No such file or directory" in caplog.text


def test_a_change_of_state_waits_for_a_manager_that_does_not_read_and_liveness_does_not(notified):
    manager = ServiceManager(notified.getsockname(), 0.002)

    async def report_without_a_reader():
        async with manager.watched():
            await asyncio.sleep(0.2)
            manager.ready()

    started = time.monotonic()
    asyncio.run(report_without_a_reader())
    assert time.monotonic() - started < 10
    states = []
    while not states or states[-1] != b"READY=1":
        states.append(notified.recv(4096))
    assert set(states[:-1]) == {b"WATCHDOG=1"}


@pytest.mark.processes
@pytest.mark.parametrize("workers", [2, *at_night(1)])
def test_a_server_reports_readiness_liveness_reloads_and_its_stop(tmp_path, notified, monkeypatch, workers):
    monkeypatch.setenv("NOTIFY_SOCKET", notified.getsockname())
    monkeypatch.setenv("WATCHDOG_USEC", "200000")
    states = []

    def until(state):
        while not states or states[-1] != state:
            states.append(notified.recv(4096).decode().partition("\n")[0])

    gateway = Gateway(tmp_path)
    with gateway.running(workers=workers):
        until("READY=1")
        assert gateway.get("/readyz")[0] == 200
        until("WATCHDOG=1")
        until("WATCHDOG=1")
        os.kill(gateway.process.pid, signal.SIGHUP)
        until("RELOADING=1")
        until("READY=1")
        os.kill(gateway.process.pid, signal.SIGTERM)
        until("STOPPING=1")
    assert states.count("RELOADING=1") == 1


@pytest.mark.processes
def test_the_watchdog_is_not_answered_while_the_event_loop_hangs(tmp_path, notified, monkeypatch):
    monkeypatch.setenv("NOTIFY_SOCKET", notified.getsockname())
    monkeypatch.setenv("WATCHDOG_USEC", "100000")
    gateway = Gateway(tmp_path)
    with gateway.running():
        os.kill(gateway.process.pid, signal.SIGSTOP)
        notified.settimeout(1.0)
        with suppress(TimeoutError):
            # No more than were sent before the stop.
            for _ in range(100):
                notified.recv(4096)
            pytest.fail("the watchdog is answered by a stopped process")
        os.kill(gateway.process.pid, signal.SIGCONT)
        notified.settimeout(60)
        wait_until(lambda: notified.recv(4096) == b"WATCHDOG=1")
