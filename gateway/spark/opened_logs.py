"""Bounds what Delta keeps of the tables that a run over many tables has read.

In: the locations that a run is done with. Delta keeps the logs of up to 10,000 tables for an hour after their
last use, each with Spark's plans of its latest version: 3 MB of Java's heap for a table of a few rows, so the
heap of 1 GB that Spark starts with has room for some 300 tables.
"""

from collections import OrderedDict
from contextlib import suppress
from threading import Lock

from py4j.protocol import Py4JError
from pyspark.sql import SparkSession

from gateway.spark import java

MOST_LOGS = 16
"""Logs that stay: the next tables of a run often have a source or a location in common with the last ones."""


class OpenedLogs:
    """The logs that a run has read and is done with; Delta forgets all but the latest ones."""

    def __init__(self, spark: SparkSession, most: int = MOST_LOGS) -> None:
        self._spark = spark
        self._most = most
        self._adding = Lock()
        self._kept: OrderedDict[str, None] = OrderedDict()

    def add(self, *locations: str) -> None:
        """Note that tables are done with. Of too many, Delta forgets the log that was done with first.

        A log that another thread still reads stays whole for it. Never raises.
        """
        for location in locations:
            with self._adding:
                self._kept[location] = None
                self._kept.move_to_end(location)
                oldest = self._kept.popitem(last=False)[0] if len(self._kept) > self._most else None
            if oldest is not None:
                self._forget(oldest)

    def _forget(self, location: str) -> None:
        classes = java.classes(self._spark)
        # Other distributions of Delta have other names for it, which py4j takes for a package: not callable.
        with suppress(Py4JError, TypeError):
            path = classes.org.apache.hadoop.fs.Path(location)
            classes.org.apache.spark.sql.delta.DeltaLog.invalidateCache(java.session(self._spark), path)
