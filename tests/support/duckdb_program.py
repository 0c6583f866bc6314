"""Reads a Delta table with DuckDB: runs in an environment with DuckDB and its extensions.

In: a table's URL, and the variables of AWS. Out: a JSON array of the rows, or an error.
"""

import importlib
import os
import sys
from pathlib import Path

import duckdb

EXTENSIONS = ("httpfs", "aws", "delta")


def quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def main() -> None:
    # Extensions are those of the environment: none is fetched.
    settings = {"autoinstall_known_extensions": "false", "autoload_known_extensions": "false"}
    connection = duckdb.connect(config=settings)
    for name in EXTENSIONS:
        package = importlib.import_module(f"duckdb_extension_{name}")
        (file,) = Path(package.__file__).parent.rglob("*.duckdb_extension")
        connection.execute(f"LOAD {quoted(str(file))}")
    secret = {
        "KEY_ID": os.environ["AWS_ACCESS_KEY_ID"],
        "SECRET": os.environ["AWS_SECRET_ACCESS_KEY"],
        "SESSION_TOKEN": os.environ["AWS_SESSION_TOKEN"],
        "REGION": os.environ["AWS_REGION"],
        "ENDPOINT": os.environ["AWS_ENDPOINT_URL"].partition("://")[2],
        "URL_STYLE": "path",
    }
    values = ", ".join(f"{name} {quoted(value)}" for name, value in secret.items())
    connection.execute(f"CREATE SECRET (TYPE s3, {values}, USE_SSL false)")
    found = connection.execute(f"SELECT to_json(one) FROM delta_scan({quoted(sys.argv[1])}) AS one")
    sys.stdout.write(f"[{','.join(row for (row,) in found.fetchall())}]")


if __name__ == "__main__":
    main()
