"""The README's first share as it is printed: file, commands, and the official client on the profile."""

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from support.documentation import README, section
from support.official_client import OfficialClient
from support.processes import free_port, wait_for_port
from support.versitygw import VersityGw
from tables.demo import ORDERS, in_any_order

import gateway

PACKAGE = Path(gateway.__file__).parent.parent


def blocks() -> tuple[str, list[list[str]]]:
    """The YAML, and the commands without their name."""
    guide = section(README, "First share on S3")
    yaml, console = re.findall(r"```(?:yaml|console)\n(.*?)```", guide, re.DOTALL)
    commands = [shlex.split(line.removeprefix("$ ")) for line in console.splitlines()]
    assert all(command[0] == "delta-gateway" for command in commands)
    return yaml, [command[1:] for command in commands]


class Provider:
    """A provider with a shell."""

    def __init__(self, directory: Path, environment: dict[str, str]) -> None:
        self.directory = directory
        self.environment = environment

    def run(self, arguments: list[str]) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "gateway", *arguments]
        return subprocess.run(
            command, cwd=self.directory, env=self.environment, capture_output=True, text=True, check=False
        )

    @contextmanager
    def running(self, arguments: list[str], port: int) -> Iterator[None]:
        command = [sys.executable, "-m", "gateway", *arguments]
        with subprocess.Popen(command, cwd=self.directory, env=self.environment) as process:
            try:
                wait_for_port(port, process)
                yield
            finally:
                process.terminate()


def test_the_first_share_works_as_it_is_printed(
    demo_tables: Path, versitygw: VersityGw, official_client: OfficialClient, tmp_path: Path
) -> None:
    yaml, (add, check, serve) = blocks()
    assert len(yaml.splitlines()) <= 11, "ten lines and the file's name"
    # What differs here is what the reader would write differently, too: the store, and a port that is free.
    port = free_port()
    here = f"region: {versitygw.region}, endpoint: '{versitygw.endpoint}', pathStyle: true"
    yaml = yaml.replace("region: eu-central-1", here).replace("port: 8080", f"port: {port}")
    (tmp_path / "share.yaml").write_text(yaml)
    versitygw.upload(demo_tables / "orders", "my-bucket", "warehouse/orders")
    keys = {
        "AWS_ACCESS_KEY_ID": versitygw.access_key_id,
        "AWS_SECRET_ACCESS_KEY": versitygw.secret_access_key,
        "PYTHONPATH": str(PACKAGE),
    }
    provider = Provider(tmp_path, os.environ | keys)
    added = provider.run(add)
    assert added.returncode == 0, added.stderr
    checked = provider.run(check)
    assert checked.returncode == 0, checked.stdout + checked.stderr
    assert "1 of 1 tables can be read" in checked.stdout
    with provider.running(serve, port):
        columns = ["order", "customer", "amount"]
        rows = official_client.rows(tmp_path / "alice.share", "sales.public.orders", columns)
    assert rows == in_any_order(ORDERS)
