"""Metrics for Prometheus: every metric with its name, type, labels and help.

In: events, each by a typed attribute. Out: one text page. With several workers each one writes its values
into memory that its supervisor reads, and the supervisor's page adds them up.
"""

from __future__ import annotations

import asyncio
import logging
import os
import struct
import threading
import time
from bisect import bisect_left
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import asdict
from typing import TypeVar, get_args

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    Metric,
    disable_created_metrics,
    generate_latest,
)

from gateway.background import alongside
from gateway.telemetry.audit import AuditLog
from gateway.telemetry.audit_record import WORKER_ENDED
from gateway.telemetry.log_output import log_counts
from gateway.telemetry.request_record import REFUSALS, CredentialOutcome, Outcome
from gateway.telemetry.shared_values import WorkerValues, merged, summed

log = logging.getLogger("gateway.metrics")

PREFIX = "delta_gateway"
CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
LAG_PROBE_SECONDS = 0.5
PAGE_ATTEMPTS = 10
PAGE_RETRY_SECONDS = 0.02
EXCESSES = ("requests", "streams", "files", "memory", "credentials", "attempts", "readers", "descriptors")
CACHE_FILES = ("hit", "miss", "invalid", "written", "failed", "too_large", "evicted")
STRANGER_CLOSINGS = ("many", "address", "bytes", "slow", "reserve")
LOG_FAULTS = ("contradiction", "checkpoint", "checksum", "hint")
RELOADS = ("accepted", "refused")
AUDITED = ("written", "dropped", "failures")
LOGGED = ("written", "lost")
SEARCHES = ("complete", "partial", "failed")
BROKEN = f"{PREFIX}_broken_streams"

NO_VALUE = float("nan")
"""Removes a value from the memory that workers share."""

_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 100.0, 300.0)
_LAG_SECONDS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1.0, 5.0)

Key = TypeVar("Key")
Value = TypeVar("Value")
Counted = TypeVar("Counted", "Tally", "Timings")


class Made(dict[Key, Value]):
    """Values that are made at their first use. `functools.cache` takes ten times as long to find one."""

    def __init__(self, make: Callable[[Key], Value]) -> None:
        super().__init__()
        self._make = make

    def __missing__(self, key: Key) -> Value:
        value = self[key] = self._make(key)
        return value


class Tally:
    """A counter that only the event loop changes, by adding to `count`."""

    __slots__ = ("_reported", "_value", "count")

    def __init__(self, value: Counter | Gauge) -> None:
        self._value = value
        self.count = self._reported = 0

    def flush(self) -> None:
        """Add the new values to the metric."""
        # The count only ever grows or shrinks by its owner: it is read once and never set back.
        count = self.count
        if count != self._reported:
            self._value.inc(count - self._reported)
            self._reported = count


class Timings:
    """Durations that only the event loop observes."""

    __slots__ = ("_bounds", "_counts", "_histogram", "_reported", "_reported_sum", "_sum")

    def __init__(self, histogram: BulkHistogram, bounds: Sequence[float]) -> None:
        self._histogram = histogram
        self._bounds = bounds
        self._counts = [0] * (len(bounds) + 1)
        self._reported = list(self._counts)
        self._sum = self._reported_sum = 0.0

    def add(self, seconds: float) -> None:
        self._counts[bisect_left(self._bounds, seconds)] += 1
        self._sum += seconds

    def flush(self) -> None:
        """Add the new values to the metric."""
        counts, total = list(self._counts), self._sum
        new = [count - reported for count, reported in zip(counts, self._reported, strict=True)]
        if any(new):
            self._histogram.observe_all(new, total - self._reported_sum)
            self._reported, self._reported_sum = counts, total


class BulkHistogram(Histogram):
    """A histogram that takes many observations at once."""

    def observe_all(self, counts: Sequence[int], total: float) -> None:
        """Add the counts to the buckets, the last one without a bound; `total` is the sum of all values."""
        self._sum.inc(total)
        for bucket, count in zip(self._buckets, counts, strict=True):
            bucket.inc(count)


class LatestValues:
    """Sets a gauge with one label to the current values, and removes labels without a value."""

    def __init__(self, gauge: Gauge) -> None:
        self._gauge = gauge
        self._values: dict[str, float] = {}

    def set(self, values: Mapping[str, float]) -> None:
        """Replace all values, by label."""
        for label in self._values.keys() - values.keys():
            self._gauge.labels(label).set(NO_VALUE)
            self._gauge.remove(label)
        for label, value in values.items():
            # Setting a value costs much more than comparing it.
            if self._values.get(label) != value:
                self._gauge.labels(label).set(value)
        self._values = dict(values)


