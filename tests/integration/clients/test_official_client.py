"""The official Python client reads shares over local URLs and over S3."""

import json
from pathlib import Path
from typing import Any

import pytest
from support.gateway_process import RunningGateway, running_gateway, share
from support.official_client import ClientError, OfficialClient
from tables.demo import ORDER_CHANGES, ROWS
from tables.writer import Column, Table

COLUMNS = {
    "cities": ["city", "inhabitants", "founded", "region"],
    "readings": ["sensor", "at", "celsius"],
    "orders": ["order", "customer", "amount"],
}
CHANGE_COLUMNS = ["_commit_version", "_change_type", "order", "customer", "amount"]


def as_json(rows: list[tuple]) -> list[tuple]:
    """Rows as the client's process spells them."""
    return sorted(
        (tuple(cell.isoformat() if hasattr(cell, "isoformat") else cell for cell in row) for row in rows),
        key=repr,
    )


def test_it_lists_the_shares(official_client: OfficialClient, demo_gateway: RunningGateway) -> None:
    expected = [f"demo.default.{name}" for name in ROWS]
    assert sorted(official_client.call("shares", demo_gateway.profile)) == sorted(expected)
    assert sorted(official_client.call("schemas", demo_gateway.profile)) == sorted(expected)


@pytest.mark.parametrize("table", ROWS)
def test_it_reads_the_rows(official_client: OfficialClient, demo_gateway: RunningGateway, table: str) -> None:
    found = official_client.rows(demo_gateway.profile, f"demo.default.{table}", COLUMNS[table])
    assert found == as_json(ROWS[table])


@pytest.mark.parametrize("table", ROWS)
def test_it_reads_the_rows_in_the_delta_format(
    official_client: OfficialClient, demo_gateway: RunningGateway, table: str
) -> None:
    found = official_client.rows(
        demo_gateway.profile, f"demo.default.{table}", COLUMNS[table], use_delta_format=True
    )
    assert found == as_json(ROWS[table])


def test_it_never_reads_deleted_rows_in_the_parquet_format(
    official_client: OfficialClient, demo_gateway: RunningGateway
) -> None:
    with pytest.raises(ClientError, match="responseformat=delta"):
        official_client.rows(demo_gateway.profile, "demo.default.readings", use_delta_format=False)


@pytest.mark.parametrize("limit", [0, 1, 3, 100])
@pytest.mark.parametrize("table", ROWS)
def test_a_limit_returns_that_number_of_rows(
    official_client: OfficialClient, demo_gateway: RunningGateway, table: str, limit: int
) -> None:
    found = official_client.rows(demo_gateway.profile, f"demo.default.{table}", COLUMNS[table], limit=limit)
    assert len(found) == min(limit, len(ROWS[table]))
    assert set(found) <= set(as_json(ROWS[table]))


@pytest.mark.parametrize(("version", "orders"), [(0, {1, 2, 3, 4}), (1, {1, 2, 3, 4}), (2, {1, 2, 4})])
@pytest.mark.parametrize("delta", [True, False])
def test_it_reads_older_versions(
    official_client: OfficialClient, demo_gateway: RunningGateway, version: int, orders: set[int], delta: bool
) -> None:
    found = official_client.rows(
        demo_gateway.profile, "demo.default.orders", ["order"], version=version, use_delta_format=delta
    )
    assert {order for (order,) in found} == orders


def test_it_finds_the_version(official_client: OfficialClient, demo_gateway: RunningGateway) -> None:
    assert official_client.call("version", demo_gateway.profile, "demo.default.orders") == 3


@pytest.mark.parametrize("delta", [True, False])
@pytest.mark.parametrize(("first", "last"), [(0, None), (1, 2)])
def test_it_reads_the_changes(
    official_client: OfficialClient, demo_gateway: RunningGateway, first: int, last: int | None, delta: bool
) -> None:
    ending = {} if last is None else {"ending_version": last}
    found = official_client.changes(
        demo_gateway.profile,
        "demo.default.orders",
        CHANGE_COLUMNS,
        starting_version=first,
        use_delta_format=delta,
        **ending,
    )
    assert found == as_json([row for row in ORDER_CHANGES if first <= row[0] <= (last or 99)])


def test_a_predicate_prunes_files_and_no_row_of_the_answer_is_lost(
    official_client: OfficialClient, demo_gateway: RunningGateway
) -> None:
    hint = {
        "op": "equal",
        "children": [
            {"op": "column", "name": "region", "valueType": "string"},
            {"op": "literal", "value": "100% coast", "valueType": "string"},
        ],
    }
    found = official_client.rows(
        demo_gateway.profile, "demo.default.cities", COLUMNS["cities"], jsonPredicateHints=json.dumps(hint)
    )
    assert found == as_json([row for row in ROWS["cities"] if row[3] == "100% coast"])


