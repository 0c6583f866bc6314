"""The container image: its Dockerfile, and its root file system run as the image would run."""

import hashlib
import json
import os
import re
import signal
import subprocess
import time
from pathlib import Path

import pytest
import tools
import yaml
from support.image import DOCKERFILE, TABLES, image_settings, running_container
from support.processes import children, gateway_command, package_environment
from support.waiting import wait_until

TOKEN = "token-of-the-image"
TABLE = "/delta-sharing/shares/demo/schemas/default/tables/orders"
LARGEST_BYTES = 150 * 1000 * 1000


@pytest.fixture(scope="module")
def configuration(tmp_path_factory):
    """A directory as it is mounted at /etc/delta-gateway, with the secrets beside the file."""
    directory = tmp_path_factory.mktemp("image") / "configuration"
    (directory / "secrets").mkdir(parents=True)
    (directory / "secrets/token-key").write_text("0123456789abcdef0123456789abcdef\n")
    recipient = {
        "name": "tests",
        "tokens": [{"sha256": hashlib.sha256(TOKEN.encode()).hexdigest()}],
        "shares": ["*"],
    }
    packaged = yaml.safe_load((tools.ROOT / "deploy/share.yaml").read_text())
    table = {"name": "orders", "location": f"{TABLES}/orders"}
    packaged["shares"] = [{"name": "demo", "schemas": [{"name": "default", "tables": [table]}]}]
    packaged["gateway"] |= {"recipients": [recipient], "publicUrl": "http://127.0.0.1:8080"}
    (directory / "share.yaml").write_text(yaml.safe_dump(packaged))
    return directory


@pytest.fixture(scope="module")
def container(rootfs, configuration, demo_tables):
    # pytest makes directories that only its user enters.
    demo_tables.chmod(0o755)
    log = configuration.with_name("log")
    with running_container(rootfs, configuration, demo_tables, log, "--workers", "2") as container:
        deadline = time.monotonic() + 30
        while not container.is_healthy():
            assert time.monotonic() < deadline, log.read_text()
            assert container.process.poll() is None, log.read_text()
            # Each look is a start of Python, beside which the server starts.
            time.sleep(0.2)
        yield container


def test_the_dockerfile_passes_the_linter():
    subprocess.run(
        [tools.environment("release") / "hadolint", "--failure-threshold", "style", DOCKERFILE], check=True
    )


def test_the_base_is_pinned_by_its_digest_and_can_be_replaced_by_an_argument():
    text = DOCKERFILE.read_text()
    assert re.search(r"^ARG BASE=\S+@sha256:[0-9a-f]{64}$", text, re.MULTILINE)
    assert [line for line in text.splitlines() if line.startswith("FROM")] == [
        "FROM ${BASE} AS rootfs",
        "FROM scratch",
    ]


def test_the_image_runs_as_a_numeric_user_that_is_not_root():
    image = image_settings()
    assert int(image.user) > 0
    assert int(image.group) > 0


def test_the_root_file_system_is_below_150_megabytes_unpacked(rootfs):
    used = subprocess.run(["du", "-sx", "--block-size=1", rootfs], check=True, capture_output=True, text=True)
    assert int(used.stdout.split()[0]) < LARGEST_BYTES


def test_the_image_has_no_shell_and_no_other_program_than_the_gateway_and_its_python(rootfs):
    programs = {
        str(path.relative_to(rootfs))
        for path in rootfs.rglob("*")
        if path.is_file() and not path.is_symlink() and path.stat().st_mode & 0o111 and ".so" not in path.name
    }
    assert {name for name in programs if "bin/" in name} == {
        "usr/bin/python3.11",
        "usr/local/bin/delta-gateway",
        "usr/local/bin/healthcheck",
    }
    assert not [path for path in rootfs.rglob("*") if path.is_file() and path.stat().st_mode & 0o6000]


def test_every_native_module_of_the_image_finds_its_libraries(rootfs):
    program = """
import ctypes, pathlib, sys
for directory in sys.path[1:]:
    for path in pathlib.Path(directory).rglob("*.so"):
        ctypes.CDLL(str(path))
print("done")
"""
    python = ["chroot", rootfs, "/usr/bin/python3.11", "-c", program]
    assert subprocess.run(python, check=True, capture_output=True, text=True).stdout == "done\n"


def test_the_image_has_the_services_of_aws_that_give_credentials_and_no_others(rootfs):
    program = """
import botocore.session
session = botocore.session.Session()
for service in ("signin", "sso", "sso-oidc", "sts"):
    session.create_client(service, region_name="eu-west-1", aws_access_key_id="a", aws_secret_access_key="b")
print(*session.get_available_services())
"""
    python = ["chroot", rootfs, "/usr/bin/python3.11", "-c", program]
    made = subprocess.run(python, check=True, capture_output=True, text=True)
    assert made.stdout.split() == ["signin", "sso", "sso-oidc", "sts"]


