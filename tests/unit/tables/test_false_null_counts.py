"""Numbers of nulls that are too high hide no file and no deletion vector."""

from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from support.false_null_counts import with_null_counts
from support.native import lines, table
from tables.writer import Column, Table, inline

FILES, REMOVED = 7, 9
HEADS = 2
ROWS = FILES + REMOVED + HEADS
FACTORS = {"all rows": FILES + REMOVED + HEADS, "more than all rows": 2 * (REMOVED + HEADS)}


class OneRowGroup(Table):
    """A table whose checkpoints have one row group."""

    row_group_rows = 100


def adds(root: Path, *hints: str) -> list[dict[str, Any]]:
    answer, _ = lines(root, table(root).snapshot(), "delta", {"predicate_hints": hints})
    return [line["file"]["deltaSingleAction"]["add"] for line in answer if "file" in line]


@pytest.mark.parametrize("stated", FACTORS.values(), ids=FACTORS)
def test_the_files_of_a_checkpoint_are_there_with_their_vectors(tmp_path: Path, stated: int) -> None:
    written = OneRowGroup(tmp_path / "t", [Column("x", "long")], reader_features=["deletionVectors"])
    files = [written.add([{"x": number}, {"x": None}], deletionVector=inline([1])) for number in range(FILES)]
    dead = [written.add([{"x": -1}]) for _ in range(REMOVED)]
    written.commit(*files, *dead)
    written.commit(*map(written.remove, dead))
    written.checkpoint("single", hint="absent")
    (checkpoint,) = written.log.glob("*.checkpoint.parquet")
    assert pq.read_metadata(checkpoint).num_rows == ROWS
    checkpoint.write_bytes(with_null_counts(checkpoint.read_bytes(), REMOVED + HEADS, stated))
    found = adds(written.root)
    assert len(found) == FILES
    assert all("deletionVector" in add and "stats" in add for add in found)
    assert table(written.root).snapshot().totals()[0] == FILES
    assert len(adds(written.root, "x = 3")) == 1
