"""A gateway on a socket with the table of `support.history_table`."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from support.gateway_app import Clock, serve
from support.history_table import (
    FIRST_MS,
    VERSIONS,
    Client,
    commit,
    configuration,
)
from tables.small_tables import SECRET_PLACE, lay_out


@pytest.fixture(scope="module")
def tables(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp(SECRET_PLACE)
    lay_out(root)
    return root


@pytest.fixture
def root(tmp_path: Path) -> Path:
    for version in range(VERSIONS):
        commit(tmp_path / "t", version)
    return tmp_path / "t"


@pytest.fixture
def clock() -> Clock:
    return Clock(FIRST_MS + 86_400_000)


@pytest.fixture
async def client(root: Path, clock: Clock) -> AsyncIterator[Client]:
    started, _ = await serve(configuration(root), clock=clock)
    yield started
    await started.close()
