"""The Spark session of the command line.

In: nothing, or the session that spark-submit has prepared. Out: a session with Delta Lake.
"""

import os
import re
import shutil
import subprocess
import sys
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from threading import Event, Thread
from types import MappingProxyType
from typing import Any

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

_DELTA = {
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
}
QUIET = {
    # For each method of a column PySpark asks Java 25 questions otherwise, and both note where it was called:
    # a quarter of the CPU time in which a table of few rows is digested. Reports do not say it.
    "spark.python.sql.dataFrameDebugging.enabled": "false",
    "spark.sql.dataFrameQueryContext.enabled": "false",
}
WHOLE_FILES = {
    # A file that cannot be read is an error, and not the absence of its rows.
    "spark.sql.files.ignoreMissingFiles": "false",
    "spark.sql.files.ignoreCorruptFiles": "false",
}
_LAPTOP = {
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.shuffle.partitions": "8",
    "spark.databricks.delta.snapshotPartitions": "8",
}

_DRIVER_MEMORY = "spark.driver.memory"

_OLDEST_JAVA = 17
_JAVA_VERSION = re.compile(r'version "(\d+)')
_NOT_RESOLVED = re.compile(
    r"UNRESOLVED DEPENDENCIES|unresolved dependency|Some artifacts failed", re.IGNORECASE
)
_LAST_LINES = 400


class SparkUnavailable(Exception):
    """Raised when Spark cannot start; the message is one line with the remedy."""


def session_like(spark: SparkSession, settings: Mapping[str, str]) -> SparkSession:
    """Return a new session of the same Spark, with the settings of this one and the given ones."""
    return with_settings(spark.newSession(), {**spark.conf.getAll, **settings})


def with_settings(session: SparkSession, settings: Mapping[str, str]) -> SparkSession:
    """Return the session after those of the settings that can be changed are changed."""
    for name, value in settings.items():
        if session.conf.isModifiable(name) and session.conf.get(name, None) != value:
            session.conf.set(name, value)
    return session


def delta_session(
    name: str,
    *,
    jars: Path | None = None,
    connector: Path | None = None,
    local: Mapping[str, str] = MappingProxyType({}),
) -> SparkSession:
    """Return the current session or that of spark-submit, else start a local one.

    `jars`: a directory with Delta's jars; without one they are downloaded from Maven's central repository.
    `connector`: the jar of the official sharing connector. spark-submit has its own option for jars.
    `local`: settings of a session that is started here; options for Java in PYSPARK_SUBMIT_ARGS replace
    those of it, and any other setting of the driver's memory replaces that of it. Raises ValueError for jars
    that are not there, SparkUnavailable where Java or the download is missing.
    """
    check_jars(jars, connector)
    active = SparkSession.getActiveSession()
    if active is not None:
        return active
    builder: Any = SparkSession.builder.appName(name)
    for key, value in {**_DELTA, **QUIET, **WHOLE_FILES}.items():
        builder = builder.config(key, value)
    # Times are compared as instants; a fixed zone makes reports equal on all machines.
    builder = builder.config("spark.sql.session.timeZone", "UTC")
    # Python workers start by `-m` and would find a folder `gateway` of the current directory first.
    builder = builder.config("spark.executorEnv.PYTHONSAFEPATH", "1")
    if "PYSPARK_GATEWAY_PORT" not in os.environ:
        builder = _on_this_machine(builder, jars, connector, local)
    session = _started(builder)
    session.sparkContext.setLogLevel("ERROR")
    return session


def check_jars(jars: Path | None, connector: Path | None = None) -> None:
    """Check the jars of a command line before anything is started. Raises ValueError."""
    if jars is not None and not jars.is_dir():
        raise ValueError(f"--jars {jars} is not a directory")
    if jars is not None and not any(jars.glob("delta-spark*.jar")):
        raise ValueError(f"--jars {jars} has no delta-spark*.jar")
    if connector is not None and not connector.is_file():
        raise ValueError(f"--connector {connector} is not a file")


