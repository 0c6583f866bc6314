"""The source in a Spark session, against a server with only the first version of the protocol."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from support.nightly import at_night, some_at_night
from support.plain_server import PlainServer
from support.spark_session import settings
from tables.golden import location

from gateway.spark.source import count_rows, register
from gateway.spark.verify.digest import digest

pytestmark = pytest.mark.usefixtures("few_rows")

KNOWN = [
    "made/column-mapping-by-id/delta",
    "dat/all_primitive_types/delta",
    "dat/multi_partitioned/delta",
    "dat/nested_types/delta",
    "kernel-rs/basic-decimal-table",
    # A table of each of these kinds is compared by day as the gateway shares it.
    *at_night(
        ("made/column-mapping-by-name/delta",),
        ("made/deletion-vectors-of-every-container/delta",),
        ("made/partition-value-types/delta",),
        ("made/timestamps-without-a-zone/delta",),
        ("dat/column_mapping/delta",),
    ),
]


@pytest.fixture
def serve() -> Iterator[Callable[..., PlainServer]]:
    servers: list[PlainServer] = []

    def start(**tables: Path) -> PlainServer:
        servers.append(PlainServer(tables))
        return servers[-1]

    yield start
    for server in servers:
        server.close()


@pytest.fixture
def read(spark: Any) -> Any:
    register(spark)

    def reader(server: PlainServer, table: str = "t", **options: Any) -> Any:
        reading = spark.read.format("delta-sharing").options(profile=server.profile, **options)
        return reading.load(f"s.d.{table}")

    return reader


@pytest.fixture(scope="module")
def ledger(spark: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Versions: 1 insert, 2 update, 3 delete, 4 new column, 5 insert. Change data, no deletion vectors."""
    path = tmp_path_factory.mktemp("ledger") / "t"
    spark.sql(
        f"CREATE TABLE delta.`{path}` (id BIGINT, kind STRING, amount DOUBLE) USING delta "
        "PARTITIONED BY (kind) "
        "TBLPROPERTIES (delta.enableChangeDataFeed = true, delta.enableDeletionVectors = false)"
    )
    rows = "SELECT id, concat('k', id % 3), CAST(id AS DOUBLE) / 4"
    spark.sql(f"INSERT INTO delta.`{path}` {rows} FROM range(0, 30)")
    spark.sql(f"UPDATE delta.`{path}` SET amount = -1 WHERE id = 7")
    spark.sql(f"DELETE FROM delta.`{path}` WHERE kind = 'k2' AND id < 10")
    spark.sql(f"ALTER TABLE delta.`{path}` ADD COLUMN note STRING")
    spark.sql(f"INSERT INTO delta.`{path}` SELECT 100, 'k0', 1.5, 'new'")
    return path


def changes(spark: Any, path: Path, **options: Any) -> Any:
    return spark.read.format("delta").options(readChangeFeed="true", **options).load(str(path))


@pytest.mark.parametrize("name", KNOWN)
def test_rows_equal_those_of_delta_spark(spark: Any, serve: Any, read: Any, name: str) -> None:
    shared = read(serve(t=location(name)))
    direct = spark.read.format("delta").load(str(location(name)))
    assert shared.schema.simpleString() == direct.schema.simpleString()
    assert digest(shared) == digest(direct)


