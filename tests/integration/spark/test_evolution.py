"""Schema changes during reads: DataFrames and streams continue where Delta does, and otherwise fail."""

import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from support.nightly import some_at_night
from support.plain_server import PlainServer

from gateway.client.actions import TableHead
from gateway.spark.read.evolution import (
    SchemaChanged,
    check_change_data,
    check_dataframe,
    check_stream,
)
from gateway.spark.source import register

pytestmark = pytest.mark.usefixtures("few_rows")

MAPPED = "delta.columnMapping.mode = 'name'"
Alter = Callable[[str], None]


@pytest.fixture
def table(spark: Any, tmp_path: Path) -> Path:
    """A table with column mapping by name. Version 1 inserts one row."""
    register(spark)
    path = tmp_path / "t"
    spark.sql(f"CREATE TABLE delta.`{path}` (id BIGINT, name STRING) USING delta TBLPROPERTIES ({MAPPED})")
    spark.sql(f"INSERT INTO delta.`{path}` VALUES (1, 'a')")
    return path


@pytest.fixture
def alter(spark: Any, table: Path) -> Alter:
    return lambda statement: spark.sql(statement.replace("{t}", f"delta.`{table}`"))


@pytest.fixture
def server(table: Path) -> Iterator[PlainServer]:
    serving = PlainServer({"t": table})
    yield serving
    serving.close()


@pytest.fixture
def without_history(server: PlainServer) -> PlainServer:
    server.history = False
    return server


def load(spark: Any, server: PlainServer, **options: Any) -> Any:
    return spark.read.format("delta-sharing").options(profile=server.profile, **options).load("s.d.t")


def rows(frame: Any) -> list[tuple[Any, ...]]:
    return sorted(tuple(row) for row in frame.collect())


def message(act: Callable[[], Any]) -> str:
    with pytest.raises(Exception) as failed:  # noqa: PT011 - Spark wraps what a source raises
        act()
    return str(failed.value)


def test_a_dataframe_keeps_its_version(spark: Any, server: PlainServer, alter: Alter, table: Path) -> None:
    shared = load(spark, server)
    alter("INSERT INTO {t} VALUES (2, 'b')")
    alter("ALTER TABLE {t} RENAME COLUMN name TO label")
    assert rows(shared) == [(1, "a")]
    assert load(spark, server).columns == ["id", "label"]
    assert rows(load(spark, server)) == [(1, "a"), (2, "b")]


def test_without_history_a_dataframe_reads_no_other_version(
    spark: Any, without_history: PlainServer, alter: Alter
) -> None:
    """Its uses in one query are planned one after another, and would be of two versions."""
    shared = load(spark, without_history)
    alter("INSERT INTO {t} VALUES (2, 'b')")
    assert "the server gives version" in message(shared.collect)
    assert rows(load(spark, without_history)) == [(1, "a"), (2, "b")]


@pytest.mark.parametrize("change", some_at_night(["RENAME COLUMN name TO label", "DROP COLUMN name"]))
def test_without_history_a_missing_column_fails_with_deltas_error_class(
    spark: Any, without_history: PlainServer, alter: Alter, table: Path, change: str
) -> None:
    shared = load(spark, without_history)
    direct = spark.read.format("delta").load(str(table))
    alter(f"ALTER TABLE {{t}} {change}")
    for frame in (shared, direct):
        assert "[DELTA_SCHEMA_CHANGE_SINCE_ANALYSIS]" in message(frame.collect)


def stream(spark: Any, server: PlainServer, place: Path, **options: Any) -> None:
    """Run a stream to its end."""
    reading = spark.readStream.format("delta-sharing").options(profile=server.profile, **options)
    writing = reading.load("s.d.t").writeStream.format("parquet").trigger(availableNow=True)
    writing.option("checkpointLocation", f"{place}-checkpoint").start(str(place)).awaitTermination()


def started(spark: Any, server: PlainServer, place: Path) -> Any:
    """Start a stream that runs until it is stopped."""
    reading = spark.readStream.format("delta-sharing").options(profile=server.profile).load("s.d.t")
    writing = reading.writeStream.format("parquet").option("checkpointLocation", f"{place}-checkpoint")
    query = writing.start(str(place))
    query.processAllAvailable()
    return query