def check_java() -> None:
    """Raise SparkUnavailable if no supported Java is installed."""
    home = os.environ.get("JAVA_HOME")
    java = str(Path(home) / "bin" / "java") if home else shutil.which("java")
    needed = f"Java {_OLDEST_JAVA} or later is needed: install it, or let JAVA_HOME name it"
    try:
        output = subprocess.run([str(java), "-version"], check=True, capture_output=True, text=True).stderr  # noqa: S603 - the Java that Spark takes
    except (OSError, subprocess.CalledProcessError) as error:
        raise SparkUnavailable(f"Java is not installed. {needed}") from error
    match = _JAVA_VERSION.search(output)
    if match is not None and int(match[1]) < _OLDEST_JAVA:
        raise SparkUnavailable(f"this is Java {match[1]}. {needed}")


def _started(builder: Any) -> SparkSession:
    if "PYSPARK_GATEWAY_PORT" in os.environ:
        return builder.getOrCreate()  # type: ignore[no-any-return]
    check_java()
    with _quiet_start() as output_lines:
        try:
            session: SparkSession = builder.getOrCreate()
        except PySparkException as error:
            lines = output_lines()
            if any(_NOT_RESOLVED.search(line) for line in lines):
                raise SparkUnavailable(
                    "Delta's jars cannot be downloaded from Maven's central repository: --jars DIR names a "
                    "directory that holds them"
                ) from error
            reason = next((line for line in lines if "Exception" in line or "Error" in line), str(error))
            raise SparkUnavailable(f"Spark does not start: {reason.strip().splitlines()[0]}") from error
    return session


@contextmanager
def _quiet_start() -> Iterator[Callable[[], list[str]]]:
    """Hide Java's output while it starts: hundreds of lines of a download. Later lines are shown.

    The block gets a function that returns the lines so far, once the output pauses.
    """
    sys.stderr.flush()
    shown = os.dup(2)
    reading, writing = os.pipe()
    os.dup2(writing, 2)
    os.close(writing)
    is_open, kept = Event(), deque[bytes](maxlen=_LAST_LINES)

    def copy() -> None:
        with os.fdopen(reading, "rb") as output:
            for line in output:
                if is_open.is_set():
                    os.write(shown, line)
                else:
                    kept.append(line)

    pump = Thread(target=copy, name="java-stderr", daemon=True)
    pump.start()

    def lines() -> list[str]:
        os.dup2(shown, 2)
        pump.join(timeout=10)
        return [line.decode("utf-8", "replace") for line in list(kept)]

    try:
        yield lines
        is_open.set()
    finally:
        os.dup2(shown, 2)


def _on_this_machine(
    builder: Any, jars: Path | None, connector: Path | None, local: Mapping[str, str]
) -> Any:
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    # The executors' Python must find the same package as this one.
    package_root = str(Path(__file__).resolve().parent.parent.parent)
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [package_root, os.environ.get("PYTHONPATH")]))
    # A directory `gateway` in the working directory must not come before it.
    os.environ["PYTHONSAFEPATH"] = "1"
    builder = builder.master("local[*]")
    for key, value in {**_LAPTOP, **local}.items():
        if key == _DRIVER_MEMORY:
            # Of all settings this one gives way to that of the machine's `spark-defaults.conf`.
            os.environ.setdefault("SPARK_DRIVER_MEMORY", value)
        else:
            builder = builder.config(key, value)
    files = [*(sorted(jars.glob("*.jar")) if jars else []), *([connector] if connector else [])]
    if files:
        builder = builder.config("spark.jars", ",".join(map(str, files)))
    if jars is not None:
        return builder
    from delta import configure_spark_with_delta_pip  # noqa: PLC0415 - a cluster may not have it

    return configure_spark_with_delta_pip(builder)
