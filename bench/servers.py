"""The servers of a run as processes: the gateway as a user starts it, and peers."""

import json
import os
import socket
import subprocess
import sys
import tempfile
import time
import urllib.parse
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import yaml
from drain import TOKEN_VARIABLE, Answer
from logs import Expected, Table
from measure import cpu_seconds, run, script
from store import Store

import gateway
from gateway.demo.processes import free_port

COMMAND = [sys.executable, "-P", "-m", "gateway"]
ENVIRONMENT = {"PYTHONPATH": str(Path(gateway.__file__).parent.parent)}
"""Of the command, which is that of the measured package."""
STARTS = 3
START_SECONDS = 180
STOP_SECONDS = 30
HELD_BYTES = 3 << 29
LINE_BYTES = 1000
"""More than a line has beside the file's path and statistics, in each format."""
SHARE = "share"
SCHEMA = "schema"


class Server:
    """A process that listens on a port of this machine."""

    def __init__(
        self, command: Callable[[int], Sequence[str]], environment: Mapping[str, str] | None = None
    ) -> None:
        # A client may take a port between the probe and the start.
        for _ in range(STARTS):
            self.port = free_port()
            self.process = subprocess.Popen(
                command(self.port), stderr=subprocess.DEVNULL, env={**os.environ, **(environment or {})}
            )
            if self._listens():
                return
            self.process.kill()
            self.process.wait()
        raise RuntimeError(f"{command(self.port)} did not start: run it by hand to see why")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self.workers == [self.pid]:
            # Without the delay in which a server drains.
            self.process.kill()
            self.process.wait()
        else:
            self.stop()

    def stop(self) -> None:
        """End the server as an operator does, by SIGTERM."""
        self.process.terminate()
        try:
            self.process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()

    @property
    def pid(self) -> int:
        """The id of the server's process."""
        return self.process.pid

    @property
    def workers(self) -> list[int]:
        """The ids of the processes that answer: the children of a supervisor, or the server itself."""
        if self.process.poll() is not None:
            return [self.pid]
        children = Path(f"/proc/{self.pid}/task/{self.pid}/children").read_text().split()
        return [int(pid) for pid in children] or [self.pid]

    def cpu(self, work: Callable[[], Any]) -> float:
        """Return the CPU seconds that all processes of the server spend while `work` runs."""
        before = self._cpu_seconds()
        work()
        return self._cpu_seconds() - before

    def _cpu_seconds(self) -> float:
        return sum(cpu_seconds(pid) for pid in {self.pid, *self.workers})

    def _listens(self) -> bool:
        deadline = time.monotonic() + START_SECONDS
        while time.monotonic() < deadline and self.process.poll() is None:
            try:
                socket.create_connection(("127.0.0.1", self.port), timeout=1).close()
            except OSError:
                time.sleep(0.02)
            else:
                return True
        return False


@dataclass(frozen=True)
class Client:
    """A recipient of a gateway: every answer is read by a process apart and checked."""

    port: int
    token: str
    prefix: str = "/delta-sharing"

    def path(self, table: Table, operation: str = "query") -> str:
        return f"{self.prefix}/shares/{SHARE}/schemas/{SCHEMA}/tables/t{table.name}/{operation}"

    def query(
        self, table: Table, expected: Expected | None, body: str = "{}", *, delta: bool = False
    ) -> Answer:
        """Read one answer. Raises AssertionError unless it has the expected files."""
        files = expected.files if expected else 0
        hold = min(files * (table.text_bytes // table.expected.files + LINE_BYTES), HELD_BYTES)
        command = script("drain.py", str(self.port), self.path(table), "--body", body, "--hold", str(hold))
        found = Answer(
            **run([*command, *(["--delta"] if delta else [])], **{TOKEN_VARIABLE: self.token}).answer
        )
        if found.status != 200 or (expected and Expected(found.files, found.digest) != expected):
            raise AssertionError(f"wrong answer: {found}, expected {expected}")
        return found

    def whole(self, table: Table, *, delta: bool = False) -> Answer:
        """Read all files of a table."""
        return self.query(table, table.expected, delta=delta)

    def requests_per_second(self, path: str, requests: int, *options: str) -> float:
        """Return the rate of checked answers to one kind of request."""
        command = script("load.py", str(self.port), path, "--requests", str(requests), *options)
        return float(run(command, **{TOKEN_VARIABLE: self.token}).answer["requests_per_second"])


@contextmanager
def default_gateway(
    store: Store, table: Table, location: str, *, workers: int = 1, section: Mapping[str, Any] | None = None
) -> Iterator[tuple[Server, Client]]:
    """Run the gateway as README's first share does: a file with a share and a storage, and a recipient added.

    `section` adds keys to the section `gateway`.
    """
    with tempfile.TemporaryDirectory() as folder:
        file, profile = Path(folder, "share.yaml"), Path(folder, "bench.share")
        environment = {**store.environment, **ENVIRONMENT}
        tables = [{"name": f"t{table.name}", "location": location}]
        shares = [{"name": SHARE, "schemas": [{"name": SCHEMA, "tables": tables}]}]
        keys = {"storages": [store.section], **(section or {})}

        def write(port: int) -> None:
            file.write_text(yaml.safe_dump({"version": 1, "port": port, "shares": shares, "gateway": keys}))

        def command(port: int) -> list[str]:
            write(port)
            return [*COMMAND, "serve", "-c", str(file), *(["--workers", str(workers)] * (workers > 1))]

        write(free_port())
        add = ["recipient", "add", "bench", "-c", str(file), "--share", SHARE, "--profile", str(profile)]
        made = subprocess.run(
            [*COMMAND, *add],
            check=False,
            capture_output=True,
            text=True,
            env={**os.environ, **environment},
        )
        if made.returncode:
            raise RuntimeError(made.stderr)
        known = json.loads(profile.read_text())
        prefix = urllib.parse.urlsplit(known["endpoint"]).path.rstrip("/")
        with Server(command, environment) as server:
            yield server, Client(server.port, known["bearerToken"], prefix)


@contextmanager
def bench_gateway(table: Table, *options: str) -> Iterator[tuple[Server, Client]]:
    """Run the gateway over a local log with the options of `gateway_server.py`, URLs signed for S3."""
    token = "a-token-of-the-benches"

    def command(port: int) -> list[str]:
        names = ["--table", f"t{table.name}={table.directory}"]
        return script("gateway_server.py", str(port), *names, *options)

    with Server(command, {TOKEN_VARIABLE: token}) as server:
        yield server, Client(server.port, token)


def peer(name: str, *arguments: str) -> Server:
    """Run a server of the directory `peers`."""
    return Server(lambda port: script(f"peers/{name}", str(port), *arguments))