def test_it_reads_a_table_whose_mapping_is_off_and_has_left_names_behind(
    official_client: OfficialClient, tmp_path: Path
) -> None:
    left = {"delta.columnMapping.id": 1, "delta.columnMapping.physicalName": "col-1"}
    columns = [Column("id", "integer", metadata=left), Column("part", "string")]
    properties = {"delta.columnMapping.mode": "none"}
    table = Table(tmp_path / "left", columns, ["part"], ["deletionVectors"], configuration=properties)
    table.commit(table.add([{"id": 1}, {"id": 2}], partition={"part": "a"}))
    table.commit(table.add([{"id": 3}], partition={"part": "b"}))
    with running_gateway(tmp_path, [share("made", {"left": str(table.root)})]) as gateway:
        for options in ({}, {"use_delta_format": True}, {"limit": 3}):
            found = official_client.rows(gateway.profile, "made.default.left", ["id", "part"], **options)
            assert found == [(1, "a"), (2, "a"), (3, "b")]


@pytest.mark.parametrize("in_a_checkpoint", [False, True])
def test_partition_values_are_found_by_names_that_a_mapping_left_behind(
    official_client: OfficialClient, tmp_path: Path, in_a_checkpoint: bool
) -> None:
    left = {"delta.columnMapping.id": 2, "delta.columnMapping.physicalName": "col-2"}
    columns = [Column("id", "integer"), Column("part", "string", metadata=left)]
    table = Table(tmp_path / "left", columns, ["part"])
    for number, values in enumerate(
        [{"part": "a"}, {"col-2": "a"}, {"part": "b", "col-2": "a"}, {"part": "a", "col-2": "b"}]
    ):
        add = table.add([{"id": number}], partition={"part": None})
        add["add"]["partitionValues"] = values
        table.commit(add)
    if in_a_checkpoint:
        table.checkpoint("single")
    with running_gateway(tmp_path, [share("made", {"left": str(table.root)})]) as gateway:
        for options in ({}, {"use_delta_format": True}):
            found = official_client.rows(gateway.profile, "made.default.left", ["id", "part"], **options)
            assert found == [(0, "a"), (1, "a"), (2, "a"), (3, "b")]
        for capabilities in ("responseformat=parquet", "responseformat=delta;readerfeatures=deletionvectors"):
            answer = gateway.query("made.default.left", {"predicateHints": ["part = 'a'"]}, capabilities)
            assert sum("file" in line for line in answer.lines) == 3
        changes = gateway.query(
            "made.default.left",
            {"startingVersion": 0},
            "responseformat=delta;readerfeatures=deletionvectors",
        )
        adds = [line["file"]["deltaSingleAction"]["add"] for line in changes.lines if "file" in line]
        assert [add["partitionValues"] for add in adds] == [{"part": value} for value in "aaab"]


def test_lines_with_unicode_line_ends_are_one_line(
    official_client: OfficialClient, tmp_path: Path, demo_tables: Path
) -> None:
    """U+2028, U+2029 and U+0085 anywhere in the log; the client splits lines as Unicode does."""
    root = copied_with_line_ends(demo_tables / "cities", tmp_path / "cities")
    (tmp_path / "serve").mkdir()
    with running_gateway(tmp_path / "serve", [share("demo", {"cities": str(root)})]) as served:
        for delta in (True, False):
            found = official_client.rows(
                served.profile, "demo.default.cities", ["city"], use_delta_format=delta
            )
            assert len(found) == len(ROWS["cities"])


def copied_with_line_ends(source: Path, target: Path) -> Path:
    """A table whose metadata, partition values and statistics hold raw line separators."""
    for path in source.rglob("*.parquet"):
        (target / path.relative_to(source)).parent.mkdir(parents=True, exist_ok=True)
        (target / path.relative_to(source)).write_bytes(path.read_bytes())
    (target / "_delta_log").mkdir()
    for commit in (source / "_delta_log").iterdir():
        lines = [with_line_ends(json.loads(line)) for line in commit.read_text().splitlines()]
        text = "".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines)
        (target / "_delta_log" / commit.name).write_text(text, encoding="utf-8")
    return target


def with_line_ends(action: dict[str, Any]) -> dict[str, Any]:
    """An action with separators wherever text can hold them."""
    odd = "a\u2028b\u2029c\u0085d"
    if "metaData" in action:
        action["metaData"] |= {"description": odd, "configuration": {odd: odd}}
    if "add" in action:
        stats = json.loads(action["add"]["stats"])
        stats["maxValues"]["city"] = "\uffff" + odd
        action["add"]["stats"] = json.dumps(stats, ensure_ascii=False)
        action["add"]["partitionValues"] = {"region": odd}
    return action
