"""What a table's own log says of it, whatever a server states.

In: a table's log, as delta-spark reads it. Out: the head that a server should answer, and the latest versions
with their times. No file of the table is read.
"""

import json
from dataclasses import dataclass

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException

from gateway.client.actions import TableHead, parse_head
from gateway.spark import java
from gateway.spark.project.table_log import TableLog

_LATEST = 20


@dataclass(frozen=True)
class Written:
    """A version and the time that its commit has."""

    version: int
    time_ms: int


def own_head(log: TableLog, version: int) -> TableHead:
    """Return the head of a version. Raises Spark's errors for one that is not there."""
    snapshot = log.snapshot(version)
    protocol, metadata = (
        json.loads(action.json())[name]
        for name, action in (("protocol", snapshot.protocol()), ("metaData", snapshot.metadata()))
    )
    return parse_head({"deltaProtocol": protocol}, {"deltaMetadata": metadata}, version)


def latest_versions(log: TableLog) -> list[Written]:
    """Return the latest versions that the log knows, the latest one first."""
    # `DESCRIBE HISTORY` asks the same, and plans two queries more.
    limit = java.classes(log.spark).scala.Option.apply(_LATEST)
    with java.active(log.spark):
        history = java.as_list(log.spark, log.log.history().getHistory(limit))
    written = [Written(int(one.version().get()), int(one.timestamp().getTime())) for one in history]
    return sorted(written, key=lambda one: one.version, reverse=True)


def has_own_time(log: TableLog, written: Written) -> bool:
    """Return whether Delta finds a version by the time of its commit, and the one before it just before.

    In a copied log commits have one time, or times in another order, to which Delta adds.
    """
    times = (written.time_ms, written.time_ms - 1)
    return [_active(log, time_ms) for time_ms in times] == [written.version, written.version - 1]


def _active(log: TableLog, time_ms: int) -> int | None:
    moment = java.classes(log.spark).java.sql.Timestamp(time_ms)
    try:
        commit = log.log.history().getActiveCommitAtTime(moment, java.none(log.spark), True, False, False)
    except (Py4JJavaError, PySparkException):
        # Before the first commit that is left, or a log that Delta does not date.
        return None
    return int(commit.version())
