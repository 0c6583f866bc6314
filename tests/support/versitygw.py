"""A real S3 server for tests: versitygw verifies SigV4, region and expiry as S3 does."""

import subprocess
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import boto3
from botocore.config import Config

from support.processes import free_port, wait_for_port

REGION = "us-east-1"


@dataclass(frozen=True)
class S3Server:
    """A running server, its keys, and a client that speaks to it."""

    endpoint: str
    access_key_id: str = "tests-access-key"
    secret_access_key: str = field(default="tests-secret-key", repr=False)
    region: str = REGION
    certificate: Path | None = None
    """The file that a client of an `https` endpoint trusts."""

    def client(self, keys: Mapping[str, str] | None = None, service: str = "s3") -> Any:
        """A boto3 client, by the server's own keys or by vended ones.

        Path style: the buckets have no host names here.
        """
        own = {"accessKeyId": self.access_key_id, "secretAccessKey": self.secret_access_key}
        keys = keys or own
        return boto3.client(
            service,
            endpoint_url=self.endpoint,
            region_name=self.region,
            verify=self.certificate and str(self.certificate),
            aws_access_key_id=keys["accessKeyId"],
            aws_secret_access_key=keys["secretAccessKey"],
            aws_session_token=keys.get("sessionToken"),
            config=Config(
                signature_version="s3v4",
                s3={"addressing_style": "path"},
                retries={"max_attempts": 3},
                # The server takes a checksum after the body over TLS for the next request of the connection.
                request_checksum_calculation="when_required",
            ),
        )

    def make_bucket(self, bucket: str) -> None:
        """Makes a bucket, unless it is there: another worker or module may have needed it before."""
        with closing(self.client()) as client:
            if bucket not in {entry["Name"] for entry in client.list_buckets()["Buckets"]}:
                client.create_bucket(Bucket=bucket)

    def upload(self, directory: Path, bucket: str, prefix: str) -> None:
        """Puts every file below a directory under `prefix`, keys as the files are named."""
        with closing(self.client()) as client:
            self.make_bucket(bucket)
            # In the order in which they were written: versions have the age of their files.
            for path in sorted(
                filter(Path.is_file, directory.rglob("*")), key=lambda path: path.stat().st_mtime
            ):
                key = f"{prefix}/{path.relative_to(directory).as_posix()}"
                client.put_object(Bucket=bucket, Key=key, Body=path.read_bytes())


class VersityGw(S3Server):
    """A running versitygw: it has no sessions."""


@contextmanager
def running(binary: Path, directory: Path, pair: Path | None = None) -> Iterator[VersityGw]:
    """Runs a server over `directory` until the block ends, with TLS if a file has its certificate and key."""
    port = free_port()
    server = VersityGw(f"{'https' if pair else 'http'}://127.0.0.1:{port}", certificate=pair)
    command = [str(binary), "--access", server.access_key_id, "--secret", server.secret_access_key]
    command += ["--region", server.region, "--port", f"127.0.0.1:{port}", "--iam-dir", "", "--quiet"]
    # As S3 and other stores do; this one closes each connection by default.
    command += ["--keep-alive"]
    if pair:
        command += ["--cert", str(pair), "--key", str(pair)]
    log = directory.with_name(f"{directory.name}.log")
    with log.open("wb") as output:
        process = subprocess.Popen([*command, "posix", str(directory)], stdout=output, stderr=output)
        try:
            wait_for_port(port, process)
            yield server
        finally:
            process.terminate()
            process.wait(60)
