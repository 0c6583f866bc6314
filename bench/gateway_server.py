"""Serves a log of make_log.py as `delta-gateway serve` does, with URLs signed for S3; the log is local.

python bench/gateway_server.py PORT DIRECTORY [--cache BYTES] [--staleness SECONDS] ..

Nothing is left out: tokens, limits, metrics and the access log (to the standard error) are those of a server.
"""

import argparse
import dataclasses
import hashlib
import tempfile
from pathlib import Path

from drain import TOKEN

from gateway import _native, state
from gateway.__main__ import main as main_of_gateway
from gateway.access.catalog import SharedTable
from gateway.tables.open_table import OpenTable
from gateway.tables.registry import Tables
from gateway.tables.signers import TableSigners

BUCKET = "bench"
CONFIG = """
version: 1
host: 127.0.0.1
port: {port}
shares:
- name: share
  schemas:
  - name: schema
    tables:
    - name: table
      location: file://{directory}
      id: 00000000-0000-0000-0000-000000000001
    - name: small
      location: file://{small}
      id: 00000000-0000-0000-0000-000000000002
gateway:
  recipients: [{{name: bench, tokens: [{{sha256: {token_sha256}}}], shares: [share]}}]
  tokenKeys: [{{id: k1, secret: 0123456789abcdef0123456789abcdef}}]
  maxStalenessSeconds: {staleness}
  cache: {{memoryBytes: {cache}, threads: {threads}}}
"""


class BucketAccess(TableSigners):
    """Signers of a bucket, whatever the table's location is."""

    is_valid = True

    def __init__(self, *, portable: bool) -> None:
        super().__init__([])
        signer = _native.Signer.s3(
            BUCKET,
            region="us-east-1",
            access_key_id="AKIAIOSFODNN7EXAMPLE",
            secret_access_key="wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY",
            portable=portable,
        )
        self._of_bucket = _native.Signers(f"s3://{BUCKET}/warehouse/table", signer)

    def renew(self) -> None:
        """The keys never end."""

    def signers(self) -> _native.Signers:
        """Always the same."""
        return self._of_bucket


class SignedForS3(Tables):
    """Tables whose log is local and whose data files are said to be in a bucket."""

    portable = False

    def _make(self, table: SharedTable) -> OpenTable:
        return dataclasses.replace(super()._make(table), url_signers=BucketAccess(portable=self.portable))


def main() -> None:
    """Serve until killed."""
    parser = argparse.ArgumentParser(description="Serves a log without data files.")
    parser.add_argument("port", type=int)
    parser.add_argument("directory", type=Path)
    parser.add_argument("--small", type=Path, help="a second log, shared as the table `small`")
    parser.add_argument("--cache", type=int, default=0)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--staleness", type=float, default=0)
    parser.add_argument("--portable", action="store_true")
    arguments = parser.parse_args()
    SignedForS3.portable = arguments.portable
    state.Tables = SignedForS3  # type: ignore[misc]
    text = CONFIG.format(
        port=arguments.port,
        directory=arguments.directory.resolve(),
        small=(arguments.small or arguments.directory).resolve(),
        token_sha256=hashlib.sha256(TOKEN.encode()).hexdigest(),
        staleness=arguments.staleness,
        cache=arguments.cache,
        threads=arguments.threads,
    )
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "bench.yaml")
        file.write_text(text)
        main_of_gateway(["serve", "-c", str(file)])


if __name__ == "__main__":
    main()
