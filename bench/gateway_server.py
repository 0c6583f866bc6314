"""Serves logs of make_log.py as `delta-gateway serve` does, with URLs signed for S3; the logs are local.

    python bench/gateway_server.py PORT --table NAME=DIRECTORY [--cache BYTES] [--staleness SECONDS] ...

Tokens, limits, metrics and the access log (to the standard error) are those of a server. The token of its
only recipient is in the environment variable BENCH_TOKEN.
"""

import argparse
import hashlib
import json
import os
import tempfile
from pathlib import Path

from drain import TOKEN_VARIABLE
from msgspec import structs

from gateway import _native, state
from gateway.__main__ import main as main_of_gateway
from gateway.catalog.catalog import SharedTable
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
    tables: {tables}
gateway:
  recipients: [{{name: bench, tokens: [{{sha256: {token_sha256}}}], shares: [share]}}]
  tokenKeys: [{{id: k1, secret: 0123456789abcdef0123456789abcdef}}]
  maxStalenessSeconds: {staleness}
  cache: {{memoryBytes: {cache}, threads: {threads}}}
"""


class BucketAccess(TableSigners):
    """Signs for one bucket, wherever the table's log is."""

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

    def renew_at_once(self) -> bool:
        """Return True: the keys do not expire."""
        return True

    def renew(self) -> None:
        """Do nothing: the keys do not expire."""

    def signers_in_memory(self) -> _native.Signers:
        """Return the signers of the bucket."""
        return self._of_bucket

    def signers(self) -> _native.Signers:
        return self._of_bucket


class SignedForS3(Tables):
    """Opens tables whose log is local and whose data files have URLs of a bucket."""

    portable = False

    def _make(self, table: SharedTable) -> OpenTable:
        return structs.replace(super()._make(table), url_signers=BucketAccess(portable=self.portable))


def entry(name: str, directory: str) -> dict[str, str]:
    """Return the configuration of a table."""
    return {"name": name, "location": f"file://{Path(directory).resolve()}"}


def main() -> None:
    """Serve until the process is ended."""
    parser = argparse.ArgumentParser(description="Serves a log without data files.")
    parser.add_argument("port", type=int)
    parser.add_argument("--table", action="append", metavar="NAME=DIRECTORY", required=True)
    parser.add_argument("--cache", type=int, default=0)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--staleness", type=float, default=0)
    parser.add_argument("--portable", action="store_true")
    arguments = parser.parse_args()
    SignedForS3.portable = arguments.portable
    state.Tables = SignedForS3  # type: ignore[attr-defined, misc, unused-ignore]
    text = CONFIG.format(
        port=arguments.port,
        tables=json.dumps([entry(*table.split("=", 1)) for table in arguments.table]),
        token_sha256=hashlib.sha256(os.environ[TOKEN_VARIABLE].encode()).hexdigest(),
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
