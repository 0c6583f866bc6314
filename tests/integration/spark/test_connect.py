"""Shares are read through a server of Spark Connect as well. A long form: a JVM and packages of its own."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import run
from support.gateway_process import running_gateway, share
from tables.demo import ORDERS

import gateway

SCRIPT = Path(__file__).parents[2] / "support" / "connect_reads.py"


def test_a_share_is_read_through_spark_connect(demo_tables: Path, tmp_path: Path) -> None:
    packages = os.environ.get("DELTA_GATEWAY_CONNECT")
    if packages is None:
        pytest.skip(run.CONNECT_ABSENT)
    roots = [str(Path(gateway.__file__).parent.parent), packages]
    with running_gateway(tmp_path, [share("demo", {"orders": str(demo_tables / "orders")})]) as server:
        command = [sys.executable, "-P", str(SCRIPT), str(server.profile), "demo.default.orders"]
        done = subprocess.run(
            command,
            check=False,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(roots), "PYTHONSAFEPATH": "1"},
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=500,
        )
    assert done.returncode == 0, done.stderr[-3000:]
    found = json.loads(done.stdout.splitlines()[-1])
    assert found["module"].startswith("pyspark.sql.connect.")
    assert found["rows"] == [list(row) for row in ORDERS]
    above = [order for order, _, amount in ORDERS if amount >= 25]
    assert found["filtered"] == found["read_where"] == above
    assert found["columns"] == ["customer"]
    assert found["counts"] == [len(ORDERS), len(ORDERS)]