class _Registered:
    """Metrics on one registry, with the prefix of all names."""

    def __init__(self, registry: CollectorRegistry) -> None:
        # With one process the library would add a gauge for each series, the time of its first value.
        disable_created_metrics()  # type: ignore[no-untyped-call]
        self.registry = registry

    def _counter(self, name: str, description: str, *labels: str, shown: Iterable[str] = ()) -> Counter:
        """Return a counter. An alert on an increase does not see a value that is not `shown` before it."""
        counter = Counter(f"{PREFIX}_{name}", description, labels, registry=self.registry)
        for value in shown:
            counter.labels(value)
        return counter

    def _gauge(self, name: str, description: str, *labels: str, mode: str = "livesum") -> Gauge:
        return Gauge(f"{PREFIX}_{name}", description, labels, registry=self.registry, multiprocess_mode=mode)  # type: ignore[arg-type]


class Metrics(_Registered):
    """All metrics of one process, on their own registry."""

    def __init__(self) -> None:
        super().__init__(CollectorRegistry())
        self._unsettled: list[Tally | Timings] = []
        self._settling = threading.Lock()
        self.requests = self._counter("requests", "Answered requests.", "route", "status")
        self.request_seconds = self._histogram(
            "request_seconds", "Time from the head of a request to the end of the answer.", "route"
        )
        self.first_byte_seconds = self._histogram(
            "first_byte_seconds", "Time from the head of a request to the head of the answer.", "route"
        )
        self.in_flight = self._gauge("in_flight_requests", "Requests that are being answered.", "route")
        self.streams = self._gauge("streams", "Answers that are being streamed.")
        self.stream_bytes = self._counter("stream_bytes", "Bytes of streamed answers.")
        self.broken_streams = self._counter(
            "broken_streams",
            "Streams that did not reach their end.",
            "reason",
            shown=(*get_args(Outcome), WORKER_ENDED),
        )
        self.native_panics = self._counter(
            "native_panics", "Requests that a defect of the native code has ended."
        )
        self.files = self._counter("files", "Files: considered, pruned, signed.", "outcome")
        self.listings = self._counter(
            "listings", "Answers with files of a version, from memory or from the log.", "source"
        )
        self.cache_bytes = self._gauge(
            "cache_bytes", "Memory for columns of hot tables and remembered versions."
        )
        self.cache_files = self._counter(
            "cache_files",
            "Files of columns in the cache directory, by outcome.",
            "outcome",
            shown=CACHE_FILES,
        )
        self.log_faults = self._counter(
            "log_faults",
            "Contradictions in logs of tables, and optional log files that are left out.",
            "fault",
            shown=LOG_FAULTS,
        )
        self.storage_seconds = self._histogram(
            "storage_call_seconds",
            "Duration of native calls that load a snapshot or read a log.",
            "storage",
        )
        self.stale_answers = self._counter(
            "stale_answers", "Answers from a kept snapshot while the storage fails."
        )
        self.storage_calls = self._counter(
            "storage_calls",
            "Native calls that load a snapshot or read a log, by outcome.",
            "storage",
            "outcome",
        )
        self.storage_open = self._gauge(
            "storage_breaker_open",
            "1 while a storage is not called because it fails.",
            "storage",
            mode="livemax",
        )
        self.refused = self._counter(
            "refused_requests", "Requests that were refused or failed, by reason.", "reason", shown=REFUSALS
        )
        self.temporary_credentials = self._counter(
            "temporary_credentials",
            "Requests for temporary credentials by outcome.",
            "outcome",
            shown=get_args(CredentialOutcome),
        )
        self.jwks_age = self._gauge(
            "jwks_age_seconds",
            "Age of the public keys of an identity provider.",
            "issuer",
            mode="livemax",
        )
        self.limited = self._counter(
            "limited_requests", "Requests that a limit refused.", "limit", shown=EXCESSES
        )
        self.token_expiry = self._gauge(
            "token_expires_timestamp_seconds",
            "End of the recipient's last token or client secret, if it is within 30 days.",
            "recipient",
            mode="livemax",
        )
        self.recipients_readable = self._gauge(
            "recipients_readable", "1 while the recipients' database can be read.", mode="livemin"
        )
        self.stored_left_out = self._gauge(
            "stored_entries_left_out",
            "Shares, schemas, tables and volumes of the database that are no longer valid.",
            mode="livemax",
        )
        self.recipients_left_out = self._gauge(
            "stored_recipients_left_out",
            "Recipients of the database that are refused because their rows are invalid.",
            mode="livemax",
        )
        self.credentials_expiry = self._gauge(
            "storage_credentials_expire_timestamp_seconds",
            "End of the storage's credentials.",
            "storage",
            mode="livemostrecent",
        )
        self.loop_lag = self._histogram(
            "event_loop_lag_seconds", "Delay of the event loop.", buckets=_LAG_SECONDS
        )
        self.resident_bytes = self._gauge("resident_bytes", "Memory of the serving processes.")
        self.memory_exhausted = self._gauge(
            "memory_exhausted", "Processes above their memory limit that have no cache left to free."
        )
        self.open_files = self._gauge("open_files", "File descriptors of the serving processes.")
        self.strangers = self._gauge(
            "unauthenticated_connections", "Connections that have sent no authenticated request."
        )
        self.closed_strangers = self._counter(
            "closed_unauthenticated_connections",
            "Connections without an authenticated request that a bound has closed.",
            "reason",
            shown=STRANGER_CLOSINGS,
        )
        self.audit_records = self._counter(
            "audit_records", "Audit records by outcome.", "outcome", shown=AUDITED
        )
        self.audit_waiting = self._gauge(
            "audit_waiting_records", "Audit records that are not yet in the file."
        )
        self.audit_healthy = self._gauge(
            "audit_healthy", "1 while the audit log can be written.", mode="livemin"
        )
        # Also without an audit log, and until it is looked at.
        self.audit_healthy.set(1)
        self.log_lines = self._counter("log_lines", "Log lines by outcome.", "outcome", shown=LOGGED)
        self.reloads = self._counter("config_reloads", "Reloads by outcome.", "outcome", shown=RELOADS)
        self.config_loaded = self._gauge(
            "config_loaded_timestamp_seconds",
            "Time at which the running configuration was read.",
            mode="mostrecent",
        )

    def page(self) -> bytes:
        """Return the metrics of this process in the text format of Prometheus."""
        self.flush()
        return generate_latest(self.registry)

    def tally(self, value: Counter | Gauge) -> Tally:
        """Return a cheap counter for a value, for use on the event loop."""
        return self._to_settle(Tally(value))

    def timings(self, histogram: BulkHistogram) -> Timings:
        """Return a cheap recorder for a histogram of requests, for use on the event loop."""
        return self._to_settle(Timings(histogram, _SECONDS))

    def flush(self) -> None:
        """Add the new counts to the metrics. Can be called from any thread."""
        with self._settling:
            for counted in tuple(self._unsettled):
                counted.flush()

    def _to_settle(self, counted: Counted) -> Counted:
        self._unsettled.append(counted)
        return counted

    def _histogram(
        self, name: str, description: str, *labels: str, buckets: tuple[float, ...] = _SECONDS
    ) -> BulkHistogram:
        return BulkHistogram(f"{PREFIX}_{name}", description, labels, registry=self.registry, buckets=buckets)


