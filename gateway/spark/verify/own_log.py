"""What a table's own log says of it, whatever a server states.

In: a table's log, as delta-spark reads it. Out: the head that a server should answer, and the latest versions
with their times. No file of the table is read.
"""

import json
from dataclasses import dataclass

from pyspark.sql import functions as f

from gateway.client.actions import TableHead, parse_head
from gateway.spark.project.table_log import TableLog
from gateway.spark.verify.compare import quoted

_LATEST = 20


@dataclass(frozen=True)
class Written:
    """A version and its time. `is_apart`: no other version has a time that is equal, or out of order."""

    version: int
    time_ms: int
    is_apart: bool


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
    found = sorted(((int(version), int(time)) for version, time in rows), reverse=True)
    times = [time for _, time in found]
    # The one before the oldest of these is unknown.
    return [
        Written(
            version,
            time,
            is_apart=index + 1 < len(times)
            and times[index + 1] < time
            and (index == 0 or time < times[index - 1]),
        )
        for index, (version, time) in enumerate(found)
    ]
