"""Metrics: stable names, sums over workers, and no gauges of dead workers."""

import asyncio
import json
import os
import re
import struct
import subprocess
import sys
import threading
from pathlib import Path

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import generate_latest
from prometheus_client.parser import text_string_to_metric_families
from support.waiting import wait_until
from tools import ROOT

from gateway.limits.admission import LimitKind
from gateway.limits.process_memory import resident_bytes
from gateway.telemetry.audit import AuditLog
from gateway.telemetry.metrics import (
    EXCESSES,
    PREFIX,
    Metrics,
    SupervisorMetrics,
    probes,
    workers_page,
)
from gateway.telemetry.shared_values import MOST_REMOVED, WorkerValues, value_class

MONITORING = ROOT / "gateway" / "telemetry" / "dashboards"
NAME = re.compile(rf"\b{PREFIX}_\w+")


def sample_names():
    names = set()
    for registry in (Metrics().registry, SupervisorMetrics().registry):
        for family in registry.collect():
            suffixes = {"counter": ["_total"], "histogram": ["_bucket", "_sum", "_count"]}.get(
                family.type, [""]
            )
            names |= {family.name + suffix for suffix in suffixes}
    return names


def dashboard_expressions():
    dashboard = json.loads((MONITORING / "dashboard.json").read_text())
    return [target["expr"] for panel in dashboard["panels"] for target in panel.get("targets", [])]


def alert_rules():
    groups = yaml.safe_load((MONITORING / "alerts.yaml").read_text())["groups"]
    return [rule for group in groups for rule in group["rules"]]


def test_the_dashboard_names_only_metrics_that_are_there():
    named = {name for expression in dashboard_expressions() for name in NAME.findall(expression)}
    assert named
    assert named <= sample_names()


def test_every_metric_has_its_place_on_the_dashboard():
    shown = {name for expression in dashboard_expressions() for name in NAME.findall(expression)}
    unshown = {name for name in sample_names() if not name.endswith(("_sum", "_count")) and name not in shown}
    assert unshown == set()


def test_alerts_name_existing_metrics_and_an_action():
    rules = alert_rules()
    for rule in rules:
        names = NAME.findall(rule["expr"])
        assert names, rule["alert"]
        assert set(names) <= sample_names(), rule["alert"]
        assert rule["annotations"]["summary"]
        assert rule["annotations"]["action"]
        assert rule["labels"]["severity"] in {"page", "ticket"}
    assert len({rule["alert"] for rule in rules}) == len(rules)


def test_counters_of_alerts_exist_from_the_start():
    page = samples(Metrics().page()) | samples(generate_latest(SupervisorMetrics().registry))
    increases = [rule["expr"] for rule in alert_rules() if re.search(r"\b(increase|rate)\(", rule["expr"])]
    for expression in increases:
        for name, label, value in re.findall(r"(\w+_total)\{(\w+)=\"(\w+)\"\}", expression):
            assert page[name, ((label, value),)] == 0
    for outcome in ("accepted", "refused"):
        assert page["delta_gateway_config_reloads_total", (("outcome", outcome),)] == 0
    assert page["delta_gateway_admin_auth_failures_total", ()] == 0
    assert tuple(LimitKind) == EXCESSES


def test_a_server_without_an_audit_log_raises_no_alert_about_one():
    assert samples(Metrics().page())["delta_gateway_audit_healthy", ()] == 1


def test_a_page_has_the_listed_metrics_alone():
    pages = Metrics().page() + generate_latest(SupervisorMetrics().registry)
    assert {name for name, _ in samples(pages)} <= sample_names()


def test_names_and_help_follow_the_rules_of_prometheus():
    for family in Metrics().registry.collect():
        assert family.name.startswith(f"{PREFIX}_")
        assert family.documentation.endswith(".")
        assert not family.name.endswith("_total")
        if family.type == "histogram":
            assert family.name.endswith("_seconds")


