"""Servers as forks of a process that has imported the package, which takes most of a start's CPU time.

python -P tests/support/fork_server.py DESCRIPTOR    forks for each message of a socket, until that is closed
"""

import atexit
import json
import os
import resource
import select
import signal
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any, BinaryIO

MESSAGE_BYTES = 200_000
CODE_BYTES = 4
READ_AT_START = ("LD_", "MALLOC_", "PYTHON")
"""How variables begin that the loader, the allocator and the interpreter read once."""


class ForkedProcess:
    """A process that runs `delta-gateway` as a fork; methods and errors are those of `subprocess.Popen`."""

    def __init__(self, end: socket.socket) -> None:
        self._end = end
        self.args = ["delta-gateway"]
        self.pid = self._number()
        self.returncode: int | None = None

    def poll(self) -> int | None:
        return self._code(0)

    def wait(self, timeout: float | None = None) -> int:
        code = self._code(timeout)
        if code is None:
            raise subprocess.TimeoutExpired(self.args, timeout or 0)
        return code

    def _code(self, seconds: float | None) -> int | None:
        if self.returncode is None and select.select([self._end], [], [], seconds)[0]:
            try:
                self.returncode = self._number()
            except ChildProcessError:
                with suppress(ProcessLookupError):
                    os.kill(self.pid, signal.SIGKILL)
                self.returncode = -signal.SIGKILL
                raise
            finally:
                self._end.close()
        return self.returncode

    def _number(self) -> int:
        """Receives a number. Raises ChildProcessError where the process that forks has ended without one."""
        received = self._end.recv(CODE_BYTES)
        if len(received) < CODE_BYTES:
            message = "the process that forks servers has ended"
            raise ChildProcessError(message)
        return int.from_bytes(received, "little", signed=True)

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


def forked(
    arguments: Sequence[str], output: BinaryIO, environment: Mapping[str, str], directory: Path
) -> ForkedProcess:
    """Starts `delta-gateway` with arguments; both standard streams go to `output`."""
    # As a fork of this process, for the hook by which conftest.py refuses processes to unit tests.
    sys.audit("os.fork")
    end, its_end = socket.socketpair()
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    message = json.dumps([[*arguments], dict(environment), str(directory), limits]).encode()
    with its_end:
        at_start = (item for item in environment.items() if item[0].startswith(READ_AT_START))
        requests = _fork_server(tuple(sorted(at_start)))
        socket.send_fds(requests, [message], [output.fileno(), its_end.fileno()])
    return ForkedProcess(end)


@cache
def _fork_server(at_start: tuple[tuple[str, str], ...]) -> socket.socket:
    """One for each process of the tests and these variables, which ends with it."""
    ours, its = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    command = [sys.executable, "-P", __file__, str(its.fileno())]
    with its:
        process = subprocess.Popen(command, env={**os.environ, **dict(at_start)}, pass_fds=[its.fileno()])

    @atexit.register
    def end() -> None:
        ours.close()
        process.wait()

    return ours


def arguments_of_a_fork(requests: socket.socket) -> list[str]:
    """Forks for each message; returns in the forks, with the arguments of the message."""
    forks: dict[int, tuple[int, socket.socket]] = {}
    waiting = select.poll()
    waiting.register(requests, select.POLLIN)
    while True:
        for ready, _ in waiting.poll():
            if ready != requests.fileno():
                waiting.unregister(ready)
                _tell_its_end(ready, *forks.pop(ready))
                continue
            message, descriptors, _, _ = socket.recv_fds(requests, MESSAGE_BYTES, 2)
            if not message:
                for process, _ in forks.values():
                    os.kill(process, signal.SIGKILL)
                sys.exit()
            process = os.fork()
            if not process:
                for descriptor, (_, end) in forks.items():
                    os.close(descriptor)
                    end.close()
                requests.close()
                return _become(json.loads(message), *descriptors)
            output, end_descriptor = descriptors
            os.close(output)
            end = socket.socket(fileno=end_descriptor)
            end.send(process.to_bytes(CODE_BYTES, "little"))
            descriptor = os.pidfd_open(process)
            forks[descriptor] = process, end
            waiting.register(descriptor, select.POLLIN)


def _tell_its_end(descriptor: int, process: int, end: socket.socket) -> None:
    _, status = os.waitpid(process, 0)
    os.close(descriptor)
    # A test that gave up waiting has closed its end.
    with end, suppress(OSError):
        end.send(os.waitstatus_to_exitcode(status).to_bytes(CODE_BYTES, "little", signed=True))


def _become(message: Any, output: int, end: int) -> list[str]:
    """Makes a fork what an own process with the arguments would be; returns them."""
    arguments, environment, directory, limits = message
    resource.setrlimit(resource.RLIMIT_NOFILE, limits)
    for stream in (1, 2):
        os.dup2(output, stream)
    os.close(output)
    os.close(end)
    os.environ.clear()
    os.environ.update(environment)
    os.chdir(directory)
    sys.argv = ["delta-gateway", *arguments]
    return [*arguments]


if __name__ == "__main__":
    # What `serve` imports.
    import uvloop  # noqa: F401

    import gateway.server.run
    import gateway.server.start  # noqa: F401
    from gateway.__main__ import main

    sys.exit(main(arguments_of_a_fork(socket.socket(fileno=int(sys.argv[1])))))
