"""Streams in batches: every row once, for any batch size and after a restart."""

import shutil
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import types as t
from support.plain_server import PlainServer

from gateway.spark.read.options import ReadOptions
from gateway.spark.read.reading import SharePartition
from gateway.spark.read.streaming import Offset, ShareStreamReader
from gateway.spark.source import register, run_available_now

pytestmark = pytest.mark.usefixtures("few_rows")

ROWS = 12


@pytest.fixture(scope="module")
def table(spark: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Version 1 adds five files, 2 and 3 add one each. Change data, no deletion vectors."""
    path = tmp_path_factory.mktemp("streams") / "t"
    spark.sql(
        f"CREATE TABLE delta.`{path}` (id BIGINT, part INT) USING delta PARTITIONED BY (part) TBLPROPERTIES "
        "(delta.enableChangeDataFeed = true, delta.enableDeletionVectors = false)"
    )
    spark.sql(
        f"INSERT INTO delta.`{path}` SELECT /*+ REPARTITION(1) */ id, CAST(id % 5 AS INT) FROM range(10)"
    )
    spark.sql(f"INSERT INTO delta.`{path}` VALUES (10, 9)")
    spark.sql(f"INSERT INTO delta.`{path}` VALUES (11, 9)")
    return path


@pytest.fixture
def server(table: Path) -> Iterator[PlainServer]:
    serving = PlainServer({"t": table})
    yield serving
    serving.close()


def reader(server: PlainServer, **options: Any) -> ShareStreamReader:
    given = {name: str(value) for name, value in options.items()}
    parsed = ReadOptions.parse({"profile": server.profile, "path": "s.d.t", **given})
    return ShareStreamReader(parsed, t.StructType(), parsed.client().head())


def batches(mine: ShareStreamReader, most: int = 30) -> list[list[str]]:
    """The files of each batch by version and id, requested as Spark does."""
    start, found = mine.initialOffset(), []
    for _ in range(most):
        end = mine.latestOffset()
        if end == start:
            return found
        partitions = [one for one in mine.partitions(start, end) if isinstance(one, SharePartition)]
        found.append([f"{task.file.version}:{task.file.id}" for one in partitions for task in one.tasks])
        start = end
    raise AssertionError("the stream does not end")


@pytest.mark.parametrize("most", [1, 2, 3, 5, 100])
@pytest.mark.parametrize(
    "options", [{}, {"startingVersion": 0}, {"startingVersion": 1}, {"endingVersion": 2}]
)
def test_batches_respect_the_file_limit_and_contain_every_file_once(
    server: PlainServer, most: int, options: dict[str, Any]
) -> None:
    whole = [name for batch in batches(reader(server, **options)) for name in batch]
    cut = batches(reader(server, maxFilesPerTrigger=most, **options))
    assert max(map(len, cut)) <= most
    assert Counter(name for batch in cut for name in batch) == Counter(whole)
    assert len(whole) == (6 if "endingVersion" in options and "startingVersion" not in options else 7)


@pytest.mark.parametrize("options", [{}, {"startingVersion": 1}, {"readChangeFeed": "true"}])
def test_batches_respect_the_version_limit_and_contain_every_file_once(
    server: PlainServer, options: dict[str, Any]
) -> None:
    whole = [name for batch in batches(reader(server, **options)) for name in batch]
    for most in (1, 2):
        cut = batches(reader(server, maxVersionsPerTrigger=most, **options))
        assert max(len({name.partition(":")[0] for name in batch}) for batch in cut) <= most
        assert Counter(name for batch in cut for name in batch) == Counter(whole)
    both = batches(reader(server, maxVersionsPerTrigger=2, maxFilesPerTrigger=1, startingVersion=0))
    assert {len(batch) for batch in both} == {1}
    assert len(both) == 7


def test_a_restarted_stream_continues_where_it_was(server: PlainServer) -> None:
    whole = batches(reader(server, maxFilesPerTrigger=2))
    for restarted_after in range(1, len(whole)):
        first = reader(server, maxFilesPerTrigger=2)
        start, found = first.initialOffset(), []
        for _ in range(restarted_after):
            end = first.latestOffset()
            found += names(first, start, end)
            start = end
        second = reader(server, maxFilesPerTrigger=2)
        second.partitions(start, start)
        while (end := second.latestOffset()) != start:
            found += names(second, start, end)
            start = end
        assert Counter(found) == Counter(name for batch in whole for name in batch)


def names(mine: ShareStreamReader, start: Any, end: Any) -> list[str]:
    partitions = [one for one in mine.partitions(start, end) if isinstance(one, SharePartition)]
    return [f"{task.file.version}:{task.file.id}" for one in partitions for task in one.tasks]


def test_offsets_of_earlier_versions_are_understood() -> None:
    assert Offset.of({"version": -1, "snapshot": True}) == Offset(-1, snapshot=True)
    assert Offset.of({"version": 4, "snapshot": False}) == Offset(4)
    for offset in (Offset(4), Offset(4, 2), Offset(4, 0, snapshot=True)):
        assert Offset.of(offset.document) == offset


def test_change_data_of_one_version_is_not_split(server: PlainServer) -> None:
    cut = batches(reader(server, maxFilesPerTrigger=2, readChangeFeed="true", startingVersion=0))
    assert [len(batch) for batch in cut] == [5, 2]


# By day batches are tested without Spark, and those of a stream by the next test.
@pytest.mark.nightly
def test_the_trigger_splits_a_backlog_into_batches(spark: Any, server: PlainServer, tmp_path: Path) -> None:
    register(spark)
    reading = spark.readStream.format("delta-sharing").options(profile=server.profile, maxFilesPerTrigger=3)
    writing = reading.load("s.d.t").writeStream.format("parquet")
    place = str(tmp_path / "out")

    def run() -> list[int]:
        query = writing.option("checkpointLocation", f"{place}-checkpoint").start(place)
        query.processAllAvailable()
        counts = [one["numInputRows"] for one in query.recentProgress if one["numInputRows"]]
        query.stop()
        return counts

    assert len(run()) == 3
    assert sorted(row[0] for row in spark.read.parquet(place).select("id").collect()) == list(range(ROWS))
    assert run() == []


def test_what_is_available_is_read_in_batches_to_the_end_and_after_a_failure(
    spark: Any, table: Path, tmp_path: Path
) -> None:
    register(spark)
    grown = tmp_path / "t"
    shutil.copytree(table, grown)
    server = PlainServer({"t": grown})
    read: list[list[int]] = []

    def keep(batch: Any, number: int) -> None:
        if number == 1 and len(read) == 1:
            read.append([])
            raise ValueError("the sink fails")
        if number == 1:
            # A version that appears meanwhile is for the next run.
            spark.sql(f"INSERT INTO delta.`{grown}` VALUES ({ROWS}, 9)")
        read.append(sorted(row[0] for row in batch.select("id").collect()))

    def run() -> list[list[int]]:
        def start(stream: Any) -> Any:
            writing = stream.writeStream.option("checkpointLocation", str(tmp_path / "checkpoint"))
            return writing.foreachBatch(keep).start()

        before = len(read)
        query = run_available_now(spark, "s.d.t", start, profile=server.profile, maxFilesPerTrigger=3)
        assert not query.isActive
        return read[before:]

    with pytest.raises(Exception, match="the sink fails"):
        run()
    assert len(read) == 2
    rest = run()
    assert len(rest) == 2
    assert sorted(id_ for batch in [read[0], *rest] for id_ in batch) == list(range(ROWS))
    assert run() == [[ROWS]]
    assert run() == []
    server.close()


def test_a_query_that_ends_after_one_batch_is_refused(
    spark: Any, server: PlainServer, tmp_path: Path
) -> None:
    register(spark)

    def start(stream: Any) -> Any:
        return stream.writeStream.format("noop").trigger(availableNow=True).start()

    with pytest.raises(ValueError, match="start it without a trigger"):
        run_available_now(spark, "s.d.t", start, profile=server.profile, maxFilesPerTrigger=3)


def test_a_change_feed_without_a_start_begins_with_the_table_as_inserts(
    spark: Any, server: PlainServer, table: Path
) -> None:
    register(spark)

    def changes(form: str, place: str) -> list[tuple[Any, ...]]:
        reading = spark.readStream.format(form).option("readChangeFeed", "true")
        if form != "delta":
            reading = reading.option("profile", server.profile)
        name = f"changes_{form.replace('-', '_')}"
        query = reading.load(place).writeStream.format("memory").queryName(name)
        query.trigger(availableNow=True).start().awaitTermination()
        return sorted(tuple(row) for row in spark.table(name).collect())

    found = changes("delta-sharing", "s.d.t")
    assert len(found) == ROWS
    assert found == changes("delta", str(table))