def outcome_of(refused: str | None) -> str:
    """The value of the label `outcome` for a reload, by why it was refused."""
    return "accepted" if refused is None else "refused"


class AdminMetrics(_Registered):
    """The metrics of the process that serves the admin listener."""

    def __init__(self, registry: CollectorRegistry) -> None:
        super().__init__(registry)
        self.auth_failures = self._counter(
            "admin_auth_failures", "Requests of the admin listener without a valid token."
        )
        self.certificate_reloads = self._counter(
            "admin_certificate_reloads",
            "Reloads of the admin listener's certificate by outcome.",
            "outcome",
            shown=RELOADS,
        )


class DiscoveryMetrics(_Registered):
    """The metrics of the process that searches for tables. A source is `share` or `share.schema`."""

    def __init__(self, registry: CollectorRegistry) -> None:
        super().__init__(registry)
        self.searches = self._counter(
            "discovery_searches", "Searches for tables by outcome.", "outcome", shown=SEARCHES
        )
        self.tables = self._gauge("discovered_tables", "Tables that searches have found.", "source")
        self.refused = self._gauge(
            "discovery_refused_directories",
            "Directories and tables of catalogs that searches have left out.",
            "source",
        )
        self.incomplete = self._gauge(
            "discovery_incomplete", "1 while the last search was not complete.", "source"
        )
        self.missing = self._gauge(
            "discovery_missing_tables",
            "Known tables that the last search has not found, and that stay until the next one agrees.",
            "source",
        )
        self.calls = self._gauge(
            "discovery_calls",
            "Listings of directories or requests to a catalog of the last search.",
            "source",
        )
        self.limited = self._gauge(
            "discovery_limited", "1 while this limit ended the last search.", "source", "limit"
        )

    def forget(self, source: str) -> None:
        """Remove the values of a source that is not searched."""
        for gauge in (self.tables, self.refused, self.incomplete, self.missing, self.calls):
            with suppress(KeyError):
                gauge.remove(source)
        self.limited.remove_by_labels({"source": source})


