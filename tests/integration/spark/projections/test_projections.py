"""Projections: equal to the rule of their source, published after the proof alone, whatever is killed."""

import argparse
import datetime as dt
import importlib
import json
import os
import random
import shutil
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from urllib.parse import urlsplit

import pytest
import tools
import yaml
from delta.tables import DeltaTable, IdentityGenerator
from pyspark.errors import PySparkException
from pyspark.sql import functions as f
from support.gateway_process import RunningGateway, running_gateway
from support.spark_client import SparkClient, file_id, files
from support.waiting import wait_until

from gateway import config
from gateway.config import Projection
from gateway.config.projections import WORK_DIRECTORY, MinimumGroup
from gateway.spark import cli
from gateway.spark.project import changes as changing
from gateway.spark.project import few, objects
from gateway.spark.project import job as writing
from gateway.spark.project import reduced as reducing
from gateway.spark.project.errors import InvalidRule, NotKept, NotProved
from gateway.spark.project.evaluation import rule_session
from gateway.spark.project.job import Job
from gateway.spark.project.lock import LOCK_FILE, Locked, locked
from gateway.spark.project.objects import Directory, Refused
from gateway.spark.project.published import published
from gateway.spark.project.reduced import reduced
from gateway.spark.project.results import Options, Outcome, Target
from gateway.spark.project.rule import projected
from gateway.spark.project.run import keep, left_over, projections
from gateway.spark.project.search import all_of, conditions
from gateway.spark.project.table_log import CHANGE_TYPE, TableLog
from gateway.spark.project.transaction import Transaction
from gateway.spark.source import register
from gateway.spark.targets import load_targets
from gateway.spark.verify.digest import EMPTY, digest
from gateway.spark.verify.results import VerifyOptions
from gateway.spark.verify.tables import verify

pytestmark = pytest.mark.usefixtures("few_rows")

SALT = "a salt of the tests"
RULE: dict[str, Any] = {
    "columns": [
        "id",
        "amount",
        {"name": "person", "column": "email", "function": "sha256"},
        {"name": "area", "column": "zip", "function": "prefix", "length": 2},
        {"name": "decade", "column": "age", "function": "floor", "step": 10},
        {"name": "month", "column": "at", "function": "month"},
    ],
    "where": "country = 'de' AND NOT hidden",
    "salt": SALT,
}
ROWS = (
    "id BIGINT, amount DOUBLE, email STRING, zip STRING, age INT, at TIMESTAMP, country STRING, "
    "hidden BOOLEAN"
)
NO_MAINTENANCE = Options(optimize_hours=0, vacuum_hours=0)
HOUR_MS = 3_600_000
OF_DELTA = ("_change_type", "_Commit_Version", "_commit_timestamp")
"""Names of columns that Delta adds to changed rows."""
NIGHTLY = pytest.mark.nightly


class Killed(BaseException):
    """Stands for a signal between two writes: nothing after it runs."""


@dataclass
class Kept:
    """A source, the configuration of its projection, and runs of the job."""

    spark: Any
    source: str
    file: Path
    rule: dict[str, Any]
    steps: list[str] = field(default_factory=list)

    @property
    def shares(self) -> list[Any]:
        table = {
            "name": "t",
            "location": str(self.file.parent / "projections"),
            "historyShared": True,
            "projection": {"source": self.source, **self.rule},
        }
        return [{"name": "s", "schemas": [{"name": "default", "tables": [table]}]}]

    @property
    def target(self) -> Target:
        self.file.write_text(yaml.safe_dump({"version": 1, "shares": self.shares}))
        (target,) = projections(config.load(self.file, needs_readers=False))
        return target

    @property
    def projection(self) -> Projection:
        return self.target.projection

    def run(
        self,
        options: Options = NO_MAINTENANCE,
        *,
        die_at: str | None = None,
        later_hours: int = 0,
    ) -> Outcome:
        def step(name: str) -> None:
            self.steps.append(name)
            if name == die_at:
                raise Killed

        self.steps.clear()
        now_ms = lambda: int(time.time() * 1000) + later_hours * HOUR_MS  # noqa: E731
        return Job(self.spark, self.target, options, step, now_ms).run()

    def die(self, at: str, options: Options = NO_MAINTENANCE, *, later_hours: int = 0) -> None:
        with pytest.raises(Killed):
            self.run(options, die_at=at, later_hours=later_hours)

    def sql(self, statement: str) -> None:
        self.spark.sql(statement.replace("{t}", f"delta.`{self.source}`"))

    def served(self) -> Any:
        return self.spark.read.format("delta").load(self.target.root)

    def expected(self, version: int | None = None) -> Any:
        reading = self.spark.read.format("delta")
        reading = reading if version is None else reading.option("versionAsOf", version)
        return projected(reading.load(self.source), self.projection)

    def assert_equal(self, expected: list[Any] | None = None) -> None:
        """The served rows are those of the rule, or these."""
        rows = self.expected().collect() if expected is None else expected
        # By their texts, which have the columns' names, as NaN is not equal to itself.
        assert Counter(map(repr, self.served().collect())) == Counter(map(repr, rows))


def values(first: int, count: int) -> str:
    return (
        f"SELECT id, CAST(id / 4 AS DOUBLE), concat('user', id % 50, '@example.com'), "
        f"CAST(10000 + id * 37 % 80000 AS STRING), CAST(id % 90 AS INT), "
        f"TIMESTAMP '2024-01-01 00:00:00Z' + make_dt_interval(CAST(id AS INT)), "
        f"CASE WHEN id % 3 = 0 THEN 'fr' WHEN id % 7 = 0 THEN NULL ELSE 'de' END, id % 11 = 0 "
        f"FROM range({first}, {first + count})"
    )


@pytest.fixture
def kept(spark: Any, tmp_path: Path) -> Kept:
    return made(spark, tmp_path)


def made(spark: Any, directory: Path, **rule: Any) -> Kept:
    source = directory / "source"
    shutil.copytree(source_of_rows(spark), source)
    return Kept(rule_session(spark), str(source), directory / "share.yaml", RULE | rule)


@pytest.fixture
def first(spark: Any) -> Kept:
    """A projection after its first run, which is made once a session and put back for each test.

    At one place: the name of a rule is made of that of its source.
    """
    place, copy = first_run(spark)
    shutil.rmtree(place, ignore_errors=True)
    shutil.copytree(copy, place)
    spark._jvm.org.apache.spark.sql.delta.DeltaLog.clearCache()
    return Kept(rule_session(spark), str(place / "source"), place / "share.yaml", dict(RULE))


@cache
def first_run(spark: Any) -> tuple[Path, Path]:
    """The place of a projection of its own, and a copy of it after the first run."""
    place = Path(urlsplit(spark.conf.get("spark.sql.warehouse.dir")).path) / "first"
    place.mkdir(parents=True)
    made(spark, place).run()
    return place, Path(shutil.copytree(place, place.with_name("first-copy")))


