"""Metrics of one run of a command, in the text format that Prometheus' node exporter collects from files.

In: the start, the length and the outcomes of a run, and the file of an earlier one. Out: a file, replaced as
a whole.
"""

import datetime as dt
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path

from prometheus_client import CollectorRegistry, Gauge, write_to_textfile
from prometheus_client.parser import text_string_to_metric_families


class RunMetrics:
    """The metrics of a run, whose names have a common prefix."""

    def __init__(self, path: Path, prefix: str, run_at: dt.datetime, seconds: float) -> None:
        """Begin with the start and the length of the run, and read the file of the run before, if any."""
        self._path = path
        self._prefix = prefix
        self._registry = CollectorRegistry()
        self._before = _samples(path)
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

    def before(self, name: str) -> Mapping[str, float]:
        """Return a metric's values in the file of the run before, by the value of its one label."""
        return self._before.get(self._prefix + name, {})

    def carry(self, name: str, gauge: Gauge, subjects: Collection[str]) -> None:
        """Keep what the run before stated of subjects that this one was not about."""
        for subject, value in self.before(name).items():
            if subject in subjects:
                gauge.labels(subject).set(value)

    def write(self) -> None:
        """Replace the file. Raises OSError."""
        write_to_textfile(str(self._path), self._registry)


def _samples(path: Path) -> dict[str, dict[str, float]]:
    """Return the values by metric and label; none of a file that is no such."""
    found: dict[str, dict[str, float]] = {}
    try:
        for family in text_string_to_metric_families(path.read_text(encoding="utf-8")):
            for sample in family.samples:
                if len(sample.labels) == 1:
                    (subject,) = sample.labels.values()
                    found.setdefault(sample.name, {})[subject] = sample.value
    except (OSError, ValueError):
        return {}
    return found
