"""The golden tables of other implementations and their answers, found by $DELTA_GATEWAY_SHARED."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import run
from clients.server import RunningGateway, running_gateway, share

EVERY_FEATURE = (
    "responseformat=delta;readerfeatures=deletionvectors,columnmapping,timestampntz,typewidening,"
    "typewidening-preview,varianttype,varianttype-preview,variantshredding,variantshredding-preview"
)


def answers() -> dict[str, dict[str, Any]]:
    """Name of each table to what an independent replay found; empty where the tables are not there."""
    tables = run.shared_tables()
    return json.loads((tables / "ANSWERS.json").read_text()) if tables else {}


def shared_name(table: str) -> str:
    """A table's name in the share `golden`: what a name may not hold is replaced."""
    return "golden.default." + table.replace("/", "__").replace(".", "_")


def readable() -> dict[str, dict[str, Any]]:
    """Those that a reader of today can read."""
    return {name: answer for name, answer in answers().items() if answer.get("readerSupported")}


@pytest.fixture(scope="session")
def golden_gateway(shared_tables: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningGateway]:
    """Serves every golden table, the broken ones too."""
    tables = {shared_name(name).rsplit(".", 1)[-1]: str(shared_tables / name) for name in answers()}
    with running_gateway(tmp_path_factory.mktemp("golden"), [share("golden", tables)]) as served:
        yield served
