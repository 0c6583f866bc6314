"""The Spark session of the command line.

Comes in: nothing, or the session that spark-submit has prepared. Goes out: a session with Delta Lake.
"""

import os
import sys
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

_DELTA = {
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
}
_LAPTOP = {
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.shuffle.partitions": "8",
    "spark.databricks.delta.snapshotPartitions": "8",
}


def delta_session(name: str, *, jars: Path | None = None, connector: Path | None = None) -> SparkSession:
    """The session that there is, or that of spark-submit as it is configured there, else one on this machine.

    `jars`: a directory with Delta's jars; without one they are downloaded from Maven's central repository.
    `connector`: the jar of the official sharing connector. spark-submit has its own option for jars.
    """
    active = SparkSession.getActiveSession()
    if active is not None:
        return active
    builder: Any = SparkSession.builder.appName(name)
    for key, value in _DELTA.items():
        builder = builder.config(key, value)
    # Times are compared as instants; a fixed zone makes their texts in reports the same everywhere.
    builder = builder.config("spark.sql.session.timeZone", "UTC")
    # Python workers start by `-m` and would find a folder `gateway` of the current directory first.
    builder = builder.config("spark.executorEnv.PYTHONSAFEPATH", "1")
    if "PYSPARK_GATEWAY_PORT" not in os.environ:
        builder = _on_this_machine(builder, jars, connector)
    session: SparkSession = builder.getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    return session


def _on_this_machine(builder: Any, jars: Path | None, connector: Path | None) -> Any:
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    # The executors' Python must find the same package as this one.
    package_root = str(Path(__file__).resolve().parent.parent.parent)
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [package_root, os.environ.get("PYTHONPATH")]))
    # Nor may a directory `gateway` where the command happens to run come before it.
    os.environ["PYTHONSAFEPATH"] = "1"
    builder = builder.master("local[*]")
    for key, value in _LAPTOP.items():
        builder = builder.config(key, value)
    files = [*(sorted(jars.glob("*.jar")) if jars else []), *([connector] if connector else [])]
    if files:
        builder = builder.config("spark.jars", ",".join(map(str, files)))
    if jars is not None:
        return builder
    from delta import configure_spark_with_delta_pip  # noqa: PLC0415 - a cluster may not have it

    return configure_spark_with_delta_pip(builder)
