"""Artefacts of a release, made once for their sources in the cache of `tests/run.py`."""

import os
import platform
import sys
from pathlib import Path

import pytest
import tools

from support import skips

DEPLOY = tools.ROOT / "deploy"
EPOCH = "1700000000"


def needs_debian() -> None:
    """Skip on a machine that cannot unpack packages of Debian 12 and mount file systems."""
    release = platform.freedesktop_os_release()
    if (release["ID"], release.get("VERSION_ID")) != ("debian", "12"):
        pytest.skip(f"{skips.OTHER_MACHINE} Debian 12, this is {release['PRETTY_NAME']}")
    if os.geteuid() != 0:
        pytest.skip(f"{skips.OTHER_MACHINE} root, to mount file systems and to change the user")


def made(name: str, folder: str, requirements: Path) -> Path:
    """Run the script of a folder of deploy/, when the wheel, a dependency or a source of it changed."""
    directory = tools.CACHE / name
    script = {"image": "rootfs.py", "debian": "package.py"}[folder]
    common = [DEPLOY / "python_packages.py", DEPLOY / "share.yaml", *(DEPLOY / "systemd").iterdir()]
    sources = sorted([*(path for path in (DEPLOY / folder).iterdir() if path.is_file()), *common])
    stamp = (tools.CACHE / "project/gateway.stamp").read_text()
    words = [stamp, requirements.read_text(), *(path.read_text() for path in sources)]
    inputs = ["--wheel", tools.built_wheel(), "--requirements", requirements]
    command = [sys.executable, DEPLOY / folder / script, *inputs, directory]
    variables = {"SOURCE_DATE_EPOCH": EPOCH, "DEBEMAIL": "tests@delta-users.org"}
    return tools.made(directory, words, lambda: tools.run(*command, variables=variables))
