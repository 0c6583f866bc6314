"""Predicate hints of a query through a real socket."""

import json
from pathlib import Path

import pytest
from support.gateway_app import Clock, serve
from support.history_table import (
    FILES_PER_VERSION,
    VERSIONS,
    Client,
    configuration,
    ids,
    query,
)


async def test_predicates_prune_and_the_counts_are_seen(client: Client) -> None:
    response, lines = await query(client, {"predicateHints": ["p = 'part-1'", "x > 4"]})
    assert len(ids(lines)) == 2
    assert response.headers["delta-sharing-hint-status"] == "ok"
    assert (
        response.headers["delta-sharing-pruning"]
        == "considered=12, pruned_by_partition=8, pruned_by_stats=2, pruned_by_limit=0, returned=2"
    )


async def test_an_ignored_hint_is_reported(client: Client) -> None:
    response, lines = await query(client, {"predicateHints": ["x ~ 4", "p = 'part-1'"]})
    assert response.headers["delta-sharing-hint-status"].startswith("ignored 1: predicateHints[0]: ")
    assert len(ids(lines)) == 4
    response, lines = await query(client, {"startingVersion": 0, "predicateHints": ["p = 'part-1'", "x ~ 4"]})
    assert response.headers["delta-sharing-hint-status"].startswith("ignored 1: predicateHints[1]: ")


async def test_hints_apply_as_configured(root: Path, clock: Clock) -> None:
    keys = ("evaluatePredicateHints", "evaluateJsonPredicateHints", "evaluateJsonPredicateHintsV2")
    off = "".join(f"{key}: false\n" for key in keys)
    client, _ = await serve(configuration(root, extra=off), clock=clock)
    column = {"op": "column", "name": "p", "valueType": "string"}
    literal = {"op": "literal", "value": "x", "valueType": "string"}
    tree = {"op": "equal", "children": [column, literal]}
    sql, as_json = {"predicateHints": ["p = 'x'"]}, {"jsonPredicateHints": json.dumps(tree)}
    try:
        for hints in (sql | as_json, sql | {"limitHint": 1}, as_json | {"limitHint": 1}):
            _, lines = await query(client, hints)
            assert len(ids(lines)) == 12, "the rows of one file may be others than those of the predicate"
        _, lines = await query(client, {"predicateHints": [], "limitHint": 1})
        assert len(ids(lines)) == 1
    finally:
        await client.close()


async def test_a_hint_without_effect_is_reported_once(
    client: Client, root: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (root / "_delta_log" / "_last_checkpoint").write_text('{"version": 77}')
    for _ in range(2):
        _, lines = await query(client, {})
        assert len(ids(lines)) == FILES_PER_VERSION * VERSIONS
    assert [record.name for record in caplog.records if "_last_checkpoint" in record.message] == [
        "gateway.tables"
    ]


@pytest.mark.parametrize(("formats", "kept"), [("parquet", 1), ("delta", 0)])
async def test_a_partition_timestamp_without_its_zone_is_kept_for_every_zone(
    tmp_path: Path, clock: Clock, formats: str, kept: int
) -> None:
    """A client in Los Angeles gets `2024-01-01 00:00:00` in the parquet format: for it a time there."""
    partitioned_by_time(tmp_path, "2024-01-01T00:00:00.000000Z")
    column = {"op": "column", "name": "at", "valueType": "timestamp"}
    literal = {"op": "literal", "value": "2024-01-01T08:00:00Z", "valueType": "timestamp"}
    hint = json.dumps({"op": "equal", "children": [column, literal]})
    client, _ = await serve(configuration(tmp_path), clock=clock)
    try:
        headers = {"delta-sharing-capabilities": f"responseformat={formats}"}
        _, lines = await query(client, {"jsonPredicateHints": hint}, headers=headers)
        assert len(ids(lines)) == kept
    finally:
        await client.close()


def partitioned_by_time(root: Path, value: str) -> None:
    """A table of one file with this partition value."""
    fields = [
        {"name": name, "type": kind, "nullable": True, "metadata": {}}
        for name, kind in (("x", "long"), ("at", "timestamp"))
    ]
    metadata = {
        "id": "table-id",
        "format": {"provider": "parquet", "options": {}},
        "schemaString": json.dumps({"type": "struct", "fields": fields}),
        "partitionColumns": ["at"],
        "configuration": {},
    }
    add = {
        "path": "one.parquet",
        "partitionValues": {"at": value},
        "size": 1,
        "modificationTime": 0,
        "dataChange": True,
    }
    actions = [
        {"protocol": {"minReaderVersion": 1, "minWriterVersion": 2}},
        {"metaData": metadata},
        {"add": add},
    ]
    log = root / "_delta_log"
    log.mkdir()
    (log / f"{0:020}.json").write_text("".join(json.dumps(action) + "\n" for action in actions))
