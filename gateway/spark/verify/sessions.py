"""The sessions of one Spark in which tables are compared, for tables of few and of many rows."""

from pyspark.sql import SparkSession

from gateway.spark.session import session_like
from gateway.spark.source import register

_ALL = {
    "spark.sql.session.timeZone": "UTC",
    # Spark keeps the texts of a thousand plans for the web interface; that of a wide table takes megabytes.
    "spark.sql.maxPlanStringLength": "1000",
}
# Compiled, each plan and each schema costs more than its few rows save.
_FEW_ROWS = {
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.shuffle.partitions": "1",
    "spark.sql.files.minPartitionNum": "1",
    "spark.databricks.delta.snapshotPartitions": "1",
    # Hash rows above a union, in one expression, and not in a copy of it for each of its DataFrames.
    "spark.sql.optimizer.excludedRules": "org.apache.spark.sql.catalyst.optimizer.PushProjectionThroughUnion",
}


def table_sessions(spark: SparkSession) -> dict[bool, SparkSession]:
    """Return sessions in the time zone in which values are sent as text, by whether tables have few rows."""
    sessions = {few: session_like(spark, {**_ALL, **(_FEW_ROWS if few else {})}) for few in (False, True)}
    for session in sessions.values():
        register(session)
    return sessions
