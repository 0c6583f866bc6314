"""Runs the job of the first projection of a configuration, and kills its own process at a step.

`python -m support.killed_projection CONFIG JARS STEP`. Java is another process: it ends by itself.
"""

import os
import signal
import sys
from pathlib import Path

from gateway import config
from gateway.spark.project.evaluation import rule_session
from gateway.spark.project.job import Job
from gateway.spark.project.results import Options
from gateway.spark.project.run import projections
from gateway.spark.session import delta_session


def main() -> None:
    """Run the job."""
    file, jars, fatal = sys.argv[1:]

    def step(name: str) -> None:
        if name == fatal:
            os.kill(os.getpid(), signal.SIGKILL)

    (target, *_) = projections(config.load(file, needs_readers=False))
    spark = delta_session("killed", jars=Path(jars))
    Job(rule_session(spark), target, Options(), step).run()


if __name__ == "__main__":
    main()
