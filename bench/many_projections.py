"""Measures runs that keep many small projections.

    python bench/many_projections.py --tables 100 --jars ~/.cache/delta-sharing-gateway/jars

Makes tables of a few hundred rows, each the source of a projection, and keeps all of these in one Spark with
the settings of the command: written for the first time, without a change, after a change of a few rows that
are marked by deletion vectors, and after one that wrote a file anew. Prints one JSON object: for each run the
seconds of CPU (Java, Python and what they start) of the first projections and of each later one, and of time.
All projections are up to date after each run, and the rows of one are compared, or the bench fails.
"""

import argparse
import json
import os
import shutil
import tempfile
import time
from pathlib import Path
from typing import Any

from projection import RULE, SOURCE, check, declared
from pyspark.sql import SparkSession
from spark_source import cpu_of_tree

from gateway.spark.project.results import Options, Outcome, Target
from gateway.spark.project.run import LOCAL_SETTINGS, keep
from gateway.spark.session import delta_session

ROWS = 300
FIRST = 20
"""So many projections also make Java load and compile its code."""

RUNS = {
    "first": [],
    "unchanged": [],
    "few rows, deletion vectors": ["UPDATE {t} SET amount = amount + 1 WHERE id % 50 = 1"],
    "few rows, whole files": [
        "ALTER TABLE {t} SET TBLPROPERTIES (delta.enableDeletionVectors = false)",
        "UPDATE {t} SET amount = amount + 1 WHERE id % 50 = 2",
    ],
}
"""Runs by name, each after changes of all sources."""


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--tables", type=int, default=100)
    parser.add_argument("--parallel", type=int, default=4)
    parser.add_argument("--jars", type=Path)
    arguments = parser.parse_args()
    if arguments.tables <= FIRST:
        parser.error(f"--tables is more than {FIRST}")
    spark = delta_session("projections bench", jars=arguments.jars, local=LOCAL_SETTINGS)
    with tempfile.TemporaryDirectory() as folder:
        found = run(spark, Path(folder), arguments.tables, arguments.parallel)
    print(json.dumps({"tables": arguments.tables, "cores": os.cpu_count(), **found}, indent=1))
    spark.stop()


def run(spark: SparkSession, place: Path, tables: int, parallel: int) -> dict[str, Any]:
    """Make the sources and measure all runs."""
    source = place / "source"
    spark.sql(
        f"CREATE TABLE delta.`{source}` USING delta TBLPROPERTIES (delta.enableDeletionVectors = true) "
        f"AS SELECT {', '.join(SOURCE)} FROM range({ROWS})"
    )
    places = {
        str(place / "sources" / str(number)): str(place / "projections" / str(number))
        for number in range(tables)
    }
    targets = declared(place, places, RULE)
    found = {}
    for name, statements in RUNS.items():
        for statement in statements:
            spark.sql(statement.format(t=f"delta.`{source}`"))
        for target in targets:
            shutil.copytree(source, target.source, dirs_exist_ok=True)
        found[name] = measure(spark, targets, parallel)
        check(spark, targets[-1])
    return found


def measure(spark: SparkSession, targets: list[Target], parallel: int) -> dict[str, Any]:
    """Keep all projections once; return the figures. Raises AssertionError for one that failed."""
    started, begun = time.perf_counter(), cpu_of_tree()
    ends: list[float] = []

    def ended(outcome: Outcome) -> None:
        assert outcome.error is None, str(outcome)
        ends.append(cpu_of_tree())

    outcomes = keep(spark, targets, Options(optimize_hours=0, vacuum_hours=0), parallel=parallel, ended=ended)
    seconds = time.perf_counter() - started
    ends.sort()
    return {
        "how": sorted({one.how for one in outcomes}),
        "seconds": round(seconds, 1),
        f"cpu_seconds_of_the_first_{FIRST}": round(ends[FIRST - 1] - begun, 2),
        "cpu_seconds_of_each_later_one": round((ends[-1] - ends[FIRST - 1]) / (len(ends) - FIRST), 4),
    }


if __name__ == "__main__":
    main()
