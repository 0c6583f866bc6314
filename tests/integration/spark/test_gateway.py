"""The Spark pipeline against the gateway: generated tables, the demo's tables and tables of other writers."""

import json
import sys
import xml.etree.ElementTree as ET
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
import tools
from pyspark.errors import StreamingQueryException
from support.gateway_process import RunningGateway, running_gateway, share
from support.nightly import some_at_night
from support.spark_session import FEW_ROWS, session_words, settings
from tables import by_hand
from tables.demo import ROWS as DEMO_ROWS
from tables.golden import made_tables
from tables.writer import Column, Table

from gateway.spark import cli
from gateway.spark.operations.fleet import advise, look_at, survey
from gateway.spark.operations.fleet_history import surveys
from gateway.spark.operations.generate import GeneratedTable, generate
from gateway.spark.operations.recipes import RECIPES, Recipe
from gateway.spark.source import register
from gateway.spark.targets import Target, load_targets
from gateway.spark.verify.compare import compare_groups, compare_schemas
from gateway.spark.verify.digest import digest

pytestmark = pytest.mark.usefixtures("few_rows")

ROWS = 120
# Delta 4.4 reads one table wrongly from its compacted log files: 23 rows instead of 5.
GOLDEN_SETTINGS = FEW_ROWS | {"spark.databricks.delta.deltaLog.minorCompaction.useForReads": "false"}


@dataclass(frozen=True)
class Served:
    """A gateway and its files."""

    gateway: RunningGateway
    configuration: Path


OF_EACH_KIND = (
    *("plain", "empty", "partition_types", "deletion_vectors", "v2_checkpoints", "classic_checkpoints"),
    *("times", "legacy_int96"),
)
"""The recipes of the tables of a short run: every other one is a further form of what these have."""
VERIFIED = ("made.default.partition_types", "made.default.deletion_vectors")
"""Those that are verified on a short run, beside one of a share without history.

Tables of the other kinds, made by hand or written by Spark, are compared below and in test_spark_tables.py.
"""
MADE_OF_EACH_KIND = (
    *("checkpoint-v2-sidecars", "column-mapping-by-name", "compacted-commits"),
    *("deletion-vectors-by-absolute-path", "deletion-vectors-of-every-container", "no-files"),
    *("partition-directories-to-escape", "partition-value-empty", "partition-value-types"),
    *("refused-unknown-feature", "timestamps-without-a-zone", "type-widening", "variants"),
)


