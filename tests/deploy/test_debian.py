"""The Debian package on a disposable machine: it installs, starts, reloads, stops and leaves nothing."""

import json
import shutil
import subprocess
import time

import pytest
from support import skips
from support.machine import running_machine, why_no_machine

UNIT = "delta-gateway.service"
CONFIGURATION = "/etc/delta-gateway/share.yaml"
GET = "import sys, urllib.request as u; print(u.urlopen(sys.argv[1], timeout=5).status)"


@pytest.fixture(scope="module")
def machine(package, tmp_path_factory):
    if reason := why_no_machine():
        pytest.skip(f"{skips.OTHER_MACHINE} {reason}")
    with running_machine(tmp_path_factory.mktemp("machine"), package.parent) as machine:
        machine.run("dpkg", "--install", f"/mnt/{package.name}")
        yield machine


@pytest.mark.nightly
def test_the_linter_of_debian_finds_nothing(package):
    if (lintian := shutil.which("lintian")) is None:
        pytest.skip(f"{skips.OTHER_MACHINE} lintian")
    lint = [lintian, "--allow-root", "--fail-on", "none", package]
    found = subprocess.run(lint, check=True, capture_output=True, text=True).stdout
    assert [line for line in found.splitlines() if line.startswith(("E:", "W:"))] == []


def status_of(machine, path):
    return machine.run("/usr/bin/python3", "-IS", "-c", GET, f"http://127.0.0.1:8080{path}").strip()


def until(condition):
    deadline = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.1)


def test_the_installed_service_is_ready_and_enabled(machine):
    # `systemctl start` of the installation has waited for the readiness that the server reports.
    assert machine.show(UNIT, "ActiveState") == "active", machine.run(
        "systemctl", "status", UNIT, check=False
    )
    assert machine.run("systemctl", "is-enabled", UNIT).strip() == "enabled"
    assert status_of(machine, "/readyz") == "200"


def test_the_service_runs_in_its_sandbox_as_a_user_without_capabilities(machine):
    process_id = machine.show(UNIT, "MainPID")
    status = dict(
        line.split(":\t", 1)
        for line in machine.run("cat", f"/proc/{process_id}/status").splitlines()
        if ":\t" in line
    )
    assert "0" not in status["Uid"].split("\t")
    assert (status["CapEff"], status["NoNewPrivs"], status["Seccomp"]) == ("0" * 16, "1", "2")
    for path in ("/etc/delta-gateway/token-key", "/etc/default/delta-gateway"):
        assert machine.run("stat", "-c", "%a", path).strip() == "600"


def test_the_service_keeps_its_files_in_directories_that_only_it_enters(machine):
    for name in ("lib", "cache"):
        assert machine.run("stat", "-c", "%a", f"/var/{name}/private/delta-gateway").strip() == "700"
    assert machine.run("ls", "/var/lib/private/delta-gateway").split() == ["recipients.db"]


def test_a_changed_configuration_is_reloaded_and_a_command_as_the_service_adds_a_recipient(machine):
    machine.run("sed", "-i", "s/^shares: .*/shares: [{name: sales, schemas: []}]/", CONFIGURATION)
    machine.run("systemctl", "reload", UNIT)
    until(lambda: machine.show(UNIT, "ActiveState") == "active")
    process_id = machine.show(UNIT, "MainPID")
    # systemd-run needs the message bus, which this machine does not start: the command enters the sandbox.
    owner = machine.run("stat", "-c", "%u", f"/proc/{process_id}").strip()
    enter = ["nsenter", f"--target={process_id}", "--mount", f"--setuid={owner}", f"--setgid={owner}", "--"]
    directories = [
        "env",
        "STATE_DIRECTORY=/var/lib/delta-gateway",
        "CACHE_DIRECTORY=/var/cache/delta-gateway",
    ]
    credentials = f"CREDENTIALS_DIRECTORY=/run/credentials/{UNIT}"
    add = ["/usr/bin/delta-gateway", "recipient", "add", "acme", "-c", CONFIGURATION, "--share", "sales"]
    machine.run(*enter, *directories, credentials, *add, "--profile", "/tmp/acme.share")
    profile = json.loads(machine.run(*enter, "cat", "/tmp/acme.share"))
    get = (
        "import sys, urllib.request as u;"
        "r = u.Request('http://127.0.0.1:8080/delta-sharing/shares');"
        "r.add_header('Authorization', 'Bearer ' + sys.argv[1]);"
        "print(u.urlopen(r, timeout=5).read().decode())"
    )
    until(
        lambda: (
            "sales" in machine.run("/usr/bin/python3", "-IS", "-c", get, profile["bearerToken"], check=False)
        )
    )