@cache
def source_of_rows(spark: Any) -> Path:
    """The source of all tests, written once a session."""
    source = Path(urlsplit(spark.conf.get("spark.sql.warehouse.dir")).path) / "source"
    table, properties = f"delta.`{source}`", "delta.enableDeletionVectors = true"
    session = rule_session(spark)
    session.sql(f"CREATE TABLE {table} ({ROWS}) USING delta TBLPROPERTIES ({properties})")
    session.sql(f"INSERT INTO {table} {values(0, 200)}")
    return source


@pytest.mark.parametrize("by_verify", [False, pytest.param(True, marks=NIGHTLY)])
def test_recipients_read_each_version_and_its_changes(
    first: Kept, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, by_verify: bool
) -> None:
    first.assert_equal()
    served = first.served()
    assert {len(row["person"]) for row in served.select("person").collect()} == {64}
    assert {len(row["area"]) for row in served.select("area").collect()} == {2}
    assert all(row["decade"] % 10 == 0 for row in served.select("decade").collect())
    first.sql("DELETE FROM {t} WHERE id BETWEEN 10 AND 29")
    first.sql("UPDATE {t} SET amount = -1, hidden = false WHERE id BETWEEN 40 AND 49")
    outcome = first.run()
    assert (outcome.how, outcome.remark, outcome.version) == ("changed", "", 1)
    first.assert_equal()
    with running_gateway(tmp_path, first.shares) as gateway:
        if by_verify:
            assert_verified(first, gateway, tmp_path / "gateway.yaml")
        else:
            assert_reads_the_same(first, gateway)
        first.sql("DELETE FROM {t} WHERE id BETWEEN 60 AND 69")
        published = file_ids(gateway)
        first.die("proved")
        assert_no_route_has_more_than(1, gateway)
        assert file_ids(gateway) == published
        assert first.run().version == 2
        assert file_ids(gateway) != published
        assert_no_route_has_more_than(2, gateway)
    first.assert_equal()
    # Without a change nothing is read but names and one commit.
    monkeypatch.setattr(TableLog, "log", pytest.fail)
    rows = len(first.served().collect())
    assert [first.run() for _ in range(2)] == [Outcome(first.target.names, "unchanged", 2, 4, rows)] * 2


def assert_verified(kept: Kept, gateway: RunningGateway, file: Path) -> None:
    """The gateway's rows are the same in versions, changes, filters and files."""
    options = VerifyOptions(predicates=0, shown_rows=3)
    (result,) = verify(kept.spark, str(gateway.profile), load_targets(file), options)
    assert result.error is None
    assert result.equal, [check.differences for check in result.checks]
    assert "changes 0 to 1" in {check.name for check in result.checks if not check.skipped}


def assert_reads_the_same(kept: Kept, gateway: RunningGateway) -> None:
    """The rows of the latest version and the changes up to it are those that Delta reads."""
    register(kept.spark)
    places = {"delta": kept.target.root, "delta-sharing": "s.default.t"}
    for options in ({}, {"readChangeFeed": "true", "startingVersion": "0"}):
        direct, shared = (
            kept.spark.read.format(kind).options(profile=str(gateway.profile), **options).load(place)
            for kind, place in places.items()
        )
        assert digest(direct) == digest(shared)


def file_ids(gateway: RunningGateway) -> set[tuple[str, str | None]]:
    lines = files(SparkClient(gateway, "s", table="t").query_pages(1))
    return {(file_id(line), line["file"].get("deletionVectorFileId")) for line in lines}


def assert_no_route_has_more_than(version: int, gateway: RunningGateway) -> None:
    client = SparkClient(gateway, "s", table="t")
    assert client.version() == client.metadata().version == client.query().version == version
    assert client.changes(startingVersion=0).answer.status == 200
    for method, path, body in (
        ("POST", "query", {"version": version + 1}),
        ("POST", "query", {"startingVersion": version + 1}),
        ("GET", f"metadata?version={version + 1}", None),
        ("GET", f"changes?startingVersion={version + 1}", None),
        ("POST", "temporary-table-credentials", {}),
    ):
        answer = gateway.request(method, f"{client.path}/{path}", body, client.headers())
        assert 400 <= answer.status < 500, (path, answer.status)


@NIGHTLY
def test_a_job_that_is_killed_at_each_step_leaves_the_published_version(kept: Kept) -> None:
    """At one step after another, without a run in between that ends well: by day, at one of them above."""
    for step in ("locked", "created", "written", "proved"):
        kept.die(step)
        assert not list(Path(kept.target.root, "_delta_log").glob("*.json"))
    kept.die("published")
    kept.assert_equal()
    first = digest(kept.served())
    kept.sql("DELETE FROM {t} WHERE id < 50")
    kept.sql(f"INSERT INTO {{t}} {values(190, 30)}")
    kept.die("removed")
    for step in ("added", "restored", "proved"):
        kept.die(step)
        assert digest(kept.served()) == first
    kept.die("published")
    kept.assert_equal()
    second = digest(kept.served())
    assert kept.run().how == "unchanged"
    maintained = replace(NO_MAINTENANCE, optimize_hours=1, vacuum_hours=1)
    for step in ("optimized", "restored", "proved", "published", "vacuumed"):
        kept.die(step, maintained, later_hours=2)
        assert digest(kept.served()) == second
    kept.run(maintained, later_hours=2)
    kept.assert_equal()


CHANGES: list[Callable[[random.Random], str]] = [
    lambda chance: f"DELETE FROM {{t}} WHERE id % {chance.randint(3, 9)} = 1",
    lambda chance: f"UPDATE {{t}} SET age = age + 10 WHERE id % {chance.randint(2, 9)} = 0",
    lambda chance: f"UPDATE {{t}} SET hidden = NOT hidden WHERE id % {chance.randint(2, 9)} = 0",
    lambda chance: f"UPDATE {{t}} SET country = NULL, amount = 'NaN' WHERE id = {chance.randint(0, 200)}",
    lambda chance: f"INSERT INTO {{t}} {values(chance.randint(0, 100), chance.randint(1, 100))}",
    lambda chance: f"INSERT INTO {{t}} SELECT * FROM {{t}} WHERE id % {chance.randint(2, 9)} = 0",
    lambda _chance: "OPTIMIZE {t}",
    lambda _chance: "INSERT INTO {t} SELECT id, -0.0D, NULL, NULL, NULL, NULL, 'de', false FROM range(3)",
    lambda chance: (
        "MERGE INTO {t} t USING (SELECT DISTINCT id FROM {t}) s ON t.id = s.id "
        f"WHEN MATCHED AND s.id % {chance.randint(2, 9)} = 0 THEN UPDATE SET amount = amount + 1"
    ),
]


