"""What the rows of a rule depend on beside the source: settings, versions, and the resolved condition.

In: a session, whatever a cluster has set in it. Out: a session in which rules are evaluated, and what has to
be equal for two versions of one projection.
"""

from __future__ import annotations

import hashlib
import hmac
import json
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from gateway.config.projections import Projection
from gateway.spark import java
from gateway.spark.session import WHOLE_FILES, with_settings

SALT_PREFIX = "delta-gateway-salt-"
"""The start of a salt in plans, by which Spark keeps it out of its logs and its pages."""

MEANING = {
    # Texts of times and errors of casts depend on these.
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.ansi.enabled": "true",
    "spark.sql.caseSensitive": "false",
    # A text of SQL is what it says: no variable of the process, such as `${env:HOME}`.
    "spark.sql.variable.substitute": "false",
    **WHOLE_FILES,
}
_WORK = {
    # The job keeps files for a week at least. The table's property is for a longer memory of removals.
    "spark.databricks.delta.retentionDurationCheck.enabled": "false",
    # Few rows are looked for in many files at once. Each partition may give as many as are looked for.
    "spark.sql.limit.initialNumPartitions": "32",
    # Without adaptive execution it would limit how long the rows of the partitions are counted.
    "spark.sql.broadcastTimeout": "-1",
    # VACUUM lists a directory by as many tasks, of which Spark's own number is 10,000.
    "spark.sql.sources.parallelPartitionDiscovery.parallelism": "32",
    # Checksum files list the files of larger tables, too: an update need not look for them in the log.
    "spark.databricks.delta.allFilesInCrc.thresholdNumFiles": "200",
    # Spark keeps the texts of a thousand plans for the web interface; that of a wide table takes megabytes.
    "spark.sql.maxPlanStringLength": "1000",
    # Spark folds the salt's cast into a constant of bytes, which plans show in hexadecimal digits.
    "spark.sql.redaction.string.regex": (
        f"(?:{SALT_PREFIX}|{SALT_PREFIX.encode().hex().upper()})[0-9A-Fa-f]+"
    ),
}

_OF_ROWS = ("spark.sql.", "spark.databricks.delta.")
"""Starts of the names of settings that Spark's analysis, its expressions and Delta read."""

_MAY_DIFFER = (
    *_WORK,
    # Partitions and the order of work.
    "spark.sql.shuffle.partitions",
    "spark.sql.leafNodeDefaultParallelism",
    "spark.sql.adaptive.",
    "spark.sql.autoBroadcastJoinThreshold",
    "spark.sql.codegen.",
    "spark.sql.files.maxPartition",
    "spark.sql.files.minPartitionNum",
    "spark.sql.files.openCostInBytes",
    "spark.databricks.delta.snapshotPartitions",
    "spark.databricks.delta.optimize.",
    "spark.databricks.delta.vacuum.",
    # Delta itself keeps the version of each commit there.
    "spark.databricks.delta.lastCommitVersionInSession",
    # Memory.
    "spark.sql.columnVector.offheap.enabled",
    "spark.sql.inMemoryColumnarStorage.",
    # Catalogs, with their credentials, and who listens.
    "spark.sql.catalog",
    "spark.sql.hive.metastore.",
    "spark.sql.warehouse.dir",
    "spark.sql.event",
    "spark.sql.queryExecutionListeners",
    "spark.sql.streaming.",
    "spark.sql.ui.",
    "spark.sql.debug.",
    "spark.sql.dataFrameQueryContext.",
)
"""Names of settings, and starts of names, that change no row."""


@dataclass(frozen=True)
class Evaluation:
    """By what rows were made: equal for all versions of a projection.

    Attributes:
        spark: version of Spark.
        java: feature version of Java.
        settings: those that may change a row and are not Spark's defaults.
        condition: a keyed hash of the condition as Spark has resolved it; empty without one.

    """

    spark: str
    java: str
    settings: dict[str, str] = field(default_factory=dict)
    condition: str = ""

    @classmethod
    def of(cls, session: SparkSession, projection: Projection, condition: str | None) -> Evaluation:
        """Return how a session evaluates a rule, of which `condition` is resolved."""
        word = json.dumps(condition).encode()
        # The name of a rule is a secret of its own where the rule has a salt.
        mark = hmac.new(projection.name.encode(), word, hashlib.sha256).hexdigest()
        return cls(
            session.version,
            str(java.classes(session).java.lang.System.getProperty("java.specification.version")),
            dict(sorted((name, value) for name, value in session.conf.getAll.items() if _is_of_rows(name))),
            "" if condition is None else mark,
        )

    def difference(self, other: Evaluation) -> str:
        """Return what differs, for a message; empty if nothing does."""
        parts = [
            f"Spark {other.spark} was {self.spark}" if self.spark != other.spark else "",
            f"Java {other.java} was {self.java}" if self.java != other.java else "",
            *(
                f"{name} is another"
                for name in sorted({*self.settings, *other.settings})
                if self.settings.get(name) != other.settings.get(name)
            ),
            "Spark resolves the condition otherwise" if self.condition != other.condition else "",
        ]
        return ", ".join(filter(None, parts))


def rule_session(spark: SparkSession) -> SparkSession:
    """Return a new session of the same Spark in which rules are evaluated.

    Each setting that may change a row is Spark's default, or as the rules need it, whatever the session and
    the cluster say. Settings that cannot be changed are part of the `Evaluation`.
    """
    session = spark.newSession()
    given: Mapping[str, str] = spark.conf.getAll
    for name in session.conf.getAll:
        if _is_of_rows(name):
            with suppress(PySparkException):
                session.conf.unset(name)
    chosen = {name: value for name, value in given.items() if not _is_of_rows(name)}
    return with_settings(session, {**chosen, **MEANING, **_WORK})


def _is_of_rows(name: str) -> bool:
    return name.startswith(_OF_ROWS) and not name.startswith(_MAY_DIFFER)