@pytest.fixture(scope="module")
def served(spark: Any, demo_tables: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """Shares of a table of each kind, and of one of the demo."""
    made = [generated(spark, name) for name in OF_EACH_KIND]
    with serving(tmp_path_factory.mktemp("served"), made, demo_tables, ["readings"]) as some:
        yield some


def generated(spark: Any, name: str) -> GeneratedTable:
    """A table of a recipe, made once for all runs: no test of this module changes it.

    The fixtures of verify/test_verify.py generate theirs in each run.
    """
    root = tools.CACHE / "generated"
    modules = [Path(str(sys.modules[of.__module__].__file__)).read_text() for of in (generate, Recipe)]

    def make() -> None:
        (root / name).rmdir()
        generate(spark, str(root), rows=ROWS, seed=3, only=[name])

    words = [str(root), *session_words(), *FEW_ROWS.values(), str(ROWS), *modules]
    return GeneratedTable(name, str(tools.made(root / name, words, make)), RECIPES[name].about)


@pytest.fixture(scope="module")
def every_served(spark: Any, demo_tables: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """Shares of the tables of every recipe and of the demo."""
    directory = tmp_path_factory.mktemp("every")
    made = generate(spark, str(directory / "tables"), rows=ROWS, seed=3)
    with serving(directory, made, demo_tables, DEMO_ROWS) as every:
        yield every


@contextmanager
def serving(
    directory: Path, made: Collection[GeneratedTable], demo: Path, of_demo: Iterable[str]
) -> Iterator[Served]:
    (plain,) = (table.location for table in made if table.name == "plain")
    shares = [
        share("made", {table.name: table.location for table in made}),
        share("demo", {name: str(demo / name) for name in of_demo}),
        share("latest", {"plain": plain}, historyShared=False),
    ]
    with running_gateway(directory, shares) as gateway:
        yield Served(gateway, directory / "gateway.yaml")


@pytest.mark.nightly
def test_every_generated_and_demo_table_is_equal(every_served: Served, tmp_path: Path, spark: Any) -> None:
    assert verified_on_two_nights(every_served, tmp_path, spark, ["*"]) == len(RECIPES) + len(DEMO_ROWS) + 1


def test_a_generated_table_of_each_kind_is_equal(served: Served, tmp_path: Path, spark: Any) -> None:
    assert verified_on_two_nights(served, tmp_path, spark, [*VERIFIED, "latest.*"]) == len(VERIFIED) + 1


def verified_on_two_nights(served: Served, tmp_path: Path, spark: Any, tables: Iterable[str]) -> int:
    """The number of tables that are equal in the first night and left alone in the second one."""
    junit, page, results = tmp_path / "verify.xml", tmp_path / "verify.html", tmp_path / "results"
    reports = ["--junit", str(junit), "--html", str(page), "--results", str(results)]
    chosen = [word for pattern in tables for word in ("--table", pattern)]
    shares = ["-c", str(served.configuration), "--profile", str(served.gateway.profile), *chosen]
    code = cli.main(["verify", *shares, "--predicates", "1", *reports])
    suites = ET.parse(junit).getroot()
    wrong = [ET.tostring(one, "unicode") for one in suites.iter() if one.tag in {"failure", "error"}]
    assert wrong == []
    assert code == 0
    assert "all equal" in page.read_text()
    outcomes = spark.read.format("delta").load(str(results)).groupBy("outcome").count().collect()
    assert {row["outcome"] for row in outcomes} == {"equal"}
    # The next night, without a new version of any table.
    metrics = tmp_path / "verify.prom"
    nightly = ["--predicates", "1", "--incremental", "--prometheus", str(metrics)]
    assert cli.main(["verify", *shares, *nightly, *reports]) == 0
    assert f'tables{{outcome="unchanged"}} {len(suites):.1f}' in metrics.read_text()
    assert {case.tag for suite in ET.parse(junit).getroot() for case in suite.iterfind("*/*")} == {"skipped"}
    assert "Nights" in page.read_text()
    return len(suites)


def test_the_exit_code_is_1_for_a_difference(
    served: Served, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The shared table is compared with another table."""
    location = next(one.location for one in load_targets(served.configuration, ["made.default.times"]))
    tables = [{"table": "made.default.times", "location": location.replace("times", "plain")}]
    listed = tmp_path / "tables.json"
    listed.write_text(json.dumps({"tables": tables}))
    profile = ["--profile", str(served.gateway.profile)]
    assert cli.main(["verify", "-c", str(listed), *profile, "--predicates", "0"]) == 1
    assert "made.default.times version 1: DIFFERENT" in "".join(capsys.readouterr())


@pytest.mark.nightly
def test_every_made_table_is_equal(spark: Any, tmp_path: Path) -> None:
    refused = {name for name in by_hand.TABLES if name.startswith("refused-")}
    assert unequal(compare_all(spark, made_tables(), tmp_path)) == UNEQUAL | dict.fromkeys(refused, CANNOT)


def test_a_made_table_of_each_kind_is_equal(spark: Any, tmp_path: Path) -> None:
    outcomes = compare_all(spark, made_tables(), tmp_path, MADE_OF_EACH_KIND)
    assert len(outcomes) == len(MADE_OF_EACH_KIND)
    assert unequal(outcomes) == UNEQUAL | {"refused-unknown-feature": CANNOT}


# The Delta protocol reads an empty string as null, Spark reads it as text.
UNEQUAL = {"partition-value-empty": "other rows"}
CANNOT = "spark cannot"


def unequal(outcomes: Mapping[str, str]) -> dict[str, str]:
    return {name.removesuffix("~delta"): said for name, said in outcomes.items() if said != "equal"}


# By day the error of a stream that meets the other id is tested without Spark.
@pytest.mark.parametrize("start", some_at_night([1, 0, 2, 3]))
def test_a_log_with_two_table_ids_and_a_remove_without_size_is_read(
    spark: Any, tmp_path: Path, start: int
) -> None:
    """deltalake before 0.25.3 wrote another id with each new schema. Streams end there, as in Delta.

    Of change data delta-spark reads no row of such a remove.
    """
    columns = [Column("id", "long")]
    table = Table(tmp_path / "t", columns, configuration={"delta.enableChangeDataFeed": "true"})
    first = table.add([{"id": 0}])
    table.commit(first, table.add([{"id": 1}]))
    columns.append(Column("word", "string"))
    table.commit({"metaData": table.metadata | {"id": "another"}}, table.add([{"id": 2, "word": "x"}]))
    removal = table.remove(first)
    del removal["remove"]["size"]
    table.commit(removal, table.add([{"id": 3}]))
    table.commit(table.add([{"id": 4, "word": "y"}]))
    changes = [
        {(0, None, "insert"), (1, None, "insert")},
        {(2, "x", "insert")},
        {(0, None, "delete"), (3, None, "insert")},
        {(4, "y", "insert")},
    ]
    register(spark)
    with running_gateway(tmp_path, [share("s", {"t": str(table.root)})]) as gateway:
        places = {"delta-sharing": "s.default.t", "delta": str(table.root)}
        reading = spark.read.format("delta-sharing").option("profile", str(gateway.profile))
        reading.option("readChangeFeed", "true").option("startingVersion", start)
        rows = reading.load(places["delta-sharing"]).select("id", "word", "_change_type").collect()
        assert sorted(map(tuple, rows)) == sorted(set().union(*changes[start:]))
        streamed: list[Any] = []
        for kind, place in places.items():
            stream = spark.readStream.format(kind).option("startingVersion", start)
            stream.option("skipChangeCommits", "true").option("profile", str(gateway.profile))
            name = f"appended_{kind.replace('-', '_')}_{start}"
            writing = stream.load(place).writeStream.format("memory").queryName(name)
            writing.option("checkpointLocation", str(tmp_path / name))
            try:
                writing.trigger(availableNow=True).start().awaitTermination()
                streamed.append(sorted(map(tuple, spark.table(name).collect())))
            except StreamingQueryException as error:
                streamed.append("[DIFFERENT_DELTA_TABLE_READ_BY_STREAMING_SOURCE]" in str(error))
        assert streamed == [[True, [(2, "x"), (4, "y")], [(4, "y")], [(4, "y")]][start]] * 2


@pytest.mark.nightly
def test_every_golden_table_that_spark_reads_is_equal(
    spark: Any, golden_tables: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    outcomes = compare_all(spark, golden_tables, tmp_path_factory.mktemp("golden"))
    assert set(unequal(outcomes).values()) <= {CANNOT}, unequal(outcomes)
    assert list(outcomes.values()).count("equal") > 90


def compare_all(spark: Any, directory: Path, work: Path, only: Collection[str] = ()) -> dict[str, str]:
    """The outcome of `compare` for each table below a directory, or some, by its name in the share."""
    register(spark)
    roots = sorted(log.parent for log in directory.rglob("_delta_log"))
    roots = [root for root in roots if not only or root.relative_to(directory).parts[0] in only]
    tables = {
        str(root.relative_to(directory)).replace("/", "~").replace(".", "_"): str(root) for root in roots
    }
    with running_gateway(work, [share("golden", tables)]) as gateway:

        def compared(name: str) -> str:
            reading = spark.read.format("delta-sharing").option("profile", str(gateway.profile))
            return compare(spark, tables[name], lambda: reading.load(f"golden.default.{name}"))

        with settings(spark, GOLDEN_SETTINGS), ThreadPoolExecutor(4) as pool:
            return dict(zip(tables, pool.map(compared, tables), strict=True))


def compare(spark: Any, location: str, shared: Callable[[], Any]) -> str:
    """`equal`, a difference, or `spark cannot` for tables without data files and for broken ones."""
    direct = spark.read.format("delta")
    try:
        answer, expected = shared(), direct.load(location)
        found = compare_schemas(answer.schema, expected.schema)
        if found:
            return str(found)
        return "other rows" if compare_groups(answer, expected, ()).differing else "equal"
    except Exception as error:  # noqa: BLE001 - errors of all tables are reported
        try:
            digest(direct.load(location))
        except Exception:  # noqa: BLE001 - Spark has many reasons
            return CANNOT
        return str(error)[-500:]


def test_files_of_the_julian_calendar_have_the_rows_that_delta_reads(served: Served, spark: Any) -> None:
    """By day without the other checks of `verify`."""
    register(spark)
    (target,) = load_targets(served.configuration, ["made.default.legacy_int96"])
    reading = spark.read.format("delta-sharing").option("profile", str(served.gateway.profile))
    assert compare(spark, target.location, lambda: reading.load(target.table)) == "equal"


def test_pages_and_refreshed_urls_give_the_same_rows(served: Served, spark: Any) -> None:
    register(spark)
    reading = spark.read.format("delta-sharing").options(profile=str(served.gateway.profile))
    whole = reading.load("made.default.partition_types")
    paged = reading.options(maxFilesPerPage=3, partitionBytes=1).load("made.default.partition_types")
    assert paged.rdd.getNumPartitions() > 10
    assert sorted(map(str, paged.collect())) == sorted(map(str, whole.collect()))


def test_a_past_timestamp_is_the_version_of_that_time(served: Served, spark: Any) -> None:
    register(spark)
    (target,) = load_targets(served.configuration, ["made.default.plain"])
    history = spark.sql(f"DESCRIBE HISTORY delta.`{target.location}`").where("version = 0")
    (row,) = history.selectExpr("date_format(timestamp, \"yyyy-MM-dd'T'HH:mm:ss.SSS'Z'\") at").collect()
    by_time, by_version = (
        spark.read.format("delta-sharing")
        .options(profile=str(served.gateway.profile), **at)
        .load(target.table)
        for at in ({"timestampAsOf": row["at"]}, {"versionAsOf": "0"})
    )
    assert digest(by_time) == digest(by_version)
    assert by_time.count() == 120


class TestFleet:
    def test_one_task_per_table_reports_the_content_of_its_log(self, served: Served, spark: Any) -> None:
        targets = [*load_targets(served.configuration, ["made.*"]), Target("made.gone", "/nowhere")]
        tables = {table.table.rpartition(".")[2]: table for table in survey(spark, targets)}
        assert tables["gone"].error is not None
        assert tables["v2_checkpoints"].checkpoint == "v2"
        assert tables["classic_checkpoints"].checkpoint == "classic"
        assert tables["classic_checkpoints"].tombstones > 0
        assert tables["deletion_vectors"].files_with_vectors > 0
        assert tables["deletion_vectors"].reader_features == ("deletionVectors",)
        assert tables["empty"].files == 0
        partitioned = tables["partition_types"]
        assert partitioned.files == partitioned.small_files > 20
        advice = advise(list(tables.values()))
        assert ("made.default.partition_types", "optimize") in {(one.table, one.action) for one in advice}

    def test_a_log_without_its_beginning_is_reported(self) -> None:
        root = made_tables() / "first-commits-missing/delta"
        health = look_at(Target("s.d.t", str(root)))
        assert health.error is None
        assert health.earliest_version > 0
        assert "history" in {one.action for one in advise([health])}

    def test_the_command_writes_a_page_with_trends(self, served: Served, spark: Any, tmp_path: Path) -> None:
        page = tmp_path / "fleet.html"
        command = ["fleet", "-c", str(served.configuration), "--html", str(page)]
        for nights in (1, 2):
            assert cli.main([*command, "--results", str(tmp_path / "results")]) == 0
            assert "partition_types" in page.read_text()
            assert ("Files of all tables" in page.read_text()) == (nights == 2)
        first, second = surveys(spark, str(tmp_path / "results"))
        assert (
            replace(second, run_at=first.run_at, longest_listing_seconds=first.longest_listing_seconds)
            == first
        )
        assert first.tables == len(OF_EACH_KIND) + 2
        assert first.files > first.tables
