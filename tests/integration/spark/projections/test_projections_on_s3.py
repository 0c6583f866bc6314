"""Two jobs, each in a Spark of its own, keep one projection in S3: one of them at a time, and never a mix.

Two Java processes and Hadoop's client of S3: all of it belongs to the long form,
`DELTA_GATEWAY_LONG_PROJECTIONS=1`.
"""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import tools
from integration.spark.projections.test_projection_jobs import ENVIRONMENT, IS_LONG, PACKAGE
from integration.spark.projections.test_projections import Kept, made
from support.spark_session import SETTINGS
from support.versitygw import S3Server
from support.waiting import wait_until

from gateway.spark.project.lock import LOCK_FILE
from gateway.spark.verify.digest import digest

BUCKET = "company-shared"
LEASE_MS = 20_000
LEFT_TO_THE_WORKER = ("spark.python.daemon.module", "spark.driver.memory")


@dataclass
class OnS3(Kept):
    """A source in a directory and its projection in a bucket."""

    @property
    def shares(self) -> list[Any]:
        (share,) = super().shares
        share["schemas"][0]["tables"][0]["location"] = f"s3://{BUCKET}/projections"
        return [share]


@dataclass
class Worker:
    """A process that runs the job."""

    process: subprocess.Popen[str]

    def ask(self, command: str) -> str:
        """Answer of a command."""
        self.say(command)
        return self.answer()

    def say(self, line: str) -> None:
        """Give a command, or let the job go on."""
        assert self.process.stdin is not None
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()

    def answer(self) -> str:
        """The next line."""
        assert self.process.stdout is not None
        return self.process.stdout.readline().strip()


def s3a_settings(store: S3Server) -> dict[str, str]:
    client = {
        "endpoint": store.endpoint,
        "endpoint.region": store.region,
        "access.key": store.access_key_id,
        "secret.key": store.secret_access_key,
        "path.style.access": "true",
        "aws.credentials.provider": "org.apache.hadoop.fs.s3a.SimpleAWSCredentialsProvider",
    }
    own = {name: value for name, value in SETTINGS.items() if name not in LEFT_TO_THE_WORKER}
    return own | {f"spark.hadoop.fs.s3a.{name}": value for name, value in client.items()}


@contextmanager
def worker(kept: Kept, settings: dict[str, str]) -> Iterator[Worker]:
    jars = kept.file.parent / "jars"
    jars.mkdir(exist_ok=True)
    for jar in [*(tools.CACHE / "s3a_jars").glob("*.jar"), *(tools.CACHE / "jars").glob("*.jar")]:
        (jars / jar.name).unlink(missing_ok=True)
        (jars / jar.name).symlink_to(jar)
    tests = str(Path(__file__).parents[3])
    command = [sys.executable, "-P", "-m", "support.projection_worker", str(kept.file), str(jars)]
    process = subprocess.Popen(
        [*command, json.dumps(settings), str(LEASE_MS)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=ENVIRONMENT | {"PYTHONPATH": os.pathsep.join([PACKAGE, tests])},
    )
    try:
        yield Worker(process)
    finally:
        process.send_signal(signal.SIGCONT)
        process.stdin.close()  # type: ignore[union-attr]
        process.wait(60)


if IS_LONG:

    @pytest.mark.timeout(1800)
    def test_two_jobs_publish_one_after_the_other(spark: Any, versitygw: S3Server, tmp_path: Path) -> None:
        local = made(spark, tmp_path)
        kept = OnS3(local.spark, local.source, local.file, local.rule)
        root = kept.target.root.removeprefix(f"s3a://{BUCKET}/")
        settings = s3a_settings(versitygw)
        with closing(versitygw.client()) as client:
            client.create_bucket(Bucket=BUCKET)
            with worker(kept, settings) as one, worker(kept, settings) as other:
                assert "written whole; version 0 " in one.ask("run")
                kept.sql("DELETE FROM {t} WHERE id < 20")
                assert one.ask("run removed") == "paused"
                assert "another job is running on it" in other.ask("run")
                one.say("go on")
                assert "changed rows; version 1 " in one.answer()
                assert other.ask("digest") == str(digest(kept.expected()))
                for version, command in ((2, "run"), (3, "careless")):
                    kept.sql(f"DELETE FROM {{t}} WHERE id % 7 = {version}")
                    assert one.ask(f"{command} proved") == "paused"
                    # As long as it holds the lock, it renews it.
                    assert "another job is running on it" in other.ask("run")
                    one.process.send_signal(signal.SIGSTOP)
                    assert f"changed rows; version {version} " in run_when_free(other)
                    one.process.send_signal(signal.SIGCONT)
                    one.say("go on")
                    refused = "lock was lost" if command == "run" else f"faster with version {version}"
                    assert refused in one.answer()
                    assert other.ask("digest") == str(digest(kept.expected()))
                assert "nothing to do; version 3 " in one.ask("run")
                kept.sql("DELETE FROM {t} WHERE id % 5 = 1")
                before = other.ask("digest")
                assert "OSError" in one.ask("torn")
                assert other.ask("digest") == before
                assert "changed rows; version 4 " in one.ask("run")
                assert other.ask("digest") == str(digest(kept.expected()))
            found = client.list_objects_v2(Bucket=BUCKET, Prefix=f"{root}/{LOCK_FILE}")
            assert found["KeyCount"] == 0, "a job that has ended leaves no lock"


def run_when_free(worker: Worker) -> str:
    """Run the job when the lock of another one has expired."""
    said: list[str] = []

    def has_run() -> bool:
        said.append(worker.ask("run"))
        return "another job" not in said[-1]

    wait_until(has_run, seconds=300)
    return said[-1]
