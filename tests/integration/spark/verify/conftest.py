"""The server of the tables that a module of tests makes."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from support.plain_server import PlainServer


@pytest.fixture
def server(tables: dict[str, Path]) -> Iterator[PlainServer]:
    serving = PlainServer(tables)
    yield serving
    serving.close()
