"""A run of projections as JUnit XML, and as metrics in the text format of Prometheus' node exporter.

In: the `Outcome` of each projection, and what is published of it. Out: text, or a file that is replaced as a
whole. Neither has a value of a row.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from gateway.spark.project.results import OUTCOMES, POSTPONED, UP_TO_DATE, Outcome
from gateway.spark.run_reports import Case, RunMetrics, Subject, suite, xml

if TYPE_CHECKING:
    from gateway.spark.project.published import Published

_METRICS = RunMetrics(
    "delta_gateway_project_",
    "projection",
    OUTCOMES,
    ("projections", "Projections of the last run by outcome."),
    ("projection_failed", "1 if the last run of the projection failed, else 0."),
    (
        "projection_current_timestamp_seconds",
        "Start of the last run after which the projection had all of its source, as Unix time.",
    ),
)


def junit(outcomes: Sequence[Outcome]) -> str:
    """Render a case per projection, as CI systems read them."""
    return xml(suite("delta-gateway project", map(_case, outcomes)))


def _case(outcome: Outcome) -> Case:
    schema, _, name = outcome.names[0].rpartition(".")
    return Case(
        schema,
        name,
        outcome.seconds,
        skipped=outcome.remark or POSTPONED if outcome.outcome == "postponed" else None,
        failures=[] if outcome.error is None else [outcome.error],
        kind=outcome.failure,
        remark=outcome.remark,
    )


def write_metrics(
    path: Path,
    outcomes: Sequence[Outcome],
    versions: Sequence[Published | None],
    run_at: dt.datetime,
    seconds: float,
    *,
    others: Collection[str] = (),
) -> None:
    """Write the metrics. `found`: what is published of each projection. Raises OSError.

    The file knows from earlier runs when a projection was up to date. `others`: projections that the run was
    not about, of which the file keeps what it says.
    """

    def subject(outcome: Outcome, version: Published | None) -> Subject:
        published_at = None if version is None else version.proved_at
        good_at = run_at if outcome.outcome in UP_TO_DATE else published_at
        is_wrong = None if outcome.outcome == "postponed" else outcome.error is not None
        return Subject(outcome.names[0], outcome.outcome, is_wrong, good_at)

    _METRICS.write(path, list(map(subject, outcomes, versions)), run_at, seconds, others=others)