# By day the check is tested without Spark, and a stream that ends by it with an added column.
@pytest.mark.nightly
def test_a_stream_over_a_renamed_column_fails_with_deltas_error_class(
    spark: Any, server: PlainServer, alter: Alter, tmp_path: Path
) -> None:
    query = started(spark, server, tmp_path / "out")
    alter("ALTER TABLE {t} RENAME COLUMN name TO label")
    alter("INSERT INTO {t} VALUES (2, 'b')")
    assert "DELTA_STREAMING_INCOMPATIBLE_SCHEMA_CHANGE" in message(query.processAllAvailable)
    query.stop()
    again = message(lambda: stream(spark, server, tmp_path / "out"))
    assert "DELTA_STREAMING_INCOMPATIBLE_SCHEMA_CHANGE" in again
    assert rows(spark.read.parquet(str(tmp_path / "out"))) == [(1, "a")]


# So is the check of a stream that starts before the change.
@pytest.mark.nightly
def test_a_stream_that_starts_before_a_rename_fails_as_in_delta(
    spark: Any, server: PlainServer, alter: Alter, table: Path, tmp_path: Path
) -> None:
    alter("ALTER TABLE {t} RENAME COLUMN name TO label")
    said = message(lambda: stream(spark, server, tmp_path / "out", startingVersion=0))
    assert "DELTA_STREAMING_INCOMPATIBLE_SCHEMA_CHANGE_USE_SCHEMA_LOG" in said


def test_a_stream_ends_at_a_new_column_and_continues_after_a_restart(
    spark: Any, server: PlainServer, alter: Alter, tmp_path: Path
) -> None:
    place = tmp_path / "out"
    query = started(spark, server, place)
    alter("ALTER TABLE {t} ADD COLUMN x INT")
    alter("INSERT INTO {t} VALUES (2, 'b', 3)")
    assert "DELTA_SCHEMA_CHANGED_WITH_VERSION" in message(query.processAllAvailable)
    query.stop()
    # This trigger runs one batch: first the one that failed, which may end before the new row.
    for _ in range(2):
        stream(spark, server, place)
    found = spark.read.schema("id BIGINT, name STRING, x INT").parquet(str(place))
    assert sorted(map(str, rows(found))) == ["(1, 'a', None)", "(2, 'b', 3)"]


def test_rows_over_a_change_of_the_partition_columns_are_refused_as_in_delta(
    spark: Any, server: PlainServer, table: Path, tmp_path: Path, alter: Alter
) -> None:
    """Values that files have would be null, and those of paths would be missing."""
    alter("ALTER TABLE {t} SET TBLPROPERTIES (delta.enableChangeDataFeed = true)")
    rewritten = spark.read.format("delta").load(str(table)).write.format("delta").mode("overwrite")
    rewritten.option("overwriteSchema", "true").partitionBy("name").save(str(table))
    options = {"startingVersion": 1, "skipChangeCommits": "true"}
    direct = spark.readStream.format("delta").options(**options).load(str(table)).writeStream.format("noop")
    direct = direct.option("checkpointLocation", str(tmp_path / "direct")).trigger(availableNow=True)
    shared = message(lambda: stream(spark, server, tmp_path / "out", **options))
    for said in (message(lambda: direct.start().awaitTermination()), shared):
        assert "DELTA_STREAMING_INCOMPATIBLE_SCHEMA_CHANGE" in said
    assert "partitioned by other columns" in shared
    # A stream of the versions after it reads none of before.
    stream(spark, server, tmp_path / "later", **{**options, "startingVersion": 3})
    feed = {"readChangeFeed": "true", "startingVersion": 2}
    changes = spark.read.format("delta").options(**feed).load(str(table)), load(spark, server, **feed)
    for said in (message(partial(rows, frame)) for frame in changes):
        assert "DELTA_CHANGE_DATA_FEED_INCOMPATIBLE_DATA_SCHEMA" in said


def head(*columns: tuple[str, str], version: int = 1, table_id: str = "t", **places: str) -> TableHead:
    """A table with column mapping by name; `places`: the physical names that differ from the logical ones."""
    fields = [
        {
            "name": name,
            "type": kind,
            "nullable": True,
            "metadata": {"delta.columnMapping.physicalName": places.get(name, name)},
        }
        for name, kind in columns
    ]
    schema = json.dumps({"type": "struct", "fields": fields})
    return TableHead(schema, (), {"delta.columnMapping.mode": "name"}, version, table_id=table_id)


