"""Counts, times and audits every request at its end, errors included.

In: contexts with their `RequestRecord`. Out: metrics, and one audit record per request of a recipient. The
record holds names and numbers only: no token, query string or URL, and a storage path only for a temporary
credential.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict
from typing import Any

from aiohttp import web
from prometheus_client import Counter

from gateway.config.checks import MAX_NAME_LENGTH
from gateway.encoding import begin_of
from gateway.errors import Unavailable
from gateway.limits.admission import LimitKind
from gateway.telemetry import rings
from gateway.telemetry.activity import Activity, LiveStream, RecentQuery
from gateway.telemetry.audit import AuditLog
from gateway.telemetry.audit_record import ANSWERED, OK, AuditRecord
from gateway.telemetry.metrics import Made, Metrics, Tally
from gateway.web.context import RequestContext
from gateway.web.error_response import CLIENT_CLOSED_REQUEST, SERVER_FAULT

MAX_USER_AGENT_BYTES = 300
MAX_NAME_BYTES = 4 * MAX_NAME_LENGTH
"""A longer name is of nothing that is shared, and of the client's choice.

A record with three of them still has less than the 4 KiB that a pipe takes in one piece.
"""
AUDIT_SECONDS = 2.0
BEGUN_SECONDS = 1.0
PARAMETERS = ("share", "schema", "table", "volume")
CLIENT_LEFT = "client left"
UNKNOWN_TABLE = ""
"""A table that is not shared with the recipient: its name is of the client's choice and length."""

ACTIONS: Mapping[str, str] = {
    "list_shares": "deltaSharingListShares",
    "get_share": "deltaSharingGetShare",
    "list_schemas": "deltaSharingListSchemas",
    "list_tables": "deltaSharingListTables",
    "list_all_tables": "deltaSharingListAllTables",
    "get_table": "deltaSharingGetTable",
    "version": "deltaSharingGetTableVersion",
    "metadata": "deltaSharingGetTableMetadata",
    "issue_token": "mintOAuthToken",
    "async_query": "deltaSharingGetQueryInfo",
    "query": "deltaSharingQueryTable",
    "changes": "deltaSharingQueryTableChanges",
    "temporary_table_credentials": "deltaSharingGenerateTemporaryTableCredential",
    "list_volumes": "deltaSharingListVolumes",
    "list_all_volumes": "deltaSharingListAllVolumes",
    "get_volume": "deltaSharingGetVolume",
    "temporary_volume_credentials": "deltaSharingGenerateTemporaryVolumeCredential",
}
"""The actions of recipients by their routes, by names that audit logs of Delta Sharing providers use."""
OUTCOMES = ("signed", "considered", "pruned by partition", "pruned by statistics", "pruned by limit")


