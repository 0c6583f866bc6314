"""A real Azure Blob server for tests: Azurite verifies Shared Key, service SAS and user-delegation SAS.

Bearer tokens and user-delegation keys need TLS. Of a token it checks the issuer, the audience, the times and
the form, but not the signature.
"""

import base64
import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from support.processes import free_port, wait_for_port

if TYPE_CHECKING:
    from azure.storage.blob import BlobServiceClient

ACCOUNT = "testsaccount"
ACCOUNT_KEY = base64.b64encode(b"the key of an account, of any bytes \x00\xff").decode()


@dataclass(frozen=True)
class Azurite:
    """A running server with one account."""

    origin: str
    account: str = ACCOUNT
    account_key: str = field(default=ACCOUNT_KEY, repr=False)
    certificate: Path | None = None
    """The file that a client of an `https` endpoint trusts."""

    @property
    def endpoint(self) -> str:
        """The URL of the account's blobs: the account is the first segment of each path."""
        return f"{self.origin}/{self.account}"

    def client(self) -> "BlobServiceClient":
        """A client of Azure's own library."""
        from azure.storage.blob import BlobServiceClient  # noqa: PLC0415 - slow to import

        verify = str(self.certificate) if self.certificate else True
        return BlobServiceClient(
            self.endpoint, credential=self.account_key, connection_verify=verify, retry_total=0
        )

    def create_container(self, container: str) -> None:
        """Creates a container that is not there."""
        with self.client() as client:
            if not client.get_container_client(container).exists():
                client.create_container(container)

    def put(self, container: str, key: str, content: bytes) -> None:
        """Puts one blob, its key exactly as it is given."""
        self.create_container(container)
        with self.client() as client:
            client.get_blob_client(container, key).upload_blob(content, overwrite=True)

    def upload(self, directory: Path, container: str, prefix: str) -> None:
        """Puts every file below a directory under `prefix`, keys as the files are named."""
        self.create_container(container)
        with self.client() as client, client.get_container_client(container) as blobs:
            # In the order in which they were written: versions have the age of their files.
            files = sorted(filter(Path.is_file, directory.rglob("*")), key=lambda path: path.stat().st_mtime)
            for path in files:
                key = f"{prefix}/{path.relative_to(directory).as_posix()}".removeprefix("/")
                blobs.upload_blob(key, path.read_bytes(), overwrite=True)


@contextmanager
def running(program: Path, directory: Path, pair: Path | None = None) -> Iterator[Azurite]:
    """Runs a server until the block ends, with TLS and bearer tokens if a file has certificate and key."""
    port = free_port()
    server = Azurite(f"{'https' if pair else 'http'}://127.0.0.1:{port}", certificate=pair)
    command = ["node", str(program), "--blobHost", "127.0.0.1", "--blobPort", str(port), "--silent"]
    command += ["--location", str(directory), "--skipApiVersionCheck", "--disableTelemetry"]
    command += ["--oauth", "basic", "--cert", str(pair), "--key", str(pair)] if pair else []
    accounts = {"AZURITE_ACCOUNTS": f"{server.account}:{server.account_key}"}
    log = directory.with_name(f"{directory.name}.log")
    with log.open("wb") as output:
        process = subprocess.Popen(command, stdout=output, stderr=output, env={**os.environ, **accounts})
        try:
            wait_for_port(port, process)
            yield server
        finally:
            process.terminate()
            process.wait(60)
