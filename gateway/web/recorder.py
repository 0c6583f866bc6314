"""Every exchange is counted, timed and audited as it ends, errors included.

In: exchanges with what the rooms noted in their `facts`. Out: metrics, and one audit record per recipient
request with names and numbers alone: no token, no query string, no URL, no path of the storage.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

from gateway.errors import Unavailable
from gateway.telemetry.audit import Action, AuditLog, AuditRecord
from gateway.web.error_response import CLIENT_CLOSED_REQUEST

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from aiohttp import web
    from prometheus_client import Counter

    from gateway.limits.admission import Excess
    from gateway.telemetry.audit import AuditCounts
    from gateway.telemetry.log_output import LogCounts
    from gateway.telemetry.metrics import Metrics, Tally
    from gateway.web.context import Exchange

MAX_USER_AGENT_LENGTH = 300
AUDIT_SECONDS = 2.0
PARAMETERS = ("share", "schema", "table")
OK = 200
UNAUTHORIZED = 401
CLIENT_LEFT = "client left"

ACTIONS: Mapping[str, Action] = {
    "list_shares": Action.LIST_SHARES,
    "get_share": Action.GET_SHARE,
    "list_schemas": Action.LIST_SCHEMAS,
    "list_tables": Action.LIST_TABLES,
    "list_all_tables": Action.LIST_ALL_TABLES,
    "version": Action.GET_TABLE_VERSION,
    "metadata": Action.GET_TABLE_METADATA,
    "async_query": Action.GET_QUERY_INFO,
    "query": Action.QUERY_TABLE,
    "changes": Action.QUERY_TABLE_CHANGES,
}
ANSWERED: Mapping[Action, Action] = {
    Action.QUERY_TABLE: Action.QUERIED_TABLE,
    Action.QUERY_TABLE_CHANGES: Action.QUERIED_TABLE_CHANGES,
}
OUTCOMES: Mapping[str, str] = {
    "returned": "signed",
    "considered": "considered",
    "pruned_by_partition": "pruned by partition",
    "pruned_by_stats": "pruned by statistics",
    "pruned_by_limit": "pruned by limit",
}


class Watch:
    """The metrics and the audit log of all exchanges of a process."""

    def __init__(self, metrics: Metrics, audit: AuditLog | None, now_ms: Callable[[], int]) -> None:
        """`audit` None: no audit log is configured."""
        self._metrics = metrics
        self._audit = audit
        self._now_ms = now_ms
        self._route = cache(lambda name: _RouteMetrics(metrics, name))
        self._files = [
            (fact, metrics.tally(metrics.files.labels(outcome))) for fact, outcome in OUTCOMES.items()
        ]
        self._listings = cache(lambda source: metrics.tally(metrics.listings.labels(source)))
        self._stream_bytes = metrics.tally(metrics.stream_bytes)
        self._streams = metrics.tally(metrics.streams)

    def begun(self, exchange: Exchange) -> None:
        """An exchange has begun."""
        self._route(exchange.route.name).in_flight.count += 1

    def stream_begun(self) -> None:
        """A stream was let in."""
        self._streams.count += 1

    def stream_ended(self) -> None:
        """It is over, however."""
        self._streams.count -= 1

    def refused_address(self) -> None:
        """A recipient came from where it may not."""
        self._metrics.auth_failures.labels("address").inc()

    def limited(self, excess: Excess) -> None:
        """A recipient met a limit."""
        self._metrics.limited.labels(excess).inc()

    def ended(self, exchange: Exchange, response: web.StreamResponse | None, seconds: float) -> None:
        """It is over after so long. Without a response its client has left."""
        route = exchange.route
        told = self._route(route.name)
        told.in_flight.count -= 1
        status = CLIENT_CLOSED_REQUEST if response is None else response.status
        told.statuses(status).count += 1
        told.seconds.add(seconds)
        if status == UNAUTHORIZED:
            self._metrics.auth_failures.labels("token").inc()
        if response is not None or exchange.first_byte_seconds is not None:
            first = exchange.first_byte_seconds
            told.first_byte.add(seconds if first is None else first - exchange.begun_seconds)
        if route.is_long:
            self._streamed(exchange, response)
        if self._audit is not None and route.name in ACTIONS:
            self._audit.put(self._record(exchange, status, cut=response is None, seconds=seconds).line())

    async def record_first(self, exchange: Exchange) -> None:
        """Wait until what is asked for is in the audit log. Raises Unavailable when it cannot be written."""
        if self._audit is None or exchange.route.name not in ACTIONS:
            return
        line = self._record(exchange, None, cut=False, seconds=None).line()
        if not await self._audit.written(line, timeout_seconds=AUDIT_SECONDS):
            raise Unavailable("the server cannot keep its records at present")

    def _streamed(self, exchange: Exchange, response: web.StreamResponse | None) -> None:
        facts = exchange.facts
        for fact, tally in self._files:
            if fact in facts:
                tally.count += facts[fact]
        self._stream_bytes.count += exchange.sent_bytes(response)
        if "files_from" in facts:
            self._listings(facts["files_from"]).count += 1
        if "stale" in facts:
            self._metrics.stale_answers.inc()
        reason = CLIENT_LEFT if response is None else facts.get("outcome")
        if reason:
            self._metrics.broken_streams.labels(reason).inc()

    def _record(
        self, exchange: Exchange, status: int | None, *, cut: bool, seconds: float | None
    ) -> AuditRecord:
        """The audit record; without a status the answer has not begun."""
        facts, route = exchange.facts, exchange.route
        action = ACTIONS[route.name]
        if status == OK or exchange.first_byte_seconds is not None:
            action = ANSWERED.get(action, action)
        result: dict[str, str | int | bool | None] = {
            name: facts[name] for name in ("version", "considered", "returned", "format") if name in facts
        }
        if "file_bytes" in facts:
            result["fileBytes"] = facts["file_bytes"]
        if seconds is not None:
            result["durationMs"] = round(seconds * 1000)
        if route.is_long and status is not None:
            result["complete"] = not cut and "outcome" not in facts and status == OK
        address = exchange.address
        return AuditRecord(
            at_ms=self._now_ms(),
            action=action,
            request_id=exchange.id,
            recipient=exchange.asking.name if exchange.asking else None,
            source_address=str(address) if address else None,
            user_agent=_readable(exchange.request.headers.get("User-Agent", ""))[:MAX_USER_AGENT_LENGTH]
            or None,
            status=status,
            error_code=facts.get("error_code"),
            details={name: exchange.names[name] for name in PARAMETERS if name in exchange.names},
            result=result,
        )


def _readable(text: str) -> str:
    """A header's text, which may be no UTF-8: JSON has none of that, and no request goes unrecorded."""
    return text if text.isascii() else text.encode(errors="surrogateescape").decode(errors="replace")


