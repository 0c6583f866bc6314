"""One Spark session with Delta for all tests that use it.

python tests/support/spark_session.py FILE    writes the archive of the classes that a session loads
"""

import os
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import tools
from py4j.java_gateway import JavaClass, JavaMember, JavaPackage, JVMView

import gateway

SETTINGS = {
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.memory": "2g",
    "spark.ui.enabled": "false",
    # Tests end before the better compiler's code has paid for its making, and share two cores with it.
    # With that compiler off Java reserves 48 MB for code, which the plans of all tests fill: links to
    # further methods then fail with `NoSuchMethodException: MethodHandle.linkTo..`.
    # Spark's classes outgrow the first size of the metaspace several times, each time with a collection of
    # the whole heap. The young generation is large, as what plans leave behind soon fills it.
    "spark.driver.extraJavaOptions": (
        "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -XX:ReservedCodeCacheSize=512m -XX:MetaspaceSize=256m"
        " -Xmn640m"
    ),
    # The description of each plan, which no test reads.
    "spark.sql.ui.explainMode": "simple",
    "spark.sql.maxPlanStringLength": "1000",
    # Plans of a few hundred rows are not worth looking at again.
    "spark.sql.adaptive.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    # VACUUM lists directories in as many tasks.
    "spark.sql.sources.parallelPartitionDiscovery.parallelism": "2",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.shuffle.partitions": "2",
    "spark.databricks.delta.snapshotPartitions": "2",
    # Tests vacuum tables that were written a moment before.
    "spark.databricks.delta.retentionDurationCheck.enabled": "false",
}

# In which Java and Python meet for each result; on a busy machine Spark's 15 are too few.
SOCKET_SECONDS = 120

JARS = tools.CACHE / "jars"
# Plans run as they are. Compiled, each plan and each schema costs more than its few rows save.
INTERPRETED = {
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
}
# For many tables of a few rows each.
FEW_ROWS = INTERPRETED | {
    "spark.sql.shuffle.partitions": "1",
    "spark.databricks.delta.snapshotPartitions": "1",
}


@contextmanager
def settings(spark: Any, values: Mapping[str, str]) -> Iterator[None]:
    """Session settings for the length of a block."""
    before = {name: spark.conf.get(name, None) for name in values}
    for name, value in values.items():
        spark.conf.set(name, value)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                spark.conf.unset(name)
            else:
                spark.conf.set(name, value)


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """A session in this process: two threads, the Delta extension, UTC."""
    if not any(JARS.glob("delta-spark*.jar")):
        pytest.skip(
            "the Spark jars are not there: tests/run.py fetches them where there are Java 17 and Maven"
        )
    pytest.importorskip("pyspark.sql", reason="pyspark is not installed: tests/run.py does it")
    # The executors' Python must find the same package as this one, and the daemon of its workers.
    workers = Path(__file__).with_name("spark_workers")
    found_in = [str(Path(gateway.__file__).parent.parent), str(workers)]
    os.environ["PYTHONPATH"] = os.pathsep.join([*found_in, os.environ.get("PYTHONPATH", "")])
    # Not the checkout's sources, which have no native module, where the tests run beside them.
    os.environ["PYTHONSAFEPATH"] = "1"
    os.environ |= {"PYSPARK_PYTHON": str(workers / "python"), "PYSPARK_DRIVER_PYTHON": sys.executable}
    os.environ["SPARK_AUTH_SOCKET_TIMEOUT"] = str(SOCKET_SECONDS)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        # All memory at once: each growth of the old generation is followed by a collection of the whole heap.
        options = f"-XX:SharedArchiveFile={class_archive()} -Xms{SETTINGS['spark.driver.memory']}"
        session = new_session(tmp_path_factory.mktemp("spark"), options)
        yield session
        session.stop()


