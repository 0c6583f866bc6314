"""The written tables, once for all tests, and a gateway that serves them."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest
from clients.server import RunningGateway, running_gateway, share
from writers.spark_tables import WRITINGS


@contextmanager
def settings(spark: Any, values: dict[str, str]) -> Iterator[None]:
    """Session settings for the length of a block."""
    for name, value in values.items():
        spark.conf.set(name, value)
    try:
        yield
    finally:
        for name in values:
            spark.conf.unset(name)


@pytest.fixture(scope="session")
def written_tables(spark: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The directory of all tables that delta-spark has written."""
    directory = tmp_path_factory.mktemp("written")
    for name, writing in WRITINGS.items():
        with ExitStack() as block:
            block.enter_context(settings(spark, writing.settings))
            writing.write(spark, str(directory / name))
    return directory


@pytest.fixture(scope="session")
def written_gateway(
    written_tables: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[RunningGateway]:
    """Serves the written tables; clones may point into their neighbours."""
    tables = {name: str(written_tables / name) for name in WRITINGS}
    section = {"allowedRoots": [str(written_tables)]}
    directory = tmp_path_factory.mktemp("written-gateway")
    with running_gateway(directory, [share("written", tables)], section) as served:
        yield served
