"""Published files say nothing of columns that a projection does not show by the order of their rows."""

import math
import random
import time
from collections import Counter
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pyarrow.parquet as pq
import pytest
import yaml
from pyspark.sql import functions as f
from support.spark_session import settings

from gateway import config
from gateway.spark.project import few
from gateway.spark.project.compaction import compact
from gateway.spark.project.evaluation import rule_session
from gateway.spark.project.job import Job
from gateway.spark.project.order import in_own_order
from gateway.spark.project.results import Options
from gateway.spark.project.run import projections
from gateway.spark.project.table_log import TableLog

pytestmark = pytest.mark.usefixtures("few_rows")

PARTS = 8
SHUFFLES = 20


def information(positions: list[int], hidden: list[int]) -> float:
    """The mutual information, in bits, of equal parts of the positions and of a hidden value."""
    size = max(positions) // PARTS + 1
    parts = [position // size for position in positions]
    both, first, second = Counter(zip(parts, hidden, strict=True)), Counter(parts), Counter(hidden)
    total = len(parts)
    return sum(
        n / total * math.log2(n * total / (first[part] * second[value])) for (part, value), n in both.items()
    )


def assert_tells_nothing(positions: list[int], hidden: list[int]) -> None:
    chance = random.Random(7)
    found, shuffled = information(positions, hidden), []
    for _ in range(SHUFFLES):
        copy = list(hidden)
        chance.shuffle(copy)
        shuffled.append(information(positions, copy))
    assert found < 1.5 * max(shuffled), (found, max(shuffled))


def in_two_hours() -> int:
    return int(time.time() * 1000) + 7_200_000


def published(spark: Any, root: str, version: int) -> list[tuple[str, str]]:
    """The files and the identifiers of their rows that a version has more than the one before, in order."""
    added = [one["add"] for one in TableLog(spark, root).actions(version) if "add" in one]
    assert not any("deletionVector" in add for add in added), "all rows of these files are served"
    # Files have names by their numbers: a reader takes them in that order.
    paths = sorted(
        (unquote(add["path"]) for add in added), key=lambda path: (Path(path).name.split("-")[1], path)
    )
    columns = {path: pq.ParquetFile(Path(root, path)).read(["id"])["id"] for path in paths}
    return [(path, name) for path, names in columns.items() for name in names.to_pylist()]


NIGHTLY = pytest.mark.nightly


@pytest.mark.parametrize(
    ("partitions", "is_long"),
    [(["area"], False), pytest.param(["area"], True, marks=NIGHTLY), pytest.param([], True, marks=NIGHTLY)],
)
def test_positions_tell_nothing_of_hidden_values(
    spark: Any, tmp_path: Path, partitions: list[str], is_long: bool
) -> None:
    """The source is partitioned by a hidden column and sorted by another one, also in what is added later."""
    session, source = rule_session(spark), str(tmp_path / "source")

    def add(first: int, count: int) -> None:
        rows = session.range(first, first + count).selectExpr(
            "concat('id', id) AS id",
            "CAST(id % 4 AS STRING) AS area",
            "id * 100 AS income",
            f"CAST((id - {first}) * 5 DIV {count} AS INT) AS diagnosis",
        )
        writing = rows.coalesce(1).sortWithinPartitions("income").write.format("delta").mode("append")
        writing.partitionBy("diagnosis").save(source)

    add(0, 3000)
    rule: dict[str, Any] = {"source": source, "columns": ["id", "area"]}
    if partitions:
        rule["partitionBy"] = partitions
    table = {"name": "t", "location": str(tmp_path / "p"), "projection": rule}
    file = tmp_path / "share.yaml"
    shares = [{"name": "s", "schemas": [{"name": "d", "tables": [table]}]}]
    file.write_text(yaml.safe_dump({"version": 1, "shares": shares}))
    (target,) = projections(config.load(file, needs_readers=False))
    job = Job(session, target, Options(optimize_hours=0, vacuum_hours=0))
    job.run()
    add(3000, 1000)
    outcome = job.run()
    assert (outcome.how, outcome.changed_rows) == ("changed", 1000)
    written = [(0, 0, 3000), (1, 3000, 1000)]
    if is_long:
        add(4000, 1000)
        written.append((2, 4000, 1000))
        with pytest.MonkeyPatch.context() as many:
            many.setattr(few, "MAX_ROWS", 10)
            assert job.run().how == "changed"
    session.sql(f"DELETE FROM delta.`{source}` WHERE income % 700 = 0")
    later = Job(session, target, Options(optimize_hours=1, vacuum_hours=0), now_ms=in_two_hours)
    assert later.run().how == "changed"
    # Compaction is a version of its own, which has all rows.
    compact, whole = len(written) + 1, 1000 * (2 + len(written))
    for version, first, count in (*written, (compact, 0, whole)):
        rows = published(session, target.root, version)
        numbers = [int(name.removeprefix("id")) for _, name in rows]
        assert len(numbers) == (count if version < compact else len([one for one in range(count) if one % 7]))
        places = list(range(len(numbers)))
        assert_tells_nothing(places, [(number - first) * 5 // count for number in numbers])
    # Nor is there an order of arrival.
    assert_tells_nothing(places, [(number >= 3000) + (number >= 4000) for number in numbers])
    assert len({name for name, _ in rows}) == (4 if partitions else 1)
    changed = [
        one for version in range(compact + 1) for one in TableLog(session, target.root).actions(version)
    ]
    assert not any("cdc" in one for one in changed), "recipients derive changes from files in this order"
    if not is_long:
        return
    again = Job(session, target, later.options, now_ms=lambda: in_two_hours() + 7_200_000)
    assert again.run().version == compact, "what is compact stays"


def test_files_are_cut_by_the_rows_alone(spark: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """However the rows are divided before, each file has the same rows in the same order.

    A partition has the files that its own rows need: of 500 rows in four partitions 400 are in one, without a
    value, and seven files have room for all.
    """
    monkeypatch.setattr("gateway.spark.project.order.FILE_BYTES", 2000)
    rows = spark.range(500).selectExpr("CAST(id AS STRING) AS name", "if(id < 400, NULL, id % 3) AS part")

    def tasks(given: Any) -> list[list[Any]]:
        return in_own_order(given, 500, ["part"]).rdd.glom().collect()

    cut = tasks(rows.repartition(1).orderBy("name"))
    assert sum(map(len, cut)) == 500
    files = Counter(part for task in cut for part in {row.part for row in task})
    assert files == {None: 6, 0: 1, 1: 1, 2: 1}
    assert max(map(len, cut)) < 150
    assert tasks(rows.repartition(5, "part").sortWithinPartitions("part")) == cut


def test_many_partitions_of_few_rows_are_written_side_by_side(spark: Any) -> None:
    rows = spark.range(30_000).selectExpr("id", "id % 3000 AS part")
    tasks = in_own_order(rows, 30_000, ["part"]).rdd.glom().collect()
    parts = [{row.part for row in task} for task in tasks]
    assert len(parts) == min(3, spark.sparkContext.defaultParallelism) > 1
    assert sum(map(len, parts)) == len(set.union(*parts)) == 3000


@pytest.fixture
def partitioned(spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Any, str]:
    """A session and the directory of a table that is partitioned by `part`, with small files."""
    monkeypatch.setattr("gateway.spark.project.order.FILE_BYTES", 2000)
    monkeypatch.setattr("gateway.spark.project.compaction.FILE_BYTES", 2000)
    return rule_session(spark), str(tmp_path)


def files_by_part(session: Any, root: str, rows: int) -> Counter[str]:
    """The number of files of each partition of a table that has so many rows."""
    table = session.read.format("delta").load(root)
    assert table.count() == rows
    files = table.selectExpr("CAST(part AS STRING) AS part", "_metadata.file_path AS path").distinct()
    return Counter(row.part for row in files.collect())


def test_a_small_partition_becomes_two_files_beside_a_large_one(partitioned: tuple[Any, str]) -> None:
    session, root = partitioned
    rows = session.range(600).selectExpr("id", "if(id < 500, 'large', 'small') AS part")
    rows.repartition(30).write.format("delta").partitionBy("part").save(root)
    compact(TableLog(session, root))
    files = files_by_part(session, root, 600)
    assert files["small"] == 2
    assert 4 <= files["large"] <= 7


def test_both_zeros_are_partitions_of_few_files(partitioned: tuple[Any, str]) -> None:
    session, root = partitioned
    rows = session.range(300).selectExpr("id", "CAST(if(id % 2 = 0, '', '-') || '0' AS DOUBLE) AS part")
    in_own_order(rows, 300, ["part"]).write.format("delta").partitionBy("part").save(root)
    assert files_by_part(session, root, 300) == {"0.0": 2, "-0.0": 2}
    compact(TableLog(session, root))
    assert TableLog(session, root).number() == 0


def test_rows_of_partitions_are_counted_however_long_it_takes(
    spark: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A broadcast of Spark ends after five minutes otherwise, which the count of a large source exceeds."""
    monkeypatch.setattr("gateway.spark.project.order.FILE_BYTES", 16)
    with settings(spark, {"spark.sql.broadcastTimeout": "1"}):
        session = rule_session(spark)
    slow = f.udf(lambda number: time.sleep(1) or number, "bigint")
    rows = session.range(0, 3, 1, 1).select(slow("id").alias("id"), f.col("id").alias("part"))
    assert in_own_order(rows, 3, ["part"]).count() == 3
