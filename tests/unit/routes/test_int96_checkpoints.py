"""Checkpoints whose typed statistics and partition values are INT96, as Spark writes timestamps."""

import json
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import orjson
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from aiohttp.test_utils import TestClient
from support.gateway_app import PREFIX, serve

Client = TestClient[Any, Any]
TABLES = f"{PREFIX}/shares/s/schemas/d/tables"
FILES = 40
BEGIN = datetime(2024, 1, 1, tzinfo=UTC)
OLD = datetime(1500, 3, 1, tzinfo=UTC)
LEGACY = {"org.apache.spark.version": "3.5.3", "org.apache.spark.legacyINT96": ""}
MODERN = {"org.apache.spark.version": "3.5.3"}
INSTANT = pa.timestamp("us", "UTC")
FIELD = {"nullable": True, "metadata": {}}
STRING_MAP = pa.map_(pa.string(), pa.string())


def schema(typed: str) -> pa.Schema:
    value = pa.struct([("c", INSTANT)])
    statistics = [("numRecords", pa.int64()), ("minValues", value), ("maxValues", value)]
    columns = {
        "stats_parsed": pa.struct([*statistics, ("nullCount", pa.struct([("c", pa.int64())]))]),
        "partitionValues_parsed": value,
    }
    add = [("path", pa.string()), ("partitionValues", STRING_MAP), ("size", pa.int64())]
    flags = [("modificationTime", pa.int64()), ("dataChange", pa.bool_())]
    metadata = [("id", pa.string()), ("format", pa.struct([("provider", pa.string())]))]
    texts = [("schemaString", pa.string()), ("partitionColumns", pa.list_(pa.string()))]
    return pa.schema(
        [
            ("protocol", pa.struct([("minReaderVersion", pa.int32()), ("minWriterVersion", pa.int32())])),
            ("metaData", pa.struct([*metadata, *texts, ("configuration", STRING_MAP)])),
            ("add", pa.struct([*add, *flags, (typed, columns[typed])])),
        ]
    )


def write(root: Path, typed: str, times: list[datetime], footer: dict[str, str]) -> None:
    """Write a table of a file at each time, in a checkpoint of small row groups alone."""
    is_partitioned = typed == "partitionValues_parsed"
    fields = [{"name": "c", "type": "timestamp"} | FIELD, {"name": "x", "type": "long"} | FIELD]
    metadata = {
        "id": "00000000-0000-0000-0000-000000000001",
        "format": {"provider": "parquet"},
        "schemaString": json.dumps({"type": "struct", "fields": fields}),
        "partitionColumns": ["c"] if is_partitioned else [],
        "configuration": {},
    }
    rows: list[dict[str, Any]] = [{"protocol": {"minReaderVersion": 1, "minWriterVersion": 2}}]
    rows.append({"metaData": metadata})
    for number, time in enumerate(times):
        text = time.isoformat(" ", "seconds").removesuffix("+00:00")
        statistics = {"numRecords": 1, "minValues": {"c": time}, "maxValues": {"c": time}}
        add = {
            "path": f"f{number:02}",
            "partitionValues": {"c": text} if is_partitioned else {},
            "size": 10,
            "modificationTime": 1,
            "dataChange": True,
            typed: {"c": time} if is_partitioned else statistics | {"nullCount": {"c": 0}},
        }
        rows.append({"add": add})
    table = pa.Table.from_pylist(rows, schema(typed)).replace_schema_metadata(footer)
    log = root / "_delta_log"
    log.mkdir(parents=True)
    checkpoint = log / f"{0:020}.checkpoint.parquet"
    pq.write_table(
        table, checkpoint, use_deprecated_int96_timestamps=True, row_group_size=8, store_schema=False
    )
    assert any(column.physical_type == "INT96" for column in pq.ParquetFile(checkpoint).schema)


@pytest.fixture
async def client(tmp_path: Path) -> AsyncIterator[Client]:
    recent = [BEGIN + timedelta(hours=number) for number in range(FILES)]
    old = [OLD + timedelta(days=number) for number in range(FILES)]
    entries = []
    for typed in ("stats_parsed", "partitionValues_parsed"):
        for name, times, footer in (
            ("recent", recent, MODERN),
            ("old", old, MODERN),
            ("legacy", recent, LEGACY),
        ):
            location = tmp_path / f"{name}_{typed}"
            write(location, typed, times, footer)
            entries.append(f"{{name: {location.name}, location: '{location}'}}")
    started, _ = await serve(
        f"shares: [{{name: s, schemas: [{{name: d, tables: [{', '.join(entries)}]}}]}}]\n"
        "gateway: {anonymous: true}\n"
    )
    yield started
    await started.close()


async def files(client: Client, table: str, *hints: str) -> list[str]:
    body = {"predicateHints": list(hints)} if hints else {}
    response = await client.post(f"{TABLES}/{table}/query", json=body)
    assert response.status == 200
    lines = [orjson.loads(line) for line in (await response.read()).splitlines()]
    return [line["file"]["url"].partition("?")[0].rpartition("/")[2] for line in lines if "file" in line]


@pytest.mark.parametrize("typed", ["stats_parsed", "partitionValues_parsed"])
@pytest.mark.parametrize("name", ["recent", "old", "legacy"])
async def test_the_file_of_a_time_is_kept_cold_and_hot(client: Client, name: str, typed: str) -> None:
    table = f"{name}_{typed}"
    begin, step = (OLD, timedelta(days=1)) if name == "old" else (BEGIN, timedelta(hours=1))
    numbers = [0, 7, 8, FILES - 1]
    hints = [f"c = TIMESTAMP '{begin + number * step:%Y-%m-%dT%H:%M:%SZ}'" for number in numbers]
    cold = [await files(client, table, hint) for hint in hints]
    for number, found in zip(numbers, cold, strict=True):
        assert f"f{number:02}" in found
        # A partition value says no zone, so that of other hours may be this time.
        if name == "recent" and typed == "stats_parsed":
            assert found == [f"f{number:02}"]
    for _ in range(2):
        assert len(await files(client, table)) == FILES
    assert [await files(client, table, hint) for hint in hints] == cold