class RequestRecorder:
    """The metrics and the audit log of all requests of a process."""

    def __init__(
        self,
        metrics: Metrics,
        audit: AuditLog | None,
        now_ms: Callable[[], int],
        activity: Activity | None = None,
    ) -> None:
        """`audit` None: no audit log is configured. `activity` None: nothing shows recent requests."""
        self._metrics = metrics
        self._activity = activity
        self._audit = audit
        self._now_ms = now_ms
        self._fresh: dict[str, RequestContext] = {}
        """The streams that began after the last check."""
        self._begun: dict[str, RequestContext] = {}
        """The streams whose beginning is on record."""
        self.on_begun: Callable[[str, Mapping[str, Any]], None] = lambda _id, _record: None
        """Called with the fields of the record of a stream that has run for `BEGUN_SECONDS`."""
        self.on_ended: Callable[[str], None] = lambda _id: None
        """Called at the end of each of these streams."""
        self._routes: Made[str, _RouteMetrics] = Made(lambda name: _RouteMetrics(metrics, name))
        self._files = [metrics.tally(metrics.files.labels(outcome)) for outcome in OUTCOMES]
        self._listings: Made[str, Tally] = Made(lambda source: metrics.tally(metrics.listings.labels(source)))
        self._stream_bytes = metrics.tally(metrics.stream_bytes)
        self._streams = metrics.tally(metrics.streams)

    @property
    def audit_is_healthy(self) -> bool:
        """Whether the audit log can be written, if there is one."""
        return self._audit is None or self._audit.healthy

    def request_started(self, context: RequestContext) -> None:
        """Count a request that starts."""
        self._routes[context.route.name].in_flight.count += 1

    def stream_started(self, context: RequestContext) -> None:
        """Count a stream that starts."""
        self._streams.count += 1
        self._fresh[context.id] = context
        if self._activity is not None:
            recipient, kind = context.required_recipient.name, context.route.name
            start_ms = self._now_ms()

            def stream() -> LiveStream:
                # The handler finds the table.
                table = context.record.table or UNKNOWN_TABLE
                return LiveStream(start_ms, recipient, table, kind, _table_names(context))

            self._activity.stream_started(context.id, stream)

    def stream_ended(self, context: RequestContext) -> None:
        """Count a stream that ends, with or without an error."""
        self._streams.count -= 1
        if self._fresh.pop(context.id, None) is None and self._begun.pop(context.id, None) is not None:
            self.on_ended(context.id)
        if self._activity is not None:
            self._activity.stream_ended(context.id)

    def record_begun(self, *, is_on_record: bool) -> None:
        """Record the streams that have run for a second: their process may end before them.

        `is_on_record`: the audit log has each request before it is answered.
        """
        latest_seconds = time.monotonic() - BEGUN_SECONDS
        while self._fresh:
            request_id, context = next(iter(self._fresh.items()))
            if context.start_seconds > latest_seconds:
                return
            self._begun[request_id] = self._fresh.pop(request_id)
            record = self._audit_record(context, None, cut=False, seconds=None)
            if self._audit is not None and not is_on_record:
                self._audit.put(record.line())
            self.on_begun(request_id, record.fields())

    def native_panicked(self) -> None:
        """Count a request that a panic of native code has ended."""
        self._metrics.native_panics.inc()

    def limited(self, limit: LimitKind) -> None:
        """Count a request over a limit."""
        self._metrics.limited.labels(limit).inc()

    def ended(self, context: RequestContext, response: web.StreamResponse | None, seconds: float) -> None:
        """Record a request that took that long. Without a response its client has left."""
        route = context.route
        metrics = self._routes[route.name]
        metrics.in_flight.count -= 1
        status = CLIENT_CLOSED_REQUEST if response is None else response.status
        metrics.statuses[status].count += 1
        metrics.seconds.add(seconds)
        if response is not None or context.first_byte_seconds is not None:
            first = context.first_byte_seconds
            metrics.first_byte.add(seconds if first is None else first - context.start_seconds)
        if context.record.refusal is not None:
            self._metrics.refused.labels(context.record.refusal).inc()
        if route.may_stream:
            self._streamed(context, response)
        if context.record.credential is not None:
            self._metrics.temporary_credentials.labels(context.record.credential).inc()
        if self._audit is not None and route.name in ACTIONS:
            self._audit.put(self._audit_record(context, status, cut=response is None, seconds=seconds).line())
        if self._activity is not None and not route.is_public:
            recipient = context.recipient or context.refused_recipient
            name = None if recipient is None else recipient.name
            self._plot(self._activity, context, response, name, seconds)
            if name is not None:
                self._remember(self._activity, context, name, status, seconds)

    async def audit_first(self, context: RequestContext) -> None:
        """Wait until the request is in the audit log. Raises Unavailable when it cannot be written."""
        if self._audit is None or context.route.name not in ACTIONS:
            return
        line = self._audit_record(context, None, cut=False, seconds=None).line()
        if not await self._audit.written(line, timeout_seconds=AUDIT_SECONDS):
            raise Unavailable("the server cannot write its audit records")

    def _streamed(self, context: RequestContext, response: web.StreamResponse | None) -> None:
        record = context.record
        if record.considered is not None:
            signed, considered, by_partition, by_stats, by_limit = self._files
            signed.count += record.returned or 0
            considered.count += record.considered
            by_partition.count += record.pruned_by_partition or 0
            by_stats.count += record.pruned_by_stats or 0
            by_limit.count += record.pruned_by_limit or 0
        self._stream_bytes.count += context.sent_bytes
        if record.files_from is not None:
            self._listings[record.files_from].count += 1
        if record.stale:
            self._metrics.stale_answers.inc()
        reason = CLIENT_LEFT if response is None else record.outcome
        if reason:
            self._metrics.broken_streams.labels(reason).inc()

    def _plot(
        self,
        activity: Activity,
        context: RequestContext,
        response: web.StreamResponse | None,
        recipient: str | None,
        seconds: float,
    ) -> None:
        """Add a request to the plots of the console."""
        record, route, first = context.record, context.route, context.first_byte_seconds
        storage, streams = context.storage, activity.stream_count
        keys = [rings.ALL]
        if recipient is not None:
            keys.append(("recipient", recipient))
        if record.table is not None:
            keys.append(("table", record.table))
        outcome = rings.ANSWERED
        if record.refusal is not None:
            is_failed = response is not None and response.status >= SERVER_FAULT
            outcome = rings.FAILED if is_failed else rings.REFUSED
        facts = rings.RequestFacts(
            self._now_ms(),
            outcome,
            record.returned or 0,
            context.sent_bytes,
            # Without the stream that has just ended.
            streams + (route.may_stream and outcome == rings.ANSWERED),
            seconds if first is None else first - context.start_seconds,
        )
        activity.rings.add(keys, facts)
        if storage is not None:
            streams_of_storage = sum(
                stream.storage == storage for stream in (*self._fresh.values(), *self._begun.values())
            )
            facts_of_storage = facts._replace(streams=facts.streams - streams + streams_of_storage)
            activity.rings.add([("storage", storage)], facts_of_storage)

    def _remember(
        self, activity: Activity, context: RequestContext, recipient: str, status: int, seconds: float
    ) -> None:
        """Remember a request of a recipient for the console."""
        at_ms, record, route = self._now_ms(), context.record, context.route
        activity.request_ended(
            recipient,
            at_ms=at_ms,
            refusal=record.refusal,
            files=record.returned or 0,
            address=str(context.address or ""),
        )
        if route.may_stream or record.refusal is not None:
            query = RecentQuery(
                at_ms,
                recipient,
                record.table or UNKNOWN_TABLE,
                route.name,
                status,
                seconds,
                record.considered,
                record.pruned_by_partition,
                record.pruned_by_stats,
                record.pruned_by_limit,
                record.returned,
                record.file_bytes,
                record.refusal or record.outcome,
                _table_names(context),
            )
            activity.query_ended(query)

    def _audit_record(
        self, context: RequestContext, status: int | None, *, cut: bool, seconds: float | None
    ) -> AuditRecord:
        """Return the audit record; without a status the answer has not started."""
        record, route = context.record, context.route
        action = ACTIONS[route.name]
        if status == OK or (status is not None and context.first_byte_seconds is not None):
            action = ANSWERED.get(action, action)
        result = {name: value for name, value in _audited(context).items() if value is not None}
        if seconds is not None:
            result["durationMs"] = round(seconds * 1000)
        if route.may_stream and status is not None:
            result["complete"] = not cut and record.outcome is None and status == OK
        address = context.address
        return AuditRecord(
            at_ms=self._now_ms(),
            action=action,
            request_id=context.id,
            recipient=context.recipient.name if context.recipient else None,
            source_address=str(address) if address else None,
            user_agent=begin_of(
                _readable(context.request.headers.get("User-Agent", "")), MAX_USER_AGENT_BYTES
            )
            or None,
            status=status,
            error_code=record.error_code,
            details={
                name: begin_of(context.names[name], MAX_NAME_BYTES)
                for name in PARAMETERS
                if name in context.names
            },
            result=result | dict(context.identity),
        )


