"""The written tables, once for all runs of the tests, and a gateway that serves them."""

import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import tools
from tables import by_spark
from tables.by_spark import WRITINGS

from support.gateway_process import RunningGateway, running_gateway, share
from support.spark_session import FEW_ROWS, session_words, settings

DIRECTORY = tools.CACHE / "written"
"""Outside of the checkout, as the cache is: to write them takes longer than to read them in all tests."""


@dataclass
class WrittenTables:
    """Tables as delta-spark writes them, each on its first use. No test changes them."""

    spark: Any
    words: list[str]

    def __call__(self, name: str) -> Path:
        """The table's directory."""
        root, writing = DIRECTORY / name, WRITINGS[name]

        def write() -> None:
            # The one into which a clone points.
            shutil.rmtree(f"{root}-source", ignore_errors=True)
            with settings(self.spark, writing.settings):
                writing.write(self.spark, str(root))

        return tools.made(root, self.words, write)


@pytest.fixture(scope="session")
def written_tables(spark: Any) -> WrittenTables:
    """Writes tables and keeps them for all runs."""
    words = [str(DIRECTORY), *FEW_ROWS.values(), Path(by_spark.__file__).read_text()]
    return WrittenTables(spark, [*session_words(), *words])


@pytest.fixture(scope="session")
def written_gateway(
    written_tables: WrittenTables, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[RunningGateway]:
    """Serves the written tables, also those still to come; clones may point into their neighbours."""
    tables = {name: str(DIRECTORY / name) for name in WRITINGS}
    section = {"allowedRoots": [str(DIRECTORY)]}
    directory = tmp_path_factory.mktemp("written-gateway")
    with running_gateway(directory, [share("written", tables)], section) as served:
        yield served
