"""The effect of predicates is in a header if it is known in time, and always in the log."""

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from support.gateway_app import PREFIX, Clock, bearer, recipients, serve

TABLE = f"{PREFIX}/shares/s/schemas/d/tables/t"
MANY = 2000
KEPT = MANY // 2 - 1
COUNTS = (
    f"considered={MANY}, pruned_by_partition={MANY // 2}, pruned_by_stats=1, pruned_by_limit=0, "
    f"returned={KEPT}"
)
LATER = f"considered={MANY}, counted=while streaming"


def many_files(root: Path, *, in_a_checkpoint: bool) -> None:
    """A table of so many files, half of them in each of two partitions, `x` from 0 on."""
    log = root / "_delta_log"
    log.mkdir(parents=True)
    schema = {
        "type": "struct",
        "fields": [
            {"name": name, "type": kind, "nullable": True, "metadata": {}}
            for name, kind in (("x", "long"), ("p", "string"))
        ],
    }
    metadata = {
        "id": "table-id",
        "format": {"provider": "parquet", "options": {}},
        "schemaString": json.dumps(schema),
        "partitionColumns": ["p"],
        "configuration": {},
    }
    adds = [
        {
            "path": f"p=part-{number % 2}/{number}.parquet",
            "partitionValues": {"p": f"part-{number % 2}"},
            "size": 10,
            "modificationTime": 0,
            "dataChange": True,
            "stats": json.dumps({"numRecords": 1, "minValues": {"x": number}, "maxValues": {"x": number}}),
        }
        for number in range(MANY)
    ]
    protocol = {"minReaderVersion": 1, "minWriterVersion": 2}
    actions = [{"protocol": protocol}, {"metaData": metadata}, *({"add": add} for add in adds)]
    (log / f"{0:020}.json").write_text("".join(json.dumps(action) + "\n" for action in actions))
    if in_a_checkpoint:
        write_checkpoint(log / f"{0:020}.checkpoint.parquet", actions)


def write_checkpoint(path: Path, actions: list[dict[str, Any]]) -> None:
    """A classic checkpoint; its maps are Arrow's."""
    text_map = pa.map_(pa.string(), pa.string())
    add = pa.struct(
        {
            "path": pa.string(),
            "partitionValues": text_map,
            "size": pa.int64(),
            "modificationTime": pa.int64(),
            "dataChange": pa.bool_(),
            "stats": pa.string(),
        }
    )
    protocol = pa.struct({"minReaderVersion": pa.int32(), "minWriterVersion": pa.int32()})
    metadata = pa.struct(
        {
            "id": pa.string(),
            "format": pa.struct({"provider": pa.string(), "options": text_map}),
            "schemaString": pa.string(),
            "partitionColumns": pa.list_(pa.string()),
            "configuration": text_map,
        }
    )
    schema = pa.schema({"protocol": protocol, "metaData": metadata, "add": add})
    pq.write_table(pa.Table.from_pylist([with_maps(action) for action in actions], schema), path)


def with_maps(value: Any) -> Any:
    """Maps as lists of pairs."""
    if not isinstance(value, dict):
        return value
    maps = ("partitionValues", "configuration", "options")
    return {
        name: list(inner.items()) if name in maps and inner is not None else with_maps(inner)
        for name, inner in value.items()
    }


async def queried(client: Any, body: dict[str, Any]) -> tuple[Any, int]:
    """A query's answer, and how many files are in it."""
    response = await client.post(f"{TABLE}/query", json=body, headers=bearer("alice"))
    assert response.status == 200
    return response, (await response.read()).count(b'{"file":')


@pytest.mark.parametrize(("in_a_checkpoint", "header"), [(False, COUNTS), (True, LATER)])
async def test_a_streamed_answer_has_counts_in_its_headers_if_its_files_are_in_memory(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, in_a_checkpoint: bool, header: str
) -> None:
    caplog.set_level("INFO", "gateway.access")
    many_files(tmp_path / "t", in_a_checkpoint=in_a_checkpoint)
    table = f"{{name: t, location: '{tmp_path / 't'}'}}"
    shares = f"shares: [{{name: s, schemas: [{{name: d, tables: [{table}]}}]}}]\n"
    client, _ = await serve(f"{shares}{recipients(alice='s')}", clock=Clock(0))
    try:
        response, files = await queried(client, {"predicateHints": ["p = 'part-1'", "x > 1", "x ~ 1"]})
        whole, all_files = await queried(client, {})
    finally:
        await client.close()
    assert "Content-Length" not in response.headers
    assert response.headers["delta-sharing-pruning"] == header
    assert whole.headers["delta-sharing-pruning"] == (
        f"considered={MANY}, pruned_by_partition=0, pruned_by_stats=0, pruned_by_limit=0, returned={MANY}"
    )
    assert (files, all_files) == (KEPT, MANY)
    logged = [json.loads(record.message) for record in caplog.records if record.name == "gateway.access"]
    assert {name: logged[0][name] for name in ("considered", "pruned_by_partition", "returned")} == {
        "considered": MANY,
        "pruned_by_partition": MANY // 2,
        "returned": KEPT,
    }
    assert logged[0]["file_bytes"] == 10 * KEPT
    assert logged[0]["ignored_hints"][0].startswith("predicateHints[2]: ")
