"""Predicates on tables of Spark: the files that the gateway keeps contain every row that Spark finds."""

import json
import random
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pytest
from pyspark.sql import functions as f
from pyspark.sql import types as t
from support.gateway_process import RunningGateway, running_gateway, share
from support.spark_session import settings
from tables.golden import EVERY_FEATURE

from gateway.spark.read.options import ReadOptions
from gateway.spark.read.planning import plan_snapshot
from gateway.spark.read.reading import read_partition
from gateway.spark.source import register

pytestmark = pytest.mark.usefixtures("few_rows")

PREDICATES = 100
SEED = 20261121
ROWS = 3000

# Many small files with clustered values, as in time-ordered data, so that pruning has an effect.
COLUMNS = [
    "id",
    "date_add(date'2024-02-27', cast(id div 500 as int)) day",
    "element_at(array('eu', 'us', 'it''s / é', ''), cast(id div 250 % 4 as int) + 1) region",
    "id * 7 - 5000 amount",
    "if(id % 11 = 0, null, cast(id as double) / 4) price",
    "if(id % 97 = 0, float('NaN'), float(id % 1000 / 8)) ratio",
    "cast(id * 0.37 as decimal(12, 2)) cost",
    "concat('a common beginning of more than thirty-two letters ', lpad(id, 6, '0')) name",
    "timestamp_micros(1709000000000000 + id * 86399999) at",
    "timestamp_ntz'2024-02-28 23:59:59.999' + make_dt_interval(0, 0, 0, id) local",
    "id div 1000 % 2 = 0 open",
    "if(id < 1000, null, named_struct('zone', int(id div 100), 'code', concat('c', id div 300))) place",
]
# Spark hands the settings of a session to Parquet's writer.
SMALL_ROW_GROUPS = {"parquet.block.size": "1024", "parquet.page.size.row.check.min": "100"}
PARTITIONS = ["day", "region"]
LEAVES = {
    "id": "BIGINT",
    "day": "DATE",
    "region": "STRING",
    "amount": "BIGINT",
    "price": "DOUBLE",
    "ratio": "FLOAT",
    "cost": "DECIMAL(12, 2)",
    "name": "STRING",
    "at": "TIMESTAMP",
    "local": "TIMESTAMP_NTZ",
    "open": "BOOLEAN",
    "place.zone": "INT",
    "place.code": "STRING",
}
JSON_TYPES = {
    "BIGINT": "long",
    "INT": "int",
    "DATE": "date",
    "STRING": "string",
    "DOUBLE": "double",
    "FLOAT": "float",
    "BOOLEAN": "bool",
    "TIMESTAMP": "timestamp",
}
JSON_OPERATORS = {
    "=": "equal",
    "<": "lessThan",
    "<=": "lessThanOrEqual",
    ">": "greaterThan",
    ">=": "greaterThanOrEqual",
}


@dataclass(frozen=True)
class Written:
    """The table, with and without column mapping and deletion vectors, behind a gateway."""

    gateway: RunningGateway
    locations: dict[str, Path]


FORMS = ("plain", "mapped", "grouped", "mapped_groups")
"""With column mapping and deletion vectors or without, of many files or of one that has row groups."""


def by_night(name: str, other: str) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("table", [name, pytest.param(other, marks=pytest.mark.nightly)])


@pytest.fixture(scope="module")
def written(
    spark: Any, tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest
) -> Iterator[Written]:
    """The forms that the tests of this run name."""
    tests = [item for item in request.session.items if item.path == request.path]
    chosen = {item.callspec.params["table"] for item in tests if hasattr(item, "callspec")}
    directory = tmp_path_factory.mktemp("pruning")
    locations = {name: directory / name for name in FORMS if name in chosen}
    rows = spark.range(ROWS).selectExpr(*COLUMNS)
    for name, location in locations.items():
        has_groups, is_mapped = "group" in name, "mapped" in name
        if has_groups:
            writing = rows.coalesce(1).sortWithinPartitions("id").write.format("delta")
        else:
            writing = rows.repartitionByRange(12, "id").write.format("delta").partitionBy(*PARTITIONS)
        mapping = {"delta.columnMapping.mode": "name"} if is_mapped else {}
        vectors = str(is_mapped or has_groups).lower()
        with settings(spark, SMALL_ROW_GROUPS if has_groups else {}):
            writing.options(**mapping, **{"delta.enableDeletionVectors": vectors}).save(str(location))
        last = 1430 if has_groups else 1230
        spark.sql(f"DELETE FROM delta.`{location}` WHERE id % 13 = 5 OR id BETWEEN 1200 AND {last}")
    with running_gateway(directory, [share("written", {k: str(v) for k, v in locations.items()})]) as gateway:
        yield Written(gateway, locations)