def _audited(context: RequestContext) -> dict[str, str | int | bool | None]:
    record, issued = context.record, context.issued
    return {
        "version": record.version,
        "considered": record.considered,
        "returned": record.returned,
        "format": record.format,
        "fileBytes": record.file_bytes,
        "refusal": record.refusal,
        "location": issued.location if issued else None,
        "expirationTime": issued.expires_ms if issued else None,
        "keyId": issued.key_id if issued else None,
    }


def _readable(text: str) -> str:
    """Return a header's text as valid UTF-8, which JSON needs."""
    return text if text.isascii() else text.encode(errors="surrogateescape").decode(errors="replace")


class _RouteMetrics:
    """The metrics of one route."""

    def __init__(self, metrics: Metrics, route: str) -> None:
        def of_status(status: int) -> Tally:
            return metrics.tally(metrics.requests.labels(route, str(status)))

        self.in_flight = metrics.tally(metrics.in_flight.labels(route))
        self.statuses = Made(of_status)
        self.seconds = metrics.timings(metrics.request_seconds.labels(route))
        self.first_byte = metrics.timings(metrics.first_byte_seconds.labels(route))


def audit_counter(metrics: Metrics, audit: AuditLog) -> Callable[[], None]:
    """Return a function that adds the audit records since its last call to the metrics."""
    count = events_counter(metrics.audit_records, lambda: asdict(audit.counts).items())

    def add() -> None:
        count()
        metrics.audit_waiting.set(audit.waiting)
        metrics.audit_healthy.set(1 if audit.healthy else 0)

    return add


def events_counter(counter: Counter, totals: Callable[[], Iterable[tuple[str, int]]]) -> Callable[[], None]:
    """Return a function that adds the events since its last call; `totals` returns each outcome's total."""
    counted: dict[str, int] = {}

    def add() -> None:
        for outcome, total in totals():
            # The totals of a new cache directory begin at 0. An outcome without events is shown as 0.
            counter.labels(outcome).inc(max(0, total - counted.get(outcome, 0)))
            counted[outcome] = total

    return add


def _table_names(context: RequestContext) -> tuple[str, ...]:
    """Return the names of the share, the schema and the table of a request, once its table is known."""
    if context.record.table is None:
        return ()
    return tuple(context.names[part] for part in ("share", "schema", "table"))
