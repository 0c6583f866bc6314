"""deltalake (delta-rs on PyPI) as writer: what it writes and lists is what is answered."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from support.native import lines, table
from support.other_readers import Version, listed_by_deltalake, listed_by_us

WRITER = """
import sys
from pathlib import Path
import pyarrow as pa
from deltalake import DeltaTable, write_deltalake

root = sys.argv[1]
parts = ["a b", "50%", "ü/x", None] * 5
rows = pa.table({"id": list(range(20)), "part": parts, "value": [n / 3 for n in range(20)]})
write_deltalake(root, rows, partition_by=["part"])
write_deltalake(root, rows.slice(0, 5), mode="append")
DeltaTable(root).delete("id = 3")
DeltaTable(root).update(updates={"value": "0.5"}, predicate="id = 4")
DeltaTable(root).create_checkpoint()
write_deltalake(root, rows.slice(5, 5), mode="append")
DeltaTable(root).optimize.compact()
source = pa.table({"id": [1, 500], "part": ["merged", "merged"], "value": [9.0, 9.0]})
merge = DeltaTable(root).merge(source, "t.id = s.id", source_alias="s", target_alias="t")
merge.when_matched_update_all().when_not_matched_insert_all().execute()
print("written", flush=True)
"""


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A table of every operation, written by a process of its own: the writer may abort when it ends."""
    root = tmp_path_factory.mktemp("deltalake") / "table"
    ended = subprocess.run(
        [sys.executable, "-c", WRITER, str(root)], check=False, capture_output=True, text=True
    )
    assert "written" in ended.stdout, ended.stderr
    return root


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
