"""Digests are equal for equal rows only."""

import datetime as dt
import importlib
from collections.abc import Callable, Iterator
from decimal import Decimal
from typing import Any

import pytest
import tools
from pyspark.sql import functions as f
from support.spark_session import FEW_ROWS, settings

from gateway.spark.verify.digest import EMPTY, Digest, digest, digest_by, digests

NAN = float("nan")


@pytest.fixture
def interpreted(spark: Any) -> Iterator[None]:
    """Tests of single types: the others, of rows of several, are compiled as those of large tables are."""
    with settings(spark, FEW_ROWS):
        yield


def of(spark: Any, rows: list[Any], schema: str) -> Digest:
    return digest(spark.createDataFrame(rows, schema))


DIFFERENT = {
    "null and zero": ("a int", [(None,)], [(0,)]),
    "null and an empty string": ("a string", [(None,)], [("",)]),
    "a null on the left and on the right": ("a string, b string", [(None, "x")], [("x", None)]),
    "a missing struct and a struct of nulls": ("a struct<b: int>", [(None,)], [((None,),)]),
    "an empty and a missing array": ("a array<int>", [([],)], [(None,)]),
    "an empty array and one of a null": ("a array<int>", [([],)], [([None],)]),
    "a null first and last in an array": ("a array<int>", [([None, 1],)], [([1, None],)]),
    "where one array ends and the next begins": (
        "a array<int>, b array<int>",
        [([1], [2])],
        [([1, 2], [])],
    ),
    "nested arrays": ("a array<array<int>>", [([[1], [2]],)], [([[1, 2]],)]),
    "where one string ends and the next begins": ("a string, b string", [("ab", "c")], [("a", "bc")]),
    "a missing key and a key without a value": ("a map<string, int>", [({},)], [({"k": None},)]),
    "a key and its value exchanged": ("a map<string, string>", [({"k": "v"},)], [({"v": "k"},)]),
    "zero and negative zero": ("a double", [(0.0,)], [(-0.0,)]),
    "zero and negative zero, float": ("a float", [(0.0,)], [(-0.0,)]),
    "zero and negative zero in an array": ("a array<double>", [([0.0],)], [([-0.0],)]),
    "NaN and null": ("a double", [(NAN,)], [(None,)]),
    "decimals of 38 digits": (
        "a decimal(38, 2)",
        [(Decimal("123456789012345678901234567890123456.78"),)],
        [(Decimal("123456789012345678901234567890123456.79"),)],
    ),
    "a row and the same row twice": ("a int", [(1,)], [(1,), (1,)]),
    "a row once and three times": ("a int", [(1,)], [(1,), (1,), (1,)]),
    "two of one and two of another": ("a int", [(1,), (1,)], [(2,), (2,)]),
    "timestamps a microsecond apart": (
        "a timestamp",
        [(dt.datetime.fromisoformat("2024-01-01T00:00:00.000001"),)],
        [(dt.datetime.fromisoformat("2024-01-01T00:00:00.000002"),)],
    ),
    "values exchanged between two rows": (
        "a int, b int",
        [(1, 10), (2, 20)],
        [(1, 20), (2, 10)],
    ),
}


@pytest.mark.parametrize("case", DIFFERENT)
@pytest.mark.usefixtures("interpreted")
def test_different_rows_have_different_digests(spark: Any, case: str) -> None:
    schema, *sides = DIFFERENT[case]
    left, right = digests([spark.createDataFrame(rows, schema) for rows in sides])
    assert left != right


def test_more_null_flags_than_one_word_holds_are_apart(spark: Any) -> None:
    """Of the last two columns the second word of flags alone tells which one is null."""
    schema = ", ".join(f"c{i} int" for i in range(70))
    rows = [[None if column == place else 0 for column in range(70)] for place in (0, 68, 69)]
    found = digests([spark.createDataFrame([row], schema) for row in rows])
    assert len(set(found)) == 3