# By day the decoder's own tests hold each of these types.
@pytest.mark.nightly
def test_lists_and_texts_of_polars_equal_those_of_delta_spark(
    spark: Any, serve: Any, read: Any, tmp_path: Path
) -> None:
    """Arrow's types in the footer of a file are those of its writer; a deletion vector takes rows of them."""
    words = pa.array([["a", "b"], None, [], ["c", None]], pa.large_list(pa.string_view()))
    pairs = pa.array([[1, 2], [3, 4], None, [5, 6]], pa.list_(pa.int64(), 2))
    nested = pa.StructArray.from_arrays([words, pairs], ["words", "pairs"])
    texts = pa.array(["x", None, "y", "z"], pa.string_view())
    rows = pa.table({"id": [1, 2, 3, 4], "words": words, "pairs": pairs, "nested": nested, "text": texts})
    table = tmp_path / "t"
    table.mkdir()
    pq.write_table(rows, table / "rows.parquet")
    spark.sql(f"CONVERT TO DELTA parquet.`{table}`")
    spark.sql(f"ALTER TABLE delta.`{table}` SET TBLPROPERTIES (delta.enableDeletionVectors = true)")
    spark.sql(f"DELETE FROM delta.`{table}` WHERE id = 1")
    found = read(serve(t=table))
    assert found.count() == 3
    assert digest(found) == digest(spark.read.format("delta").load(str(table)))


def test_reads_past_versions(spark: Any, serve: Any, read: Any, ledger: Path) -> None:
    server = serve(t=ledger)
    for version in (1, 3, 5):
        direct = spark.read.format("delta").option("versionAsOf", version).load(str(ledger))
        shared = read(server, versionAsOf=version)
        assert shared.columns == direct.columns
        assert digest(shared) == digest(direct)


def test_reads_change_data(spark: Any, serve: Any, read: Any, ledger: Path) -> None:
    shared = read(serve(t=ledger), readChangeFeed="true", startingVersion=1, endingVersion=5)
    direct = changes(spark, ledger, startingVersion=1, endingVersion=5)
    assert shared.schema.simpleString() == direct.schema.simpleString()
    assert digest(shared) == digest(direct)
    assert {row[0] for row in shared.select("_change_type").distinct().collect()} == {
        "insert",
        "delete",
        "update_preimage",
        "update_postimage",
    }


def test_columns_and_file_names(serve: Any, read: Any, ledger: Path) -> None:
    shared = read(serve(t=ledger), columns="amount,_file_name", withFileName="true")
    assert shared.columns == ["amount", "_file_name"]
    names = {row["_file_name"] for row in shared.collect()}
    assert names
    assert all(name.endswith(".parquet") and "secret" not in name for name in names)


def test_partition_times_without_a_zone_are_in_the_time_zone_of_the_session(
    spark: Any, serve: Any, read: Any, tmp_path: Path
) -> None:
    path = tmp_path / "t"
    local = {
        "spark.databricks.delta.write.utcTimestampPartitionValues": "false",
        "spark.sql.session.timeZone": "America/Los_Angeles",
    }
    with settings(spark, local):
        spark.sql(f"CREATE TABLE delta.`{path}` (id INT, at TIMESTAMP) USING delta PARTITIONED BY (at)")
        times = "(1, TIMESTAMP'2024-07-01 12:00:00'), (2, TIMESTAMP'2024-01-01 00:00:00.5'), (3, NULL)"
        spark.sql(f"INSERT INTO delta.`{path}` VALUES {times}")
    for zone in ("America/Los_Angeles", "+05:30", "UTC"):
        with settings(spark, {"spark.sql.session.timeZone": zone}):
            direct = spark.read.format("delta").load(str(path))
            assert digest(read(serve(t=path))) == digest(direct), zone


@pytest.mark.parametrize("version", some_at_night([5, 0, 3]))
def test_rows_are_counted_without_their_files(spark: Any, serve: Any, ledger: Path, version: int) -> None:
    server = serve(t=ledger)
    direct = spark.read.format("delta").option("versionAsOf", version).load(str(ledger))
    assert count_rows(spark, "s.d.t", profile=server.profile, versionAsOf=version) == direct.count()
    assert not [path for _, path, _ in server.requests if path.startswith("/files/")]


def test_counted_rows_are_without_deleted_ones_and_need_statistics(spark: Any, serve: Any, read: Any) -> None:
    names = ("made/deletion-vectors-of-every-container/delta", "made/column-mapping-by-id/delta")
    server = serve(vectors=location(names[0]), mapped=location(names[1]))
    for table, name in zip(("vectors", "mapped"), names, strict=True):
        expected = spark.read.format("delta").load(str(location(name))).count()
        assert count_rows(spark, f"s.d.{table}", profile=server.profile) == expected