def test_a_command_as_the_service_has_the_secrets_and_variables_of_drop_ins(machine):
    if machine.attempt("systemctl", "start", "dbus.socket").returncode:
        pytest.skip(f"{skips.OTHER_MACHINE} the message bus, which systemd-run needs")
    files = {
        f"/etc/systemd/system/{UNIT}.d/store.conf": "[Service]\n"
        'LoadCredential=store-key:/etc/delta-gateway/store-key\nEnvironment="REGION=eu-central-1"\n',
        "/etc/delta-gateway/store-key": "secret",
        "/etc/delta-gateway/store.yaml": """\
version: 1
shares: []
gateway:
  recipientsDatabase: ${STATE_DIRECTORY}/recipients.db
  storages:
    - prefix: "s3://bucket/"
      region: ${REGION}
      accessKeyId: key
      secretAccessKeyFile: ${CREDENTIALS_DIRECTORY}/store-key
""",
    }
    machine.run("mkdir", f"/etc/systemd/system/{UNIT}.d")
    for path, text in files.items():
        machine.run("sh", "-c", 'printf %s "$1" > "$2"', "sh", text, path)
    machine.run("systemctl", "daemon-reload")
    listed = machine.run(
        "delta-gateway-as-service", "recipient", "list", "-c", "/etc/delta-gateway/store.yaml"
    )
    assert "acme: shares sales" in listed
    machine.run("rm", *files)
    machine.run("systemctl", "daemon-reload")


def test_systemd_restarts_a_server_that_is_killed(machine):
    before = machine.show(UNIT, "MainPID")
    machine.run("systemctl", "kill", "--signal=KILL", UNIT)
    until(lambda: machine.show(UNIT, "MainPID") not in {before, "0"})
    until(lambda: machine.show(UNIT, "ActiveState") == "active")
    assert status_of(machine, "/readyz") == "200"


def test_workers_of_the_options_serve_and_a_restart_drains_them(machine):
    machine.run(
        "sed",
        "-i",
        "s/^DELTA_GATEWAY_OPTIONS=.*/DELTA_GATEWAY_OPTIONS=--workers 2/",
        "/etc/default/delta-gateway",
    )
    machine.run("systemctl", "restart", UNIT)
    assert machine.show(UNIT, "ActiveState") == "active"
    assert status_of(machine, "/readyz") == "200"
    machine.run("systemctl", "stop", UNIT)
    assert machine.show(UNIT, "Result") == "success"
    assert machine.show(UNIT, "ExecMainStatus") == "0"
    machine.run("systemctl", "start", UNIT)


def test_the_package_goes_and_a_purge_leaves_no_file(machine):
    machine.run("dpkg", "--remove", "delta-sharing-gateway")
    assert machine.attempt("pgrep", "-f", "delta-gateway serve").returncode == 1
    assert machine.run("cat", CONFIGURATION)
    machine.run("dpkg", "--purge", "delta-sharing-gateway")
    found = machine.run(
        "sh",
        "-c",
        "ls -d /etc/delta-gateway /etc/default/delta-gateway /usr/lib/delta-gateway"
        " /var/lib/private/delta-gateway /var/cache/private/delta-gateway 2> /dev/null || true",
    )
    assert found == ""