WORKER = """
import sys
from gateway.telemetry.metrics import LatestValues
from gateway.telemetry.metrics import Metrics
from gateway.telemetry.shared_values import write_values_to
write_values_to(int(sys.argv[2]), int(sys.argv[3]))
metrics = Metrics()
metrics.requests.labels("query", "200").inc(3)
metrics.streams.set(2)
metrics.audit_healthy.set(int(sys.argv[1]))
metrics.request_seconds.labels("query").observe(0.02)
breakers = LatestValues(metrics.storage_open)
breakers.set({"of 0": 1, "of 1": 1})
breakers.set({f"of {sys.argv[1]}": 1})
expiries = LatestValues(metrics.credentials_expiry)
expiries.set({f"of {sys.argv[1]}": 5})
print("ready", flush=True)
sys.stdin.read()
"""


def samples(page):
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(page.decode())
        for sample in family.samples
    }


@pytest.mark.processes
def test_workers_are_summed_and_a_dead_ones_gauges_leave_the_sum():
    values = [WorkerValues(), WorkerValues()]

    def started(healthy, own):
        descriptors = own.begin()
        return subprocess.Popen(
            [sys.executable, "-P", "-c", WORKER, str(healthy), *map(str, descriptors)],
            pass_fds=descriptors,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )

    workers = [started(healthy, own) for healthy, own in zip((1, 0), values, strict=True)]
    requests = ("delta_gateway_requests_total", (("route", "query"), ("status", "200")))
    supervisor = SupervisorMetrics()
    try:
        for worker in workers:
            assert worker.stdout.readline() == b"ready\n"
        page = samples(workers_page(values, supervisor))
        assert page[requests] == 6
        assert page["delta_gateway_streams", ()] == 4
        assert page["delta_gateway_audit_healthy", ()] == 0
        assert page["delta_gateway_request_seconds_count", (("route", "query"),)] == 2
        assert page["delta_gateway_workers", ()] == 0
        # What has ended in one worker does not hide what there is in another.
        breakers = [page["delta_gateway_storage_breaker_open", (("storage", f"of {n}"),)] for n in (0, 1)]
        assert breakers == [1, 1]
        expiry = "delta_gateway_storage_credentials_expire_timestamp_seconds"
        assert {page[expiry, (("storage", f"of {n}"),)] for n in (0, 1)} == {5}
        workers[1].kill()
        workers[1].communicate()
        values[1].end()
        supervisor.ended_streams = 2
        page = samples(workers_page(values, supervisor))
        assert page[requests] == 6
        assert page["delta_gateway_streams", ()] == 2
        assert page["delta_gateway_broken_streams_total", (("reason", "worker ended"),)] == 2
        assert page[expiry, (("storage", "of 1"),)] == 5
        assert (expiry, (("storage", "of 0"),)) not in page
        # The next worker of a slot continues its counters.
        workers[1] = started(0, values[1])
        assert workers[1].stdout.readline() == b"ready\n"
        page = samples(workers_page(values, supervisor))
        assert (page[requests], page["delta_gateway_streams", ()]) == (9, 4)
        # The audit log of the supervisor has the changes of recipients.
        workers[1].kill()
        workers[1].communicate()
        values[1].end()
        supervisor.audit = audit = AuditLog(Path("/dev/full"), queue_records=2)
        assert [audit.put(b"{}\n") for _ in range(3)] == [True, True, False]
        wait_until(lambda: not audit.healthy)
        page = samples(workers_page(values, supervisor))
        assert page["delta_gateway_audit_records_total", (("outcome", "dropped"),)] == 1
        assert page["delta_gateway_audit_waiting_records", ()] == 2
        assert page["delta_gateway_audit_healthy", ()] == 0
        audit.close()
    finally:
        for worker in workers:
            worker.kill()
            worker.communicate()
        for own in values:
            own.close()


def test_a_page_waits_for_a_value_that_a_worker_is_writing():
    values = WorkerValues()
    counters, _ = values.begin()
    os.write(counters, struct.pack("iii", 40, 0, 200))
    writer = threading.Timer(0.05, lambda: os.pwrite(counters, struct.pack("ii", 8, 0), 0))
    writer.start()
    try:
        assert samples(workers_page([values], SupervisorMetrics()))["delta_gateway_workers", ()] == 0
    finally:
        writer.join()
        values.close()


