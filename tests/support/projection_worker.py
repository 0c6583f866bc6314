"""Runs the job of the first projection of a configuration as often as it is told to, in a Spark of its own.

`python -m support.projection_worker CONFIG JARS SETTINGS LEASE_MS`, with settings of Spark in JSON. Each line
of its input is a command, and each line of its output an answer:

- `run` [STEP]: runs the job and answers with the outcome. At STEP it answers `paused` and waits for a line.
- `careless` [STEP]: the same without a look at the lock after each step.
- `torn`: runs the job, and the file with its commit cannot be read any more after a hundred bytes.
- `digest`: the digest of the published rows.
"""

import json
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from unittest.mock import patch

from gateway import config
from gateway.spark.project import job, objects
from gateway.spark.project.evaluation import rule_session
from gateway.spark.project.job import Job
from gateway.spark.project.lock import locked
from gateway.spark.project.results import Options
from gateway.spark.project.run import outcome_of, projections
from gateway.spark.session import delta_session
from gateway.spark.verify.digest import digest


class Careless(Job):
    """A job that does not find out that its lock was lost."""

    def _step(self, name: str) -> None:
        self.step(name)


def main() -> None:
    """Answer commands until the input ends."""
    file, jars, settings, lease_ms = sys.argv[1:]
    (target,) = projections(config.load(file, needs_readers=False))
    spark = rule_session(delta_session("worker", jars=Path(jars), local=json.loads(settings)))
    job.locked = partial(locked, lease_ms=int(lease_ms))  # type: ignore[attr-defined]
    for line in sys.stdin:
        command, _, pause = line.strip().partition(" ")
        if command == "digest":
            say(str(digest(spark.read.format("delta").load(target.root))))
            continue

        def step(name: str, pause: str = pause) -> None:
            if name == pause:
                say("paused")
                sys.stdin.readline()

        kind = Careless if command == "careless" else Job
        with ExitStack() as stack:
            if command == "torn":
                stack.enter_context(patch.object(objects, "_parts", torn))
            say(str(outcome_of(kind(spark, target, Options(optimize_hours=0, vacuum_hours=0), step))))


def torn(content: str | Path) -> Iterator[bytes]:
    """Yield a text, or the begin of a file before an error."""
    if isinstance(content, str):
        yield content.encode()
        return
    yield content.read_bytes()[:100]
    raise OSError


def say(text: str) -> None:
    """Answer at once."""
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
