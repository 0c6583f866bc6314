"""A table that delta-rs wrote, whose latest commits its catalog has ratified and nobody has published."""

import json
import uuid
from pathlib import Path

import deltalake
import pyarrow as pa
import pytest
from support.native import lines, native

VERSIONS, STAGED_FROM, CHECKPOINT = 14, 11, 8
MANAGED = {
    "minReaderVersion": 3,
    "minWriterVersion": 7,
    "readerFeatures": ["catalogManaged"],
    "writerFeatures": ["catalogManaged"],
}


def test_a_written_table_is_read_whole_with_its_staged_commits(tmp_path: Path) -> None:
    for number in range(VERSIONS):
        mode = "overwrite" if number == STAGED_FROM + 1 else "append"
        deltalake.write_deltalake(str(tmp_path), pa.table({"x": [number]}), mode=mode)
        if number == CHECKPOINT:
            deltalake.DeltaTable(str(tmp_path)).create_checkpoint()
    expected = {Path(uri).name for uri in deltalake.DeltaTable(str(tmp_path)).file_uris()}
    log = tmp_path / "_delta_log"
    # delta-rs does not write managed tables: the feature is set by hand.
    with (log / f"{STAGED_FROM - 1:020}.json").open("a") as commit:
        commit.write(f"\n{json.dumps({'protocol': MANAGED})}\n")
    staged = log / "_staged_commits"
    staged.mkdir()
    ratified = []
    for version in range(STAGED_FROM, VERSIONS):
        file = (log / f"{version:020}.json").rename(staged / f"{version:020}.{uuid.uuid4()}.json")
        ratified.append((version, file.name, file.stat().st_size, 1_700_000_000_000))
    table = native().Table(native().Storage.local(), str(tmp_path), has_catalog=True)
    table.ratify(VERSIONS - 1, ratified, [], age_ms=0)
    snapshot = table.snapshot()
    found, _ = lines(tmp_path, snapshot, "delta")
    assert snapshot.version == VERSIONS - 1
    paths = [line["file"]["deltaSingleAction"]["add"]["path"] for line in found[2:]]
    assert {path.partition("?")[0].rpartition("/")[2] for path in paths} == expected
    with pytest.raises(native().UnsupportedFeature, match="in a catalog"):
        native().Table(native().Storage.local(), str(tmp_path)).snapshot()
