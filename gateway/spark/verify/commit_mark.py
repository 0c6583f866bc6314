"""What distinguishes a version of a Delta table from another one of that number, as after a restored backup.

In: a table's location and a version. Out: a text that differs if the version was committed again: the
SHA-256 of its commit, with the commit's size and time. Each writer's commit names files of its own.
"""

import hashlib
from typing import Any

from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession

from gateway.spark import java


def commit_mark(spark: SparkSession, location: str, version: int) -> str | None:
    """Return the mark of a version; None if its files are not in the log.

    Where the commit is not there, as after a clean-up of the log or before a catalog publishes it, the names,
    sizes and times of the version's checkpoint or staged commits are the mark.
    """
    classes = java.classes(spark)
    log, files = java.path_and_files(spark, location, "_delta_log")
    number = f"{version:020}"
    commit = classes.org.apache.hadoop.fs.Path(log, f"{number}.json")
    try:
        status = files.getFileStatus(commit)
        stream = files.open(commit)
    except Py4JJavaError as error:
        if not java.is_missing(error):
            raise
        return _mark_of_names(
            [
                status
                for pattern in (f"{number}.checkpoint*", f"_staged_commits/{number}.*")
                for status in files.globStatus(classes.org.apache.hadoop.fs.Path(log, pattern)) or ()
            ]
        )
    try:
        digest = classes.org.apache.commons.codec.digest.DigestUtils.sha256Hex(stream)
    finally:
        stream.close()
    return f"{digest}-{status.getLen()}-{status.getModificationTime()}"


def _mark_of_names(statuses: list[Any]) -> str | None:
    lines = sorted(
        f"{status.getPath().getName()} {status.getLen()} {status.getModificationTime()}"
        for status in statuses
    )
    return hashlib.sha256("\n".join(lines).encode()).hexdigest() if lines else None
