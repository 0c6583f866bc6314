"""Verify finds nothing where nothing is wrong, and each injected fault where one is."""

import copy
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from spark.plain_server import PlainServer, Table
from spark.rewriting_proxy import Rewrite, RewritingProxy

from gateway.spark.generate import generate
from gateway.spark.source import DeltaSharingSource
from gateway.spark.targets import Target
from gateway.spark.verify import CONNECTOR_FORMAT, TableResult, VerifyOptions, draw_predicates, verify

ROWS = 120
FAST = VerifyOptions(predicates=0, shown_rows=3)


@pytest.fixture(scope="module")
def tables(spark: Any, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    root = tmp_path_factory.mktemp("faulty")
    made = generate(spark, str(root), rows=ROWS, only=["partitioned", "deletion_vectors", "changes"])
    return {table.name: Path(table.location) for table in made}


@pytest.fixture
def server(tables: dict[str, Path]) -> Iterator[PlainServer]:
    serving = PlainServer(tables)
    yield serving
    serving.close()


@pytest.fixture
def through(spark: Any, tables: dict[str, Path], server: PlainServer) -> Iterator[Callable[..., TableResult]]:
    """Verify one table with its answers rewritten on the way."""
    proxies: list[RewritingProxy] = []

    def run(table: str, rewrite: Rewrite = lambda _, lines: lines) -> TableResult:
        proxies.append(RewritingProxy(server.profile, rewrite))
        targets = [Target(f"s.d.{table}", str(tables[table]))]
        (result,) = verify(spark, proxies[-1].profile, targets, FAST)
        assert result.error is None
        return result

    yield run
    for proxy in proxies:
        proxy.close()


def differences(result: TableResult, check: str) -> str:
    return "\n".join(line for one in result.checks if one.name.startswith(check) for line in one.differences)


def files_of(lines: list[Any]) -> list[int]:
    return [index for index, line in enumerate(lines) if "file" in line]


def only(kind: str, change: Callable[[list[Any]], list[Any]]) -> Rewrite:
    return lambda path, lines: change(lines) if path.partition("?")[0].endswith(f"/{kind}") else lines


def test_an_honest_server_is_found_equal(through: Any) -> None:
    result = through("changes")
    assert result.equal
    assert {check.name.split()[0] for check in result.checks if check.passed} == {"schema", "rows", "changes"}
    assert result.rows > 0


def test_a_dropped_file_is_found(through: Any) -> None:
    def drop(lines: list[Any]) -> list[Any]:
        return [line for index, line in enumerate(lines) if index != files_of(lines)[0]]

    found = differences(through("partitioned", only("query", drop)), "rows")
    assert "partition part=" in found
    assert ": 0 rows shared, " in found
    assert "shared 0 times, in the table 1 times" in found


def test_a_doubled_file_is_found(through: Any) -> None:
    def double(lines: list[Any]) -> list[Any]:
        twice = copy.deepcopy(lines[files_of(lines)[0]])
        twice["file"]["id"] += "-again"
        return [*lines, twice]

    found = differences(through("partitioned", only("query", double)), "rows")
    assert "partition part=" in found
    assert "shared 2 times, in the table 1 times" in found


def test_a_stale_deletion_vector_is_found(through: Any, tables: dict[str, Path], server: PlainServer) -> None:
    past = Table(tables["deletion_vectors"], f"{server.url}/files").query({"version": 1})[1]
    stale = {past[index]["file"]["id"]: past[index] for index in files_of(past)}

    def exchange(lines: list[Any]) -> list[Any]:
        return [stale.get(line["file"]["id"], line) if "file" in line else line for line in lines]

    found = differences(through("deletion_vectors", only("query", exchange)), "rows")
    assert "file part-" in found
    assert "shared 1 times, in the table 0 times" in found


def test_a_wrong_partition_value_is_found(through: Any) -> None:
    def move(lines: list[Any]) -> list[Any]:
        lines[files_of(lines)[0]]["file"]["deltaSingleAction"]["add"]["partitionValues"]["day"] = "1999-12-31"
        return lines

    found = differences(through("partitioned", only("query", move)), "rows")
    assert "day=1999-12-31" in found
    assert "0 in the table" in found


def test_a_missing_change_is_found(through: Any) -> None:
    def drop(lines: list[Any]) -> list[Any]:
        return [line for index, line in enumerate(lines) if index != files_of(lines)[-1]]

    result = through("changes", only("changes", drop))
    assert not differences(result, "rows")
    assert "of version 5" in differences(result, "changes")


def test_the_official_connectors_format_is_read_where_it_is_asked_for(
    spark: Any, tables: dict[str, Path], server: PlainServer, tmp_path: Path
) -> None:
    """The connector itself cannot be had here: a source of that name stands in for it."""

    class Connector(DeltaSharingSource):
        @classmethod
        def name(cls) -> str:
            return CONNECTOR_FORMAT

        def __init__(self, options: Any) -> None:
            self.options = {
                name: value for name, value in options.items() if name.lower() != "responseformat"
            }

    spark.dataSource.register(Connector)
    profile = tmp_path / "profile.share"
    profile.write_text(server.profile)
    options = replace(FAST, connector=True)
    targets = [
        Target("s.d.changes", str(tables["changes"])),
        Target("s.d.changes", str(tables["partitioned"])),
    ]
    equal, different = verify(spark, str(profile), targets, options)
    assert equal.error is None
    assert equal.equal
    assert {check.name.split()[0] for check in equal.checks if check.passed} == {"schema", "rows", "changes"}
    assert not different.equal


def test_a_column_of_another_type_is_found(through: Any) -> None:
    def retype(lines: list[Any]) -> list[Any]:
        metadata = lines[1]["metaData"]["deltaMetadata"]
        metadata["schemaString"] = metadata["schemaString"].replace('"double"', '"float"')
        return lines

    found = differences(through("changes", lambda _, lines: retype(lines)), "schema")
    assert found == "column amount is shared as float, the table has double"


def test_a_table_that_cannot_be_read_fails_alone(
    spark: Any, tables: dict[str, Path], server: PlainServer
) -> None:
    targets = [Target("s.d.nowhere", "/nowhere"), Target("s.d.changes", str(tables["changes"]))]
    broken, fine = verify(spark, server.profile, targets, FAST)
    assert broken.error is not None
    assert not broken.equal
    assert fine.equal


def test_the_same_seed_draws_the_same_predicates(spark: Any) -> None:
    frame = spark.sql("SELECT id, id % 3 = 0 b, concat('x', id) s, timestamp_seconds(id) at FROM range(50)")
    drawn = [[one.text for one in draw_predicates(frame, 10, seed)] for seed in (1, 1, 2)]
    assert drawn[0] == drawn[1] != drawn[2]
    for predicate in draw_predicates(frame, 10, 1):
        assert frame.where(predicate.column).count() <= 50
