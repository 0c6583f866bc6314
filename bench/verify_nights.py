"""Measures a night of `verify` over many small tables.

    python bench/verify_nights.py --tables 60 --jars ~/.cache/delta-sharing-gateway/jars

Makes tables of a few hundred rows, shared with history: in turn plain, partitioned, with deletion vectors,
with change data, with mapped columns and nested. `delta-gateway serve` serves them in another process, and
one Spark session verifies all of them with the default options. Each must be equal, or the run fails.
Prints one JSON object: seconds of time and of CPU (of this process and all that it started: Java, the Python
workers and the server) of the first tables, of each later one, and of 1,000 tables at that rate.
"""

import argparse
import json
import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession
from spark_source import cpu_of_tree, serving

from gateway.spark.operations.generate import generate
from gateway.spark.session import delta_session
from gateway.spark.targets import Target
from gateway.spark.verify.results import TableResult, VerifyOptions
from gateway.spark.verify.tables import verify

KINDS = ("plain", "partitioned", "deletion_vectors", "changes", "mapped_by_name", "nested")
ROWS = 300
# These also compile Java's code and start the Python workers.
FIRST = 10


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--tables", type=int, default=60)
    parser.add_argument("--parallel", type=int, default=VerifyOptions.parallel)
    parser.add_argument("--jars", type=Path)
    arguments = parser.parse_args()
    if arguments.tables <= FIRST:
        parser.error(f"--tables is more than {FIRST}")
    spark = delta_session("nights bench", jars=arguments.jars)
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        names = list(make_tables(spark, place, arguments.tables))
        with serving(place, names) as profile:
            found = measure(spark, profile, place, names, arguments.parallel)
    print(json.dumps({"tables": arguments.tables, "cores": os.cpu_count(), **found}, indent=1))
    spark.stop()


def make_tables(spark: SparkSession, place: Path, count: int) -> Iterator[str]:
    """Generate a table of each kind, and copy them until there are enough."""
    generate(spark, str(place), rows=ROWS, only=KINDS)
    for number in range(count):
        kind = KINDS[number % len(KINDS)]
        name = kind if number < len(KINDS) else f"{kind}_{number}"
        if name != kind:
            shutil.copytree(place / kind, place / name)
        yield name


def measure(
    spark: SparkSession, profile: str, place: Path, names: list[str], parallel: int
) -> dict[str, Any]:
    """Verify the tables, and return the seconds. Raises AssertionError if a table is not equal."""
    marks = [(time.perf_counter(), cpu_of_tree())]

    def progress(_: TableResult) -> None:
        marks.append((time.perf_counter(), cpu_of_tree()))

    targets = [Target(f"s.d.{name}", str(place / name)) for name in names]
    results = verify(spark, profile, targets, VerifyOptions(parallel=parallel), progress)
    wrong = [result for result in results if result.outcome != "equal"]
    assert not wrong, wrong[:3]
    (start, cpu_at_start), (first, cpu_at_first), (end, cpu_at_end) = marks[0], marks[FIRST], marks[-1]
    later = len(names) - FIRST
    seconds, cpu = (end - first) / later, (cpu_at_end - cpu_at_first) / later
    return {
        "first_tables": FIRST,
        "first_seconds": round(first - start, 1),
        "first_cpu_seconds": round(cpu_at_first - cpu_at_start, 1),
        "seconds_per_later_table": round(seconds, 2),
        "cpu_seconds_per_later_table": round(cpu, 2),
        "cpu_minutes_of_1000": round((cpu_at_first - cpu_at_start + cpu * (1000 - FIRST)) / 60, 1),
        "seconds_by_check": seconds_by_check(results),
    }


def seconds_by_check(results: list[TableResult]) -> dict[str, float]:
    """Return the seconds of the checks by their kind, summed over the tables."""
    sums: dict[str, float] = {}
    for check in (check for result in results for check in result.checks):
        kind = check.name.split()[0]
        sums[kind] = sums.get(kind, 0.0) + check.seconds
    return {kind: round(seconds, 1) for kind, seconds in sums.items()}


if __name__ == "__main__":
    main()
