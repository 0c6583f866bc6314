"""A run of projections as JUnit XML, and as metrics in the text format of Prometheus' node exporter.

In: the `Outcome` of each projection, and what is published of it. Out: text, or a file that is replaced as a
whole. Neither has a value of a row.
"""

from __future__ import annotations

import xml.etree.ElementTree as ET
from collections import Counter
from typing import TYPE_CHECKING

from gateway.spark.project.results import OUTCOMES, POSTPONED, UP_TO_DATE, Outcome
from gateway.spark.run_metrics import RunMetrics
from gateway.spark.verify.report import xml_text

if TYPE_CHECKING:
    import datetime as dt
    from collections.abc import Collection, Sequence
    from pathlib import Path

    from gateway.spark.project.published import Published

_PREFIX = "delta_gateway_project_"
_CURRENT = "projection_current_timestamp_seconds"
_FAILED = "projection_failed"


def junit(outcomes: Sequence[Outcome]) -> str:
    """Render a case per projection, as CI systems read them."""
    counts = Counter(one.outcome for one in outcomes)
    suite = ET.Element(
        "testsuite",
        name="delta-gateway project",
        tests=str(len(outcomes)),
        failures=str(counts["failed"]),
        skipped=str(counts["postponed"]),
    )
    for one in outcomes:
        schema, _, name = one.names[0].rpartition(".")
        case = ET.SubElement(suite, "testcase", classname=schema, name=name, time=f"{one.seconds:.3f}")
        if one.error is not None:
            ET.SubElement(case, "failure", message=xml_text(one.error), type=one.failure)
        elif one.outcome == "postponed":
            ET.SubElement(case, "skipped", message=POSTPONED)
        if one.remark:
            ET.SubElement(case, "system-out").text = xml_text(one.remark)
    return ET.tostring(suite, encoding="unicode", xml_declaration=True) + "\n"


def write_metrics(
    path: Path,
    outcomes: Sequence[Outcome],
    found: Sequence[Published | None],
    run_at: dt.datetime,
    seconds: float,
    *,
    others: Collection[str] = (),
) -> None:
    """Write the metrics. `found`: what is published of each projection. Raises OSError.

    The file knows from earlier runs when a projection was up to date. `others`: projections that the run was
    not about, of which the file keeps what it says.
    """
    metrics = RunMetrics(path, _PREFIX, run_at, seconds)
    earlier = metrics.before(_CURRENT)
    ended = (one.outcome for one in outcomes)
    metrics.count("projections", "Projections of the last run by outcome.", OUTCOMES, ended)
    failed = metrics.gauge(_FAILED, "1 if the last run of the projection failed, else 0.", "projection")
    current = metrics.gauge(
        _CURRENT,
        "Start of the last run after which the projection had all of its source, as Unix time.",
        "projection",
    )
    postponed = {one.names[0] for one in outcomes if one.outcome == "postponed"}
    metrics.carry(_FAILED, failed, postponed.union(others))
    metrics.carry(_CURRENT, current, others)
    for one, version in zip(outcomes, found, strict=True):
        name = one.names[0]
        if name not in postponed:
            failed.labels(name).set(one.error is not None)
        times = [earlier.get(name), None if version is None else version.proved_at.timestamp()]
        known = [time for time in times if time is not None]
        if one.outcome in UP_TO_DATE:
            current.labels(name).set(run_at.timestamp())
        elif known:
            current.labels(name).set(max(known))
    metrics.write()