@by_night("mapped", "plain")
def test_kept_files_contain_every_row_of_the_direct_query(spark: Any, written: Written, table: str) -> None:
    register(spark)
    reading = spark.read.format("delta-sharing").options(
        profile=str(written.gateway.profile), withFileName="true"
    )
    shared = reading.load(f"written.default.{table}")
    direct = spark.read.format("delta").load(str(written.locations[table]))
    drawn = draw_predicates(direct)
    columns = [f.expr(sql).alias(f"p{index}") for index, (sql, _) in enumerate(drawn)]
    found = direct.select("id", *columns).collect()
    by_file = defaultdict(list)
    for row in shared.select("_file_name", "id", *columns).collect():
        by_file[row["_file_name"]].append(row)
    requested, dropped = 0, 0
    for index, (sql, tree) in enumerate(drawn):
        expected = sorted(row["id"] for row in found if row[f"p{index}"])
        for hints in ({"predicateHints": [sql]}, {"jsonPredicateHints": tree}):
            if None in hints.values():
                continue
            kept = kept_files(written.gateway, table, hints)
            filtered = sorted(row["id"] for name in kept for row in by_file[name] if row[f"p{index}"])
            assert filtered == expected, (sql, hints)
            requested += 1
            dropped += len(by_file) - len(kept)
    assert len(drawn) == PREDICATES
    # Pruning that keeps every file would be correct too.
    assert dropped > 0.25 * requested * len(by_file)


@by_night("mapped_groups", "grouped")
def test_read_row_groups_contain_every_row_of_the_direct_query(
    spark: Any, written: Written, table: str
) -> None:
    direct = spark.read.format("delta").load(str(written.locations[table]))
    drawn = draw_predicates(direct)
    columns = [f.expr(sql).alias(f"p{index}") for index, (sql, _) in enumerate(drawn)]
    found = direct.select("id", *columns).collect()
    ids = {row["id"] for row in found}
    given = {"profile": str(written.gateway.profile), "path": f"written.default.{table}", "columns": "id"}
    head = ReadOptions.parse(given).client().head()
    schema = t.StructType([t.StructField("id", t.LongType())])
    requested, read = 0, 0
    for index, (sql, tree) in enumerate(drawn):
        expected = {row["id"] for row in found if row[f"p{index}"]}
        for hint in (sql, tree):
            if hint is None:
                continue
            options = ReadOptions.parse({**given, "predicateHints": hint})
            partitions = plan_snapshot(options, head)
            batches = [
                batch for one in partitions for batch in read_partition(one, schema, head, options.hints())
            ]
            answer = [row["id"] for batch in batches for row in batch.to_pylist()]
            assert len(answer) == len({*answer}), hint
            assert expected <= {*answer} <= ids, hint
            requested += len(ids)
            read += len(answer)
    # The table has one file, which the gateway seldom leaves out.
    assert read < 0.75 * requested


def kept_files(gateway: RunningGateway, table: str, hints: dict[str, Any]) -> list[str]:
    """Names of the files in the answer. Fails unless the gateway applied every hint."""
    answer = gateway.query(f"written.default.{table}", hints, EVERY_FEATURE)
    assert answer.status == 200, answer.body
    assert answer.headers["delta-sharing-hint-status"] == "ok", (hints, answer.headers)
    urls = [line["file"]["deltaSingleAction"]["add"]["path"] for line in answer.lines[2:]]
    return [unquote(url.partition("?")[0].rpartition("/")[2]) for url in urls]


