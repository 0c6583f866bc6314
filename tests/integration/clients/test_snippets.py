"""The commands that pages and commands print, run exactly as printed in the directory of the profile."""

import shutil
import subprocess
from pathlib import Path

import pytest
import tools
from support.gateway_process import RunningGateway
from support.nightly import at_night
from tables.demo import ROWS

from gateway.protocol.snippets import VERSIONS, Snippet, snippets

TABLE = "demo.default.cities"
NAMES = ("acme.share", "-it's a profile.share")
PYTHON = ("Python", "pandas", "Polars", "DuckDB")


def of_client(client: str, name: str, gateway: RunningGateway) -> Snippet:
    endpoint = f"http://127.0.0.1:{gateway.port}/delta-sharing"
    (found,) = (one for one in snippets(name, endpoint, "demo", TABLE) if one.client == client)
    return found


@pytest.mark.parametrize(
    ("client", "name"),
    [
        (PYTHON[0], NAMES[0]),
        *((client, NAMES[1]) for client in PYTHON),
        *at_night(*((client, NAMES[0]) for client in PYTHON[1:])),
    ],
)
def test_a_snippet_of_python_reads_the_share(
    local_gateway: RunningGateway, client_python: Path, tmp_path: Path, client: str, name: str
) -> None:
    shutil.copy(local_gateway.profile, tmp_path / name)
    snippet = of_client(client, name, local_gateway)
    installed = subprocess.run(
        [tools.uv(), "pip", "freeze", "--python", client_python], check=True, capture_output=True, text=True
    )
    packages = snippet.setup.removeprefix("pip install ").split()
    assert set(packages) <= {*installed.stdout.split()}
    assert packages[0] == f"delta-sharing=={VERSIONS['delta-sharing']}"
    ended = subprocess.run(
        [client_python, "-"], input=snippet.whole, cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert ended.returncode == 0, ended.stderr
    if client == "Python":
        assert all(f"name='{table}'" in ended.stdout for table in ROWS), ended.stdout
    else:
        assert "Reykjavík" in ended.stdout, ended.stdout


@pytest.mark.parametrize("name", NAMES)
def test_the_snippet_of_curl_lists_the_tables(
    local_gateway: RunningGateway, tmp_path: Path, name: str
) -> None:
    if shutil.which("curl") is None:
        pytest.skip("curl is not installed")
    shutil.copy(local_gateway.profile, tmp_path / name)
    snippet = of_client("curl", name, local_gateway)
    ended = subprocess.run(
        ["sh", "-c", snippet.whole], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    assert all(f'"name":"{table}"' in ended.stdout for table in ROWS), ended.stdout
