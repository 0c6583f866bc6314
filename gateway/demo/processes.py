"""Ports and processes on this machine: the demo's gateway and its emulators."""

import socket
import subprocess
import time

HOST = "127.0.0.1"
START_SECONDS = 60.0


def is_listening(port: int, process: subprocess.Popen[bytes]) -> bool:
    """Wait until a process accepts connections; False if it ended or took too long."""
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline and process.poll() is None:
        with socket.socket() as probe:
            if probe.connect_ex((HOST, port)) == 0:
                return True
        time.sleep(0.05)
    return False


def free_port() -> int:
    """Return a port that is free at this moment."""
    with socket.socket() as listener:
        listener.bind((HOST, 0))
        number: int = listener.getsockname()[1]
    return number