def draw_predicates(table: Any) -> list[tuple[str, str | None]]:
    """Conditions with values of the table, as SQL and, where the protocol can express them, as JSON."""
    texts = [f.col(name).cast("string").alias(name) for name in LEAVES]
    samples = table.where("id % 5 = 0").select(*texts).collect()
    chance = random.Random(SEED)
    drawn = []
    for _ in range(PREDICATES):
        sql, tree = draw(chance, samples, chance.choice((0, 0, 1, 2)))
        drawn.append((sql, None if tree is None else json.dumps(tree)))
    return drawn


def draw(chance: random.Random, samples: list[Any], depth: int) -> tuple[str, Any]:
    if depth == 0:
        return draw_leaf(chance, samples)
    word = chance.choice(("AND", "AND", "OR", "NOT"))
    sides = [draw(chance, samples, depth - 1) for _ in range(1 if word == "NOT" else 2)]
    trees = [tree for _, tree in sides]
    tree = None if None in trees else {"op": word.lower(), "children": trees}
    texts = [f"({sql})" for sql, _ in sides]
    return (f"NOT {texts[0]}" if word == "NOT" else f" {word} ".join(texts)), tree


def draw_leaf(chance: random.Random, samples: list[Any]) -> tuple[str, Any]:
    name = chance.choice(list(LEAVES))
    values = [row[name] for row in samples if row[name] is not None]
    kind = chance.choice(("compare", "compare", "compare", "null", "in", "between", "prefix"))
    column = {"op": "column", "name": name, "valueType": JSON_TYPES.get(LEAVES[name])}
    if kind == "null":
        negated = chance.random() < 0.5
        tree = {"op": "isNull", "children": [column]}
        tree = {"op": "not", "children": [tree]} if negated else tree
        return f"{name} IS {'NOT ' if negated else ''}NULL", tree if column["valueType"] else None
    if kind == "in":
        chosen = chance.sample(values, 3)
        trees = [json_compare(column, "=", value) for value in chosen]
        tree = None if None in trees else {"op": "or", "children": trees}
        return f"{name} IN ({', '.join(literal(name, value) for value in chosen)})", tree
    if kind == "between":
        first, last = sorted(chance.sample(values, 2))
        return f"{name} BETWEEN {literal(name, first)} AND {literal(name, last)}", None
    if kind == "prefix" and LEAVES[name] == "STRING":
        value = chance.choice(values)
        # Escaped as Spark does: a doubled quote has two meanings, so a LIKE with one prunes nothing.
        escaped = value[: max(1, len(value) - 2)].replace("'", "\\'")
        return f"{name} LIKE '{escaped}%'", None
    operator, value = chance.choice((*JSON_OPERATORS, "<>", "<=>")), chance.choice(values)
    if chance.random() < 0.2:
        turned = {"<": ">", "<=": ">=", ">": "<", ">=": "<="}.get(operator, operator)
        return f"{literal(name, value)} {operator} {name}", json_compare(column, turned, value)
    return f"{name} {operator} {literal(name, value)}", json_compare(column, operator, value)


def literal(name: str, value: str) -> str:
    """A constant as SQL that both Spark and hints accept."""
    kind = LEAVES[name]
    quoted = "'" + value.replace("'", "''") + "'"
    if kind in {"BIGINT", "INT"}:
        return value
    if kind == "BOOLEAN":
        return value.upper()
    if kind == "STRING":
        return quoted
    if kind == "TIMESTAMP":
        return f"CAST('{value}Z' AS TIMESTAMP)"
    return f"CAST({quoted} AS {kind})"


def json_compare(column: dict[str, Any], operator: str, value: str) -> Any:
    value_type = column["valueType"]
    if value_type is None or operator not in JSON_OPERATORS:
        return None
    text = value.replace(" ", "T") + "Z" if value_type == "timestamp" else value
    constant = {"op": "literal", "value": text, "valueType": value_type}
    return {"op": JSON_OPERATORS[operator], "children": [column, constant]}
