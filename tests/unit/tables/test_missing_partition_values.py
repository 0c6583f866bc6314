"""Files of partitioned tables without `partitionValues`: nulls in their place would be wrong values."""

import json
from pathlib import Path
from typing import Any

import pytest
from support.native import lines, native, table

Action = dict[str, Any]

SCHEMA = {
    "type": "struct",
    "fields": [{"name": "day", "type": "string", "nullable": True, "metadata": {}}],
}


def heads(*partition_columns: str) -> list[Action]:
    metadata = {
        "id": "00000000-0000-0000-0000-000000000001",
        "format": {"provider": "parquet", "options": {}},
        "schemaString": json.dumps(SCHEMA),
        "partitionColumns": partition_columns,
        "configuration": {"delta.enableChangeDataFeed": "true"},
    }
    return [{"protocol": {"minReaderVersion": 1, "minWriterVersion": 4}}, {"metaData": metadata}]


def add(name: str, **fields: Any) -> Action:
    return {"add": {"path": name, "size": 1, "modificationTime": 1, "dataChange": True, **fields}}


def write(root: Path, *commits: list[Action], name: str = "{:020}.json") -> Path:
    (root / "_delta_log").mkdir(parents=True)
    for version, actions in enumerate(commits):
        text = "".join(json.dumps(action) + "\n" for action in actions)
        (root / "_delta_log" / name.format(version)).write_text(text)
    return root


def files(root: Path) -> list[Action]:
    answer, _ = lines(root, table(root).snapshot(), "delta")
    return [line["file"]["deltaSingleAction"]["add"] for line in answer[2:]]


@pytest.mark.parametrize("fields", [{}, {"partitionValues": None}], ids=["absent", "null"])
@pytest.mark.parametrize(
    "name", ["{:020}.json", "{:020}.checkpoint.00000000-0000-0000-0000-000000000000.json"]
)
def test_a_file_without_them_is_refused_if_the_table_has_partitions(
    tmp_path: Path, fields: dict[str, Any], name: str
) -> None:
    root = write(tmp_path / "partitioned", [*heads("day"), add("f", **fields)], name=name)
    with pytest.raises(native().CorruptLog, match="no partitionValues"):
        files(root)
    root = write(tmp_path / "plain", [*heads(), add("f", **fields)], name=name)
    assert [file["partitionValues"] for file in files(root)] == [{}]
    root = write(tmp_path / "empty", [*heads("day"), add("f", partitionValues={})], name=name)
    assert [file["partitionValues"] for file in files(root)] == [{"day": None}]


def test_a_dead_file_may_be_older_than_the_partitions(tmp_path: Path) -> None:
    remove = {"remove": {"path": "f", "deletionTimestamp": 1, "dataChange": True}}
    later = [*heads("day"), remove, add("g", partitionValues={"day": "x"})]
    root = write(tmp_path, [*heads(), add("f")], later)
    assert [file["partitionValues"] for file in files(root)] == [{"day": "x"}]


@pytest.mark.parametrize("kind", ["add", "cdc"])
def test_a_change_without_them_is_refused_too(tmp_path: Path, kind: str) -> None:
    change = {kind: add("f")["add"]}
    root = write(tmp_path, heads("day"), [change])
    with pytest.raises(native().CorruptLog, match="no partitionValues"):
        lines(root, table(root).changes(starting_version=1, change_data_feed=True), "delta")
