"""Projections by processes of their own: killed by a signal at each step, and on a cluster of Spark.

Each test starts several Java processes, so all of them belong to the long form:
`DELTA_GATEWAY_LONG_PROJECTIONS=1`.
"""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyspark
import pytest
import tools
from integration.spark.projections.test_projections import NO_MAINTENANCE, Kept, made
from support.processes import free_port
from support.spark_session import SETTINGS
from support.waiting import wait_until

import gateway
from gateway.spark import cli
from gateway.spark.project.lock import Locked

IS_LONG = bool(os.environ.get("DELTA_GATEWAY_LONG_PROJECTIONS"))
STEPS = ("locked", "removed", "added", "proved", "published")
PACKAGE = str(Path(gateway.__file__).parent.parent)
ENVIRONMENT = {**os.environ, "PYSPARK_PYTHON": sys.executable, "PYTHONSAFEPATH": "1"}


def ended(kept: Kept) -> bool:
    """Run the job, unless Java still holds the lock of the killed one."""
    try:
        kept.run()
    except Locked:
        return False
    return True


def kill_at_each_step(spark: Any, directory: Path) -> None:
    kept = made(spark, directory)
    kept.run(NO_MAINTENANCE)
    for number, step in enumerate(STEPS):
        before = kept.expected().collect()
        kept.sql(f"DELETE FROM {{t}} WHERE id % 13 = {number}")
        tests = str(Path(__file__).parents[3])
        command = [sys.executable, "-P", "-m", "support.killed_projection", str(kept.file)]
        killed = subprocess.run(
            [*command, str(tools.CACHE / "jars"), step],
            check=False,
            env=ENVIRONMENT | {"PYTHONPATH": os.pathsep.join([PACKAGE, tests])},
        )
        assert killed.returncode == -signal.SIGKILL
        if step == "published":
            kept.assert_equal()
        else:
            assert sorted(map(str, kept.served().collect())) == sorted(map(str, before))
        wait_until(lambda: ended(kept))
        kept.assert_equal()


@contextmanager
def standalone_cluster(directory: Path) -> Iterator[str]:
    """Run a master and two workers of the package's Spark; return the URL of the master."""
    home = Path(pyspark.__file__).parent
    port = free_port()
    master = f"spark://127.0.0.1:{port}"
    deploy = "org.apache.spark.deploy"
    own = ["--host", "127.0.0.1", "--webui-port", "0"]
    commands = [[f"{deploy}.master.Master", *own, "--port", str(port)]]
    commands += [
        [
            f"{deploy}.worker.Worker",
            *own,
            "--cores",
            "1",
            "--memory",
            "1g",
            "-d",
            str(directory / name),
            master,
        ]
        for name in ("one", "two")
    ]
    environment = ENVIRONMENT | {"SPARK_HOME": str(home), "PYTHONPATH": PACKAGE}
    with (directory / "cluster.log").open("w") as log:
        running = [
            subprocess.Popen([str(home / "bin/spark-class"), *one], env=environment, stdout=log, stderr=log)
            for one in commands
        ]
        try:
            wait_until(lambda: Path(log.name).read_text().count("Registering worker") >= 2, seconds=300)
            yield master
        finally:
            for one in running:
                one.terminate()
            for one in running:
                one.wait(30)


def submit(master: str, *arguments: str) -> str:
    chosen = {name: value for name, value in SETTINGS.items() if name != "spark.python.daemon.module"}
    chosen |= {"spark.executor.memory": "512m", "spark.driver.memory": "1g"}
    home = Path(pyspark.__file__).parent
    command = [str(home / "bin/spark-submit"), "--master", master]
    command += [word for name, value in chosen.items() for word in ("--conf", f"{name}={value}")]
    command += ["--jars", ",".join(map(str, sorted((tools.CACHE / "jars").glob("*.jar")))), cli.__file__]
    environment = ENVIRONMENT | {"SPARK_HOME": str(home), "PYTHONPATH": PACKAGE}
    done = subprocess.run(
        [*command, *arguments],
        check=False,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env=environment,
    )
    assert done.returncode == 0, done.stdout[-3000:]
    return done.stdout


if IS_LONG:

    @pytest.mark.timeout(1800)
    def test_a_process_that_is_killed_leaves_the_published_version(spark: Any, tmp_path: Path) -> None:
        kill_at_each_step(spark, tmp_path)

    @pytest.mark.timeout(1800)
    def test_a_cluster_keeps_projections_by_spark_submit(spark: Any, tmp_path: Path) -> None:
        kept = made(spark, tmp_path)
        assert kept.target.first_version == 0
        with standalone_cluster(tmp_path) as master:
            said = submit(master, "project", "-c", str(kept.file))
            assert "1 of 1 projections are up to date" in said
            kept.assert_equal()
            kept.sql("DELETE FROM {t} WHERE id < 50")
            said = submit(master, "project", "-c", str(kept.file))
            assert " changed rows; version 1 " in said
        kept.assert_equal()
