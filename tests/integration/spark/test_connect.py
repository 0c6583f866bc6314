"""Shares are read through a server of Spark Connect as well, in a JVM of its own."""

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


@pytest.fixture
def connect_packages() -> Path:
    """What PySpark needs for Spark Connect: an environment apart, which other tests do not see."""
    found = [*(run.CACHE / "connect/lib").glob("python*/site-packages")]
    if not found:
        pytest.skip("the packages of Spark Connect are not installed: tests/run.py does it")
    return found[0]


def test_a_share_is_read_through_spark_connect(
    demo_tables: Path, connect_packages: Path, tmp_path: Path
) -> None:
    roots = [str(Path(gateway.__file__).parent.parent), str(connect_packages)]
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