def test_a_worker_that_ends_while_a_page_is_made_does_not_take_its_file_away(monkeypatch):
    values, read = WorkerValues(), os.pread
    values.begin()
    ends = threading.Thread(target=values.end)

    def read_late(*arguments):
        if ends.ident is None:
            ends.start()
            ends.join(0.1)
        return read(*arguments)

    monkeypatch.setattr(os, "pread", read_late)
    assert samples(workers_page([values], SupervisorMetrics()))["delta_gateway_workers", ()] == 0
    ends.join()
    values.close()


def test_values_that_stay_torn_are_an_error():
    values = WorkerValues()
    counters, _ = values.begin()
    os.write(counters, struct.pack("iii", 40, 0, 200))
    with pytest.raises((struct.error, RuntimeError)):
        workers_page([values], SupervisorMetrics())
    values.close()


def test_removed_values_of_a_gauge_take_no_memory_for_ever():
    values = WorkerValues()
    counters, gauges = values.begin()
    of_library = value_class(os.dup(counters), os.dup(gauges))

    def value(name):
        return of_library("gauge", "g", "g", ["name"], [name], "Help.", multiprocess_mode="livesum")

    value("stays").set(1)
    for number in range(5 * MOST_REMOVED):
        gone = value(f"{number}")
        gone.set(1)
        gone.set(float("nan"))
    page = samples(workers_page([values], SupervisorMetrics()))
    assert {key[1]: found for key, found in page.items() if key[0] == "g"} == {(("name", "stays"),): 1}
    assert os.fstat(gauges).st_size < 3 * 100 * MOST_REMOVED
    of_library.close()
    values.close()


@given(st.lists(st.lists(st.floats(0, 1000), max_size=20), max_size=4))
def test_observations_flushed_together_equal_single_ones(batches):
    one_by_one, settled = Metrics(), Metrics()
    timings = settled.timings(settled.request_seconds.labels("query"))
    tally = settled.tally(settled.requests.labels("query", "200"))
    for batch in batches:
        for seconds in batch:
            one_by_one.request_seconds.labels("query").observe(seconds)
            timings.add(seconds)
            tally.count += 1
        page = samples(settled.page())
    name = "delta_gateway_request_seconds"
    reported = {key: value for key, value in samples(one_by_one.page()).items() if key[0].startswith(name)}
    if any(batches):
        for key, value in reported.items():
            assert page[key] == pytest.approx(value)
        assert page["delta_gateway_requests_total", (("route", "query"), ("status", "200"))] == sum(
            map(len, batches)
        )


def test_a_gauge_decreases_as_it_increased():
    metrics = Metrics()
    tally = metrics.tally(metrics.in_flight.labels("query"))
    key = ("delta_gateway_in_flight_requests", (("route", "query"),))
    tally.count += 3
    assert samples(metrics.page())[key] == 3
    tally.count -= 2
    assert samples(metrics.page())[key] == samples(metrics.page())[key] == 1


async def test_the_probe_reports_lag_memory_and_descriptors(monkeypatch):
    monkeypatch.setattr("gateway.telemetry.metrics.LAG_PROBE_SECONDS", 0.01)
    metrics = Metrics()
    async with asyncio.timeout(20), probes(metrics, resident_bytes):
        while samples(metrics.page())["delta_gateway_event_loop_lag_seconds_count", ()] < 3:
            await asyncio.sleep(0.01)
    page = samples(metrics.page())
    assert page["delta_gateway_resident_bytes", ()] > 5_000_000
    assert page["delta_gateway_open_files", ()] > 2


async def test_a_failed_probe_is_logged_and_the_next_one_runs(monkeypatch, caplog):
    monkeypatch.setattr("gateway.telemetry.metrics.LAG_PROBE_SECONDS", 0.01)
    looks = []

    def failing():
        looks.append(1)
        raise ValueError("a defect")

    async with asyncio.timeout(10), probes(Metrics(), resident_bytes, failing):
        while len(looks) < 3:
            await asyncio.sleep(0.01)
    assert "a measurement of the process failed" in caplog.text