def test_all_nans_are_equal(spark: Any) -> None:
    quiet = spark.sql("select double('NaN') a")
    computed = spark.sql("select sqrt(double(-1)) * -1 a")
    assert digest(quiet) == digest(computed)


def test_maps_are_equal_in_any_order_of_entries(spark: Any) -> None:
    one = spark.sql("select map('a', 1, 'b', null, 'c', 3) m")
    other = spark.sql("select map('c', 3, 'a', 1, 'b', null) m")
    assert digest(one) == digest(other)


def test_variants_of_the_same_text_but_different_types_differ(spark: Any) -> None:
    number = spark.sql("select parse_json('1') v")
    text = spark.sql("select parse_json('\"1\"') v")
    assert digest(number) != digest(text)


def test_variants_with_arrays_of_the_same_texts_but_other_types_differ(spark: Any) -> None:
    """Spark's schema of such an array is one type for all of its elements."""
    date, text = "DATE '2024-01-01'::VARIANT", "'2024-01-01'::VARIANT"

    def rows(first: str, second: str) -> Any:
        array = f"CAST(array({first}, {second}) AS VARIANT)"
        return spark.sql(f"SELECT to_variant_object(named_struct('a', array({array}))) AS v")

    assert digest(rows(date, text)) == digest(rows(date, text))
    assert digest(rows(date, text)) != digest(rows(text, date))
    assert (
        rows(date, text).selectExpr("to_json(v)").first() == rows(text, date).selectExpr("to_json(v)").first()
    )


def test_order_and_partitioning_do_not_matter(spark: Any) -> None:
    rows = spark.range(1000).selectExpr("id % 97 a", "concat('x', id) b")
    assert digest(rows) == digest(rows.orderBy(f.desc("b")).repartition(5))


def test_the_digests_of_groups_add_up_to_that_of_all_rows(spark: Any) -> None:
    rows = spark.range(1000).selectExpr("id % 7 as `the key`", "id * 0.1 as b")
    groups = digest_by(rows, [f.col("`the key`")]).collect()
    assert len(groups) == 7
    assert sum(map(Digest.of, groups), EMPTY) == digest(rows)


def test_a_table_without_rows_has_the_empty_digest(spark: Any) -> None:
    assert digest(spark.range(0)) == EMPTY


@pytest.mark.parametrize("in_one_task", [False, True])
def test_one_job_digests_several_frames_and_parts_of_the_first(spark: Any, in_one_task: bool) -> None:
    frame = spark.range(20).selectExpr("if(id % 7 = 0, null, id) as a", "concat('x', id % 3) as _Number")
    other = frame.select("_Number", "a").where("a > 3")
    parts = [f.col("a") < 5, f.col("a").isNull(), f.col("a") > 99]
    found = digests([frame, other, frame.limit(0)], parts, in_one_task=in_one_task)
    expected = [frame, other, None, *(frame.where(part) for part in parts)]
    # Columns are found by name: `other` has them in another order.
    assert found == [EMPTY if one is None else digest(one.select("a", "_Number")) for one in expected]
    assert [one.rows for one in found] == [20, 14, 0, 4, 3, 0]


@pytest.mark.nightly
def test_is_much_faster_than_hashing_json(spark: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """A small form of the measurement in the performance page, with a margin for noise."""
    monkeypatch.syspath_prepend(str(tools.ROOT / "bench"))
    bench = importlib.import_module("digest")
    few, many = (spark.range(count).selectExpr(*bench.COLUMNS) for count in (1000, 500_000))

    def seconds(made: Callable[[Any], Any], rows: Any) -> float:
        """The shorter of two runs: the first one compiles."""
        return min(bench.seconds(lambda: made(rows)) for _ in range(2))

    # Planning and compiling cost as much for few rows: the difference leaves them out.
    ours, theirs = (seconds(made, many) - seconds(made, few) for made in (digest, bench.json_digest))
    assert ours * 3 < theirs, (ours, theirs)
