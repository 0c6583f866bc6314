"""Tables with known answers: the project's own, and optionally golden tables of other implementations.

`made/..` are those of tables/make.py, in the cache. The golden tables of other implementations lie in the
directory $DELTA_GATEWAY_GOLDEN; without it the same tests run on the made tables alone.
"""

import json
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import tools
from support.gateway_process import RunningGateway, running_gateway, share

EVERY_FEATURE = (
    "responseformat=delta;readerfeatures=deletionvectors,columnmapping,timestampntz,typewidening,"
    "typewidening-preview,varianttype,varianttype-preview,variantshredding,variantshredding-preview"
)
MADE = "made/"


def made_tables() -> Path:
    """The directory of the tables that the project makes; this interpreter makes them if need be."""
    return tools.made_tables(Path(sys.executable))


@cache
def answers() -> dict[str, dict[str, Any]]:
    """Name of each table to what an independent replay found."""
    made = json.loads((made_tables() / "ANSWERS.json").read_text())
    golden = tools.golden_tables()
    others = json.loads((golden / "ANSWERS.json").read_text()) if golden else {}
    return {f"{MADE}{name}": answer for name, answer in made.items()} | others


def location(table: str) -> Path:
    """The directory of a table. Skips the test when it is a golden table and those are not there."""
    if table.startswith(MADE):
        return made_tables() / table.removeprefix(MADE)
    golden = tools.golden_tables()
    if golden is None:
        pytest.skip(tools.GOLDEN_ABSENT)
    return golden / table


def shared_name(table: str) -> str:
    """A table's name in the share `golden`: what a name may not hold is replaced."""
    return "golden.default." + table.replace("/", "__").replace(".", "_")


def readable() -> dict[str, dict[str, Any]]:
    """Those that a reader of today can read."""
    return {name: answer for name, answer in answers().items() if answer.get("readerSupported")}


@pytest.fixture(scope="session")
def golden_tables() -> Path:
    """The golden tables of other implementations, read in place."""
    found = tools.golden_tables()
    if found is None:
        pytest.skip(tools.GOLDEN_ABSENT)
    return found


@pytest.fixture(scope="session")
def golden_gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningGateway]:
    """Serves every table with a known answer, the broken ones too."""
    tables = {shared_name(name).rsplit(".", 1)[-1]: str(location(name)) for name in answers()}
    with running_gateway(tmp_path_factory.mktemp("golden"), [share("golden", tables)]) as served:
        yield served
