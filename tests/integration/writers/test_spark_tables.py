"""Recipients read the rows and changes that delta-spark wrote."""

from collections.abc import Collection, Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from support import replay_check
from support.gateway_process import RunningGateway, table_path
from support.native import native
from support.official_client import OfficialClient
from support.other_readers import Version, listed_by_kernel, listed_by_us
from support.rebuilt_log import rebuilt_changes, rebuilt_snapshot
from support.written_tables import WrittenTables
from tables.by_spark import WRITINGS
from tables.golden import EVERY_FEATURE

pytestmark = pytest.mark.usefixtures("few_rows")

OF_EACH_KIND = (
    *("partition_values", "nested_and_odd_values", "deletion_vectors", "column_mapping_by_id"),
    *("v2_checkpoints", "type_widening", "change_data", "variants"),
)
"""The tables that are read on each run. Those of a further form or writer's feature are read each night."""


def by_night(names: Iterable[str]) -> list[Any]:
    nightly = pytest.mark.nightly
    return [name if name in OF_EACH_KIND else pytest.param(name, marks=nightly) for name in names]


def some_by_night(names: Iterable[str], by_day: Collection[str]) -> list[Any]:
    return [pytest.param(name, marks=[] if name in by_day else pytest.mark.nightly) for name in names]


def rows(frame: Any) -> list[str]:
    """Return all rows as sorted text, in Spark's own JSON."""
    whole = "to_json(struct(*), map('ignoreNullFields', 'false'))"
    return sorted(row[0] for row in frame.selectExpr(whole).collect())


def direct(spark: Any, root: Path, version: int | None = None) -> Any:
    """The table as Spark reads it without a gateway."""
    reader = spark.read.format("delta")
    return (reader if version is None else reader.option("versionAsOf", version)).load(str(root))


@pytest.mark.parametrize("name", by_night(WRITINGS))
def test_the_answer_rebuilt_as_a_log_has_the_same_rows(
    spark: Any, written_tables: WrittenTables, written_gateway: RunningGateway, tmp_path: Path, name: str
) -> None:
    expected = direct(spark, written_tables(name))
    answer = written_gateway.query(f"written.default.{name}", capabilities=EVERY_FEATURE)
    assert answer.status == 200, answer.body
    rebuilt = direct(spark, rebuilt_snapshot(answer.lines, tmp_path / "rebuilt"))
    assert rebuilt.schema == expected.schema
    assert rows(rebuilt) == rows(expected)