LOADED = head(("id", "long"), ("name", "string"), version=5)
WIDER = head(("id", "long"), ("name", "string"), ("x", "integer"), version=6)
NARROW = head(("id", "long"), version=4)
RETYPED = head(("id", "string"), ("name", "string"), version=6)
RENAMED = head(("id", "long"), ("label", "string"), version=6)
REPLACED = head(("id", "long"), ("name", "string"), version=6, name="another")
UNMAPPED = replace(RETYPED, configuration={})
PARTITIONED = replace(LOADED, partition_columns=("name",))
ANOTHER = head(("id", "long"), ("name", "string"), version=6, table_id="u")


@pytest.mark.parametrize(
    ("check", "other", "error"),
    [
        (check_dataframe, WIDER, None),
        (check_dataframe, NARROW, "DELTA_SCHEMA_CHANGE_SINCE_ANALYSIS"),
        (check_dataframe, RETYPED, "DELTA_SCHEMA_CHANGE_SINCE_ANALYSIS"),
        (check_dataframe, RENAMED, "DELTA_SCHEMA_CHANGE_SINCE_ANALYSIS"),
        (check_dataframe, REPLACED, "DELTA_SCHEMA_CHANGE_SINCE_ANALYSIS"),
        (check_dataframe, ANOTHER, "DELTA_SCHEMA_CHANGE_SINCE_ANALYSIS"),
        (check_change_data, NARROW, None),
        (check_change_data, ANOTHER, None),
        (partial(check_change_data, is_end=True), ANOTHER, "DELTA_CHANGE_DATA_FEED_INCOMPATIBLE_DATA_SCHEMA"),
        (check_change_data, RENAMED, "DELTA_CHANGE_DATA_FEED_INCOMPATIBLE_DATA_SCHEMA"),
        (check_change_data, RETYPED, "DELTA_CHANGE_DATA_FEED_INCOMPATIBLE_DATA_SCHEMA"),
        (check_change_data, PARTITIONED, "DELTA_CHANGE_DATA_FEED_INCOMPATIBLE_DATA_SCHEMA"),
        (check_stream, NARROW, None),
        (check_stream, WIDER, "DELTA_SCHEMA_CHANGED_WITH_VERSION"),
        (check_stream, RENAMED, "DELTA_STREAMING_INCOMPATIBLE_SCHEMA_CHANGE_USE_SCHEMA_LOG"),
        (check_stream, RETYPED, "DELTA_STREAMING_INCOMPATIBLE_SCHEMA_CHANGE_USE_SCHEMA_LOG"),
        (check_stream, UNMAPPED, "DELTA_SCHEMA_CHANGED_WITH_VERSION"),
        (check_stream, ANOTHER, "DIFFERENT_DELTA_TABLE_READ_BY_STREAMING_SOURCE"),
    ],
)
def test_a_stream_continues_after_a_compatible_schema_change_and_fails_after_others(
    check: Any, other: TableHead, error: str | None
) -> None:
    check(LOADED, LOADED)
    if error is None:
        check(LOADED, other)
        return
    with pytest.raises(SchemaChanged, match=rf"^\[{error}\]"):
        check(LOADED, other)


@pytest.mark.parametrize("check", [check_dataframe, check_change_data, check_stream])
def test_files_with_mapped_names_are_not_read_by_the_names_of_columns(check: Any) -> None:
    """A mapping that is switched off rewrites the files. It may leave names in the schema."""
    for unmapped in (replace(LOADED, configuration={}), replace(REPLACED, configuration={})):
        for loaded, other in ((unmapped, REPLACED), (REPLACED, unmapped)):
            with pytest.raises(SchemaChanged, match="column name is a different column with the same name"):
                check(loaded, other)
        # One that is switched on keeps the names of files.
        check(unmapped, LOADED)
        check(LOADED, unmapped)
    in_another_case = replace(head(("ID", "long"), ("Name", "string")), configuration={})
    check(in_another_case, replace(LOADED, configuration={}))
