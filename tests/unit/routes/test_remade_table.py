"""A local table that is written again in place, as from an archive, while its columns are in memory."""

import json
import os
from pathlib import Path
from typing import Any

import orjson
import pytest
from aiohttp.test_utils import TestClient
from support.gateway_app import PREFIX, serve

TABLE = f"{PREFIX}/shares/s/schemas/d/tables/t"
FILES = 200
MODIFIED_NS = 1_700_000_000 * 10**9
SCHEMA = json.dumps(
    {"type": "struct", "fields": [{"name": "c", "type": "long", "nullable": True, "metadata": {}}]}
)


def write(root: Path, table_id: int, first: str) -> None:
    """Write a table with all its files in a checkpoint. Its log has the sizes and times of any other one."""
    metadata = {
        "id": f"00000000-0000-0000-0000-{table_id:012}",
        "format": {"provider": "parquet", "options": {}},
        "schemaString": SCHEMA,
        "partitionColumns": [],
        "configuration": {},
    }
    heads = [{"protocol": {"minReaderVersion": 1, "minWriterVersion": 2}}, {"metaData": metadata}]
    value = {"minValues": {"c": ord(first)}, "maxValues": {"c": ord(first)}}
    adds = [
        {
            "add": {
                "path": f"{first}{number:04}",
                "partitionValues": {},
                "size": 10,
                "modificationTime": 1,
                "dataChange": True,
                "stats": json.dumps({"numRecords": 1, "nullCount": {"c": 0}, **value}),
            }
        }
        for number in range(FILES)
    ]
    log = root / "_delta_log"
    log.mkdir(parents=True, exist_ok=True)
    checkpoint = f"{0:020}.checkpoint.00000000-0000-0000-0000-000000000000.json"
    top = {"checkpointMetadata": {"version": 0}}
    for name, lines in ((f"{0:020}.json", [*heads, *adds]), (checkpoint, [top, *heads, *adds])):
        made = log / f".{name}"
        made.write_text("".join(json.dumps(line) + "\n" for line in lines))
        os.utime(made, ns=(MODIFIED_NS, MODIFIED_NS))
        made.rename(log / name)


async def files(client: TestClient[Any, Any], **body: Any) -> list[str]:
    response = await client.post(f"{TABLE}/query", json=body)
    assert response.status == 200
    lines = [orjson.loads(line) for line in (await response.read()).splitlines()]
    return [line["file"]["url"].partition("?")[0].rpartition("/")[2] for line in lines if "file" in line]


@pytest.mark.parametrize("later_id", [1, 2])
async def test_hot_columns_are_not_those_of_a_table_with_equal_times_and_sizes(
    tmp_path: Path, later_id: int
) -> None:
    write(tmp_path, 1, "a")
    client, _ = await serve(
        f"shares: [{{name: s, schemas: [{{name: d, tables: [{{name: t, location: '{tmp_path}'}}]}}]}}]\n"
        "gateway: {anonymous: true}\n"
    )
    try:
        for _ in range(3):
            assert await files(client) == [f"a{number:04}" for number in range(FILES)]
        write(tmp_path, later_id, "b")
        expected = [f"b{number:04}" for number in range(FILES)]
        # A hint of the earlier table's values finds nothing in the later one.
        assert await files(client, predicateHints=["c = 97"]) == []
        assert await files(client, predicateHints=["c = 98"]) == expected
        assert await files(client) == expected
    finally:
        await client.close()