@pytest.mark.parametrize(
    ("deletion_vectors", "runs"),
    [(True, 2), pytest.param(True, 20, marks=NIGHTLY), pytest.param(False, 20, marks=NIGHTLY)],
)
def test_any_changes_of_the_source_lead_to_what_the_rule_makes_of_it(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, deletion_vectors: bool, runs: int
) -> None:
    # Few enough that some changes list the rows in a condition, and others join with them.
    monkeypatch.setattr(changing, "MAX_LISTED_HASHES", 12)
    most, removed, by_many, many = few.MAX_ROWS, few.MAX_REMOVED, Job._by_many, []

    def seen(*arguments: Any) -> Any:
        many.append(arguments)
        return by_many(*arguments)

    monkeypatch.setattr(Job, "_by_many", seen)
    # Without `id` many rows are equal.
    kept = made(spark, tmp_path, columns=RULE["columns"][2:], partitionBy=["area"])
    if not deletion_vectors:
        kept.sql("ALTER TABLE {t} SET TBLPROPERTIES (delta.enableDeletionVectors = false)")
    chance = random.Random(7)
    kept.run()
    for number in range(runs):
        monkeypatch.setattr(few, "MAX_ROWS", 0 if number % 3 == 1 else most)
        # Too many, or none for places in some of those.
        monkeypatch.setattr(few, "MAX_REMOVED", removed if number % 6 == 4 else 0)
        for change in [CHANGES[0], chance.choice(CHANGES[1:])]:
            kept.sql(change(chance))
        outcome = kept.run()
        assert (outcome.how, outcome.remark) == ("changed", "")
        kept.assert_equal()
    assert many, "no changes were too many for one process"
    if runs > 2:
        assert kept.run(replace(NO_MAINTENANCE, whole=True)).remark == ""


@pytest.mark.parametrize("runs", [1, pytest.param(2, marks=NIGHTLY)])
def test_few_changes_in_files_that_are_written_anew_are_found(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, runs: int
) -> None:
    """The most rows of such files are as before. Of equal rows some remain, and some are more."""
    rule = RULE | {"columns": ["age", *RULE["columns"][2:4]], "where": "NOT hidden", "partitionBy": ["area"]}
    kept = Kept(rule_session(spark), str(tmp_path / "source"), tmp_path / "share.yaml", rule)
    same = "SELECT id, 1, 'same', '00', 7, NULL, 'de', false FROM range(100)"
    kept.sql(f"CREATE TABLE {{t}} ({ROWS}) USING delta TBLPROPERTIES (delta.enableDeletionVectors = false)")
    # One file, which each statement below writes anew.
    kept.sql(f"INSERT INTO {{t}} SELECT /*+ COALESCE(1) */ * FROM ({values(0, 200)} UNION ALL {same})")
    kept.run()
    monkeypatch.setattr(few, "MAX_ROWS", 40)
    # The table has more rows that are equal to those to remove.
    monkeypatch.setattr(few, "MAX_PLACES", 40)
    monkeypatch.setattr(changing, "_remove", pytest.fail)
    statements = (
        "UPDATE {t} SET zip = '01' WHERE email = 'same' AND id < 9",
        "UPDATE {t} SET age = id + 100, hidden = id = 4 WHERE id IN (3, 4, 5, 7)",
    )
    for statement in statements[:runs]:
        kept.sql(statement)
        outcome = kept.run()
        assert (outcome.how, outcome.remark) == ("changed", "")
        assert 0 < outcome.changed_rows <= 40
        kept.assert_equal()


def test_the_feed_of_a_source_says_which_rows_of_its_files_changed(
    first: Kept, monkeypatch: pytest.MonkeyPatch
) -> None:
    properties = "delta.enableDeletionVectors = false, delta.enableChangeDataFeed = true"
    first.sql(f"ALTER TABLE {{t}} SET TBLPROPERTIES ({properties})")
    monkeypatch.setattr(few, "MAX_ROWS", 40)
    monkeypatch.setattr(reducing, "_sums", pytest.fail)
    first.sql("UPDATE {t} SET email = 'new' WHERE id IN (3, 4, 5, 7)")
    assert first.run().how == "changed"
    first.assert_equal()


@pytest.mark.parametrize("is_changed", [False, pytest.param(True, marks=NIGHTLY)])
def test_no_statistics_of_the_source_decide(kept: Kept, tmp_path: Path, is_changed: bool) -> None:
    """Neither of a whole source nor of its changes: here they say that it has no row of the condition."""
    copied = tmp_path / "copied"
    lying = Kept(kept.spark, str(copied / "source"), copied / "share.yaml", RULE)

    def lie(version: int) -> None:
        commit = copied / f"source/_delta_log/{version:020}.json"
        actions = [json.loads(line) for line in commit.read_text().splitlines()]
        for action in (one["add"] for one in actions if "add" in one):
            stated = json.loads(action["stats"])
            stated["minValues"]["country"] = stated["maxValues"]["country"] = "fr"
            action["stats"] = json.dumps(stated)
        commit.write_text("".join(f"{json.dumps(action)}\n" for action in actions))
        for checksum in commit.parent.glob("*.crc"):
            checksum.unlink()

    shutil.copytree(tmp_path / "source", copied / "source")
    lie(1)
    assert kept.spark.read.format("delta").load(lying.source).where("country = 'de'").count() == 0
    lying.run()
    assert lying.served().count() == kept.expected().count() > 0
    if not is_changed:
        return
    kept.sql("ALTER TABLE {t} SET TBLPROPERTIES (delta.enableDeletionVectors = false)")
    kept.sql("UPDATE {t} SET amount = 7 WHERE id % 5 = 0")
    for one in Path(kept.source).rglob("*"):
        if one.is_file() and not (copied / "source" / one.relative_to(kept.source)).exists():
            shutil.copy(one, copied / "source" / one.relative_to(kept.source))
    lie(3)
    assert lying.run().how == "changed"
    assert lying.served().exceptAll(kept.expected()).count() == 0
    assert lying.served().count() == kept.expected().count()


