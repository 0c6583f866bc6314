"""What other tools read of a run: JUnit XML, and metrics as Prometheus' node exporter collects them.

In: the cases of a run, or what it found of each subject, and the metrics of an earlier run. Out: XML, or a
file that is replaced as a whole.
"""

import datetime as dt
import re
import xml.etree.ElementTree as ET
from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from prometheus_client import CollectorRegistry, Gauge, write_to_textfile
from prometheus_client.parser import text_string_to_metric_families

_NO_XML = re.compile("[^\t\n -\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
Metric = tuple[str, str]
"""A name and its text."""


@dataclass(frozen=True)
class Case:
    """A case of JUnit. It passed without `skipped`, `failures` and `error`."""

    subject: str
    name: str
    seconds: float = 0.0
    skipped: str | None = None
    failures: Sequence[str] = ()
    kind: str = ""
    """The class of a failure."""
    error: str | None = None
    remark: str | None = None


def suite(name: str, cases: Iterable[Case]) -> ET.Element:
    """Return a suite of cases, with its counts."""
    made = ET.Element("testsuite", name=name)
    for one in cases:
        place = {"classname": one.subject, "name": _xml_text(one.name), "time": f"{one.seconds:.3f}"}
        case = ET.SubElement(made, "testcase", place)
        if one.skipped is not None:
            ET.SubElement(case, "skipped", message=_xml_text(one.skipped))
        if one.failures:
            failure = ET.SubElement(case, "failure", message=_xml_text(one.failures[0]), type=one.kind)
            failure.text = _xml_text("\n".join(one.failures))
        if one.error is not None:
            ET.SubElement(case, "error", message=_xml_text(one.error))
        if one.remark:
            ET.SubElement(case, "system-out").text = _xml_text(one.remark)
    made.set("tests", str(len(made)))
    for attribute, tag in (("failures", "failure"), ("errors", "error"), ("skipped", "skipped")):
        made.set(attribute, str(len(made.findall(f"testcase/{tag}"))))
    return made


def xml(root: ET.Element) -> str:
    """Return the document of an element."""
    return ET.tostring(root, encoding="unicode", xml_declaration=True) + "\n"


@dataclass(frozen=True)
class Subject:
    """What a run found of a table or a projection.

    Attributes:
        name: the value of the label.
        outcome: one of the outcomes of the command.
        is_wrong: whether it differed or failed; None if the run was too short for it.
        good_at: the last time that it was known to be right, in this or an earlier run.
        is_good_before: whether an earlier file's time holds, too.

    """

    name: str
    outcome: str
    is_wrong: bool | None
    good_at: dt.datetime | None
    is_good_before: bool = True


@dataclass(frozen=True)
class RunMetrics:
    """The metrics of a command: a prefix, its label, and how it counts and names its subjects."""

    prefix: str
    label: str
    outcomes: Sequence[str]
    counts: Metric
    wrong: Metric
    good: Metric

    def write(
        self,
        path: Path,
        subjects: Sequence[Subject],
        run_at: dt.datetime,
        seconds: float,
        *,
        others: Collection[str] = (),
    ) -> None:
        """Replace the file. Raises OSError.

        `others`: subjects that the run was not about, of which the file keeps what it says.
        """
        registry, before = CollectorRegistry(), _samples(path)

        def gauge(metric: Metric, *labels: str) -> Gauge:
            return Gauge(self.prefix + metric[0], metric[1], labels, registry=registry)

        gauge(("run_timestamp_seconds", "Start of the last run, as Unix time.")).set(run_at.timestamp())
        gauge(("run_seconds", "Length of the last run.")).set(seconds)
        counted, counts = gauge(self.counts, "outcome"), Counter(subject.outcome for subject in subjects)
        for outcome in self.outcomes:
            counted.labels(outcome).set(counts[outcome])
        wrong, good = gauge(self.wrong, self.label), gauge(self.good, self.label)
        was_wrong, was_good = (before.get(self.prefix + name, {}) for name, _ in (self.wrong, self.good))
        for name in {
            *others,
            *(subject.name for subject in subjects if subject.is_wrong is None),
        } & was_wrong.keys():
            wrong.labels(name).set(was_wrong[name])
        for name in set(others) & was_good.keys():
            good.labels(name).set(was_good[name])
        for subject in subjects:
            if subject.is_wrong is not None:
                wrong.labels(subject.name).set(subject.is_wrong)
            times = [] if subject.good_at is None else [subject.good_at.timestamp()]
            if subject.is_good_before and subject.name in was_good:
                times.append(was_good[subject.name])
            if times:
                good.labels(subject.name).set(max(times))
        write_to_textfile(str(path), registry)


def _samples(path: Path) -> dict[str, dict[str, float]]:
    """Return the values by metric and label; none of a file that is no such."""
    samples: dict[str, dict[str, float]] = {}
    try:
        for family in text_string_to_metric_families(path.read_text(encoding="utf-8")):
            for sample in family.samples:
                if len(sample.labels) == 1:
                    (subject,) = sample.labels.values()
                    samples.setdefault(sample.name, {})[subject] = sample.value
    except (OSError, ValueError):
        return {}
    return samples


def _xml_text(text: str) -> str:
    """Replace the characters that XML 1.0 does not allow: rows may contain any."""
    return _NO_XML.sub("\ufffd", text)
