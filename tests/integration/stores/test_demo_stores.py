"""The demo in an object store: of an emulator that it starts, or of one that runs."""

import subprocess
from pathlib import Path

import pytest
import tools
from support.azurite_server import Azurite
from support.processes import gateway_command, package_environment
from support.versitygw import VersityGw
from tables.demo import ROWS

NO_PROGRAMS = "/nonexistent"


def demo(*arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run the demo once; `PATH` has the programs of the test alone."""
    environment = package_environment(**{"PATH": NO_PROGRAMS, **variables})
    command = gateway_command("demo", "--once", *arguments)
    return subprocess.run(command, check=False, capture_output=True, text=True, env=environment, cwd="/")


def check(ended: subprocess.CompletedProcess[str]) -> None:
    assert ended.returncode == 0, ended.stderr
    for table, rows in ROWS.items():
        assert f"demo.default.{table}: {len(rows)} rows" in ended.stdout


def test_the_demo_starts_versitygw(versitygw_binary: Path, tmp_path: Path) -> None:
    (tmp_path / "versitygw").symlink_to(versitygw_binary)
    check(demo("--store", "s3", PATH=str(tmp_path)))


@pytest.mark.nightly
def test_the_demo_starts_minio(minio_program: Path, tmp_path: Path) -> None:
    (tmp_path / "minio").symlink_to(minio_program)
    check(demo("--store", "s3", PATH=str(tmp_path), MINIO_CI_CD="1"))


def test_the_demo_starts_azurite(azurite: Azurite, tmp_path: Path) -> None:
    program = tmp_path / "azurite-blob"
    program.write_text(f'#!/bin/sh\nexec node {tools.program("azurite")} "$@"\n')
    program.chmod(0o755)
    check(demo("--store", "azure", PATH=f"{tmp_path}:{tools.environ()['PATH']}"))


@pytest.mark.nightly
def test_the_demo_uses_an_s3_server_that_runs(versitygw: VersityGw, tmp_path: Path) -> None:
    keys = {
        "AWS_ACCESS_KEY_ID": versitygw.access_key_id,
        "AWS_SECRET_ACCESS_KEY": versitygw.secret_access_key,
    }
    arguments = ("--store", "s3", "--store-endpoint", versitygw.endpoint, "--directory", str(tmp_path))
    # A second time over the same tables.
    for _ in range(2):
        check(demo(*arguments, **keys))
    wrong = demo(*arguments, **keys | {"AWS_SECRET_ACCESS_KEY": "wrong"})
    assert wrong.returncode == 1
    assert wrong.stderr.startswith("delta-gateway: the store at 127.0.0.1:")
    assert "SignatureDoesNotMatch" in wrong.stderr


@pytest.mark.parametrize(
    ("store", "install"), [("s3", "install MinIO or versitygw"), ("azure", "npm install --global azurite")]
)
def test_without_an_emulator_the_demo_says_what_to_install(store: str, install: str) -> None:
    ended = demo("--store", store)
    assert (ended.returncode, ended.stdout) == (1, "")
    assert ended.stderr.startswith(f"delta-gateway: --store {store} needs ")
    assert install in ended.stderr


def test_a_server_that_runs_needs_its_keys(tmp_path: Path) -> None:
    ended = demo("--store", "s3", "--store-endpoint", "http://127.0.0.1:9", AWS_ACCESS_KEY_ID="a")
    assert ended.returncode == 1
    assert "needs the variable AWS_SECRET_ACCESS_KEY" in ended.stderr


def test_a_server_that_runs_needs_the_kind_of_store() -> None:
    ended = demo("--store-endpoint", "http://127.0.0.1:9")
    assert ended.returncode == 1
    assert ended.stderr == "delta-gateway: --store-endpoint needs --store s3 or --store azure\n"
