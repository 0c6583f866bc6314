"""Servers that the tests start as forks: what a test must not take for the end of a server."""

import signal
import socket
import subprocess
from pathlib import Path

import pytest
from support import fork_server
from support.fork_server import ForkedProcess, forked


@pytest.mark.processes
def test_an_end_of_the_process_that_forks_is_no_end_of_a_server() -> None:
    with subprocess.Popen(["sleep", "600"]) as server:
        ours, its = socket.socketpair()
        with its:
            its.send(server.pid.to_bytes(fork_server.CODE_BYTES, "little"))
        process = ForkedProcess(ours)
        with pytest.raises(ChildProcessError, match="has ended"):
            process.wait(60)
        assert process.poll() == server.wait(60) == -signal.SIGKILL


def test_a_unit_test_without_the_mark_starts_no_fork(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fork_server, "_fork_server", None)
    with (tmp_path / "log").open("wb") as output, pytest.raises(pytest.fail.Exception, match="processes"):
        forked([], output, {}, tmp_path)