@pytest.mark.parametrize(
    "every", [False, pytest.param(True, marks=pytest.mark.nightly)], ids=["one", "every"]
)
# By day two whose earlier versions have what the latest one lacks: the replay below has all versions of all.
@pytest.mark.parametrize(
    "name", some_by_night([*WRITINGS.keys() - {"vacuumed"}], {"deletion_vectors", "v2_checkpoints"})
)
def test_an_earlier_version_has_the_same_rows(
    written_tables: WrittenTables, written_gateway: RunningGateway, tmp_path: Path, name: str, every: bool
) -> None:
    """One of a table, as Spark takes seconds; that each has its files is held without Spark below."""
    spark, earlier = written_tables.spark, commits(written_tables(name))[:-1]
    for version in earlier if every else earlier[len(earlier) // 2 :][:1]:
        answer = written_gateway.query(f"written.default.{name}", {"version": version}, EVERY_FEATURE)
        assert answer.status == 200, answer.body
        assert int(answer.headers["Delta-Table-Version"]) == version
        rebuilt = direct(spark, rebuilt_snapshot(answer.lines, tmp_path / str(version)))
        assert rows(rebuilt) == rows(direct(spark, written_tables(name), version)), version


# Its files lie in another table, where the answer of a table by itself does not lead.
IN_PLACE = [name for name in WRITINGS if name != "shallow_clone"]
# These hold statistics as typed columns alone, which the kernel leaves out.
KERNEL_LOSES_STATISTICS = {"multi_part_checkpoints", "v2_checkpoints_in_json"}


def commits(root: Path) -> list[int]:
    return sorted(int(path.stem) for path in (root / "_delta_log").glob("[0-9]*.json") if path.stem.isdigit())


def last_version(root: Path) -> int:
    return commits(root)[-1]


@pytest.mark.parametrize("name", IN_PLACE)
def test_every_version_holds_the_files_of_the_independent_replay(
    written_tables: WrittenTables, name: str
) -> None:
    root = written_tables(name)
    replay_check.hold(root, last_version(root))


@pytest.mark.parametrize("name", [name for name in IN_PLACE if WRITINGS[name].kernel])
def test_delta_kernel_lists_the_same_files(
    kernel_program: Path, written_tables: WrittenTables, name: str
) -> None:
    root = written_tables(name)
    versions = [Version(root, number) for number in range(last_version(root) + 1)]
    for version, found in zip(versions, listed_by_kernel(kernel_program, versions), strict=True):
        if isinstance(found, str):
            with pytest.raises(native().LogError):
                listed_by_us(version)
            continue
        listed = listed_by_us(version)
        if name in KERNEL_LOSES_STATISTICS:
            listed = {
                key: file if found[key].stats else replace(file, stats=None) for key, file in listed.items()
            }
        assert found == listed, version.number


# By day two: the client reads tables of every other kind in test_golden.py.
@pytest.mark.parametrize(
    "name",
    some_by_night(
        [name for name, writing in WRITINGS.items() if writing.kernel],
        {"deletion_vectors", "nested_and_odd_values"},
    ),
)
def test_the_official_client_reads_the_same_number_of_rows(
    spark: Any,
    written_tables: WrittenTables,
    written_gateway: RunningGateway,
    official_client: OfficialClient,
    name: str,
) -> None:
    expected = direct(spark, written_tables(name))
    found = official_client.call("load", written_gateway.profile, f"written.default.{name}")
    assert found["columns"] == expected.columns
    assert len(found["rows"]) == expected.count()
    first = sorted(str(row[0]) for row in found["rows"])
    assert first == sorted(str(row[0]) for row in expected.select(expected.columns[0]).collect())


@pytest.mark.parametrize(
    "name", by_night(name for name, writing in WRITINGS.items() if writing.change_data_feed)
)
def test_the_changes_are_those_of_spark(
    spark: Any, written_tables: WrittenTables, written_gateway: RunningGateway, tmp_path: Path, name: str
) -> None:
    root = written_tables(name)
    query = "startingVersion=0&includeHistoricalMetadata=true&includeHistoricalProtocol=true"
    path = f"{table_path(f'written.default.{name}')}/changes?{query}"
    answer = written_gateway.request("GET", path, headers={"delta-sharing-capabilities": EVERY_FEATURE})
    assert answer.status == 200, answer.body
    rebuilt, first, last = rebuilt_changes(answer.lines, tmp_path / "rebuilt")
    found = rows(changes(spark, rebuilt, first, last))
    expected = changes(spark, root, first, last)
    assert found == rows(expected)
    assert len(found) > 0


def changes(spark: Any, root: Path, first: int, last: int) -> Any:
    """Spark's own change data feed."""
    reader = spark.read.format("delta").option("readChangeFeed", "true")
    return reader.option("startingVersion", first).option("endingVersion", last).load(str(root))


@pytest.mark.parametrize("name", ["deletion_vectors", "change_data", "in_commit_timestamps"])
def test_the_official_client_reads_the_changes_of_spark(
    spark: Any,
    written_tables: WrittenTables,
    written_gateway: RunningGateway,
    official_client: OfficialClient,
    name: str,
) -> None:
    if name == "change_data":
        last = 7  # the client's kernel reads no range over which the schema changed
    else:
        (last,) = (
            spark.sql(f"DESCRIBE HISTORY delta.`{written_tables(name)}`").selectExpr("max(version)").first()
        )
    columns = ["_commit_version", "_change_type", "id"]
    expected = changes(spark, written_tables(name), 0, last).select(columns).collect()
    found = official_client.changes(
        written_gateway.profile,
        f"written.default.{name}",
        columns,
        starting_version=0,
        ending_version=last,
        use_delta_format=True,
    )
    assert found == sorted((tuple(row) for row in expected), key=repr)
