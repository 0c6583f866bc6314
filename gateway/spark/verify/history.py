"""The nights of verify: what earlier runs have proved, and how they went, by their table of results.

In: the Delta table that `--results` appends to. Out: the last proof of each subject, and a `Run` per run. A
subject is a table together with all that decides what is compared; another recipient, another location or
another release of the gateway or of the server is another subject, which has no proof yet.
"""

import datetime as dt
import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import metadata

import pyspark
from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as f

from gateway.spark.targets import Target

_MOST_RUNS = 400
# Outcomes of rows that say nothing about the table's content in that run.
NOT_COMPARED = ("unchanged", "postponed")
_WRONG = ("different", "failed")
_ABSENT = ("DELTA_PATH_DOES_NOT_EXIST", "DELTA_TABLE_NOT_FOUND", "PATH_NOT_FOUND")


@dataclass(frozen=True)
class Proof:
    """The last comparison of a subject, if it found no difference."""

    version: int
    table_id: str | None
    proved_at: dt.datetime
    commit_mark: str | None = None
    """`commit_mark` of the version; None if its files were not in the log."""


@dataclass(frozen=True)
class Run:
    """One run: its tables by outcome, the rows it compared, and the seconds that the tables took together."""

    run_at: dt.datetime
    equal: int
    wrong: int
    unchanged: int
    postponed: int
    rows: int
    seconds: float


def subject_of(target: Target, endpoint: str, what: Mapping[str, object]) -> str:
    """Return the subject of a target. `what`: the options that decide what is compared."""
    parts = [
        _release(),
        pyspark.__version__,
        endpoint,
        target.table,
        target.location,
        target.start_version,
        target.history,
        target.condition,
        sorted(target.properties.items()),
        sorted(what.items()),
    ]
    return hashlib.sha256(json.dumps(parts, default=str).encode()).hexdigest()


def _release() -> str:
    """Return the installed release; empty where only the package's files are, as beside spark-submit."""
    try:
        return metadata.version("delta-sharing-gateway")
    except metadata.PackageNotFoundError:
        return ""


class History:
    """The table of results at a location, which may not exist yet."""

    def __init__(self, spark: SparkSession, location: str) -> None:
        self._rows = existing(spark, location)

    def proofs(self) -> dict[str, Proof]:
        """Return the proof of each subject whose last comparison found its rows equal and nothing wrong."""
        if self._rows is None:
            return {}
        # A run that is dated ahead of now would count as the last one until that time.
        is_past = f.col("run_at") <= f.lit(dt.datetime.now(dt.UTC))
        rows = self._rows.where(~f.col("outcome").isin(*NOT_COMPARED) & is_past)
        runs = rows.groupBy("subject", "run_at").agg(
            f.max("version").alias("version"),
            f.max("table_id").alias("table_id"),
            f.max("commit_mark").alias("commit_mark"),
            f.bool_and(f.col("outcome").isin("equal", "skipped")).alias("is_sound"),
            f.bool_or((f.col("check") == "rows") & (f.col("outcome") == "equal")).alias("has_rows"),
        )
        names = ("version", "table_id", "commit_mark", "is_sound", "has_rows")
        whole = f.struct(*names, f.unix_micros("run_at").alias("at"))
        last = (
            runs.groupBy("subject").agg(f.max_by(whole, "run_at").alias("last")).select("subject", "last.*")
        )
        proved = last.where("is_sound AND has_rows AND version IS NOT NULL").collect()
        return {
            row["subject"]: Proof(row["version"], row["table_id"], _instant(row["at"]), row["commit_mark"])
            for row in proved
        }

    def runs(self) -> list[Run]:
        """Return the last runs, the oldest first."""
        if self._rows is None:
            return []
        per_table = self._rows.groupBy("run_at", "table").agg(
            f.bool_or(f.col("outcome").isin(*_WRONG)).alias("wrong"),
            f.bool_or(f.col("outcome") == "unchanged").alias("unchanged"),
            f.bool_or(f.col("outcome") == "postponed").alias("postponed"),
            # A row of each check has the numbers of the table.
            f.max("rows").alias("rows"),
            f.sum("seconds").alias("seconds"),
        )
        equal = ~f.col("wrong") & ~f.col("unchanged") & ~f.col("postponed")
        per_run = per_table.groupBy("run_at").agg(
            f.count_if(equal).alias("equal"),
            *(f.count_if(f.col(name)).alias(name) for name in ("wrong", "unchanged", "postponed")),
            f.sum("rows").alias("rows"),
            f.sum("seconds").alias("seconds"),
        )
        names = ("equal", "wrong", "unchanged", "postponed", "rows", "seconds")
        return [Run(at, *(row[name] or 0 for name in names)) for at, row in latest_runs(per_run)]


def existing(spark: SparkSession, location: str) -> DataFrame | None:
    """Return the rows of a Delta table; None if it does not exist."""
    try:
        return spark.read.format("delta").load(location)
    except AnalysisException as error:
        if error.getCondition() in _ABSENT:
            return None
        raise


def latest_runs(per_run: DataFrame) -> list[tuple[dt.datetime, Row]]:
    """Return the last rows of a DataFrame with a row for each `run_at`, after this time, the oldest first."""
    latest = per_run.withColumn("at", f.unix_micros("run_at")).orderBy(f.desc("at")).limit(_MOST_RUNS)
    return [(_instant(row["at"]), row) for row in reversed(latest.collect())]


def _instant(micros: int) -> dt.datetime:
    return dt.datetime.fromtimestamp(0, dt.UTC) + dt.timedelta(microseconds=micros)
