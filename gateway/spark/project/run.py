"""Keeps all projections of a configuration, several at a time.

In: a session and targets. Out: an outcome for each. An error of one is part of its outcome and ends no other.
"""

from __future__ import annotations

import datetime as dt
import os
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from itertools import repeat
from queue import SimpleQueue

from py4j.protocol import Py4JError
from pyspark.sql import SparkSession

from gateway.config import Config
from gateway.config.projections import RULE_NAME, WORK_DIRECTORY
from gateway.spark import java
from gateway.spark.opened_logs import OpenedLogs
from gateway.spark.project.errors import InvalidRule, NotKept, kind_of
from gateway.spark.project.evaluation import rule_session
from gateway.spark.project.job import Job
from gateway.spark.project.lock import Locked
from gateway.spark.project.objects import Unsafe
from gateway.spark.project.published import ended_ms, note_failure
from gateway.spark.project.results import Options, Outcome, Target
from gateway.spark.project.table_log import CommitExists
from gateway.spark.targets import for_spark

Ended = Callable[[Outcome], None]

_JAVA_OPTIONS = [
    # Spark's classes outgrow the first size of the metaspace, each time with a collection of the whole heap.
    "-XX:MetaspaceSize=256m",
    "-XX:+UseParallelGC",
    # 40 times Java's own numbers for methods, 10 times that for loops: the optimizing compiler is for loops
    # over rows, and not for the plans of a run, on which it would spend more than the update itself needs.
    "-XX:Tier4InvocationThreshold=200000",
    "-XX:Tier4MinInvocationThreshold=24000",
    "-XX:Tier4CompileThreshold=600000",
    "-XX:Tier4BackEdgeThreshold=400000",
]

LOCAL_SETTINGS = {
    # Readers of Parquet hold columns of whole row groups, of 128 MB. Java takes the memory when it needs it.
    "spark.driver.memory": "2g",
    "spark.driver.extraJavaOptions": " ".join(_JAVA_OPTIONS),
    # Columns of whole files are read to find few rows.
    "spark.sql.columnVector.offheap.enabled": "true",
    # The plans are small and many; each that is looked at again is compiled again.
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.shuffle.partitions": str(max(2, os.cpu_count() or 2)),
    "spark.databricks.delta.snapshotPartitions": "2",
}
"""Settings of a Spark on this machine."""


def projections(config: Config, is_chosen: Callable[[str], bool] = lambda _name: True) -> list[Target]:
    """Return the projections of a configuration; one that is shared several times once.

    Such a one has all of its names, and the longest of its histories, by whichever name it is chosen.
    """
    targets: dict[str, Target] = {}
    for _, name, table in config.tables:
        if table.projection is None:
            continue
        root = for_spark(table.location.url)
        first = table.start_version if table.history_shared else None
        target = Target((name,), table.projection, for_spark(table.projection.source.url), root, first)
        known = targets.get(root)
        if known is not None:
            firsts = [version for version in (known.first_version, first) if version is not None]
            target = replace(target, names=(*known.names, name), first_version=min(firsts, default=None))
        targets[root] = target
    return [target for target in targets.values() if any(map(is_chosen, target.names))]


def keep(
    spark: SparkSession,
    targets: Sequence[Target],
    options: Options,
    *,
    parallel: int,
    ended: Ended = lambda _outcome: None,
    budget: dt.timedelta | None = None,
    clock: Callable[[], float] = time.monotonic,
) -> list[Outcome]:
    """Bring projections up to date, `parallel` at a time. Each end is reported at once.

    `budget`: none begins after this time. Those without a published version come first, then those whose
    published version is the oldest; one that failed since has the time of that. The outcomes have the order
    of `targets`. `clock`: seconds.

    Spark logs nothing meanwhile: an outcome names the kind of an error, and the log would quote values.
    """
    sessions: SimpleQueue[SparkSession] = SimpleQueue()
    for _ in range(parallel):
        sessions.put(rule_session(spark))
    logs = OpenedLogs(spark)
    ends = None if budget is None else clock() + budget.total_seconds()

    def outcome_at_turn(target: Target) -> Outcome:
        session = sessions.get()
        try:
            job = Job(session, target, options)
            is_late = ends is not None and clock() >= ends
            outcome = unless_changed(job) if is_late else outcome_of(job)
        finally:
            sessions.put(session)
        logs.add(*job.locations)
        if outcome.error is not None and not options.check and outcome.failure != Locked.__name__:
            note_failure(spark, target.root)
        ended(outcome)
        return outcome

    with java.without_log(spark), ThreadPoolExecutor(parallel, thread_name_prefix="projections") as threads:
        times: Iterable[int] = repeat(0)
        if budget is not None:
            times = threads.map(lambda target: ended_ms(spark, target.root), targets)
        order = [index for _, index in sorted(zip(times, range(len(targets)), strict=False))]
        outcomes = dict(
            zip(order, threads.map(outcome_at_turn, [targets[index] for index in order]), strict=True)
        )
    return [outcomes[index] for index in range(len(targets))]


def left_over(spark: SparkSession, targets: Sequence[Target]) -> list[str]:
    """Return directories of rules beside those of all targets: nobody keeps or cleans them.

    They are found where a projection is declared. One that cannot be listed has none.
    """
    in_use = {target.root for target in targets}
    directories = []
    for base in sorted({root.rpartition("/")[0] for root in in_use}):
        with suppress(Py4JError):
            directory, files = java.path_and_files(spark, base)
            listed = [status.getPath() for status in files.listStatus(directory) if status.isDirectory()]
            names = [path.getName() for path in listed]
            roots = [f"{base}/{name}" for name in names if RULE_NAME.fullmatch(name)]
            path = java.classes(spark).org.apache.hadoop.fs.Path
            directories += [
                root
                for root in roots
                if root not in in_use and files.exists(path(f"{root}/{WORK_DIRECTORY}"))
            ]
    return sorted(directories)


def unless_changed(job: Job) -> Outcome:
    """Return the outcome of a job that has nothing to do. Another one is postponed, and so are its errors."""
    outcome = None
    with suppress(Exception):
        outcome = job.unchanged()
    return outcome or Outcome(job.target.names, how="postponed")


def outcome_of(job: Job) -> Outcome:
    """Run a job; an error of it is part of the outcome."""
    started, target = time.monotonic(), job.target
    try:
        outcome = job.run()
    except (Locked, InvalidRule, NotKept, CommitExists, Unsafe) as error:
        outcome = Outcome(target.names, error=str(error), failure=type(error).__name__)
    except Exception as error:  # noqa: BLE001 - of one projection among many
        # Messages of others quote values of the rows.
        outcome = Outcome(target.names, error=kind_of(error), failure=type(error).__name__)
    outcome.seconds = time.monotonic() - started
    return outcome
