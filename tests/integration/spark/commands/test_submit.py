"""The commands run by spark-submit with the pipeline's file, as on a cluster."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import tools
from support.gateway_process import running_gateway, share
from support.spark_session import FEW_ROWS, SETTINGS
from support.versitygw import VersityGw

import gateway
from gateway.spark import cli

TABLES = ("plain", "deletion_vectors", "changes")
Submit = Callable[..., str]


@pytest.fixture
def submit(tmp_path: Path) -> Submit:
    """Run a command, check that it succeeds and return its output."""
    jars = sorted((tools.CACHE / "jars").glob("*.jar"))
    if not jars:
        pytest.skip("the Spark jars are not there: tests/run.py fetches them")
    # As on a cluster: the package is in the environment of the executors, Delta in options of spark-submit.
    chosen = SETTINGS | FEW_ROWS
    del chosen["spark.sql.extensions"]
    command = [str(Path(sys.executable).parent / "spark-submit"), "--master", "local[2]"]
    command += [word for name, value in chosen.items() for word in ("--conf", f"{name}={value}")]
    command += ["--jars", ",".join(map(str, jars)), cli.__file__]
    # The current directory has a folder named like the package, as a checkout has.
    checkout = tmp_path / "checkout"
    (checkout / "gateway").mkdir(parents=True)
    (checkout / "gateway/__init__.py").write_text("raise ImportError('found in the current directory')\n")
    package = str(Path(gateway.__file__).parent.parent)
    environment = {**os.environ, "PYSPARK_PYTHON": sys.executable, "PYTHONPATH": package}

    def submitted(*arguments: str | Path, **variables: str) -> str:
        # spark-submit writes both streams of Python to its standard output.
        done = subprocess.run(
            [*command, *map(str, arguments)],
            check=False,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            cwd=checkout,
            env=environment | variables,
        )
        assert done.returncode == 0, done.stdout[-3000:]
        return done.stdout

    return submitted


def test_a_command_runs_by_spark_submit(submit: Submit, demo_tables: Path, tmp_path: Path) -> None:
    listed, page = tmp_path / "tables.json", tmp_path / "fleet.html"
    tables = [
        {"table": f"demo.default.{name}", "location": str(demo_tables / name)}
        for name in ("cities", "orders")
    ]
    listed.write_text(json.dumps({"tables": tables}))
    # Of the commands the one that takes the least time runs in the executors as well.
    submit("fleet", "-c", listed, "--html", page)
    assert all(table["table"] in page.read_text() for table in tables)
    assert "0 tables that cannot be read" in page.read_text()


@pytest.mark.nightly
def test_every_command_runs_by_spark_submit(submit: Submit, versitygw: VersityGw, tmp_path: Path) -> None:
    root, audit = tmp_path / "made", tmp_path / "audit.log"
    only = [word for name in TABLES for word in ("--only", name)]
    submit("generate", root, "--rows", "50", *only)
    shares = [share("made", {name: str(root / name) for name in TABLES})]
    with running_gateway(tmp_path, shares, {"audit": {"file": str(audit)}}) as served:
        configuration = ["-c", tmp_path / "gateway.yaml", "--profile", served.profile]
        page = tmp_path / "verify.html"
        said = submit("verify", *configuration, "--predicates", "1", "--html", page)
    assert "3 of 3 tables are equal" in said
    assert "all equal" in page.read_text()
    said = submit("usage", audit, "--tables", tmp_path / "usage", "--html", tmp_path / "usage.html")
    (line,) = [line for line in said.splitlines() if "tests made.default.plain: " in line]
    assert " 0 errors" in line
    assert int(line.split(" files of ")[1].split(" bytes")[0]) > 1000
    versitygw.upload(root, "fleet", "made")
    listed = tmp_path / "tables.json"
    tables = [{"table": f"made.default.{name}", "location": f"s3://fleet/made/{name}"} for name in TABLES]
    listed.write_text(json.dumps({"tables": tables}))
    submit(
        "fleet",
        "-c",
        listed,
        "--html",
        tmp_path / "fleet.html",
        AWS_ENDPOINT_URL=versitygw.endpoint,
        AWS_REGION=versitygw.region,
        AWS_ACCESS_KEY_ID=versitygw.access_key_id,
        AWS_SECRET_ACCESS_KEY=versitygw.secret_access_key,
    )
    found = (tmp_path / "fleet.html").read_text()
    assert all(f"made.default.{name}" in found for name in TABLES)
    assert "0 tables that cannot be read" in found
    assert "deletionVectors" in found