def new_session(work: Path, java_option: str) -> Any:
    """A session with SETTINGS and an option of Java. Delta's jars are where Java archives classes."""
    from pyspark.sql import SparkSession  # noqa: PLC0415 - absent where there is no Spark

    from gateway.spark.session import QUIET  # noqa: PLC0415 - imports Spark

    delta = [*sorted(JARS.glob("delta-*.jar"))]
    jars = [path for path in sorted(JARS.glob("*.jar")) if path not in delta]
    values = {
        **SETTINGS,
        **QUIET,
        "spark.jars": ",".join(map(str, jars)),
        "spark.driver.extraClassPath": os.pathsep.join(map(str, delta)),
        "spark.driver.extraJavaOptions": f"{SETTINGS['spark.driver.extraJavaOptions']} {java_option}",
        "spark.sql.warehouse.dir": str(work / "warehouse"),
        "spark.local.dir": str(work / "local"),
        "spark.python.authenticate.socketTimeout": f"{SOCKET_SECONDS}s",
    }
    builder = SparkSession.builder.master("local[2]").appName("tests")
    for name, value in values.items():
        builder = builder.config(name, value)
    remember_names()
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    return session


def class_archive() -> Path:
    """The classes of a session, parsed and verified: a third of the CPU time that its first tables take.

    Java goes without an archive that does not fit its version, its options or its class path.
    """
    directory, words = tools.CACHE / "spark-classes", session_words()
    archive = directory / "classes.jsa"
    command = [sys.executable, __file__, str(archive)]
    variables = {**os.environ, "PYTHONPATH": f"{tools.ROOT / 'tests'}{os.pathsep}{os.environ['PYTHONPATH']}"}
    write = partial(subprocess.run, command, check=True, capture_output=True, env=variables)
    tools.made(directory, words, write)
    return archive


def session_words() -> list[str]:
    """What a session's classes depend on, and what it writes."""
    version = subprocess.run(["java", "-version"], check=True, capture_output=True, text=True).stderr
    jars = map(str, sorted(JARS.glob("*.jar")))
    return [version, *SETTINGS.values(), sys.prefix, *jars, tools.LOCK.read_text()]


def write_class_archive(path: str) -> None:
    """Writes and reads a table in a session that archives its classes when it ends."""
    with tempfile.TemporaryDirectory() as scratch:
        session = new_session(Path(scratch), f"-XX:ArchiveClassesAtExit={path} -Xlog:disable")
        table = f"{scratch}/table"
        rows = session.range(100).selectExpr("id", "cast(id as string) text", "id % 2 part")
        rows.write.format("delta").partitionBy("part").save(table)
        session.sql(f"update delta.`{table}` set text = 'x' where id > 50")
        session.sql(f"delete from delta.`{table}` where id < 10")
        session.read.format("delta").load(table).groupBy("text").count().collect()
        session.stop()
        gateway = session.sparkContext._gateway
        gateway.shutdown()
        gateway.proc.stdin.close()
        gateway.proc.wait()


@pytest.fixture(scope="module")
def few_rows(spark: Any) -> Iterator[None]:
    """FEW_ROWS for all tests of a module, and for its fixtures."""
    with settings(spark, FEW_ROWS):
        yield


def remember_names() -> None:
    """Lets py4j ask once what a name is: Java looks for the class of a package's name in 300 jars.

    Of each function of Spark it asks for its class and for its method otherwise, before each call.
    """
    known: dict[tuple[int, str], JavaPackage | JavaClass | JavaMember] = {}
    for kind in (JVMView, JavaPackage, JavaClass):

        def look_up(self: Any, name: str, ask: Any = kind.__getattr__) -> Any:
            key = (id(self._gateway_client), f"{vars(self).get('_fqn', '')}.{name}")
            found = known.get(key) or ask(self, name)
            if isinstance(found, JavaPackage | JavaClass | JavaMember):
                known[key] = found
            return found

        kind.__getattr__ = look_up


if __name__ == "__main__":
    write_class_archive(sys.argv[1])
