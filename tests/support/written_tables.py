"""The written tables, once for all tests, and a gateway that serves them."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from tables.by_spark import WRITINGS

from support.gateway_process import RunningGateway, running_gateway, share
from support.spark_session import settings


@dataclass
class WrittenTables:
    """Tables as delta-spark writes them, each on its first use."""

    spark: Any
    directory: Path

    def __call__(self, name: str) -> Path:
        """The table's directory."""
        root = self.directory / name
        if not root.exists():
            with settings(self.spark, WRITINGS[name].settings):
                WRITINGS[name].write(self.spark, str(root))
        return root


@pytest.fixture(scope="session")
def written_tables(spark: Any, tmp_path_factory: pytest.TempPathFactory) -> WrittenTables:
    """Writes tables and keeps them for all tests."""
    return WrittenTables(spark, tmp_path_factory.mktemp("written"))


@pytest.fixture(scope="session")
def written_gateway(
    written_tables: WrittenTables, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[RunningGateway]:
    """Serves the written tables, also those still to come; clones may point into their neighbours."""
    tables = {name: str(written_tables.directory / name) for name in WRITINGS}
    section = {"allowedRoots": [str(written_tables.directory)]}
    directory = tmp_path_factory.mktemp("written-gateway")
    with running_gateway(directory, [share("written", tables)], section) as served:
        yield served
