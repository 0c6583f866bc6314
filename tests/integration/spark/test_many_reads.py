"""Any use of a DataFrame gives the same rows as collecting it."""

import random
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession
from support.nightly import some_at_night
from support.plain_server import PlainServer
from support.spark_session import INTERPRETED, settings

from gateway.spark.source import read_where, register

SEED = 20261122
READS = 12
PUSHDOWN = "spark.sql.python.filterPushdown.enabled"
COLUMNS = ("part", "n", "word")
Row = tuple[Any, ...]


@dataclass(frozen=True)
class Condition:
    """A condition as SQL, and as a function of a collected row: None where SQL returns null."""

    sql: str
    holds: Callable[[Row], bool | None]

    def chosen(self, rows: list[Row]) -> list[Row]:
        return [row for row in rows if self.holds(row)]


@pytest.fixture(scope="module")
def table(spark: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Many small files with clustered values, so that pruning has an effect."""
    path = tmp_path_factory.mktemp("reads") / "t"
    rows = spark.range(35).selectExpr(
        "id", "CAST(id % 5 AS INT) part", "IF(id % 7 = 0, NULL, id div 3) n", "concat('w', id % 4) word"
    )
    rows.repartitionByRange(6, "id").write.format("delta").partitionBy("part").save(str(path))
    spark.sql(f"DELETE FROM delta.`{path}` WHERE id IN (3, 17)")
    return path


@pytest.fixture(scope="module")
def server(table: Path) -> Iterator[PlainServer]:
    serving = PlainServer({"t": table})
    yield serving
    serving.close()


FIXED, ADAPTIVE = "false", "true"
# By day adaptive plans, which take several times as long, have the test of every use alone.
BOTH = pytest.mark.parametrize("session", [FIXED, ADAPTIVE], indirect=True, ids=["fixed", "adaptive"])


@pytest.fixture(params=some_at_night([FIXED, ADAPTIVE]), ids=["fixed", "adaptive"])
def session(spark: Any, request: pytest.FixtureRequest) -> Iterator[Any]:
    """Sessions with adaptive execution off and plans interpreted, and with it on and plans compiled.

    Pushdown is on, as users may have set it.
    """
    register(spark)
    chosen = {"spark.sql.adaptive.enabled": request.param, PUSHDOWN: "true"}
    chosen |= INTERPRETED if request.param == FIXED else {}
    with settings(spark, chosen):
        yield spark


def load(spark: Any, server: PlainServer) -> Any:
    # One task for all files: the tests check which files are planned, not how tasks share them.
    reading = spark.read.format("delta-sharing").options(profile=server.profile, partitionBytes=1 << 30)
    return reading.load("s.d.t")


def draw_condition(chance: random.Random, rows: list[Row]) -> Condition:
    """A comparison with an existing value, or two comparisons."""
    if chance.random() < 0.3:
        one, other = draw_condition(chance, rows), draw_condition(chance, rows)
        if chance.random() < 0.5:
            return Condition(
                f"({one.sql}) OR ({other.sql})", lambda row: bool(one.holds(row) or other.holds(row))
            )
        return Condition(
            f"({one.sql}) AND ({other.sql})", lambda row: bool(one.holds(row) and other.holds(row))
        )
    place = chance.randrange(len(COLUMNS))
    name, value = COLUMNS[place], chance.choice(rows)[place + 1]
    if value is None:
        return Condition(f"{name} IS NULL", lambda row: row[place + 1] is None)
    text = repr(value)
    if chance.random() < 0.5:
        return Condition(f"{name} = {text}", lambda row: row[place + 1] == value)
    return Condition(f"{name} >= {text}", lambda row: row[place + 1] is not None and row[place + 1] >= value)


def read_one_way(chance: random.Random, shared: Any, rows: list[Row]) -> tuple[str, list[Row], list[Row]]:
    """Use the DataFrame in one way: its description, the rows found and the rows expected."""
    one, other = draw_condition(chance, rows), draw_condition(chance, rows)
    first, second = one.chosen(rows), other.chosen(rows)
    way = chance.choice(
        (
            "whole",
            "filter",
            "union",
            "three uses",
            "join",
            "semi join",
            "subquery",
            "except",
            "cached",
            "count",
        )
    )
    said = f"{way}: {one.sql}; {other.sql}"
    narrow, wide = shared.where(one.sql), shared.where(other.sql)
    if way == "whole":
        return said, collected(shared), rows
    if way == "filter":
        return said, collected(narrow), first
    if way == "union":
        return said, collected(narrow.union(wide)), first + second
    if way == "three uses":
        return said, collected(narrow.unionByName(shared).unionByName(wide)), first + rows + second
    if way == "join":
        found = narrow.alias("a").join(wide.alias("b"), "id").select("id", "a.part", "a.n", "b.word")
        ids = {row[0] for row in second}
        return said, collected(found), [row for row in first if row[0] in ids]
    if way == "semi join":
        ids = {row[0] for row in second}
        found = shared.join(wide, "id", "left_semi" if chance.random() < 0.5 else "left_anti")
        is_semi = "left_semi" if found.count() == len(ids) else "left_anti"
        expected = [row for row in rows if (row[0] in ids) == (is_semi == "left_semi")]
        return said, collected(found), expected
    if way == "subquery":
        shared.createOrReplaceTempView("shared_rows")
        inner = f"SELECT id FROM shared_rows WHERE {other.sql}"
        query = f"SELECT * FROM shared_rows WHERE ({one.sql}) AND id IN ({inner})"
        ids = {row[0] for row in second}
        return said, collected(shared.sparkSession.sql(query)), [row for row in first if row[0] in ids]
    if way == "except":
        gone = {row[0] for row in first}
        return said, collected(shared.exceptAll(narrow)), [row for row in rows if row[0] not in gone]
    if way == "cached":
        narrow.cache()
        try:
            return said, collected(narrow.union(wide)) + collected(shared), first + second + rows
        finally:
            narrow.unpersist()
    return said, [(narrow.count(),), (shared.count(),)], [(len(first),), (len(rows),)]


def collected(frame: Any) -> list[Row]:
    return [tuple(row) for row in frame.collect()]


@BOTH
def test_every_use_of_one_dataframe_sees_all_its_rows(session: Any, server: PlainServer) -> None:
    shared = load(session, server)
    rows = collected(shared)
    assert len(rows) == 33
    chance = random.Random(SEED)
    for _ in range(READS):
        said, found, expected = read_one_way(chance, shared, rows)
        assert Counter(found) == Counter(expected), said


def test_a_count_after_a_filtered_count_counts_all(session: Any, server: PlainServer) -> None:
    shared = load(session, server)
    assert shared.where("part = 0").count() == 7
    assert shared.count() == 33
    either = [row for row in collected(shared) if row[1] == 0 or (row[2] is not None and row[2] > 8)]
    assert shared.where("part = 0 OR n > 8").count() == len(either)


def test_no_hint_is_sent_without_an_option(session: Any, server: PlainServer) -> None:
    load(session, server).where("part = 0").count()
    bodies = [body for _, _, body in server.requests if body]
    assert not any({"predicateHints", "jsonPredicateHints"} & body.keys() for body in bodies)


@pytest.mark.parametrize("condition", some_at_night(["part = 1 OR n >= 4", "part = 0", "n IS NULL"]))
def test_a_condition_in_an_option_is_sent_and_applied_again_to_the_rows(
    session: Any, server: PlainServer, condition: str
) -> None:
    found = read_where(session, "s.d.t", condition, profile=server.profile)
    assert Counter(collected(found)) == Counter(collected(load(session, server).where(condition)))
    hints = [body.get("predicateHints") for _, _, body in server.requests if body]
    assert [condition] in hints


def test_a_condition_that_spark_reads_in_its_own_way_is_not_sent(session: Any, server: PlainServer) -> None:
    """A server takes the text of a variable for a value, and would leave out the rows of the variable's."""
    requested = len(server.requests)
    session.conf.set("my.part", "0")
    assert read_where(session, "s.d.t", "part = '${my.part}'", profile=server.profile).count() == 7
    # Spark gives the text back that was set.
    session.conf.set("spark.sql.parser.escapedStringLiterals", " TRUE")
    try:
        text = r"CAST(part AS STRING) <> '\\'"
        assert read_where(session, "s.d.t", text, profile=server.profile).count() == 33
    finally:
        session.conf.unset("spark.sql.parser.escapedStringLiterals")
    as_texts = {
        "spark.sql.ansi.enabled": "false",
        "spark.sql.legacy.typeCoercion.datetimeToString.enabled": "true",
    }
    before = {name: session.conf.get(name) for name in as_texts}
    try:
        for name, value in as_texts.items():
            session.conf.set(name, value)
        for quote in "'\"":
            text = f"timestamp_seconds(part) < {quote}1970-01-01T00:00:00Z{quote}"
            assert read_where(session, "s.d.t", text, profile=server.profile).count() > 0
    finally:
        for name, value in before.items():
            session.conf.set(name, value)
    assert not any("predicateHints" in body for _, _, body in server.requests[requested:] if body)


def test_a_condition_of_one_read_is_not_sent_with_the_next(session: Any, server: PlainServer) -> None:
    options = {"profile": server.profile}
    assert read_where(session, "s.d.t", "part = 0", **options).count() == 7
    assert options == {"profile": server.profile}
    requested = len(server.requests)
    assert session.read.format("delta-sharing").options(**options).load("s.d.t").count() == 33
    bodies = [body for _, _, body in server.requests[requested:] if body]
    assert bodies
    assert not any("predicateHints" in body for body in bodies)


def test_a_second_session_registers_the_format_too(spark: Any) -> None:
    for _ in range(2):
        register(spark)
        other = spark.newSession()
        register(other)
        with pytest.raises(AnalysisException, match="profile"):
            other.read.format("delta-sharing").load("s.d.t")
    active = SparkSession.getActiveSession()
    assert active is not None
    assert active._jsparkSession.equals(spark._jsparkSession)
