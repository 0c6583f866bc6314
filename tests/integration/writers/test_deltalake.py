"""Answers for tables of deltalake (delta-rs on PyPI) equal its own listing."""

import json
from pathlib import Path

import pytest
from support.native import lines, table
from support.other_readers import Version, listed_by_deltalake, listed_by_us
from tables.golden import made_tables


@pytest.fixture(scope="module")
def written() -> Path:
    """A table of every operation of deltalake."""
    return made_tables() / "deltalake-every-operation" / "delta"


def test_every_version_that_deltalake_wrote_lists_the_same_files(written: Path) -> None:
    last = max(int(path.stem) for path in (written / "_delta_log").glob("[0-9]*.json"))
    assert last >= 6
    for version in range(last + 1):
        listed = {path: file.size for (path, _), file in listed_by_us(Version(written, version)).items()}
        found = listed_by_deltalake(Version(written, version))
        assert {path: file.size for path, file in found.items()} == listed


def test_the_rows_that_deltalake_wrote_are_counted(written: Path) -> None:
    answer, _ = lines(written, table(written).snapshot(), "delta")
    adds = [line["file"]["deltaSingleAction"]["add"] for line in answer[2:]]
    assert sum(json.loads(add["stats"])["numRecords"] for add in adds) == 29
