"""The stores as fixtures."""

from collections.abc import Iterator
from pathlib import Path

import pytest
import run

from support.versitygw import VersityGw, running


@pytest.fixture(scope="session")
def versitygw_binary() -> Path:
    """The installed S3 server."""
    binary = run.CACHE / "bin" / f"versitygw-{run.VERSITYGW}"
    if not binary.exists():
        pytest.skip("versitygw is not installed: tests/run.py does it where there is Go")
    return binary


@pytest.fixture(scope="session")
def versitygw(versitygw_binary: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[VersityGw]:
    """An S3 server that verifies signatures; each test creates its buckets."""
    with running(versitygw_binary, tmp_path_factory.mktemp("versitygw")) as server:
        yield server
