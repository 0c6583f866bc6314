"""A table that a catalog manages, with commits that delta-spark's own coordinator has staged."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from support.gateway_process import RunningGateway, running_gateway, share
from support.ratified_log import FIRST_MS
from support.unity_catalog import running_catalog

from gateway.spark import cli
from gateway.spark.project.errors import NAMED_ALONE
from gateway.spark.source import register
from gateway.storage.unity_catalog import RatifiedCommits

pytestmark = pytest.mark.usefixtures("few_rows")

TABLE, FEATURES = "managed_orders", ["catalogManaged", "vacuumProtocolCheck"]


@dataclass
class StagedLog:
    """What a catalog knows of a table whose staged commits are all ratified."""

    root: Path
    url: None = None

    def answer(self) -> RatifiedCommits:
        """Answer as the catalog."""
        files = sorted((self.root / "_delta_log/_staged_commits").glob("*.json"))
        staged = tuple((int(file.name[:20]), file.name, file.stat().st_size, FIRST_MS) for file in files)
        return RatifiedCommits(staged[-1][0], staged)


@dataclass
class Managed:
    """The gateway that serves the table, its configuration, and the rows that Spark reads by its name."""

    gateway: RunningGateway
    configuration: Path
    rows: list[Any]


@pytest.fixture(scope="module")
def managed(spark: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Managed]:
    directory = tmp_path_factory.mktemp("managed")
    root = directory / "orders"
    spark.sql(
        f"CREATE TABLE {TABLE} (id BIGINT, kind STRING) USING delta LOCATION '{root}' TBLPROPERTIES "
        "('delta.enableInCommitTimestamps' = 'true', 'delta.enableDeletionVectors' = 'false')"
    )
    spark.sql(f"INSERT INTO {TABLE} VALUES (1, 'a'), (2, 'b')")
    coordinators = spark._jvm.org.apache.spark.sql.delta.coordinatedcommits
    provider = getattr(getattr(coordinators, "CatalogOwnedCommitCoordinatorProvider$"), "MODULE$")
    # It publishes no commit before the hundredth.
    builder = coordinators.InMemoryCommitCoordinatorBuilder(100)
    hand_over(spark, builder, root)
    provider.registerBuilder("spark_catalog", builder)
    try:
        spark.sql(f"INSERT INTO {TABLE} VALUES (3, 'c')")
        spark.sql(f"DELETE FROM {TABLE} WHERE id = 1")
        rows = spark.table(TABLE).collect()
        with running_catalog() as catalog:
            catalog.managed["main/sales/orders"] = StagedLog(root)  # type: ignore[assignment]
            section = {"url": catalog.url, "name": "main.sales.orders", "allowPrivateAddresses": True}
            shares = [share("s", {"orders": str(root)}, catalog=section)]
            with running_gateway(directory, shares) as gateway:
                yield Managed(gateway, directory / "gateway.yaml", rows)
    finally:
        provider.clearBuilders()
        spark.sql(f"DROP TABLE {TABLE}")


def hand_over(spark: Any, builder: Any, root: Path) -> None:
    """Make the table a managed one, which delta-spark does in a Unity Catalog alone."""
    log = root / "_delta_log"
    (protocol,) = actions(log / f"{0:020}.json", "protocol")
    (info,) = actions(log / f"{1:020}.json", "commitInfo")
    features = {"minReaderVersion": 3, "minWriterVersion": 7, "readerFeatures": FEATURES}
    handed = [
        {"commitInfo": info | {"inCommitTimestamp": info["inCommitTimestamp"] + 1}},
        {"protocol": protocol | features | {"writerFeatures": [*protocol["writerFeatures"], *FEATURES]}},
    ]
    (log / f"{2:020}.json").write_text("".join(json.dumps(action) + "\n" for action in handed))
    spark._jvm.org.apache.spark.sql.delta.DeltaLog.clearCache()
    path = spark._jvm.org.apache.hadoop.fs.Path(f"file:{log}")
    # The coordinator is told of the version before.
    client = builder.buildForCatalog(spark._jsparkSession, "spark_catalog")
    client.registerTable(path, spark._jvm.java.util.Optional.empty(), 1, None, None)


def actions(commit: Path, kind: str) -> list[Any]:
    found = map(json.loads, commit.read_text().splitlines())
    return [action[kind] for action in found if kind in action]


def test_the_source_reads_what_delta_spark_has_staged(spark: Any, managed: Managed) -> None:
    register(spark)
    reading = spark.read.format("delta-sharing").options(profile=str(managed.gateway.profile))
    assert sorted(reading.load("s.default.orders").collect()) == sorted(managed.rows)
    assert sorted(row.id for row in managed.rows) == [2, 3]


def test_verify_says_that_spark_reads_a_managed_table_by_its_name_alone(
    managed: Managed, capsys: pytest.CaptureFixture[str]
) -> None:
    command = ["verify", "-c", str(managed.configuration), "--profile", str(managed.gateway.profile)]
    for options in ([], ["--shown-rows", "0"]):
        assert cli.main([*command, *options]) == 1
        said = capsys.readouterr().err
        assert f"    {NAMED_ALONE}\n" in said
        assert "0 of 1 tables are equal" in said


def test_project_says_the_same(managed: Managed, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    root = managed.configuration.parent / "orders"
    rule = {"source": str(root), "columns": ["id", "kind"]}
    entry = {"name": "p", "location": str(tmp_path / "p"), "projection": rule}
    document = {
        "version": 1,
        "shares": [{"name": "s", "schemas": [{"name": "d", "tables": [entry]}]}],
        "gateway": {"anonymous": True},
    }
    file = tmp_path / "share.yaml"
    file.write_text(json.dumps(document))
    assert cli.main(["project", "-c", str(file)]) == 1
    assert f"s.d.p: failed: {NAMED_ALONE}\n" in capsys.readouterr().err