def test_rows_that_both_sides_have_cancel_out(spark: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    both = [(kind, number, "same") for number in range(200) for kind in ("insert", "delete")]
    net = [("insert", 1, "new"), ("insert", 1, "new"), ("delete", 2, "old"), ("insert", 3, "same")]
    columns = f"{CHANGE_TYPE} STRING, n INT, text STRING"
    rows, feed, lie = (spark.createDataFrame(some, columns) for some in (both + net, net, net[:3]))

    def found(
        stated: Any = None, names: Sequence[str] = ("n", "text"), most: int = 4, of: Any = rows
    ) -> list[Any] | None:
        kept = reduced(of, stated, names, most=most)
        if kept is None:
            return None
        few_rows = sorted(map(tuple, kept.collect()))
        kept.unpersist()
        return few_rows

    assert found() == found(lie) == found(feed) == sorted(net)
    # Rows that have a part in one sum are told apart by their hashes.
    monkeypatch.setattr(reducing, "_SUMS", 1)
    assert found() == sorted(net)
    assert found(most=3) is None
    # The text is not compared: of equal rows one is as good as another.
    assert [row[:2] for row in found(names=["n"]) or ()] == [
        ("delete", 2),
        *[("insert", 1)] * 2,
        ("insert", 3),
    ]
    # So are three of them, which differ by one in number.
    three = [("delete", 2, "old"), ("insert", 1, "new"), ("insert", 4, "new")]
    assert found(of=spark.createDataFrame(both + three, columns)) == three
    # A sum that is taken for that of one row by mistake loses none.
    monkeypatch.setattr(reducing, "_is_in", lambda sides, _sums: sides["n"] == 1)
    assert found() is None
    monkeypatch.setattr(reducing, "_sums", pytest.fail)
    assert found(feed) == sorted(net)


def test_nothing_that_is_too_much_or_fails_is_kept(spark: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = spark.sql(f"SELECT 'insert' {CHANGE_TYPE}, id % 2 n FROM range(20)")
    cached = spark._jsparkSession.sharedState().cacheManager()
    before = cached.numCachedEntries()
    # A feed that cannot be read, and one that is wrong.
    broken = rows.withColumn("n", f.expr("IF(n = 1, raise_error('of a file'), n)"))
    for stated in (None, broken, rows.limit(3)):
        assert reduced(rows, stated, ["n"], most=5) is None
    # Of many equal rows no list is made.
    assert reducing._net(rows, ["n"], 3).count() == 2 * 4
    with monkeypatch.context() as failing:
        failing.setattr(reducing, "_net", pytest.fail)
        assert reduced(rows, rows, ["n"], most=4) is None, "a large feed went through a shuffle"
    assert cached.numCachedEntries() == before


@NIGHTLY
def test_files_with_removed_rows_keep_their_statistics(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Recipients' conditions skip files by them. Lists of files that are not the published ones are left."""
    kept = made(spark, tmp_path, partitionBy=["area"])
    # The values are part of paths, which the log has in another form than the files' names.
    kept.sql("UPDATE {t} SET zip = CASE id % 4 WHEN 0 THEN '% ' WHEN 1 THEN 'é/' ELSE '1' END")
    kept.run()
    candidates, asked = Transaction.candidates, []

    def seen(*arguments: Any) -> Any:
        asked.append(arguments)
        return candidates(*arguments)

    monkeypatch.setattr(Transaction, "candidates", seen)
    for last, first, are_listed in ((49, 0, True), (99, 50, False)):
        asked.clear()
        if not are_listed:
            (crc, *_) = sorted(Path(kept.target.root, "data", "_delta_log").glob("*.crc"), reverse=True)
            checksum = json.loads(crc.read_text())
            checksum["allFiles"].append(checksum["allFiles"][0] | {"path": "another"})
            crc.write_text(json.dumps(checksum))
            crc.with_name(f".{crc.name}.crc").unlink(missing_ok=True)
        kept.sql(f"DELETE FROM {{t}} WHERE id BETWEEN {first} AND {last}")
        outcome = kept.run()
        assert (outcome.how, outcome.remark) == ("changed", "")
        assert bool(asked) is not are_listed
        kept.assert_equal()
        log = TableLog(kept.spark, kept.target.root)
        marked = [
            one["add"] for one in log.actions(outcome.version) if "deletionVector" in one.get("add", {})
        ]
        assert marked
        for add in marked:
            statistics = json.loads(add["stats"])
            assert statistics["tightBounds"] is False
            assert statistics["minValues"]["id"] <= statistics["maxValues"]["id"]


@pytest.mark.parametrize(("partitions", "number"), [([], 4), (["text", "small"], 5)])
def test_rows_are_searched_by_conditions_that_hold_for_them(
    spark: Any, partitions: list[str], number: int
) -> None:
    """Whatever the values are: those without a literal give no condition."""
    rows = spark.sql(
        """SELECT * FROM VALUES
        (-128Y, -9223372036854775808L, DATE '0001-01-01', TIMESTAMP '1583-01-01 00:00:00Z', "it's", 'a'),
        (127Y, 9223372036854775807L, DATE '+12000-01-01', TIMESTAMP '2024-03-31 02:30:00.000001Z', '', 'ä'),
        (0Y, 17L, NULL, TIMESTAMP '2024-10-27 02:30:00Z', NULL, '\U0001f600'),
        (0Y, 18L, DATE '1969-12-31', NULL, 'x', NULL)
        AS t(small, large, day, at, quoted, text)"""
    )
    found = conditions(rows, partitions)
    assert len(found) == number
    assert rows.where(all_of(found)).count() == 4
    # A variable in the text of SQL is a value of this process, and Python has no text for some bytes.
    odd = spark.sql("SELECT concat('$', '{env:HOME}') variable, CAST(X'61FF' AS STRING) bytes, 1 AS id")
    of_id = conditions(odd, [])
    assert not any(name in str(one) for one in of_id for name in ("variable", "bytes"))
    assert odd.where(all_of(of_id)).count() == 1
    # Nothing is known of a value that is null in all rows but that.
    null = spark.sql("SELECT id, CAST(NULL AS INT) number, CAST(NULL AS DATE) day, NULL text FROM range(3)")
    of_nulls = conditions(null, [])
    assert null.where(all_of(of_nulls)).count() == 3
    assert null.selectExpr("id", "1 number", "day", "text").where(all_of(of_nulls)).count() == 0
    others = spark.sql("SELECT 1Y small, 19L large, DATE '1970-01-01' day, now() at, 'y' quoted, 'b' text")
    assert others.where(all_of(found)).count() == 0


def test_a_search_skips_the_files_around_the_rows(kept: Kept) -> None:
    for first in (1000, 2000, 3000):
        kept.sql(f"INSERT INTO {{t}} {values(first, 100)}")
    table = kept.spark.read.format("delta").load(kept.source)
    wanted = table.where("id IN (1001, 1050, 3002)")
    assert len(table.inputFiles()) == 8
    # Two of these files lie between the smallest and the largest of the rows.
    assert len(table.where(all_of(conditions(wanted, []))).inputFiles()) == 3


@NIGHTLY
def test_a_source_with_one_more_column_is_followed_by_its_changes(first: Kept) -> None:
    first.sql("ALTER TABLE {t} ADD COLUMN more INT")
    first.sql("INSERT INTO {t} VALUES (7, 1, 'a', 'b', 3, NULL, 'de', false, 4)")
    assert first.run().how == "changed"
    first.assert_equal()


# By day each reason to write a projection anew is tested without Spark.
@NIGHTLY
def test_a_source_that_is_partitioned_by_other_columns_is_written_anew(first: Kept) -> None:
    # Rows of files that were not partitioned would be read without values of `hidden`.
    rows = first.spark.read.format("delta").load(first.source)
    writing = rows.where("id > 5").write.format("delta").mode("overwrite").option("overwriteSchema", "true")
    writing.partitionBy("hidden").save(first.source)
    assert first.run().remark == "rewritten: the source is partitioned by other columns"
    first.assert_equal()


@NIGHTLY
def test_a_source_that_is_replaced_by_other_columns_is_written_anew(first: Kept) -> None:
    first.sql(
        f"CREATE OR REPLACE TABLE {{t}} USING delta AS SELECT * EXCEPT (age), 5L AS age FROM ({ages()})"
    )
    outcome = first.run()
    assert outcome.how == "whole"
    assert outcome.remark.startswith("rewritten: ")
    first.assert_equal()
    assert dict(first.served().dtypes)["decade"] == "bigint"


# By day the rule that finds no other columns there is tested without Spark.
@NIGHTLY
def test_a_source_with_an_identity_column_is_followed_by_its_changes(kept: Kept, tmp_path: Path) -> None:
    """Its schema keeps the highest number, so each insert changes that. A comment changes no row, either."""
    kept.source, kept.rule = str(tmp_path / "numbered"), {"columns": ["id", "zip"]}
    builder = DeltaTable.create(kept.spark).location(kept.source).addColumn("zip", "STRING")
    builder.addColumn("id", "BIGINT", generatedAlwaysAs=IdentityGenerator()).execute()
    kept.sql("INSERT INTO {t} (zip) VALUES ('1'), ('2')")
    kept.run()
    kept.sql("INSERT INTO {t} (zip) VALUES ('3')")
    kept.sql("ALTER TABLE {t} ALTER COLUMN zip COMMENT 'changed'")
    outcome = kept.run()
    assert (outcome.how, outcome.remark, outcome.changed_rows) == ("changed", "", 1)
    kept.assert_equal()


@NIGHTLY
@pytest.mark.parametrize("most", [few.MAX_ROWS, 0])
def test_a_source_with_columns_of_our_names_is_followed_by_its_changes(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, most: int
) -> None:
    kept = made(spark, tmp_path)
    kept.source, names = str(tmp_path / "named"), ("_hash_0", "row", "place", "n", "_number", "sign")
    own = [{"name": f"own_{number}", "column": name} for number, name in enumerate(OF_DELTA)]
    kept.rule = {"columns": [*own, *names], "where": f"{OF_DELTA[0]} <> 'hidden'"}
    kept.sql(
        f"CREATE TABLE {{t}} ({OF_DELTA[0]} STRING, {OF_DELTA[1]} BIGINT, {OF_DELTA[2]} TIMESTAMP, "
        f"{' BIGINT, '.join(names)} BIGINT) USING delta PARTITIONED BY (sign) "
        "TBLPROPERTIES (delta.enableDeletionVectors = true)"
    )
    insert = "INSERT INTO {t} SELECT 'insert', id, now(), id, id, id, 1, id, id % 2 FROM range(40)"
    kept.sql(insert)
    kept.run()
    for module, limit in ((few, "MAX_ROWS"), (few, "MAX_REMOVED"), (changing, "MAX_LISTED_HASHES")):
        monkeypatch.setattr(module, limit, most)
    kept.sql(insert)
    kept.sql("DELETE FROM {t} WHERE n = 1 AND row < 3")
    values_ = f"{OF_DELTA[1]} = 0 - row, {OF_DELTA[0]} = IF(row = 6, 'hidden', 'delete')"
    kept.sql(f"UPDATE {{t}} SET {values_} WHERE row < 5 OR row = 6")
    outcome = kept.run()
    assert (outcome.how, outcome.remark) == ("changed", "")
    kept.assert_equal()
    assert outcome.changed_rows < 80


@NIGHTLY
def test_a_source_that_was_put_back_from_a_copy_is_written_anew(first: Kept) -> None:
    # The copy has the version before the published one alone.
    for file in Path(first.source, "_delta_log").glob(f"*{1:020}.*"):
        file.unlink()
    first.spark._jvm.org.apache.spark.sql.delta.DeltaLog.clearCache()
    # The same table with another version of the same number.
    first.sql(f"INSERT INTO {{t}} {values(20, 150)}")
    outcome = first.run()
    assert (outcome.how, outcome.remark) == ("whole", "rewritten: the source has another history")
    first.assert_equal()
    assert first.run().how == "unchanged"


@NIGHTLY
def test_a_source_that_is_put_back_during_a_run_is_written_anew_by_the_next_one(first: Kept) -> None:
    source, copy = Path(first.source), Path(f"{first.source}-copy")
    shutil.copytree(source, copy)
    first.sql("DELETE FROM {t} WHERE id < 50")
    # Another version of the same number.
    first.spark.sql(f"DELETE FROM delta.`{copy}` WHERE id > 150")

    def put_back(name: str) -> None:
        if name == "added":
            shutil.rmtree(source)
            copy.rename(source)

    assert Job(first.spark, first.target, NO_MAINTENANCE, put_back).run().how == "changed"
    assert first.run().remark == "rewritten: the source has another history"
    first.assert_equal()


def test_maintenance_drops_removed_rows_and_keeps_the_shared_history(first: Kept) -> None:
    (gone, *_) = [row["id"] for row in first.served().select("id").collect()]
    first.sql(f"DELETE FROM {{t}} WHERE id = {gone}")
    first.run()
    compacted = replace(NO_MAINTENANCE, optimize_hours=1)
    assert first.run(compacted, later_hours=2).version == 2
    for file in first.served().inputFiles():
        rows = first.spark.read.parquet(file)
        assert not rows.where(f.col("id") == gone).count(), "recipients get files as they are"
    log = TableLog(first.spark, first.target.root)
    removed = [one["remove"]["deletionTimestamp"] for one in log.actions(2) if "remove" in one]
    # A log that was copied has files of a later time.
    later = time.time() + 1000
    os.utime(Path(first.target.root, "_delta_log", f"{2:020}.json"), (later, later))
    assert log.begun_ms(2) <= min(removed)
    cleaned = replace(NO_MAINTENANCE, vacuum_hours=1)
    first.run(cleaned, later_hours=89 * 24)
    assert "vacuumed" in first.steps
    # Delta has forgotten which files were removed when.
    first.run(cleaned, later_hours=91 * 24)
    assert "vacuumed" not in first.steps


def test_a_compaction_without_files_to_combine_is_noted_once(
    first: Kept, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writing, "compact", lambda _work: None)
    compacted = replace(NO_MAINTENANCE, optimize_hours=1)
    first.sql("DELETE FROM {t} WHERE id = 1")
    assert first.run().version == 1
    assert first.run(compacted, later_hours=2).version == 2
    assert first.run(compacted, later_hours=4).version == 2
    assert not first.steps, "a run without changes takes no lock"
    first.assert_equal()


@NIGHTLY
@pytest.mark.parametrize(("most", "places"), [(1000, 5), (10, 1000)])
def test_of_many_equal_rows_those_that_change_are_published(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, most: int, places: int
) -> None:
    """Few are counted in this process, and more of them by Spark."""
    kept = made(spark, tmp_path, columns=["zip", "age"], where="true")
    del kept.rule["salt"]
    kept.sql("INSERT INTO {t} SELECT id, 1, '', CAST(id % 2 AS STRING), 1, NULL, '', false FROM range(600)")
    kept.run()
    monkeypatch.setattr(changing, "_remove", pytest.fail)
    monkeypatch.setattr(few, "MAX_ROWS", most)
    monkeypatch.setattr(few, "MAX_PLACES", places)
    kept.sql("DELETE FROM {t} WHERE age = 1 AND email = '' AND id < 30")
    kept.sql("UPDATE {t} SET zip = '2' WHERE zip = '1' AND email = '' AND id < 40")
    outcome = kept.run()
    assert (outcome.how, outcome.remark, outcome.changed_rows) == ("changed", "", 30 + 5 + 5)
    kept.assert_equal()


@pytest.mark.parametrize("and_later", [False, pytest.param(True, marks=NIGHTLY)])
def test_versions_with_other_rows_are_apart_by_a_given_time(first: Kept, and_later: bool) -> None:
    first.rule["publishEverySeconds"] = 3600
    first.sql("DELETE FROM {t} WHERE id < 50")
    outcome = first.run()
    assert (outcome.outcome, outcome.version, outcome.source_version) == ("postponed", 0, 1)
    assert "publishEverySeconds" in str(outcome)
    if and_later:
        assert first.run(later_hours=1).how == "changed"
        first.assert_equal()


@pytest.mark.parametrize("has_more", [False, pytest.param(True, marks=NIGHTLY)])
def test_no_version_with_a_small_group_is_published(kept: Kept, has_more: bool) -> None:
    """In changes by deletions, at night also by insertions, and in a first write."""
    kept.rule["minimumGroup"] = {"columns": ["area", "month"], "rows": 4}
    commits: dict[Path, bytes] = {}
    files: dict[Path, bytes] = {}

    def content(pattern: str) -> dict[Path, bytes]:
        return {path: path.read_bytes() for path in Path(kept.target.root).glob(pattern)}

    def run_and_compare() -> bool:
        nonlocal commits, files
        expected = kept.expected().collect()
        sizes = Counter((row["area"], row["month"]) for row in expected)
        groups = sum(rows < 4 for rows in sizes.values())
        if not groups:
            kept.run()
            kept.assert_equal(expected)
            commits, files = content("_delta_log/*.json"), content("**/*.parquet")
            return True
        with pytest.raises(NotKept, match=f"^{groups} combinations of area, month have fewer than 4 rows"):
            kept.run()
        # What is served are the same rows: those of the same files.
        assert content("_delta_log/*.json") == commits
        assert content("**/*.parquet").items() >= files.items()
        return False

    if has_more:
        # Half of the areas have a month of few rows.
        assert not run_and_compare()
    kept.sql("UPDATE {t} SET at = NULL, zip = CAST(id % 3 AS STRING)")
    assert run_and_compare()
    for count, is_kept in ((1, False), (3, True)) if has_more else ():
        kept.sql(f"INSERT INTO {{t}} SELECT id, 1, 'a', 'new', 7, NULL, 'de', false FROM range({count})")
        assert run_and_compare() is is_kept
    kept.sql("DELETE FROM {t} WHERE zip = '1' AND id > 9")
    assert not run_and_compare()


def test_both_zeros_and_all_nans_are_groups_as_recipients_see_them(spark: Any) -> None:
    """Recipients find a row of -0.0 among those of 0.0, which Spark takes for one value."""
    job: Any = Job.__new__(Job)
    job.target = SimpleNamespace(projection=SimpleNamespace(minimum_group=MinimumGroup(("x",), 2)))
    values = {"n": "(0.0D), (0.0D), (double('NaN')), (double('NaN')), (NULL), (NULL)"}
    job._work = SimpleNamespace(table=lambda _version: spark.sql(f"SELECT x FROM VALUES {values['n']} t(x)"))
    job._check_groups(0)
    values["n"] += ", (-0.0D)"
    with pytest.raises(NotKept, match=r"^1 combinations of x have fewer than 2 rows"):
        job._check_groups(0)


@NIGHTLY
def test_settings_of_a_session_change_no_projection(spark: Any, tmp_path: Path) -> None:
    kept = made(spark, tmp_path, columns=RULE["columns"][2:4], partitionBy=["area"])
    kept.spark.conf.set("spark.sql.sources.partitionOverwriteMode", "dynamic")
    kept.spark.conf.set("spark.databricks.delta.properties.defaults.enableInCommitTimestamps", "true")
    kept.run()
    first = Path(kept.target.root, "_delta_log", f"{0:020}.json").read_text()
    assert '"inCommitTimestamp"' not in first
    kept.sql("CREATE OR REPLACE TABLE {t} USING delta AS SELECT * FROM {t} WHERE zip NOT LIKE '1%'")
    kept.sql("ALTER TABLE {t} ALTER COLUMN zip COMMENT 'changed'")
    assert kept.run().how == "whole"
    kept.assert_equal()


# By day the refusal is tested without Spark, and that such a setting makes another evaluation, too.
@NIGHTLY
def test_versions_of_two_evaluations_are_never_mixed(first: Kept) -> None:
    before = digest(first.served())
    first.sql("DELETE FROM {t} WHERE id < 50")
    first.spark.conf.set("spark.sql.legacy.timeParserPolicy", "LEGACY")
    with pytest.raises(NotKept, match=r"timeParserPolicy is another.*--whole"):
        first.run()
    assert digest(first.served()) == before
    outcome = first.run(replace(NO_MAINTENANCE, whole=True))
    assert (outcome.how, "timeParserPolicy" in outcome.remark) == ("whole", True)
    first.assert_equal()
    first.sql("DELETE FROM {t} WHERE id < 60")
    assert first.run().how == "changed"
    # A version that is proved again is written by the evaluation of the run, too.
    first.spark.conf.unset("spark.sql.legacy.timeParserPolicy")
    assert first.run(replace(NO_MAINTENANCE, whole=True)).how == "whole"
    first.assert_equal()


@NIGHTLY
def test_many_small_files_of_a_source_are_read_once(kept: Kept, monkeypatch: pytest.MonkeyPatch) -> None:
    ordered = writing.in_own_order

    def after_a_reading(rows: Any, *rest: Any) -> Any:
        for file in Path(kept.source).glob("*.parquet"):
            file.rename(file.with_suffix(".away"))
        return ordered(rows, *rest)

    monkeypatch.setattr(writing, "_MANY_FILES", 1)
    monkeypatch.setattr(writing, "in_own_order", after_a_reading)
    assert kept.run().how == "whole"
    for file in Path(kept.source).glob("*.away"):
        file.rename(file.with_suffix(".parquet"))
    kept.assert_equal()
    assert not kept.spark._jsparkSession.sharedState().cacheManager().numCachedEntries()


@NIGHTLY
@pytest.mark.parametrize("form", ["partitions", "together", "log alone"])
def test_the_bench_of_large_projections_publishes_every_file(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], form: str
) -> None:
    monkeypatch.syspath_prepend(str(tools.ROOT / "bench"))
    bench = importlib.import_module("large_projection")
    bench.write_source(tmp_path / "source", 12)
    measure = bench.publish if form == "log alone" else bench.run
    measure(spark, tmp_path, argparse.Namespace(files=12, together=form == "together"))
    steps = [json.loads(line)["step"] for line in capsys.readouterr().out.splitlines() if line[0] == "{"]
    assert steps[-1] == ("planned" if form == "log alone" else "cleaning, all")


def ages() -> str:
    names = [name.split()[0] for name in ROWS.split(", ")]
    return f"SELECT * FROM ({values(0, 20)}) AS t({', '.join(names)})"


@pytest.mark.parametrize("is_whole_wrong", [False, pytest.param(True, marks=NIGHTLY)])
def test_the_proof_decides_what_is_published(
    first: Kept, monkeypatch: pytest.MonkeyPatch, is_whole_wrong: bool
) -> None:
    before = digest(first.served())
    first.sql("DELETE FROM {t} WHERE id < 50")
    monkeypatch.setattr(Transaction, "remove", lambda *_: None)
    if is_whole_wrong:
        with monkeypatch.context() as dishonest:
            dishonest.setattr(Job, "_digest_of_work", lambda *_: before)
            with pytest.raises(NotProved):
                first.run()
            assert digest(first.served()) == before
    outcome = first.run()
    assert (outcome.how, "the applied changes did not give" in outcome.remark) == ("whole", True)
    first.assert_equal()


@NIGHTLY
def test_rows_that_another_writer_adds_to_the_work_table_are_not_published(
    first: Kept, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is faster than the publication: what it wrote has no proof."""
    publish = Job._publish

    def late(job: Job, *rest: Any) -> Any:
        first.served().limit(3).write.format("delta").mode("append").save(f"{first.target.root}/data")
        return publish(job, *rest)

    monkeypatch.setattr(Job, "_publish", late)
    first.sql("DELETE FROM {t} WHERE id > 190")
    assert first.run().how == "changed"
    first.assert_equal()


def test_a_published_version_that_differs_is_found_by_the_proof_of_all_rows(
    first: Kept, monkeypatch: pytest.MonkeyPatch
) -> None:
    honest, answers = Job._digest_of_work, [EMPTY]
    monkeypatch.setattr(Job, "_digest_of_work", lambda job, at: answers.pop() if answers else honest(job, at))
    whole = replace(NO_MAINTENANCE, whole=True)
    assert first.run(whole).remark == "rewritten: it differed from its source"
    first.assert_equal()


@contextmanager
def spark_log(spark: Any, file: Path) -> Iterator[Path]:
    """Write Spark's log to a file, too."""
    core = spark._jvm.org.apache.logging.log4j.core
    appender = core.appender.FileAppender.newBuilder().withFileName(str(file)).setName("test").build()
    appender.start()
    logger = spark._jvm.org.apache.logging.log4j.LogManager.getRootLogger()
    logger.addAppender(appender)
    try:
        yield file
    finally:
        logger.removeAppender(appender)
        appender.stop()


class TestPrivacy:
    def test_no_error_and_no_log_quotes_a_value(
        self, spark: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        kept = made(spark, tmp_path, where="CAST(email AS INT) > 3")
        with spark_log(spark, tmp_path / "log") as log:
            (outcome,) = keep(spark, [kept.target], NO_MAINTENANCE, parallel=1)
            assert outcome.error == "CAST_INVALID_INPUT"
            assert "user" not in str(outcome)
            assert "@example.com" not in "".join(capsys.readouterr())
            assert log.read_text() == ""
            with pytest.raises(PySparkException):
                kept.expected().collect()
            assert "@example.com" in log.read_text()

    def test_salts_and_what_the_source_says_of_its_columns_stay_there(self, kept: Kept) -> None:
        kept.sql("ALTER TABLE {t} ALTER COLUMN amount COMMENT 'a comment of the source'")
        kept.sql("ALTER TABLE {t} ADD COLUMN nested STRUCT<a: INT COMMENT 'another comment of the source'>")
        kept.sql("UPDATE {t} SET nested = named_struct('a', 1)")
        kept.rule["columns"] = [*kept.rule["columns"], "nested"]
        rows = projected(kept.spark.read.format("delta").load(kept.source), kept.projection)
        plan = rows._jdf.queryExecution().toString()
        assert "delta-gateway-salt-" not in plan
        assert b"delta-gateway-salt-".hex() not in plan.lower()
        assert "(redacted)" in plan
        kept.run()
        everything = "".join(
            path.read_text() for path in Path(kept.target.root).rglob("*.json") if path.is_file()
        )
        for secret in (SALT, "comment", "country", "hidden", "email", kept.source):
            assert secret not in everything.replace("_delta_log", "")
        # Recipients get the files as they are, with what their writer says of the columns.
        files = [path.read_bytes() for path in Path(kept.target.root).rglob("*.parquet")]
        assert files
        assert not any(b"comment of the source" in file for file in files)

    def test_an_impure_condition_is_refused(self, kept: Kept) -> None:
        kept.rule["where"] = "at < TIMESTAMP '12:30'"
        with pytest.raises(InvalidRule, match="give a date"):
            kept.run(replace(NO_MAINTENANCE, check=True))


def test_a_second_job_is_refused_at_once(kept: Kept) -> None:
    with locked(kept.spark, kept.target.root):
        with pytest.raises(Locked):
            kept.run()
        (outcome,) = keep(kept.spark, [kept.target], NO_MAINTENANCE, parallel=1)
    assert outcome.error == "another job is running on it"


class TestLockOfAnObjectStore:
    """By Hadoop's client of local files, which creates a file on the condition that it is not there."""

    @pytest.fixture
    def root(self, tmp_path: Path) -> str:
        return f"file://{tmp_path}"

    def test_one_holds_it_at_a_time(self, spark: Any, root: str) -> None:
        with locked(spark, root) as check:
            check()
            with pytest.raises(Locked, match="another job"), locked(spark, root):
                pass
            check()
        with locked(spark, root):
            pass

    def test_a_job_that_was_killed_holds_it_until_it_expires(self, spark: Any, root: str) -> None:
        lock = Directory(spark, root, spark._jsc.hadoopConfiguration())
        now_ms = int(time.time() * 1000)
        lock.create(LOCK_FILE, json.dumps({"holder": "killed", "untilMs": now_ms + HOUR_MS}))
        with pytest.raises(Locked, match="killed"), locked(spark, root):
            pass
        lock.remove(LOCK_FILE)
        lock.create(LOCK_FILE, json.dumps({"holder": "killed", "untilMs": now_ms - 1}))
        with locked(spark, root) as check:
            check()

    def test_a_holder_renews_it_and_finds_out_that_it_is_lost(self, spark: Any, root: str) -> None:
        lock = Directory(spark, root, spark._jsc.hadoopConfiguration())
        with locked(spark, root, lease_ms=2000) as check:
            # Files of a machine are no objects: one that is being written is there, and empty or unlike
            # its checksum.
            file = Path(urlsplit(root).path) / LOCK_FILE
            first = file.read_text()
            wait_until(lambda: file.read_text() not in (first, ""))
            check()
            lock.remove(LOCK_FILE)
            lock.create(LOCK_FILE, "another job's")
            wait_until(lambda: is_lost(check))
        assert lock.read(LOCK_FILE) == "another job's"

    def test_a_job_whose_lock_cannot_be_given_back_ends(self, spark: Any, root: str) -> None:
        lock_file = Path(urlsplit(root).path) / LOCK_FILE
        with locked(spark, root):
            lock_file.write_text("not what its checksum is of")
        assert lock_file.exists()


def test_a_file_is_created_once_in_parts(spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(objects, "_PART_BYTES", 3)
    directory = Directory(spark, str(tmp_path / "objects"), spark._jsc.hadoopConfiguration())
    content = tmp_path / "content"
    for text in ("", "abc", "abcdefgh"):
        content.write_text(text)
        directory.create(f"of {len(text)}", content)
        assert directory.read(f"of {len(text)}") == text
    # The same content is taken for a write whose answer was lost.
    directory.create("of 8", content)
    for other in ("abcdefgx", "abcdef", "abcdefghi"):
        content.write_text(other)
        with pytest.raises(Refused):
            directory.create("of 8", content)
    assert directory.read("of 8") == "abcdefgh"
    assert directory.read("none") is None


def is_lost(check: Callable[[], None]) -> bool:
    try:
        check()
    except Locked:
        return True
    return False


@pytest.mark.parametrize("and_again", [False, pytest.param(True, marks=NIGHTLY)])
def test_a_version_is_published_once(
    first: Kept, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, and_again: bool
) -> None:
    first.sql("DELETE FROM {t} WHERE id < 50")
    publish = TableLog.publish

    def late(log: TableLog, number: int, commit: Path) -> None:
        foreign = tmp_path / "commit.json"
        foreign.write_text(json.dumps({"commitInfo": {"operation": "of another writer"}}) + "\n")
        publish(log, number, foreign)
        publish(log, number, commit)

    monkeypatch.setattr(TableLog, "publish", late)
    (outcome,) = keep(first.spark, [first.target], NO_MAINTENANCE, parallel=1)
    assert outcome.error == "another writer was faster with version 1; the next run starts again"
    monkeypatch.undo()
    (outcome,) = keep(first.spark, [first.target], NO_MAINTENANCE, parallel=1)
    assert outcome.error is not None
    assert "remove the commits of that writer" in outcome.error
    if not and_again:
        return
    # Hadoop keeps a hidden file of checksums beside each commit.
    for file in Path(first.target.root, "_delta_log").glob(f"*{1:020}.*"):
        file.unlink()
    assert first.run().version == 1
    first.assert_equal()


def test_an_unchanged_projection_whose_rows_are_gone_fails(first: Kept) -> None:
    assert first.run().outcome == "unchanged"
    shutil.rmtree(Path(first.target.root, WORK_DIRECTORY))
    with pytest.raises(NotKept, match="move it away to begin again"):
        first.run()


def test_many_projections_of_one_source_are_kept_in_parallel(kept: Kept) -> None:
    projection = kept.projection
    targets = []
    for number in range(2):
        rule = replace(projection, where=f"id % 2 = {number}")
        targets.append(Target((f"s.d.{number}",), rule, kept.source, str(kept.file.parent / rule.name)))
    broken = replace(targets[0], source=str(kept.file.parent / "nothing"), root=str(kept.file.parent / "b"))
    outcomes = keep(kept.spark, [*targets, broken], NO_MAINTENANCE, parallel=3)
    roots = [*(target.root for target in targets), broken.root]
    *found, absent = published(kept.spark, roots, parallel=2)
    assert absent is None
    for target, outcome, one in zip(targets, outcomes, found, strict=False):
        assert one is not None
        assert (one.version, one.source_version, one.rows) == (0, outcome.source_version, outcome.rows)
        written = [
            Path(urlsplit(file).path)
            for file in kept.spark.read.format("delta").load(target.root).inputFiles()
        ]
        assert (one.files, one.bytes) == (len(written), sum(file.stat().st_size for file in written))
        assert abs((dt.datetime.now(dt.UTC) - one.proved_at).total_seconds()) < 600
    assert left_over(kept.spark, [*targets, broken]) == []
    assert left_over(kept.spark, [targets[0], broken]) == [targets[1].root]
    assert [outcome.how for outcome in outcomes[:2]] == ["whole"] * 2
    assert sum(outcome.rows for outcome in outcomes) == 200
    assert outcomes[2].error == "the source is not a Delta table"


def test_a_budget_leaves_the_latest_ones_for_the_next_run(first: Kept, tmp_path: Path) -> None:
    kept, rule = first, first.projection
    new, old = (Target((f"s.d.{name}",), rule, kept.source, str(tmp_path / name)) for name in ("new", "old"))
    broken = replace(old, source=str(tmp_path / "nothing"), root=str(tmp_path / "broken"))
    # Published before all of this test.
    shutil.copytree(kept.target.root, old.root)
    keep(kept.spark, [new], NO_MAINTENANCE, parallel=1)
    kept.sql("DELETE FROM {t} WHERE id < 50")
    targets = [new, broken, old]

    def hows(*seconds: float) -> list[str]:
        times = iter(seconds)
        budget = dt.timedelta(seconds=60)
        found = keep(
            kept.spark, targets, NO_MAINTENANCE, parallel=1, budget=budget, clock=lambda: next(times)
        )
        return [one.outcome for one in found]

    assert hows(0, 1, 2, 61) == ["postponed", "failed", "changed"]
    # A look finds out that there is nothing to do, also when the time is used up.
    assert hows(0, 61, 62, 63) == ["postponed", "postponed", "unchanged"]
    assert hows(0, 1, 2, 3) == ["changed", "failed", "unchanged"]
    # One that fails in each run goes to the back of the queue.
    kept.sql("DELETE FROM {t} WHERE id < 60")
    targets = [new, replace(old, source=broken.source)]
    assert hows(0, 1, 61) == ["postponed", "failed"]
    assert hows(0, 1, 61) == ["changed", "postponed"]


def test_the_command_writes_a_page_of_what_is_published(kept: Kept, tmp_path: Path) -> None:
    root, page = kept.target.root, tmp_path / "projections.html"
    metrics, cases = tmp_path / "projections.prom", tmp_path / "projections.xml"
    reports = ["--html", str(page), "--prometheus", str(metrics), "--junit", str(cases)]
    assert cli.main(["project", "-c", str(kept.file), "--budget-minutes", "5", *reports]) == 0
    assert 'delta_gateway_project_projections{outcome="whole"} 1.0' in metrics.read_text()
    assert 'name="t"' in cases.read_text()
    rows = kept.spark.read.format("delta").load(root).count()
    assert f"1 projections, {rows} rows: all are up to date. {rows} rows were changed." in page.read_text()
    kept.rule["where"] = "gone > 1"
    assert kept.target.root != root
    assert cli.main(["project", "-c", str(kept.file), "--html", str(page)]) == 1
    text = page.read_text()
    assert "1 of 1 projections failed" in text
    # The directory of the former rule.
    assert root in text


def test_empty_texts_in_a_partition_column_are_named(spark: Any, tmp_path: Path) -> None:
    kept = made(spark, tmp_path, where="id < 3", partitionBy=["area"])
    kept.sql("UPDATE {t} SET zip = '' WHERE id = 1")
    with pytest.raises(NotProved, match="empty texts, which Delta keeps as null"):
        kept.run()
    assert not list(Path(kept.target.root, "_delta_log").glob("*.json"))
