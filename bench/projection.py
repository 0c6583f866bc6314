"""Measures how a projection is brought up to date after a small change of a large source.

    python bench/projection.py --jars ~/.cache/delta-sharing-gateway/jars

Writes a source of ten million rows and six columns, and its projection of five columns, of which one is a
hash. Then changes 1,000 rows of all files or of one file, and brings the projection up to date, each time in
a process of its own with the settings of the command: its Java has compiled nothing yet. Prints one JSON
object: for each update the seconds of time and of CPU (Java, Python and what they start) from the moment when
Spark is up. After each update the digests of all rows of both sides are equal, or the run fails; that is not
part of the figures.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml
from pyspark.sql import SparkSession
from spark_source import cpu_of_tree

from gateway import config
from gateway.spark.project.evaluation import rule_session
from gateway.spark.project.job import Job
from gateway.spark.project.results import Options, Target
from gateway.spark.project.rule import projected
from gateway.spark.project.run import LOCAL_SETTINGS, projections
from gateway.spark.session import delta_session
from gateway.spark.verify.digest import digest

SOURCE = [
    "id",
    "id % 1000 / 4 amount",
    "concat('user', id, '@example.com') email",
    "cast(10000 + id * 37 % 80000 as string) postcode",
    "cast(id % 90 as int) age",
    "CASE WHEN id % 50 = 0 THEN 'fr' ELSE 'de' END country",
]
RULE: dict[str, Any] = {
    "columns": [
        "id",
        "amount",
        {"name": "person", "column": "email", "function": "sha256"},
        {"name": "area", "column": "postcode", "function": "prefix", "length": 2},
        {"name": "decade", "column": "age", "function": "floor", "step": 10},
    ],
    "where": "country = 'de'",
    "salt": "a salt of the bench, of no value",
}
CHANGED_ROWS = 1000
FILES = 40
CHANGES = {
    "all files": "id % {every} = {round}",
    "one file": "id >= {rows} / 2 AND id < {rows} / 2 + 1100 AND id % 50 <> {round}",
}
"""Conditions of the rows that change, by where they are."""


def main() -> None:
    """Run the command line: the whole bench, or one step in a process that it starts."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rows", type=int, default=10_000_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--jars", type=Path)
    parser.add_argument("--place", type=Path, help="where the tables are kept between runs")
    parser.add_argument(
        "--whole-files", action="store_true", help="a source that writes changed files anew, as a whole"
    )
    parser.add_argument("--feed", action="store_true", help="a source with a change data feed")
    parser.add_argument("--step", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.step is not None:
        spark = delta_session("projection bench", jars=arguments.jars, local=LOCAL_SETTINGS)
        print(json.dumps(step(spark, arguments)))
    elif arguments.place is not None:
        print(json.dumps(run(arguments, arguments.place), indent=1))
    else:
        with tempfile.TemporaryDirectory() as folder:
            print(json.dumps(run(arguments, Path(folder)), indent=1))


def run(arguments: argparse.Namespace, place: Path) -> dict[str, Any]:
    """Run all steps; return the figures."""
    found: dict[str, Any] = {"rows": arguments.rows, "files": FILES, "cores": os.cpu_count(), "updates": []}
    if not (place / "source").exists():
        place.mkdir(parents=True, exist_ok=True)
        found["first"] = in_a_process(arguments, place, "first")
    for number in range(arguments.rounds):
        for name in CHANGES:
            in_a_process(arguments, place, f"change:{name}:{number}")
            found["updates"].append({"changed": name} | in_a_process(arguments, place, "update"))
    return found


def declared(place: Path, projected_to: Mapping[str, str], rule: Mapping[str, Any]) -> list[Target]:
    """Declare projections in a configuration: the location of each by its source."""
    tables = [
        {"name": f"t{number}", "location": location, "projection": {"source": source, **rule}}
        for number, (source, location) in enumerate(projected_to.items())
    ]
    file = place / "share.yaml"
    shares = [{"name": "s", "schemas": [{"name": "d", "tables": tables}]}]
    file.write_text(yaml.safe_dump({"version": 1, "shares": shares}))
    return projections(config.load(file, needs_readers=False))


def in_a_process(arguments: argparse.Namespace, place: Path, name: str) -> dict[str, Any]:
    """Run one step in a new process. Raises CalledProcessError."""
    command = [sys.executable, __file__, "--step", name, "--rows", str(arguments.rows)]
    command += ["--place", str(place), *(["--jars", str(arguments.jars)] if arguments.jars else [])]
    command += ["--whole-files"] if arguments.whole_files else []
    command += ["--feed"] if arguments.feed else []
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    return dict(json.loads(done.stdout.splitlines()[-1]))


def step(spark: SparkSession, arguments: argparse.Namespace) -> dict[str, Any]:
    """Run one step. Raises AssertionError for a projection that is not the rule's."""
    name, _, rest = arguments.step.partition(":")
    source = str(arguments.place / "source")
    if name == "change":
        where, _, number = rest.partition(":")
        every = arguments.rows // CHANGED_ROWS
        condition = CHANGES[where].format(every=every, round=int(number) + 1, rows=arguments.rows)
        table = f"delta.`{source}`"
        spark.sql(f"UPDATE {table} SET amount = amount + 1 WHERE {condition}")
        return {}
    if name == "first":
        spark.sql(
            f"CREATE TABLE delta.`{source}` USING delta "
            f"TBLPROPERTIES (delta.enableDeletionVectors = {str(not arguments.whole_files).lower()}, "
            f"delta.enableChangeDataFeed = {str(arguments.feed).lower()}) "
            f"AS SELECT {', '.join(SOURCE)} FROM range(0, {arguments.rows}, 1, {FILES})"
        )
    (target,) = declared(arguments.place, {source: str(arguments.place / "projections")}, RULE)
    started, cpu_before = time.perf_counter(), cpu_of_tree()
    outcome = Job(rule_session(spark), target, Options(optimize_hours=0, vacuum_hours=0)).run()
    seconds, cpu = time.perf_counter() - started, cpu_of_tree() - cpu_before
    assert check(spark, target) == outcome.rows
    return {
        "how": outcome.how,
        "remark": outcome.remark,
        "changed_rows": outcome.changed_rows,
        "seconds": round(seconds, 2),
        "cpu_seconds": round(cpu, 2),
    }


def check(spark: SparkSession, target: Target) -> int:
    """Compare all rows of the published version with those of the rule; return their number."""
    session = rule_session(spark)
    source, served = (session.read.format("delta").load(one) for one in (target.source, target.root))
    expected, found = digest(projected(source, target.projection)), digest(served)
    assert expected == found, (str(expected), str(found))
    return found.rows


if __name__ == "__main__":
    main()
