"""Serves a log of make_log.py by the gateway itself, with URLs signed for S3; the log is local.

python bench/gateway_server.py PORT DIRECTORY [--cache BYTES] [--staleness SECONDS] ..
"""

import argparse
import dataclasses
import logging
import tempfile
from pathlib import Path

import uvloop
from aiohttp import web

from gateway import _native
from gateway.app import create_app
from gateway.catalog import SharedTable
from gateway.config import load
from gateway.sharing import CURRENT
from gateway.tables import FILES_USE, OpenTable, Tables

BUCKET = "bench"
CONFIG = """
version: 1
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
  anonymous: true
  maxStalenessSeconds: {staleness}
"""


class SignedForS3(Tables):
    """Tables whose log is local and whose data files are said to be in a bucket."""

    portable = False

    def _make(self, table: SharedTable) -> OpenTable:
        opened = super()._make(table)
        signer = _native.Signer.s3(
            BUCKET,
            region="us-east-1",
            access_key_id="AKIAIOSFODNN7EXAMPLE",
            secret_access_key="wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY",
            portable=self.portable,
        )
        return dataclasses.replace(opened, signers=_native.Signers(f"s3://{BUCKET}/warehouse/table", signer))


def main() -> None:
    """Serve until killed."""
    parser = argparse.ArgumentParser(description="Serves a log without data files.")
    parser.add_argument("port", type=int)
    parser.add_argument("directory", type=Path)
    parser.add_argument("--small", type=Path, help="a second log, shared as the table `small`")
    parser.add_argument("--cache", type=int, default=0)
    parser.add_argument("--threads", type=int)
    parser.add_argument("--staleness", type=float, default=0)
    parser.add_argument("--portable", action="store_true")
    arguments = parser.parse_args()
    _native.configure(threads=arguments.threads, cache_bytes=arguments.cache)
    SignedForS3.portable = arguments.portable
    text = CONFIG.format(
        directory=arguments.directory.resolve(),
        small=(arguments.small or arguments.directory).resolve(),
        staleness=arguments.staleness,
    )
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "bench.yaml")
        file.write_text(text)
        app = create_app(load(file))
    sharing = app[CURRENT].sharing
    url_keys = sharing.sealer.derived_keys(FILES_USE)
    tables = SignedForS3(sharing.config, sharing.catalog, url_keys=url_keys)
    app[CURRENT].sharing = dataclasses.replace(sharing, tables=tables)
    logging.disable(logging.INFO)
    uvloop.install()
    web.run_app(app, host="127.0.0.1", port=arguments.port, print=None, access_log=None)


if __name__ == "__main__":
    main()