class _RouteMetrics:
    """What is counted of one route."""

    def __init__(self, metrics: Metrics, route: str) -> None:
        def of_status(status: int) -> Tally:
            return metrics.tally(metrics.requests.labels(route, str(status)))

        self.in_flight = metrics.tally(metrics.in_flight.labels(route))
        self.statuses = cache(of_status)
        self.seconds = metrics.timings(metrics.request_seconds.labels(route))
        self.first_byte = metrics.timings(metrics.first_byte_seconds.labels(route))


def audit_counter(metrics: Metrics, audit: AuditLog) -> Callable[[], None]:
    """Make the function that adds what became of audit records since it was last called."""
    count = _outcomes(metrics.audit_records, audit.counts, ("written", "dropped", "failures"))

    def add() -> None:
        count()
        metrics.audit_waiting.set(audit.waiting)
        metrics.audit_healthy.set(1 if audit.healthy else 0)

    return add


def log_counter(metrics: Metrics, counts: LogCounts) -> Callable[[], None]:
    """Make the function that adds what became of log lines since it was last called."""
    return _outcomes(metrics.log_lines, counts, ("written", "lost"))


def _outcomes(
    counter: Counter, counts: AuditCounts | LogCounts, outcomes: Sequence[str]
) -> Callable[[], None]:
    added = dict.fromkeys(outcomes, 0)

    def add() -> None:
        for outcome in outcomes:
            total = getattr(counts, outcome)
            counter.labels(outcome).inc(total - added[outcome])
            added[outcome] = total

    return add
