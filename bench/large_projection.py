"""Measures the first write of a projection of many files, and its weekly cleaning.

    python bench/large_projection.py --files 200000

The source has a partition of five rows per file: hard links to one file, whose partition values are in the
log alone. The projection is partitioned in the same way, so it has as many files; with `--together`, as few
as its rows need. `--log-alone` writes no rows: it publishes a commit that names the files, and plans a read
of it. Spark has the settings of the command. Prints one JSON object per line: for each step of the first
write, and for a later run that cleans, the seconds of time and of CPU (Java, Python and what they start),
Spark's tasks, and the memory of Python and of Java at their peak. The published rows are compared with those
that the source was made of, or the run fails.
"""

import argparse
import json
import os
import tempfile
import time
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from measure import peak_mb
from projection import declared
from pyspark.sql import SparkSession
from spark_source import cpu_of_tree

from gateway.spark import java
from gateway.spark.project.commit_range import CommitRange
from gateway.spark.project.evaluation import rule_session
from gateway.spark.project.job import Job
from gateway.spark.project.results import Options, Target
from gateway.spark.project.rule import projected
from gateway.spark.project.run import LOCAL_SETTINGS
from gateway.spark.project.table_log import TableLog
from gateway.spark.session import delta_session
from gateway.spark.verify.digest import digest

ROWS = 5
"""Rows of a file of the source."""
RULE: dict[str, Any] = {
    "columns": ["id", "part", {"name": "person", "column": "email", "function": "sha256"}],
    "where": "country = 'de'",
    "salt": "a salt of the bench, of no value",
}
_TYPES = {"id": "long", "email": "string", "country": "string", "part": "integer"}
_MOST_LINKS = 30_000
"""Names of one file. File systems allow different numbers."""
_EIGHT_DAYS_MS = 8 * 86_400_000


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--files", type=int, default=200_000)
    form = parser.add_mutually_exclusive_group()
    form.add_argument("--together", action="store_true", help="a projection without partitions")
    form.add_argument("--log-alone", action="store_true", help="no rows, the published commit alone")
    parser.add_argument("--jars", type=Path)
    parser.add_argument("--place", help="the directory of the temporary tables")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=arguments.place) as folder:
        place = Path(folder)
        write_source(place / "source", arguments.files)
        spark = delta_session("large projection bench", jars=arguments.jars, local=LOCAL_SETTINGS)
        print(json.dumps({"files": arguments.files, "cores": os.cpu_count()}), flush=True)
        (publish if arguments.log_alone else run)(spark, place, arguments)
        spark.stop()


def publish(spark: SparkSession, place: Path, arguments: argparse.Namespace) -> None:
    """Publish the log of the source as that of a work table; print the figures."""
    work, published = TableLog(spark, str(place / "source")), TableLog(spark, str(place))
    figures = Figures(spark)
    commits = CommitRange(work.actions, -1).read_to(0)
    figures.print("read")
    with commits.published([{"commitInfo": {}}]) as commit:
        figures.print("put together")
        published.publish(0, commit)
    figures.print("published")
    assert files_of_commit(place) == published.content(0)[0] == arguments.files
    figures.print("planned")


def run(spark: SparkSession, place: Path, arguments: argparse.Namespace) -> None:
    """Write the projection and clean it; print the figures. Raises AssertionError for wrong rows."""
    rule = {**RULE, "partitionBy": [] if arguments.together else ["part"]}
    (target,) = declared(place, {str(place / "source"): str(place / "projections")}, rule)
    figures = Figures(spark)
    outcome = Job(rule_session(spark), target, step=figures.print).run()
    figures.print("first write, all")
    check(spark, target, arguments.files, 1 if arguments.together else arguments.files)
    figures = Figures(spark)
    later = Job(rule_session(spark), target, Options(optimize_hours=0), now_ms=_in_eight_days).run()
    figures.print("cleaning, all")
    assert (later.how, later.version) == ("unchanged", outcome.version + 1)


def check(spark: SparkSession, target: Target, parts: int, files: int) -> None:
    """Compare the published version with the rows of the source. Raises AssertionError."""
    assert files_of_commit(Path(target.root)) == files
    session = rule_session(spark)
    rows = session.range(parts * ROWS).selectExpr(
        f"id % {ROWS} id", f"concat('user', id % {ROWS}) email", "'de' country", f"int(id div {ROWS}) part"
    )
    expected, served = projected(rows, target.projection), session.read.format("delta").load(target.root)
    assert digest(expected) == digest(served)


def files_of_commit(root: Path) -> int:
    """Return the number of files that the first commit of a table adds."""
    with (root / "_delta_log" / f"{0:020}.json").open() as commit:
        return sum(line.startswith('{"add":') for line in commit)


class Figures:
    """The cost of each step since the last one, and of all of them."""

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark
        self._java = int(java.classes(spark).java.lang.ProcessHandle.current().pid())
        self._first = self._last = self._now()

    def _now(self) -> tuple[float, float, int]:
        # Spark numbers tasks in order, and keeps no finished one.
        scheduler = java.session(self._spark).sparkContext().taskScheduler()
        return time.perf_counter(), cpu_of_tree(), int(scheduler.nextTaskId())

    def print(self, name: str) -> None:
        """Print the figures of a step, or of all steps."""
        now = self._now()
        since, self._last = self._first if name.endswith("all") else self._last, now
        seconds, cpu, tasks = (after - before for after, before in zip(now, since, strict=True))
        memory = {"python_mb": peak_mb(), "java_mb": peak_mb(self._java)}
        figures = {"step": name, "seconds": round(seconds, 1), "cpu_seconds": round(cpu, 1), "tasks": tasks}
        print(json.dumps(figures | memory), flush=True)


def _in_eight_days() -> int:
    return int(time.time() * 1000) + _EIGHT_DAYS_MS


def write_source(root: Path, files: int) -> None:
    """Write a table whose files are names of a few files. Its log is written without Spark."""
    (root / "_delta_log").mkdir(parents=True)
    (root / "files").mkdir()
    rows = {
        "id": list(range(ROWS)),
        "email": [f"user{number}" for number in range(ROWS)],
        "country": ["de"] * ROWS,
    }
    fields = [{"name": name, "type": kind, "nullable": True, "metadata": {}} for name, kind in _TYPES.items()]
    metadata = {
        "id": "00000000-0000-0000-0000-000000000000",
        "format": {"provider": "parquet", "options": {}},
        "schemaString": json.dumps({"type": "struct", "fields": fields}),
        "partitionColumns": ["part"],
        "configuration": {},
    }
    file = root
    with (root / "_delta_log" / f"{0:020}.json").open("w") as log:
        log.write(json.dumps({"protocol": {"minReaderVersion": 1, "minWriterVersion": 2}}) + "\n")
        log.write(json.dumps({"metaData": metadata}) + "\n")
        for number in range(files):
            path = root / "files" / f"part-{number:06}.parquet"
            if number % _MOST_LINKS == 0:
                file = path
                pq.write_table(pa.table(rows), file)
                size = file.stat().st_size
            else:
                path.hardlink_to(file)
            add = {
                "path": f"files/{path.name}",
                "partitionValues": {"part": str(number)},
                "size": size,
                "modificationTime": 0,
                "dataChange": True,
                "stats": f'{{"numRecords":{ROWS}}}',
            }
            log.write(json.dumps({"add": add}) + "\n")


if __name__ == "__main__":
    main()
