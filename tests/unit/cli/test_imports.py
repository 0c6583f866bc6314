"""A command imports only the packages that it uses. Modules are counted, so the load does not matter."""

import subprocess
import sys

import pytest
from support.nightly import at_night
from support.sharing_server import sharing

from gateway.cli.command_line import COMMANDS
from gateway.spark import cli as spark_commands

pytestmark = pytest.mark.processes

NEVER = {
    "aiohttp",
    "azure",
    "botocore",
    "google.auth",
    "matplotlib",
    "opentelemetry",
    "polars",
    "prometheus_client",
    "pyarrow",
    "pyspark",
    "uvloop",
}
# Tables have records of msgspec.
NO_TABLES = NEVER | {"cryptography", "gateway._native", "msgspec"}
PROGRAM = """
import sys
from gateway.__main__ import main
try:
    code = main(sys.argv[1:])
except SystemExit as end:
    code = end.code
print(*sys.modules, sep="\\n", file=sys.stderr)
raise SystemExit(code)
"""


def loaded_by(*words: str) -> set[str]:
    """The modules of a process that has run one command."""
    command = [sys.executable, "-P", "-c", PROGRAM, *words]
    ended = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert ended.returncode == 0, ended.stderr
    return set(ended.stderr.splitlines())


@pytest.fixture
def configuration(tmp_path):
    path = tmp_path / "share.yaml"
    path.write_text(
        "version: 1\nshares: [{name: s, schemas: []}]\ngateway: {recipientsDatabase: recipients.db}\n"
    )
    return str(path)


def test_help_loads_no_command():
    loaded = loaded_by("--help")
    assert not loaded & (NO_TABLES | {"asyncio", "gateway.config", "yaml"})
    assert {name for name in loaded if name.startswith("gateway.spark.")} == {"gateway.spark.cli"}


ALL_COMMANDS = {*COMMANDS, *spark_commands.COMMANDS}
SOME_COMMANDS = {"check", "recipient", "verify"}


@pytest.mark.parametrize(
    "command", [*sorted(SOME_COMMANDS), *at_night(*sorted(ALL_COMMANDS - SOME_COMMANDS))]
)
def test_the_help_of_a_command_loads_no_server_and_no_optional_package(command):
    assert not loaded_by(command, "--help") & NEVER


def test_recipients_are_listed_without_web_server_and_native_code(configuration):
    loaded_by("recipient", "add", "alice", "-c", configuration, "--share", "s")
    loaded = loaded_by("recipient", "list", "-c", configuration)
    assert "gateway.governance.recipient_store" in loaded
    assert not loaded & NO_TABLES


def test_a_token_is_made_without_web_server_and_native_code(configuration):
    assert not loaded_by("token", "alice", "--shares", "s") & (NO_TABLES | {"asyncio"})


def test_a_first_share_is_written_without_web_server(demo_tables, tmp_path):
    words = ["--recipient", "alice", "-c", str(tmp_path / "share.yaml")]
    assert not loaded_by("init", str(demo_tables), *words) & NEVER


def test_a_server_loads_neither_admin_api_nor_certificates_nor_databases_before_it_needs_them():
    program = "import gateway.server.run, sys; print(*sys.modules, sep=chr(10))"
    command = [sys.executable, "-P", "-c", program]
    loaded = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60).stdout.split()
    assert "aiohttp.web" in loaded
    late = {
        "gateway.admin.app",
        "cryptography.x509",
        "polars",
        "opentelemetry",
        "sqlalchemy",
        "alembic",
        "jinja2",
        "urllib3",
    }
    assert not late & {*loaded}


def test_the_event_loop_finds_a_proxy_without_importing_an_http_client(monkeypatch):
    monkeypatch.setenv("https_proxy", "http://proxy.example:1")
    program = "import sys; from gateway.outgoing import proxy_of\n"
    program += "print(proxy_of('https://login.example/keys'), 'urllib3' in sys.modules)"
    command = [sys.executable, "-P", "-c", program]
    printed = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60).stdout
    assert printed == "{'proxy': 'http://proxy.example:1'} False\n"


def test_the_doctor_loads_no_native_code_and_no_package_of_an_extra(tmp_path):
    with sharing() as server:
        loaded = loaded_by("doctor", str(server.profile(tmp_path / "acme.share")))
    assert "gateway.client.transport" in loaded
    assert not loaded & (NO_TABLES | {"gateway.config", "yaml"})


def test_check_loads_the_native_code_and_no_web_server(configuration):
    loaded = loaded_by("check", "-c", configuration)
    assert "gateway._native" in loaded
    assert not loaded & NEVER
    assert "cryptography.x509" not in loaded
