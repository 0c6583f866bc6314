"""At the top of a checkout the installed package runs, and an unbuilt checkout reports an action."""

import os
import re
import shutil
import signal
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest
from support.nightly import at_night
from support.processes import free_port, wait_for_port
from tools import ROOT

pytestmark = pytest.mark.processes

COMMAND = Path(sys.executable).with_name("delta-gateway")
ENVIRONMENT = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}

if not COMMAND.exists():
    pytest.skip("the package is not installed: tests/run.py does it", allow_module_level=True)


@pytest.fixture
def unbuilt(tmp_path: Path) -> Path:
    """A folder with the sources as they are committed, without a native module."""
    ignored = shutil.ignore_patterns("*.so", "__pycache__")
    shutil.copytree(ROOT / "gateway", tmp_path / "gateway", ignore=ignored)
    return tmp_path


def run(directory: Path, *command: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command, cwd=directory, env=ENVIRONMENT, capture_output=True, text=True, check=False
    )


def test_the_demo_runs_at_the_top_of_a_checkout(unbuilt: Path) -> None:
    ended = run(unbuilt, COMMAND, "demo", "--once")
    assert ended.returncode == 0, ended.stderr
    assert "demo.default.cities: 8 rows" in ended.stdout


@pytest.mark.parametrize("workers", [2, *at_night(1)])
def test_workers_run_at_the_top_of_a_checkout(unbuilt: Path, workers: int) -> None:
    port = free_port()
    configuration = unbuilt / "share.yaml"
    configuration.write_text(
        f"version: 1\nhost: 127.0.0.1\nport: {port}\nshares: []\ngateway:\n  anonymous: true\n"
    )
    command = [COMMAND, "serve", "-c", configuration, "--workers", str(workers)]
    with subprocess.Popen(command, cwd=unbuilt, env=ENVIRONMENT) as process:
        try:
            wait_for_port(port, process)
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/readyz", timeout=30) as answer:
                assert answer.status == 200
        finally:
            process.send_signal(signal.SIGTERM)
    assert process.returncode == 0


@pytest.mark.parametrize(
    "arguments",
    [
        ["-m", "gateway", "--help"],
        ["-m", "gateway", "demo", "--once"],
        ["-m", "gateway.spark.cli", "--help"],
    ],
    ids=" ".join,
)
def test_an_unbuilt_checkout_reports_one_line_with_an_action(unbuilt: Path, arguments: list[str]) -> None:
    ended = run(unbuilt, sys.executable, *arguments)
    assert ended.returncode != 0
    (line,) = ended.stderr.splitlines()
    assert "run `pip install -e .`" in line
    assert str(unbuilt) in line


@pytest.mark.parametrize(
    "statement", ["import gateway", "from gateway import _native", "import gateway._native"]
)
def test_an_import_from_an_unbuilt_checkout_names_an_action(unbuilt: Path, statement: str) -> None:
    ended = run(unbuilt, sys.executable, "-c", statement)
    assert ended.returncode != 0
    last = ended.stderr.splitlines()[-1]
    assert last.startswith("ImportError: the native module is not built")
    assert "run `pip install -e .`" in last


def test_nothing_names_a_folder_beside_the_checkout() -> None:
    """Only the build server's script may look there."""
    # Written so that this file itself has no match.
    beside = re.compile(rb"\.\./shar[e]d|GATEWAY_SHAR[E]D|beside the check[o]ut")
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=False)
    if listed.returncode != 0:
        pytest.skip("the sources are no git repository")
    found = [
        name
        for name in listed.stdout.split("\0")
        if name
        and name != ".ci/run"
        and (ROOT / name).is_file()
        and beside.search((ROOT / name).read_bytes())
    ]
    assert found == []


def test_the_installed_package_runs_at_the_top_of_a_checkout_with_a_safe_path(unbuilt: Path) -> None:
    ended = run(unbuilt, sys.executable, "-P", "-m", "gateway", "--help")
    assert ended.returncode == 0, ended.stderr
