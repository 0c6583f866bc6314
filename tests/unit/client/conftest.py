"""A server whose answers a test scripts."""

from collections.abc import Iterator

import pytest
from support.scripted_server import Answers, listening


@pytest.fixture
def answers() -> Iterator[Answers]:
    with listening() as mine:
        yield mine
