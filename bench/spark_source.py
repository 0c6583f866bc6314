"""Measures the Spark source against delta-spark's own reading of the same tables, in one session.

    python bench/spark_source.py --jars ~/.cache/delta-sharing-gateway/jars

Makes three tables, serves them by `delta-gateway serve` in another process, and reads each in interleaved
rounds, shared and direct: a million rows of six columns as a whole, one column of it, its number of rows,
three columns of fifty, and a tenth as many shredded variants. Each pair has the same digest, or the run
fails. Prints one JSON object: seconds of time and of CPU (of this process and all that it started: Java, the
Python workers and the server), and the median of the rounds' ratios. The first round is not counted: it
starts Python workers and compiles.
"""

import argparse
import hashlib
import json
import os
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
from pyspark.sql import SparkSession
from pyspark.sql import functions as f
from servers import COMMAND, ENVIRONMENT, Server

from gateway.spark.session import delta_session
from gateway.spark.source import FORMAT, count_rows, register
from gateway.spark.verify.digest import digest

TOKEN = "a-token-of-the-bench"
COLUMNS = [
    "id",
    "cast(id % 1000 as int) quantity",
    "concat('order ', id) note",
    "id * 0.25D price",
    "date_add(date'2020-01-01', cast(id % 1000 as int)) day",
    "timestamp_micros(id * 1000003) at",
]
WIDE_COLUMNS = 50
READ_OF_WIDE = ("c3", "c10", "c21")
VARIANTS_PART = 10
VARIANT = """parse_json(concat('{"a":', id, ',"b":"text ', id, '","c":{"x":', id * 0.5, ',"y":[1,2,', id % 7,
    ']},"t":true', if(id % 3 = 0, concat(',"extra":', id), ''), '}')) v"""
SHREDDING = ("spark.sql.variant.writeShredding.enabled", "spark.sql.variant.inferShreddingSchema")
FILES = 8


@dataclass(frozen=True)
class Pair:
    """One question, answered from the share and from the table."""

    name: str
    shared: Callable[[], Any]
    direct: Callable[[], Any]


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--jars", type=Path)
    arguments = parser.parse_args()
    spark = delta_session("source bench", jars=arguments.jars)
    register(spark)
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        write_tables(spark, place, arguments.rows)
        with serving(place, ("rows", "wide", "variants")) as profile:
            found = [measure(pair, arguments.rounds) for pair in pairs(spark, place, profile)]
    print(json.dumps({"rows": arguments.rows, "cores": os.cpu_count(), "reads": found}, indent=1))


def write_tables(spark: SparkSession, place: Path, rows: int) -> None:
    """Write the tables `rows`, `wide` and `variants`."""
    spark.range(0, rows, 1, FILES).selectExpr(*COLUMNS).write.format("delta").save(str(place / "rows"))
    wide = [
        f"id * {index} c{index}" if index % 2 else f"concat('v{index}-', id % 1000) c{index}"
        for index in range(WIDE_COLUMNS)
    ]
    spark.range(0, rows, 1, FILES).selectExpr(*wide).write.format("delta").save(str(place / "wide"))
    for name in SHREDDING:
        spark.conf.set(name, "true")
    variants = spark.range(0, rows // VARIANTS_PART, 1, FILES).selectExpr("id", VARIANT)
    shredded = variants.write.format("delta").option("delta.enableVariantShredding", "true")
    shredded.save(str(place / "variants"))


@contextmanager
def serving(place: Path, names: Sequence[str]) -> Iterator[str]:
    """Serve tables of a directory as `s.d.NAME` until the block ends; yields the profile."""
    tables = [{"name": name, "location": f"file://{place / name}", "historyShared": True} for name in names]
    recipient = {"name": "bench", "tokens": [{"sha256": hashlib.sha256(TOKEN.encode()).hexdigest()}]}
    file = place / "bench.yaml"

    def command(port: int) -> list[str]:
        config = {
            "version": 1,
            "host": "127.0.0.1",
            "port": port,
            "shares": [{"name": "s", "schemas": [{"name": "d", "tables": tables}]}],
            "gateway": {"recipients": [{**recipient, "shares": ["s"]}]},
        }
        file.write_text(json.dumps(config))
        return [*COMMAND, "serve", "-c", str(file)]

    # One worker: this process's own is not the subject.
    with Server(command, ENVIRONMENT) as server:
        endpoint = f"http://127.0.0.1:{server.port}/delta-sharing"
        yield json.dumps({"shareCredentialsVersion": 1, "endpoint": endpoint, "bearerToken": TOKEN})


def pairs(spark: SparkSession, place: Path, profile: str) -> list[Pair]:
    def shared(table: str, **options: str) -> Any:
        return spark.read.format(FORMAT).options(profile=profile, **options).load(f"s.d.{table}")

    def direct(table: str) -> Any:
        return spark.read.format("delta").load(str(place / table))

    def total(frame: Any) -> Any:
        return frame.agg(f.sum("quantity")).collect()

    three = ",".join(READ_OF_WIDE)
    return [
        Pair("6 columns, digest", lambda: digest(shared("rows")), lambda: digest(direct("rows"))),
        Pair(
            "3 of 50 columns, digest",
            lambda: digest(shared("wide", columns=three)),
            lambda: digest(direct("wide").select(*READ_OF_WIDE)),
        ),
        Pair(
            "1 of 6 columns, sum",
            lambda: total(shared("rows", columns="quantity")),
            lambda: total(direct("rows")),
        ),
        Pair(
            "shredded variants, digest",
            lambda: digest(shared("variants")),
            lambda: digest(direct("variants")),
        ),
        Pair("count_rows", lambda: count_rows(spark, "s.d.rows", profile=profile), direct("rows").count),
        Pair("count() of all columns", lambda: shared("rows").count(), lambda: direct("rows").count()),
    ]


def measure(pair: Pair, rounds: int) -> dict[str, Any]:
    """Answer one question by turns. Raises AssertionError when the answers differ."""
    taken: list[tuple[tuple[float, float], tuple[float, float]]] = []
    for _ in range(rounds + 1):
        one, of_share = timed(pair.shared)
        other, of_table = timed(pair.direct)
        assert one == other, (pair.name, str(one), str(other))
        taken.append((of_share, of_table))
    counted = taken[1:]
    return {
        "read": pair.name,
        "answer": str(one),
        "shared_seconds": round(statistics.median(shared[0] for shared, _ in counted), 3),
        "direct_seconds": round(statistics.median(direct[0] for _, direct in counted), 3),
        "ratio": round(statistics.median(shared[0] / direct[0] for shared, direct in counted), 2),
        "shared_cpu_seconds": round(statistics.median(shared[1] for shared, _ in counted), 3),
        "direct_cpu_seconds": round(statistics.median(direct[1] for _, direct in counted), 3),
        "cpu_ratio": round(statistics.median(shared[1] / direct[1] for shared, direct in counted), 2),
    }


def timed(work: Callable[[], Any]) -> tuple[Any, tuple[float, float]]:
    """Return the answer of some work, and its seconds of time and CPU."""
    started, cpu_before = time.perf_counter(), cpu_of_tree()
    answer = work()
    return answer, (time.perf_counter() - started, cpu_of_tree() - cpu_before)


def cpu_of_tree() -> float:
    """Return the seconds of CPU of this process and its descendants, ended ones that were waited for too."""
    mine, spent = psutil.Process(), 0.0
    for process in (mine, *mine.children(recursive=True)):
        with suppress(psutil.NoSuchProcess):
            times = process.cpu_times()
            spent += times.user + times.system + times.children_user + times.children_system
    return spent


if __name__ == "__main__":
    main()