class SupervisorMetrics(_Registered):
    """The metrics of the process that supervises the workers."""

    def __init__(self) -> None:
        super().__init__(CollectorRegistry())
        self.admin = AdminMetrics(self.registry)
        self.discovery = DiscoveryMetrics(self.registry)
        self.workers = self._gauge("workers", "Running workers.")
        self.worker_restarts = self._counter(
            "worker_restarts", "Workers that ended by themselves and were started again."
        )
        self.worker_hangs = self._counter(
            "worker_hangs", "Workers that answered nothing for too long and were ended."
        )
        self.ended_streams = 0
        """Streams that ended with their worker. They count among the broken ones."""
        self.audit: AuditLog | None = None
        """The log of this process, for changes and reloads. It counts as that of one more worker."""


def workers_page(workers: Sequence[WorkerValues], supervisor: SupervisorMetrics) -> bytes:
    """Return the sum over all workers, and the metrics of the supervisor."""
    return _sum_of_workers(workers, supervisor) + generate_latest(supervisor.registry)


def _sum_of_workers(workers: Sequence[WorkerValues], supervisor: SupervisorMetrics) -> bytes:
    for _ in range(PAGE_ATTEMPTS - 1):
        # A worker may be writing its file.
        with suppress(struct.error, ValueError, RuntimeError):
            return _read_workers(workers, supervisor)
        time.sleep(PAGE_RETRY_SECONDS)
    return _read_workers(workers, supervisor)


def _read_workers(workers: Sequence[WorkerValues], supervisor: SupervisorMetrics) -> bytes:
    metrics = merged(workers)
    broken = metrics.get(BROKEN)
    if broken is not None:
        labels = (("reason", WORKER_ENDED),)
        broken.add_sample(f"{BROKEN}_total", labels, supervisor.ended_streams)  # type: ignore[arg-type]
    _add_own(metrics, supervisor.audit)
    return generate_latest(_Collected(summed(metrics)))


def _add_own(metrics: Mapping[str, Metric], audit: AuditLog | None) -> None:
    """Add the values that the supervisor has, too."""

    def add(name: str, label: tuple[str, str], value: int) -> None:
        metric = metrics.get(f"{PREFIX}_{name}")
        if metric is not None:
            suffix = "_total" if metric.type == "counter" else ""
            metric.add_sample(metric.name + suffix, (label,), value)  # type: ignore[arg-type]

    log_lines, process = log_counts(), ("pid", "supervisor")
    for outcome, number in asdict(log_lines).items() if log_lines is not None else ():
        add("log_lines", ("outcome", outcome), number)
    if audit is not None:
        for outcome, number in asdict(audit.counts).items():
            add("audit_records", ("outcome", outcome), number)
        add("audit_waiting_records", process, audit.waiting)
        add("audit_healthy", process, int(audit.healthy))


class _Collected:
    """Metrics in the form of a registry."""

    def __init__(self, metrics: Iterable[Metric]) -> None:
        self._metrics = metrics

    def collect(self) -> Iterable[Metric]:
        return self._metrics


@asynccontextmanager
async def probes(
    metrics: Metrics, resident_bytes: Callable[[], int], also: Callable[[], None] = lambda: None
) -> AsyncIterator[None]:
    """Measure the event loop's lag and the process's size within the context.

    `also` is called at each measurement.
    """
    try:
        async with alongside(_probe(metrics, resident_bytes, also)):
            yield
    finally:
        metrics.flush()


async def _probe(metrics: Metrics, resident_bytes: Callable[[], int], also: Callable[[], None]) -> None:
    loop = asyncio.get_running_loop()
    while True:
        due = loop.time() + LAG_PROBE_SECONDS
        await asyncio.sleep(LAG_PROBE_SECONDS)
        metrics.loop_lag.observe(max(0.0, loop.time() - due))
        metrics.resident_bytes.set(resident_bytes())
        metrics.open_files.set(_open_files())
        try:
            also()
        except Exception:
            # The probe continues: it also renews keys and flushes the counts.
            log.exception("a measurement of the process failed")
        metrics.flush()


def _open_files() -> int:
    try:
        # On the event loop, and there may be thousands: paths of them take twice as long.
        return len(os.listdir("/proc/self/fd"))  # noqa: PTH208
    except OSError:
        return 0
