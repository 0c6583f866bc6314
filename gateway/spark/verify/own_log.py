"""What a table's own log says of it, whatever a server states.

In: a table's log, as delta-spark reads it. Out: the head that a server should answer, and the latest versions
with their times. No file of the table is read.
"""

import json
from dataclasses import dataclass

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import functions as f

from gateway.client.actions import TableHead, parse_head
from gateway.spark import java
from gateway.spark.project.table_log import TableLog
from gateway.spark.verify.compare import quoted

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
    history = log.spark.sql(f"DESCRIBE HISTORY delta.{quoted(log.root)} LIMIT {_LATEST}")
    rows = history.select("version", f.unix_millis("timestamp")).collect()
    return [Written(int(version), int(time)) for version, time in sorted(rows, reverse=True)]


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
