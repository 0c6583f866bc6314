"""One Spark session with Delta for all tests that use it."""

import os
import sys
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import tools
from py4j.java_gateway import JavaPackage, JVMView

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
    "spark.python.daemon.module": "spark_workers",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.shuffle.partitions": "2",
    "spark.databricks.delta.snapshotPartitions": "2",
    # Tests vacuum tables that were written a moment before.
    "spark.databricks.delta.retentionDurationCheck.enabled": "false",
}

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
    jars = tools.CACHE / "jars"
    if not any(jars.glob("delta-spark*.jar")):
        pytest.skip(
            "the Spark jars are not there: tests/run.py fetches them where there are Java 17 and Maven"
        )
    pyspark = pytest.importorskip("pyspark.sql", reason="pyspark is not installed: tests/run.py does it")
    # The executors' Python must find the same package as this one, and the daemon of its workers.
    found_in = [str(Path(gateway.__file__).parent.parent), str(Path(__file__).parent)]
    os.environ["PYTHONPATH"] = os.pathsep.join([*found_in, os.environ.get("PYTHONPATH", "")])
    # Not the checkout's sources, which have no native module, where the tests run beside them.
    os.environ["PYTHONSAFEPATH"] = "1"
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    work = tmp_path_factory.mktemp("spark")
    builder = pyspark.SparkSession.builder.master("local[2]").appName("tests")
    settings = {
        **SETTINGS,
        "spark.jars": ",".join(str(jar) for jar in sorted(jars.glob("*.jar"))),
        "spark.sql.warehouse.dir": str(work / "warehouse"),
        "spark.local.dir": str(work / "local"),
    }
    for name, value in settings.items():
        builder = builder.config(name, value)
    remember_packages()
    remember_packages()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        session = builder.getOrCreate()
        session.sparkContext.setLogLevel("ERROR")
        yield session
        session.stop()


@pytest.fixture(scope="module")
def few_rows(spark: Any) -> Iterator[None]:
    """FEW_ROWS for all tests of a module, and for its fixtures."""
    with settings(spark, FEW_ROWS):
        yield


def remember_packages() -> None:
    """Lets py4j ask once whether a name is a package: Java looks for such a class in 300 jars."""
    known: dict[tuple[int, str], JavaPackage] = {}
    for kind in (JVMView, JavaPackage):

        def look_up(self: Any, name: str, ask: Any = kind.__getattr__) -> Any:
            key = (id(self._gateway_client), f"{vars(self).get('_fqn', '')}.{name}")
            found = known.get(key) or ask(self, name)
            if isinstance(found, JavaPackage):
                known[key] = found
            return found

        kind.__getattr__ = look_up
