"""Metrics of one run of a command, in the text format that Prometheus' node exporter collects from files.

In: the start, the length and the outcomes of a run. Out: a file, replaced as a whole.
"""

import datetime as dt
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path

from prometheus_client import CollectorRegistry, Gauge, write_to_textfile


class RunMetrics:
    """The metrics of a run, whose names have a common prefix."""

    def __init__(self, prefix: str, run_at: dt.datetime, seconds: float) -> None:
        """Begin with the start and the length of the run."""
        self._prefix = prefix
        self._registry = CollectorRegistry()
        self.gauge("run_timestamp_seconds", "Start of the last run, as Unix time.").set(run_at.timestamp())
        self.gauge("run_seconds", "Length of the last run.").set(seconds)

    def gauge(self, name: str, text: str, *labels: str) -> Gauge:
        """Add a metric."""
        return Gauge(self._prefix + name, text, labels, registry=self._registry)

    def count(self, name: str, text: str, outcomes: Sequence[str], found: Iterable[str]) -> None:
        """Add a metric that counts what was found of each outcome."""
        gauge, counts = self.gauge(name, text, "outcome"), Counter(found)
        for outcome in outcomes:
            gauge.labels(outcome).set(counts[outcome])

    def write(self, path: Path) -> None:
        """Replace the file. Raises OSError."""
        write_to_textfile(str(path), self._registry)
