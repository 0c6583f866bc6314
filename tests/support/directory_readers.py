"""Engines that read the directory of a Delta table on S3, each with temporary keys alone.

Each returns the rows of the latest version. None gets a key of the test's environment.
"""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import tools

Rows = list[dict[str, Any]]
DUCKDB_PROGRAM = Path(__file__).with_name("duckdb_program.py")
DELTALAKE_PROGRAM = """
import json, os, sys
from deltalake import DeltaTable
options = {name: value for name, value in os.environ.items() if name.startswith("AWS_")}
table = DeltaTable(sys.argv[1], storage_options=options)
json.dump(table.to_pyarrow_table().to_pylist(), sys.stdout, default=str)
sys.stdout.flush()
# Its threads may abort a process that ends as usual.
os._exit(0)
"""


class NotRead(Exception):
    """An engine that ends in an error."""


def store_options(credentials: Mapping[str, Any], endpoint: str, region: str) -> dict[str, str]:
    """The variables of an engine for the keys of an answer."""
    keys = credentials["awsTempCredentials"]
    return {
        "AWS_ACCESS_KEY_ID": keys["accessKeyId"],
        "AWS_SECRET_ACCESS_KEY": keys["secretAccessKey"],
        "AWS_SESSION_TOKEN": keys["sessionToken"],
        "AWS_REGION": region,
        "AWS_ENDPOINT_URL": endpoint,
        "AWS_ENDPOINT": endpoint,
        "AWS_ALLOW_HTTP": "true",
        "AWS_EC2_METADATA_DISABLED": "true",
    }


def _rows(command: list[str | Path], options: Mapping[str, str]) -> Rows:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("AWS_")}
    done = subprocess.run(
        command, capture_output=True, text=True, env={**environment, **options}, check=False
    )
    if done.returncode:
        raise NotRead(done.stderr[-2000:])
    rows: Rows = json.loads(done.stdout)
    return rows


def by_deltalake(url: str, options: Mapping[str, str]) -> Rows:
    """The rows that deltalake reads. Raises NotRead."""
    return _rows([sys.executable, "-c", DELTALAKE_PROGRAM, url], options)


def by_delta_kernel(url: str, options: Mapping[str, str]) -> Rows:
    """The rows that delta_kernel reads. Raises NotRead."""
    return _rows([tools.KERNEL_PROGRAMS / "kernel-rows", url], options)


def by_duckdb(url: str, options: Mapping[str, str]) -> Rows:
    """The rows that DuckDB reads. Raises NotRead."""
    return _rows([tools.CACHE / "engines/bin/python", DUCKDB_PROGRAM, url], options)


ENGINES: Mapping[str, Callable[[str, Mapping[str, str]], Rows]] = {
    "deltalake": by_deltalake,
    "delta_kernel": by_delta_kernel,
    "duckdb": by_duckdb,
}