def test_the_image_has_the_identities_of_azure_and_google(rootfs):
    program = "import azure.identity, azure.storage.blob, google.auth.transport.requests"
    subprocess.run(["chroot", rootfs, "/usr/bin/python3.11", "-c", program], check=True)


def test_the_image_reaches_postgresql_by_the_openssl_of_debian_and_makes_a_database(rootfs):
    program = """
import pathlib, psycopg, ssl, tempfile
from gateway.config.database import DatabasePlace
from gateway.database.migration import opened
with tempfile.TemporaryDirectory() as directory:
    opened(DatabasePlace(pathlib.Path(directory, "x.db")), create=True).close()
try:
    psycopg.connect("host=127.0.0.1 port=1 sslmode=verify-full sslrootcert=system")
except psycopg.OperationalError:
    print("refused")
print(ssl.OPENSSL_VERSION_INFO[0])
"""
    python = ["chroot", rootfs, "/usr/bin/python3.11", "-c", program]
    assert subprocess.run(python, check=True, capture_output=True, text=True).stdout.split() == [
        "refused",
        "3",
    ]
    libraries = (rootfs / "usr/local/lib/python3.11/dist-packages/psycopg_binary.libs").iterdir()
    shared = {path.name.partition("-")[0] for path in libraries if path.is_symlink()}
    assert shared == {"libcrypto", "libssl"}


def test_the_image_lists_its_debian_packages_where_scanners_look(rootfs):
    listed = {path.name: path.read_text() for path in (rootfs / "var/lib/dpkg/status.d").iterdir()}
    assert {"libc6", "libssl3", "python3.11-minimal"} <= set(listed)
    assert all(re.search(r"^Version: \S+$", control, re.MULTILINE) for control in listed.values())


def test_the_server_answers_a_table_from_a_read_only_root_as_its_user_without_a_network(container):
    status, answer = container.request("POST", f"{TABLE}/query", TOKEN, {})
    assert status == 200, answer
    lines = [json.loads(line) for line in answer.splitlines()]
    assert sum("file" in line for line in lines) > 0
    owner = Path(f"/proc/{container.process_id}").stat()
    assert f"{owner.st_uid}:{owner.st_gid}" == f"{container.image.user}:{container.image.group}"
    status_file = Path(f"/proc/{container.process_id}/status").read_text()
    assert "NoNewPrivs:\t1" in status_file
    assert "CapEff:\t0000000000000000" in status_file
    write = container.run("/usr/bin/python3.11", "-c", "open('/etc/written', 'w')")
    assert "Read-only file system" in write.stderr or "Permission denied" in write.stderr
    network = "import socket; socket.create_connection(('192.0.2.1', 80), 1)"
    assert "Network is unreachable" in container.run("/usr/bin/python3.11", "-c", network).stderr


def test_a_container_that_is_stopped_while_it_starts_ends_at_once(tmp_path):
    configuration = tmp_path / "share.yaml"
    # Reading it waits for a writer: the start does not end by itself.
    os.mkfifo(configuration)
    command = gateway_command("serve", "-c", configuration)
    # The child is process 1 of its namespace.
    process = subprocess.Popen(
        ["unshare", "--pid", "--fork", "--kill-child", *command], env=package_environment()
    )
    try:
        wait_until(lambda: any(_catches_sigterm(child) for child in children(process.pid)))
        for child in children(process.pid):
            os.kill(child, signal.SIGTERM)
        assert process.wait(20) == 128 + signal.SIGTERM
    finally:
        process.kill()
        process.wait()


def _catches_sigterm(process_id: int) -> bool:
    """Return whether a process has a handler for SIGTERM."""
    caught = re.search(r"^SigCgt:\s*(\w+)$", Path(f"/proc/{process_id}/status").read_text(), re.MULTILINE)
    return bool(caught and int(caught[1], 16) >> (signal.SIGTERM - 1) & 1)


def test_the_health_check_fails_where_no_server_answers(container):
    assert container.run(*container.image.healthcheck, "http://127.0.0.1:9/healthz").returncode == 1
    assert container.run(*container.image.healthcheck, "http://127.0.0.1:8080/absent").returncode == 1


def test_commands_of_the_image_change_recipients_of_the_running_server(container):
    add = ["/usr/local/bin/delta-gateway", "recipient", "add", "acme", "-c", "/etc/delta-gateway/share.yaml"]
    added = container.run(*add, "--share", "demo", "--profile", "/tmp/acme.share")
    assert added.returncode == 0, added.stderr
    profile = json.loads(
        container.run("/usr/bin/python3.11", "-c", "print(open('/tmp/acme.share').read())").stdout
    )
    deadline = time.monotonic() + 10
    while container.request("GET", "/delta-sharing/shares", profile["bearerToken"])[0] != 200:
        assert time.monotonic() < deadline
        time.sleep(0.1)