def test_changes_are_counted_by_reading_and_hints_are_refused(spark: Any, serve: Any, ledger: Path) -> None:
    server = serve(t=ledger)
    feed = {"readChangeFeed": True, "startingVersion": 1, "endingVersion": 5}
    expected = changes(spark, ledger, startingVersion=1, endingVersion=5).count()
    assert count_rows(spark, "s.d.t", profile=server.profile, **feed) == expected
    with pytest.raises(ValueError, match="hint"):
        count_rows(spark, "s.d.t", profile=server.profile, predicateHints="id = 1")


def test_a_limit_is_a_hint_to_the_server(serve: Any, read: Any, ledger: Path) -> None:
    server = serve(t=ledger)
    assert read(server, limitHint=3).limit(3).count() == 3
    bodies = [body for _, path, body in server.requests if path.endswith("/query")]
    assert [body.get("limitHint") for body in bodies] == [3]


def test_a_given_schema_is_checked(spark: Any, serve: Any, ledger: Path) -> None:
    register(spark)
    reading = spark.read.format("delta-sharing").option("profile", serve(t=ledger).profile)
    assert reading.schema("amount DOUBLE, id BIGINT").load("s.d.t").columns == ["amount", "id"]
    for schema, said in (("id BIGINT, gone INT", "a column gone"), ("id INT", "in the table it is bigint")):
        with pytest.raises(Exception, match=said):
            reading.schema(schema).load("s.d.t").collect()


def test_an_unexpected_version_fails(serve: Any, read: Any, ledger: Path) -> None:
    with pytest.raises(Exception, match="answered version 5, not 4"):
        read(serve(t=ledger), expectedVersion=4).count()


# By day test_streams.py has a stream from the table on that is started again, and options without Spark.
@pytest.mark.nightly
def test_a_stream_reads_added_rows_and_continues_after_a_restart(
    spark: Any, serve: Any, ledger: Path, tmp_path: Path
) -> None:
    register(spark)
    server = serve(t=ledger)

    def run(**options: Any) -> None:
        stream = spark.readStream.format("delta-sharing").options(
            profile=server.profile, skipChangeCommits="true", startingVersion=0, **options
        )
        query = (
            stream.load("s.d.t")
            .writeStream.format("delta")
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .option("mergeSchema", "true")
            .trigger(availableNow=True)
            .start(str(tmp_path / "out"))
        )
        query.awaitTermination()

    run(endingVersion=1)
    assert spark.read.format("delta").load(str(tmp_path / "out")).count() == 30
    run()
    assert spark.read.format("delta").load(str(tmp_path / "out")).count() == 31


@pytest.mark.nightly
def test_a_stream_without_a_start_begins_with_the_table(spark: Any, serve: Any, ledger: Path) -> None:
    register(spark)
    stream = spark.readStream.format("delta-sharing").options(profile=serve(t=ledger).profile)
    rows = stream.load("s.d.t")
    query = rows.writeStream.format("memory").queryName("whole").trigger(availableNow=True).start()
    query.awaitTermination()
    assert digest(spark.table("whole")) == digest(spark.read.format("delta").load(str(ledger)))


# By day test_streams.py has a stream of change data that begins with the table.
@pytest.mark.nightly
def test_streams_change_data(spark: Any, serve: Any, ledger: Path) -> None:
    register(spark)
    stream = spark.readStream.format("delta-sharing").options(
        profile=serve(t=ledger).profile, readChangeFeed="true", startingVersion=1
    )
    query = (
        stream.load("s.d.t")
        .writeStream.format("memory")
        .queryName("changes")
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    assert digest(spark.table("changes")) == digest(changes(spark, ledger, startingVersion=1))
