"""The demo's tables are real: other implementations read them, and read the same rows."""

import json
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from tables.demo import ORDER_CHANGES, ROWS, in_any_order


@pytest.mark.parametrize("table", ROWS)
def test_delta_rs_reads_the_rows(demo_tables: Path, table: str) -> None:
    assert in_any_order(pl.scan_delta(str(demo_tables / table)).collect().rows()) == in_any_order(ROWS[table])


@pytest.mark.parametrize("table", ROWS)
def test_spark_reads_the_rows(demo_tables: Path, spark: Any, table: str) -> None:
    rows = spark.read.format("delta").load(str(demo_tables / table)).toArrow()
    found = pl.DataFrame(rows).rows()
    assert in_any_order(found) == in_any_order(ROWS[table])


def test_spark_reads_the_changes(demo_tables: Path, spark: Any) -> None:
    reader = spark.read.format("delta").option("readChangeFeed", "true").option("startingVersion", 0)
    changes = reader.load(str(demo_tables / "orders"))
    columns = ["_commit_version", "_change_type", "order", "customer", "amount"]
    assert in_any_order(changes.select(columns).collect()) == in_any_order(ORDER_CHANGES)


def test_statistics_are_those_of_the_files(demo_tables: Path) -> None:
    for commit in demo_tables.glob("*/_delta_log/*.json"):
        adds = [
            action["add"] for action in map(json.loads, commit.read_text().splitlines()) if "add" in action
        ]
        for add in adds:
            stats = json.loads(add["stats"])
            (path,) = (demo_tables / commit.parts[-3]).rglob(add["path"].rsplit("/", 1)[-1])
            rows = pl.read_parquet(path)
            assert (stats["numRecords"], add["size"]) == (rows.height, path.stat().st_size)
            assert stats["nullCount"] == {name: rows[name].null_count() for name in rows.columns}


def test_a_version_is_as_old_as_its_commit_says(demo_tables: Path) -> None:
    for commit in demo_tables.glob("*/_delta_log/*.json"):
        info = json.loads(commit.read_text().splitlines()[0])["commitInfo"]
        assert int(commit.stat().st_mtime * 1000) == pytest.approx(info["timestamp"], abs=1)
