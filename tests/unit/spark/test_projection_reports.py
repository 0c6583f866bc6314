"""Runs of projections as JUnit XML and as metrics, which other tools read."""

import datetime as dt
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from gateway.spark.project.published import Published
from gateway.spark.project.report import junit, write_metrics
from gateway.spark.project.results import OUTCOMES, POSTPONED, Outcome

RUN_AT = dt.datetime(2026, 1, 2, 3, 4, tzinfo=dt.UTC)
LONG_AGO = RUN_AT - dt.timedelta(days=40)
FINE = Outcome(("s.d.fine", "t.d.fine"), "changed", 7, 12, 100, 8, 1.5)
WRONG = Outcome(("s.d.wrong",), error="column <a> is not there", failure="InvalidRule")
LATE = Outcome(("s.d.late",), "postponed")
OUTCOMES_OF_A_RUN = [FINE, WRONG, LATE]
PUBLISHED = [Published(7, 12, 100, 3, 2000, LONG_AGO), None, Published(1, 1, 9, 1, 10, LONG_AGO)]


def test_junit_has_a_case_per_projection() -> None:
    suite = ET.fromstring(junit(OUTCOMES_OF_A_RUN))
    assert [suite.get(name) for name in ("tests", "failures", "skipped")] == ["3", "1", "1"]
    cases = {f"{case.get('classname')}.{case.get('name')}": list(case) for case in suite}
    assert [[(child.tag, child.get("message")) for child in one] for one in cases.values()] == [
        [],
        [("failure", "column <a> is not there")],
        [("skipped", POSTPONED)],
    ]
    assert list(cases) == ["s.d.fine", "s.d.wrong", "s.d.late"]


def test_junit_is_xml_whatever_characters_a_rule_has() -> None:
    wrong = Outcome(("s.d.t",), error="where: near '\x01'", failure="InvalidRule", remark="\ud800")
    (case,) = ET.fromstring(junit([wrong]))
    assert [child.get("message") or child.text for child in case] == ["where: near '\ufffd'", "\ufffd"]


def values_of(path: Path) -> dict[tuple[str, ...], float]:
    families = text_string_to_metric_families(path.read_text())
    return {
        (one.name.removeprefix("delta_gateway_project_"), *one.labels.values()): one.value
        for family in families
        for one in family.samples
    }


def test_metrics_have_each_outcome_and_when_a_projection_was_up_to_date(tmp_path: Path) -> None:
    path = tmp_path / "project.prom"
    write_metrics(path, OUTCOMES_OF_A_RUN, PUBLISHED, RUN_AT, 17.5)
    current = "projection_current_timestamp_seconds"
    assert values_of(path) == {
        ("run_timestamp_seconds",): RUN_AT.timestamp(),
        ("run_seconds",): 17.5,
        **{("projections", one): float(one in ("changed", "failed", "postponed")) for one in OUTCOMES},
        ("projection_failed", "s.d.fine"): 0,
        ("projection_failed", "s.d.wrong"): 1,
        (current, "s.d.fine"): RUN_AT.timestamp(),
        (current, "s.d.late"): LONG_AGO.timestamp(),
    }
    # An unchanged projection was up to date long after its last version was published.
    later = RUN_AT + dt.timedelta(days=1)
    late = Outcome(FINE.names, "postponed")
    write_metrics(path, [late, WRONG, LATE], PUBLISHED, later, 1)
    found = values_of(path)
    assert found[current, "s.d.fine"] == RUN_AT.timestamp()
    assert found["run_timestamp_seconds",] == later.timestamp()
    assert (current, "s.d.wrong") not in found
    # A run of some, or one that was too short, takes nothing back.
    write_metrics(path, [LATE], PUBLISHED[2:], later, 1, others={"s.d.fine", "s.d.wrong"})
    write_metrics(path, [Outcome(WRONG.names, "postponed")], [None], later, 1, others={"s.d.fine"})
    found = values_of(path)
    assert found["projection_failed", "s.d.wrong"] == 1
    assert found[current, "s.d.fine"] == RUN_AT.timestamp()
    assert found["projections", "postponed"] == 1
    # One that the configuration no longer has is gone.
    assert (current, "s.d.late") not in found


@pytest.mark.parametrize("text", ["", "no metrics {", 'other{projection="s.d.late"} 5\n'])
def test_a_file_that_is_none_of_an_earlier_run_is_replaced(tmp_path: Path, text: str) -> None:
    path = tmp_path / "project.prom"
    path.write_text(text)
    write_metrics(path, [LATE], [None], RUN_AT, 1)
    assert values_of(path)["projections", "postponed"] == 1
