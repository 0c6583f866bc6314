"""Shares are read through a server of Spark Connect as well, in a JVM of its own."""

from pathlib import Path

import pytest
import tools
from support.gateway_process import running_gateway, share
from support.processes import answer_of_script
from tables.demo import ORDERS

SCRIPT = Path(__file__).parents[3] / "support" / "connect_reads.py"


@pytest.fixture
def connect_packages() -> Path:
    """What PySpark needs for Spark Connect: an environment apart, which other tests do not see."""
    found = [*(tools.CACHE / "connect/lib").glob("python*/site-packages")]
    if not found:
        pytest.skip("the packages of Spark Connect are not installed: tests/run.py does it")
    return found[0]


@pytest.mark.nightly
def test_a_share_is_read_through_spark_connect(
    demo_tables: Path, connect_packages: Path, tmp_path: Path
) -> None:
    with running_gateway(tmp_path, [share("demo", {"orders": str(demo_tables / "orders")})]) as server:
        found = answer_of_script(
            SCRIPT,
            server.profile,
            "demo.default.orders",
            packages=connect_packages,
            directory=tmp_path,
            seconds=500,
        )
    assert found["module"].startswith("pyspark.sql.connect.")
    assert found["rows"] == [list(row) for row in ORDERS]
    above = [order for order, _, amount in ORDERS if amount >= 25]
    assert found["filtered"] == found["read_where"] == above
    assert found["columns"] == ["customer"]
    assert found["counts"] == [len(ORDERS), len(ORDERS)]
