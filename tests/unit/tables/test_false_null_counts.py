"""Numbers of nulls that are too high hide no file, no deletion vector and no match."""

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
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


def test_a_converted_file_is_found_by_its_values(tmp_path: Path) -> None:
    deltalake = pytest.importorskip("deltalake", reason="deltalake is not installed")
    content = pa.table({"x": pa.array([None, "a", None, "a"]), "y": pa.array([None, 1, None, 1])})
    file = tmp_path / "t" / "part.parquet"
    file.parent.mkdir()
    pq.write_table(content, file)
    file.write_bytes(with_null_counts(file.read_bytes(), 2, 4))
    deltalake.convert_to_deltalake(str(file.parent))
    (add,) = adds(file.parent)
    assert json.loads(add["stats"])["nullCount"] == {"x": 4, "y": 4}
    for hint in ("x = 'a'", "y IS NOT NULL", "y < 5", "x IS NULL"):
        assert len(adds(file.parent, hint)) == 1, hint
    assert adds(file.parent, "x = 'b'") == []
