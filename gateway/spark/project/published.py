"""What recipients read of projections, and since when it is proved, for a report and for the order of a run.

In: the directories of projections. Out: their published versions, by the logs that the server reads, and when
work on them ended.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from gateway.config.projections import WORK_DIRECTORY
from gateway.spark import java
from gateway.spark.project.actions import Action
from gateway.spark.project.record import Record
from gateway.spark.project.table_log import TableLog
from gateway.spark.verify.digest import quoted
from gateway.times import epoch_ms

_ABSENT = (Py4JError, PySparkException, FileNotFoundError)

_FAILED = "_failed"
"""An empty file in a projection's directory, written when it fails."""


@dataclass(frozen=True)
class Published:
    """A published version, the version of the source that it equals, and its size.

    `proved_at`: the time of its commit, which is written after the proof.
    """

    version: int
    source_version: int
    rows: int
    files: int
    bytes: int
    proved_at: dt.datetime


def ended_ms(spark: SparkSession, root: str) -> int:
    """Return when its latest version was published, or when it failed after that, in ms as Unix time.

    0 where neither can be read, or where both are ahead of now.
    """
    now_ms = epoch_ms()
    published_ms = failed_ms = 0
    with suppress(*_ABSENT):
        log = TableLog(spark, root)
        version = log.number()
        published_ms = _written_ms(log.actions(version)) if version >= 0 else 0
    with suppress(*_ABSENT):
        path, files = java.path_and_files(spark, f"{root}/{_FAILED}")
        failed_ms = files.getFileStatus(path).getModificationTime() if files.exists(path) else 0
    return max((time_ms for time_ms in (published_ms, failed_ms) if time_ms <= now_ms), default=0)


def note_failure(spark: SparkSession, root: str) -> None:
    """Keep the time of a failure, so that runs whose time is short do not begin with it for ever.

    A projection that has written nothing yet has failed early and gets no directory. Never raises.
    """
    with suppress(Py4JError):
        work, files = java.path_and_files(spark, f"{root}/{WORK_DIRECTORY}")
        if files.exists(work):
            files.create(java.path_and_files(spark, f"{root}/{_FAILED}")[0], True).close()


def published(spark: SparkSession, roots: Sequence[str], *, parallel: int) -> list[Published | None]:
    """Return the published version of each directory; None without one, or if it cannot be read."""
    with java.without_log(spark), ThreadPoolExecutor(parallel, thread_name_prefix="published") as threads:
        return list(threads.map(lambda root: _published(spark, root), roots))


def _published(spark: SparkSession, root: str) -> Published | None:
    try:
        log = TableLog(spark, root)
        version = log.number()
        if version < 0:
            return None
        record = Record.of(log.actions(version))
        if record is None:
            return None
        files, size = _size(spark, root, record)
    except _ABSENT:
        return None
    return Published(
        version=version,
        source_version=record.source_version,
        rows=record.digest.rows,
        files=files,
        bytes=size,
        proved_at=dt.datetime.fromtimestamp(_written_ms(log.actions(version)) / 1000, dt.UTC),
    )


def _size(spark: SparkSession, root: str, record: Record) -> tuple[int, int]:
    """Return the number of files of a published version and their bytes, from the log of its work table."""
    known = TableLog(spark, f"{root}/{WORK_DIRECTORY}").size(record.work_version)
    if known is not None:
        return known
    (row,) = spark.sql(f"DESCRIBE DETAIL delta.{quoted(root)}").collect()
    return row["numFiles"], row["sizeInBytes"]


def _written_ms(commit: Iterable[Action]) -> int:
    """Return the time of a commit; 0 for one that states none, which is another writer's."""
    times = (action["commitInfo"].get("timestamp") for action in commit if "commitInfo" in action)
    return int(next(times, None) or 0)
