"""A gateway in a directory with a configuration file, commands and server processes."""

import hashlib
import http.client
import json
import os
import subprocess
import time
from contextlib import contextmanager, suppress

import pytest

from support.commands import forked_command, run_command
from support.processes import (
    PACKAGE,
    free_port,
    processor_wait_seconds,
    server_process,
)
from support.waiting import wait_until

TOKEN, ADMIN_TOKEN = "token-of-alice", "token-of-the-admin"
HEAD = f"GET /delta-sharing/shares HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {TOKEN}\r\n"


def sha256(text):
    return hashlib.sha256(text.encode()).hexdigest()


class Gateway:
    """A configuration in a directory and the process that serves it."""

    def __init__(self, directory, **settings):
        self.directory = directory
        self.port, self.admin_port = free_port(), free_port()
        self.path = directory / "share.json.yaml"
        self.settings = {
            "version": 1,
            "host": "127.0.0.1",
            "port": self.port,
            "shares": [{"name": name, "schemas": []} for name in ("sales", "logs")],
            "gateway": {
                "recipients": [{"name": "alice", "tokens": [{"sha256": sha256(TOKEN)}], "shares": ["sales"]}],
                "tokenKeys": [{"id": "k1", "secret": "k" * 32}],
                "drainDelaySeconds": 0.3,
                "drainSeconds": 5,
                "audit": {"file": "audit.jsonl"},
                "admin": {"port": self.admin_port, "tokenSha256": sha256(ADMIN_TOKEN)},
                **settings,
            },
        }
        self.write()

    def write(self):
        # Replaced in one step: the server never reads a partial file.
        half = self.path.with_suffix(".half")
        half.write_text(json.dumps(self.settings))
        half.replace(self.path)

    def get(self, path, token=TOKEN, *, port=None, method="GET", body=None, headers=None):
        connection = http.client.HTTPConnection("127.0.0.1", port or self.port, timeout=20)
        sent = {"Authorization": f"Bearer {token}", **(headers or {})}
        try:
            connection.request(method, path, body if body is None else json.dumps(body), sent)
            response = connection.getresponse()
            return response.status, response.read(), response.headers
        finally:
            connection.close()

    def shares(self, token=TOKEN, **options):
        status, body, _ = self.get("/delta-sharing/shares", token, **options)
        return status, [share["name"] for share in json.loads(body).get("items", [])]

    def admin(self, method, path, body=None):
        status, answer, _ = self.get(path, ADMIN_TOKEN, port=self.admin_port, method=method, body=body)
        return status, answer

    def records(self):
        return [json.loads(line) for line in (self.directory / "audit.jsonl").read_bytes().splitlines()]

    def command(self, *arguments, operation="recipient"):
        if operation != "serve":
            return run_command(operation, *arguments, "-c", self.path)
        ended = forked_command(operation, *arguments, "-c", self.path, directory=PACKAGE)
        # A server writes nothing to its standard output.
        return subprocess.CompletedProcess(ended.args, ended.returncode, "", ended.stdout)

    @contextmanager
    def running(self, workers=1):
        with server_process(self.path, self.directory / "log", workers=workers) as self.process:
            self.until(lambda: self.get("/readyz")[0] == 200)
            # One worker is enough for that, and the admin listener begins after all of them.
            self.until(lambda: workers == 1 or self.get("/healthz", port=self.admin_port)[0] == 200)
            yield self
        assert self.process.returncode == 0, self.log()

    def log(self):
        return (self.directory / "log").read_text()

    def until(self, condition):
        """Wait for a condition; a server that cannot be reached does not meet it yet."""

        def holds():
            with suppress(OSError, http.client.HTTPException):
                if condition():
                    return True
            assert self.process.poll() is None, self.log()
            return False

        try:
            wait_until(holds)
        except TimeoutError:
            pytest.fail(self.log())

    def seconds_until(self, condition):
        """How long a condition takes to hold, without the time that other processes had the processor."""
        waited, started = self._processor_wait_seconds(), time.monotonic()
        self.until(condition)
        return time.monotonic() - started - (self._processor_wait_seconds() - waited)

    def _processor_wait_seconds(self):
        return processor_wait_seconds(os.getpid()) + processor_wait_seconds(self.process.pid)
