"""Fixtures of the tests of deployments: the root file system of the image and the Debian package."""

from pathlib import Path

import pytest
import tools
from support.artefacts import made, needs_debian


@pytest.fixture(scope="session")
def requirements() -> Path:
    """The locked dependencies of a server, with their hashes."""
    path = tools.CACHE / "requirements.txt"
    tools.run(*tools.export_command(), *tools.SERVER_PACKAGES, "--output-file", path)
    return path


@pytest.fixture(scope="session")
def rootfs(requirements: Path) -> Path:
    """The root file system of the image."""
    needs_debian()
    return made("rootfs", "image", requirements)


@pytest.fixture(scope="session")
def package(requirements: Path) -> Path:
    """The Debian package."""
    needs_debian()
    (path,) = made("deb", "debian", requirements).glob("*.deb")
    return path
