"""Ports and processes on this machine: the demo's gateway and its emulators."""

import signal
import socket
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import FrameType
from typing import BinaryIO

from gateway.server.deferred_signals import DeferredSignals

HOST = "127.0.0.1"
START_SECONDS = 60.0
TERMINATED = 143
"""The exit code that shells report for a command ended by SIGTERM."""


@contextmanager
def exit_on_sigterm() -> Iterator[None]:
    """Leave a block at SIGTERM by SystemExit, so that its processes end and its directories are removed."""

    def leave(_number: int, _frame: FrameType | None) -> None:
        raise SystemExit(TERMINATED)

    previous = signal.signal(signal.SIGTERM, leave)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, previous)


@contextmanager
def started(
    command: Sequence[str],
    output: BinaryIO,
    *,
    environment: Mapping[str, str] | None = None,
    new_session: bool = False,
) -> Iterator[subprocess.Popen[bytes]]:
    """A process for the length of a block. A signal that arrives while it starts ends it, too."""
    signals = DeferredSignals()
    signals.hold()
    try:
        process = subprocess.Popen(  # noqa: S603 - our own command, or a program that the user has chosen
            command, stdout=output, stderr=output, env=environment, start_new_session=new_session
        )
    except BaseException:
        signals.release()
        raise
    try:
        signals.release()
        yield process
    finally:
        process.terminate()
        process.wait()


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
