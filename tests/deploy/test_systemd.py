"""The unit of systemd: its syntax, its sandbox and its agreement with the server."""

import re
import shutil
import subprocess

import pytest
import tools
import yaml
from support import skips

from gateway.config.sections import Gateway
from gateway.server.run import KILL_MARGIN_SECONDS

UNIT = tools.ROOT / "deploy/systemd/delta-gateway.service"
EXPOSURE = 15
"""The highest accepted exposure, in tenths: systemd calls 0 to 2 OK."""


def directives(name):
    return re.findall(rf"^{name}=(.*)$", UNIT.read_text(), re.MULTILINE)


def needs_systemd():
    if shutil.which("systemd-analyze") is None:
        pytest.skip(f"{skips.OTHER_MACHINE} systemd-analyze is not installed")


def test_systemd_accepts_the_unit(tmp_path):
    needs_systemd()
    # The program is not installed on this machine.
    copy = tmp_path / UNIT.name
    copy.write_text(UNIT.read_text().replace("ExecStart=/usr/bin/delta-gateway", "ExecStart=/bin/true"))
    checked = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", copy], check=False, capture_output=True, text=True
    )
    assert (checked.returncode, checked.stderr) == (0, "")


def test_the_exposure_of_the_unit_is_low():
    needs_systemd()
    analyze = ["systemd-analyze", "security", "--offline=true", "--no-pager", f"--threshold={EXPOSURE}", UNIT]
    checked = subprocess.run(analyze, check=False, capture_output=True, text=True)
    assert checked.returncode == 0, checked.stdout


def test_the_unit_waits_longer_for_a_stop_than_the_server_drains():
    (seconds,) = directives("TimeoutStopSec")
    defaults = Gateway()
    assert int(seconds[:-1]) > defaults.drain_seconds + KILL_MARGIN_SECONDS


def test_the_unit_is_started_again_for_as_long_as_its_database_is_away():
    assert (directives("Restart"), directives("StartLimitIntervalSec")) == (["on-failure"], ["0"])


def test_the_packaged_configuration_reads_the_secrets_that_the_unit_loads():
    loaded = {line.partition(":")[0] for line in directives("LoadCredential")}
    text = (tools.ROOT / "deploy/share.yaml").read_text()
    assert yaml.safe_load(text)["version"] == 1
    assert set(re.findall(r"\$\{CREDENTIALS_DIRECTORY\}/([a-z-]+)", text)) == loaded
