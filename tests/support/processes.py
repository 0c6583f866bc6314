"""Processes of the package under test and of other servers: how they start, and when they listen."""

import json
import os
import socket
import subprocess
import sys
import time
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from random import SystemRandom
from typing import Any

import gateway
from support.fork_server import ForkedProcess, forked

PACKAGE = Path(gateway.__file__).parent.parent
"""The directory that the package was imported from: installed, or the checkout when it is built in place."""

ServerProcess = subprocess.Popen[bytes] | ForkedProcess

STOP_SECONDS = 60.0
START_SECONDS = 180.0
"""A first start of Node reads thousands of files, on a machine that compiles beside it."""
TAKEN_PORTS: deque[socket.socket] = deque()
MOST_TAKEN_PORTS = 64


def gateway_command(*arguments: str | Path) -> list[str]:
    """The command line of `delta-gateway` for this interpreter, in any working directory."""
    return [sys.executable, "-P", "-m", "gateway", *map(str, arguments)]


def package_environment(**variables: str) -> dict[str, str]:
    """The environment in which a process imports the same package as the tests."""
    return {**os.environ, "PYTHONPATH": str(PACKAGE), **variables}


def answer_of_script(
    script: Path, *arguments: object, packages: Path, directory: Path, seconds: float
) -> Any:
    """Run a program apart in a directory; return the JSON of its last line.

    It imports the package under test and what is in `packages`.
    """
    roots = os.pathsep.join([str(PACKAGE), str(packages)])
    done = subprocess.run(
        [sys.executable, "-P", str(script), *map(str, arguments)],
        check=False,
        env={**os.environ, "PYTHONPATH": roots, "PYTHONSAFEPATH": "1"},
        cwd=directory,
        capture_output=True,
        text=True,
        timeout=seconds,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout.splitlines()[-1])


def free_port() -> int:
    """A port that no process listens on, below those that the system gives to connections meanwhile.

    The port of UDP with its number stays bound for a while, so that no test of another process takes it.
    """
    while True:
        address = ("127.0.0.1", SystemRandom().randrange(10_000, 32_768))
        taken = socket.socket(type=socket.SOCK_DGRAM)
        with socket.socket() as listener, suppress(OSError):
            taken.bind(address)
            listener.bind(address)
            TAKEN_PORTS.append(taken)
            if len(TAKEN_PORTS) > MOST_TAKEN_PORTS:
                TAKEN_PORTS.popleft().close()
            return address[1]
        taken.close()


def wait_for_port(port: int, process: ServerProcess) -> None:
    """Return when a process listens on its port. Raises RuntimeError when the process ends before."""
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline:
        if process.poll() is not None:
            message = f"the server ended with code {process.returncode}"
            raise RuntimeError(message)
        with socket.socket() as probe:
            probe.settimeout(1)
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.05)
    message = f"no process listens on port {port} after {START_SECONDS} s"
    raise TimeoutError(message)


@contextmanager
def server_process(
    config: Path, log: Path, *, workers: int = 1, modules: Path | None = None
) -> Iterator[ServerProcess]:
    """Runs `delta-gateway serve` over a configuration file until the block ends, then stops it by SIGTERM.

    `modules`: a directory of modules for the process and its workers, which may have a `sitecustomize`.
    Without it the process is a fork of one that has imported what `serve` imports; its workers are not.
    """
    places = str(PACKAGE) if modules is None else f"{modules}{os.pathsep}{PACKAGE}"
    arguments = ("serve", "-c", str(config), "--workers", str(workers))
    environment = package_environment(PYTHONPATH=places)
    with log.open("wb") as output:
        if modules is None:
            process: ServerProcess = forked(arguments, output, environment, config.parent)
        else:
            how: Any = {"stdout": output, "stderr": output, "env": environment, "cwd": config.parent}
            process = subprocess.Popen(gateway_command(*arguments), **how)
        try:
            yield process
        finally:
            process.terminate()
            try:
                process.wait(STOP_SECONDS)
            finally:
                process.kill()


def children(process_id: int) -> list[int]:
    """The process ids of a process's children."""
    found = subprocess.run(["pgrep", "-P", str(process_id)], capture_output=True, text=True, check=False)
    return [int(line) for line in found.stdout.split()]


def processor_wait_seconds(process_id: int) -> float:
    """Returns how long the main thread of a process was ready to run but waited for a processor."""
    return int(Path(f"/proc/{process_id}/schedstat").read_text().split()[1]) / 1e9
