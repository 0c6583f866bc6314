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
    try:
        _, lines = await query(
            client, {"predicateHints": ["p = 'x'"], "jsonPredicateHints": json.dumps(tree)}
        )
        assert len(ids(lines)) == 12
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
