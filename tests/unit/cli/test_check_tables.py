"""What `delta-gateway check` says of tables that recipients cannot read, through its command."""

import errno
import json
from pathlib import Path
from typing import Any

import pytest

from gateway.cli import check
from gateway.config import loads
from gateway.tables.local_files import LocalFile


def field(name: str, data_type: Any) -> dict[str, Any]:
    return {"name": name, "type": data_type, "nullable": True, "metadata": {}}


def write(root: Path, *, fields: list[dict[str, Any]], partitions: list[str], paths: list[str]) -> None:
    metadata = {
        "id": "00000000-0000-0000-0000-000000000001",
        "format": {"provider": "parquet", "options": {}},
        "schemaString": json.dumps({"type": "struct", "fields": fields}),
        "partitionColumns": partitions,
        "configuration": {},
    }
    values: dict[str, Any] = {"partitionValues": dict.fromkeys(partitions, "1"), "size": 1}
    adds = [{"add": {"path": path, **values, "modificationTime": 1, "dataChange": True}} for path in paths]
    lines = [{"protocol": {"minReaderVersion": 1, "minWriterVersion": 2}}, {"metaData": metadata}, *adds]
    log = root / "_delta_log"
    log.mkdir(parents=True)
    (log / f"{0:020}.json").write_text("".join(json.dumps(line) + "\n" for line in lines))
    (root / "x").mkdir()
    for path in ("f", "x/f"):
        (root / path).write_bytes(b"x")


def problem(root: Path) -> str:
    config = loads(
        "version: 1\nhost: 127.0.0.1\nport: 8080\ngateway: {anonymous: true}\n"
        f"shares: [{{name: s, schemas: [{{name: d, tables: [{{name: t, location: '{root}'}}]}}]}}]\n"
    )
    (finding,) = check.check(check.GatewayState.of(config))
    return finding.problem


ID = field("id", "long")
INNER = {"type": "struct", "fields": [field("v", "void")]}


@pytest.mark.parametrize(
    ("fields", "partitions", "paths", "expected"),
    [
        ([ID], [], ["f", "./f", "x/f"], ""),
        ([ID, field("p", "string")], ["p"], ["f"], ""),
        ([ID, field("P", "string")], ["p"], ["f"], "its schema lacks the partition column 'p'"),
        ([ID], ["p"], ["f"], "its schema lacks the partition column 'p'"),
        ([ID, field("v", "void")], [], ["f"], "its column 'v' has the type void"),
        (
            [ID, field("a", {"type": "array", "elementType": INNER, "containsNull": True})],
            [],
            ["f"],
            "its column 'a' has the type void",
        ),
        ([ID], [], ["f", "x//g"], "an empty or a relative part"),
        ([ID], [], ["f", "x/./g"], "an empty or a relative part"),
    ],
)
def test_the_reason_is_named(
    tmp_path: Path, fields: list[dict[str, Any]], partitions: list[str], paths: list[str], expected: str
) -> None:
    write(tmp_path, fields=fields, partitions=partitions, paths=paths)
    found = problem(tmp_path)
    assert found.startswith(expected) or expected in found
    assert bool(found) == bool(expected)


def test_a_data_file_that_cannot_be_read_is_named_without_its_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path, fields=[ID], partitions=[], paths=["f"])

    def denied(_file: LocalFile) -> None:
        raise PermissionError(errno.EACCES, "Permission denied", b"f")

    monkeypatch.setattr(LocalFile, "open", denied)
    assert problem(tmp_path) == "a data file cannot be read: Permission denied"
