"""The container image without a container runtime: its root file system in namespaces, by its Dockerfile.

The Dockerfile's user, variables, entry point, command and health check are read, not repeated. The process
has no network but loopback, a read-only root, and as writable directories the volumes and /tmp.
"""

import json
import re
import shlex
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from support.processes import children

DOCKERFILE = Path(__file__).resolve().parents[2] / "deploy/image/Dockerfile"
START_SECONDS = 30.0

# Prepares the mounts of a container, then becomes its process. $1 is the root, $2 the configuration's
# directory, $3 the tables, $4 and $5 the user and group, $6 the volumes.
CONTAINER = """
set -eu
root=$1 configuration=$2 tables=$3 user=$4 group=$5 volumes=$6
shift 6
mount --bind "$root" "$root"
mount -o remount,bind,ro "$root"
mount -t proc proc "$root/proc"
mount -t tmpfs tmpfs "$root/tmp"
for volume in $volumes; do mount -t tmpfs -o "uid=$user,gid=$group,mode=700" tmpfs "$root$volume"; done
mount --bind "$configuration" "$root/etc/delta-gateway"
mount -o remount,bind,ro "$root/etc/delta-gateway"
mount --bind "$configuration/secrets" "$root/run/secrets"
mount --bind "$tables" "$root/sys"
mount -o remount,bind,ro "$root/sys"
mount -t tmpfs tmpfs "$root/dev"
for device in null urandom; do : > "$root/dev/$device"; mount --bind "/dev/$device" "$root/dev/$device"; done
ip link set lo up
exec setpriv --no-new-privs unshare --root="$root" --setgid="$group" --setuid="$user" -- "$@"
"""
TABLES = "/sys"
"""Where the tables are mounted: a directory of the image that the server does not use."""
READ = """
import http.client, sys
connection = http.client.HTTPConnection("127.0.0.1", int(sys.argv[1]), timeout=20)
body = sys.argv[5].encode() or None
headers = {"Authorization": f"Bearer {sys.argv[4]}", "Content-Type": "application/json"}
connection.request(sys.argv[2], sys.argv[3], body, headers)
answer = connection.getresponse()
print(answer.status)
print(answer.read().decode())
"""


@dataclass(frozen=True)
class Image:
    """The settings of the process in the Dockerfile."""

    user: str
    group: str
    environment: dict[str, str]
    volumes: list[str]
    command: list[str]
    healthcheck: list[str]


def image_settings() -> Image:
    """Read the settings of the last stage."""
    text = re.sub(r"\\\n\s*", " ", DOCKERFILE.read_text()).rpartition("FROM ")[2]

    def last(instruction: str) -> str:
        return re.findall(rf"^{instruction} (.+)$", text, re.MULTILINE)[-1]

    user, group = last("USER").split(":")
    environment = dict(word.split("=", 1) for word in shlex.split(last("ENV")))
    command = [*json.loads(last("ENTRYPOINT")), *json.loads(last("CMD"))]
    check = json.loads(last("HEALTHCHECK").partition("CMD ")[2])
    return Image(user, group, environment, json.loads(last("VOLUME")), command, check)


@dataclass
class Container:
    """A running process of the image."""

    image: Image
    process: subprocess.Popen[bytes]
    process_id: int
    log: Path
    root: Path

    def run(self, *command: str) -> subprocess.CompletedProcess[str]:
        """Run a program of the image beside the server, as its user."""
        user = [f"--setuid={self.image.user}", f"--setgid={self.image.group}"]
        enter = [
            "nsenter",
            f"--target={self.process_id}",
            "--mount",
            "--net",
            "--pid",
            "--root",
            "--wd",
            *user,
        ]
        return subprocess.run(
            [*enter, "--", *command], env=self.image.environment, capture_output=True, text=True, check=False
        )

    def is_healthy(self) -> bool:
        """Run the health check of the image."""
        return self.run(*self.image.healthcheck).returncode == 0

    def request(
        self, method: str, path: str, token: str, body: Any = None, *, port: int = 8080
    ) -> tuple[int, str]:
        """Send a request over the loopback device of the container."""
        words = [str(port), method, path, token, "" if body is None else json.dumps(body)]
        enter = ["nsenter", f"--target={self.process_id}", "--net", sys.executable, "-IS", "-c", READ, *words]
        status, _, text = subprocess.run(enter, check=True, capture_output=True, text=True).stdout.partition(
            "\n"
        )
        return int(status), text.removesuffix("\n")


@contextmanager
def running_container(
    root: Path, configuration: Path, tables: Path, log: Path, *options: str
) -> Iterator[Container]:
    """Run the image's command until the block ends; it must end by SIGTERM with 0."""
    image = image_settings()
    words = [root, configuration, tables, image.user, image.group, " ".join(image.volumes)]
    namespaces = ["unshare", "--mount", "--net", "--pid", "--ipc", "--uts", "--fork", "--kill-child"]
    script = ["sh", "-c", CONTAINER, "container", *map(str, words), *image.command, *options]
    with log.open("wb") as output:
        path = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin"}
        process = subprocess.Popen(
            [*namespaces, *script], stdout=output, stderr=output, env={**image.environment, **path}
        )
    try:
        container = Container(image, process, _server_of(process, log), log, root)
        yield container
        subprocess.run(["kill", "-TERM", str(container.process_id)], check=True)
        assert process.wait(20) == 0, log.read_text()
    finally:
        process.kill()
        process.wait()


def _server_of(process: subprocess.Popen[bytes], log: Path) -> int:
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline and process.poll() is None:
        for child in children(process.pid):
            if (
                b"serve" in Path(f"/proc/{child}/cmdline").read_bytes().split(b"\0")
                and b"setpriv" not in Path(f"/proc/{child}/cmdline").read_bytes()
            ):
                return child
        time.sleep(0.01)
    raise RuntimeError(log.read_text())
