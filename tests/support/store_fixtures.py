"""The stores as fixtures."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
import tools

from gateway.server.self_signed import self_signed_pair
from support import azurite_server, google_identity, google_storage, minio_server, session_store
from support.azurite_server import Azurite
from support.google_identity import GoogleIdentity
from support.google_storage import GoogleStorage
from support.versitygw import S3Server, VersityGw, running


@pytest.fixture(scope="session")
def versitygw_binary() -> Path:
    """The installed S3 server."""
    binary = tools.program("versitygw")
    if not binary.exists():
        pytest.skip("versitygw is not installed: tests/run.py does it where there is Go")
    return binary


@pytest.fixture(scope="session")
def versitygw(versitygw_binary: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[VersityGw]:
    """An S3 server that verifies signatures; each test creates its buckets."""
    with running(versitygw_binary, tmp_path_factory.mktemp("versitygw")) as server:
        yield server


@pytest.fixture(scope="session")
def kernel_program() -> Path:
    """The program that lists files with delta_kernel."""
    program = tools.KERNEL_PROGRAMS / "kernel-files"
    if not program.exists():
        pytest.skip("the program of bench/kernel is not built: the part `nightly` of tests/run.py does it")
    return program


@pytest.fixture(scope="session")
def azurite_program() -> Path:
    """The installed Azure Blob server."""
    program = tools.program("azurite")
    if not program.exists():
        pytest.skip("Azurite is not installed: the part `stores` of tests/run.py does it where there is npm")
    return program


@pytest.fixture(scope="session")
def azurite(azurite_program: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Azurite]:
    """An Azure Blob server that verifies the account key's signatures; each test creates its containers."""
    with azurite_server.running(azurite_program, tmp_path_factory.mktemp("azurite")) as server:
        yield server


@pytest.fixture(scope="session")
def azurite_over_tls(azurite_program: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Azurite]:
    """The same over TLS, where bearer tokens and user-delegation keys are accepted too."""
    directory = tmp_path_factory.mktemp("azurite-over-tls")
    pair = directory / "pair.pem"
    pair.write_bytes(self_signed_pair("127.0.0.1"))
    (directory / "blobs").mkdir()
    with azurite_server.running(azurite_program, directory / "blobs", pair) as server:
        yield server


@pytest.fixture(scope="session")
def minio_program() -> Path:
    """The built S3 server with STS."""
    program = tools.program("minio")
    if not program.exists():
        pytest.skip("MinIO is not built: the part `nightly` of tests/run.py does it where there is Go")
    return program


@pytest.fixture(scope="session")
def s3_with_sts(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[S3Server]:
    """An S3 server with sessions: MinIO in the part `nightly`, as its building takes minutes."""
    directory = tmp_path_factory.mktemp("s3-with-sts")
    if os.environ.get(tools.WITH_MINIO):
        with minio_server.running(request.getfixturevalue("minio_program"), directory) as server:
            yield server
        return
    with (
        running(request.getfixturevalue("versitygw_binary"), directory) as behind,
        session_store.running(behind) as server,
    ):
        yield server


@pytest.fixture(scope="session")
def google_storage_server() -> Iterator[GoogleStorage]:
    """A server of Google Cloud Storage that verifies signatures; each test puts its objects."""
    with google_storage.running() as server:
        yield server


@pytest.fixture(scope="session")
def google_account(google_storage_server: GoogleStorage) -> Iterator[GoogleIdentity]:
    """A service account whose tokens and signatures the store accepts."""
    with google_identity.running(GoogleIdentity(google_storage_server)) as identity:
        yield identity
