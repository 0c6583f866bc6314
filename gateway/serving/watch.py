"""The outer middleware: every answer is counted, timed and audited as it leaves, errors included.

In: requests and what the rooms noted in `request[FACTS]`. Out: metrics, and one audit record per recipient
request with names and numbers alone: no token, no query string, no URL, no path of the storage.
"""

from __future__ import annotations

import asyncio
import time
from functools import cache
from typing import TYPE_CHECKING, Any

import orjson
from aiohttp import web

from gateway.access_log import FACTS
from gateway.audit import Action, AuditCounts, AuditLog, AuditRecord
from gateway.auth import RECIPIENT
from gateway.errors import CLIENT_CLOSED_REQUEST, Unavailable, request_id
from gateway.serving.guard import STREAMING, handler_name

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from aiohttp.typedefs import Handler, Middleware

    from gateway.metrics import Metrics
    from gateway.networks import Address

MAX_USER_AGENT_LENGTH = 300
AUDIT_SECONDS = 2.0
PARAMETERS = ("share", "schema", "table")

ACTIONS: Mapping[str, Action] = {
    "list_shares": Action.LIST_SHARES,
    "get_share": Action.GET_SHARE,
    "list_schemas": Action.LIST_SCHEMAS,
    "list_tables": Action.LIST_TABLES,
    "list_all_tables": Action.LIST_ALL_TABLES,
    "version": Action.GET_TABLE_VERSION,
    "metadata": Action.GET_TABLE_METADATA,
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

_BEGUN = web.RequestKey("begun", float)


class Told:
    """The metrics of requests. Their labels are bounded sets, so each is looked up once."""

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics
        self.in_flight = cache(metrics.in_flight.labels)
        self._requests = cache(metrics.requests.labels)
        self._request_seconds = cache(metrics.request_seconds.labels)
        self._files = cache(metrics.files.labels)
        self._listings = cache(metrics.listings.labels)

    def answered(
        self,
        request: web.Request,
        route: str,
        status: int,
        response: web.StreamResponse | None,
        *,
        broken: str | None,
        seconds: float,
    ) -> None:
        """Count one request that is over."""
        self._requests(route, str(status)).inc()
        self._request_seconds(route).observe(seconds)
        if status == web.HTTPUnauthorized.status_code:
            self._metrics.auth_failures.labels("token").inc()
        if request[FACTS].get("refused_address"):
            self._metrics.auth_failures.labels("address").inc()
        if route in STREAMING:
            self._streamed(request[FACTS], response, broken)

    def _streamed(
        self, facts: dict[str, Any], response: web.StreamResponse | None, broken: str | None
    ) -> None:
        for fact, outcome in OUTCOMES.items():
            if count := facts.get(fact):
                self._files(outcome).inc(count)
        if response is not None:
            self._metrics.stream_bytes.inc(response.body_length)
        if "files_from" in facts:
            self._listings(facts["files_from"]).inc()
        if facts.get("stale"):
            self._metrics.stale_answers.inc()
        reason = broken or facts.get("outcome")
        if reason:
            self._metrics.broken_streams.labels(reason).inc()


def watching(
    metrics: Metrics,
    audit: AuditLog | None,
    *,
    now_ms: Callable[[], int],
    address: Callable[[web.Request], Address | None],
) -> Middleware:
    """Make the outer middleware. `audit` None: no audit log is configured."""
    told = Told(metrics)

    @web.middleware
    async def watch(request: web.Request, handler: Handler) -> web.StreamResponse:
        route = handler_name(request)
        begun = request[_BEGUN] = time.perf_counter()
        response: web.StreamResponse | None = None
        broken: str | None = None
        in_flight = told.in_flight(route)
        in_flight.inc()
        try:
            response = await handler(request)
        except (asyncio.CancelledError, ConnectionError):
            broken = "client left"
            raise
        except BaseException:
            broken = "failed"
            raise
        else:
            return response
        finally:
            in_flight.dec()
            status = CLIENT_CLOSED_REQUEST if response is None else response.status
            told.answered(
                request, route, status, response, broken=broken, seconds=time.perf_counter() - begun
            )
            if audit is not None and route in ACTIONS:
                record = _record(
                    request,
                    route,
                    status,
                    now_ms(),
                    address=address(request),
                    response=response,
                    broken=broken,
                )
                audit.put(record.line())

    return watch


def recording_first(
    audit: AuditLog, *, now_ms: Callable[[], int], address: Callable[[web.Request], Address | None]
) -> Middleware:
    """Make the inner middleware of `failClosed`: no work begins before its record is in the file."""

    @web.middleware
    async def record_first(request: web.Request, handler: Handler) -> web.StreamResponse:
        route = handler_name(request)
        if route in ACTIONS:
            record = _record(request, route, None, now_ms(), address=address(request))
            if not await audit.written(record.line(), timeout_seconds=AUDIT_SECONDS):
                raise Unavailable("the server cannot keep its records at present")
        return await handler(request)

    return record_first


def audit_counter(metrics: Metrics, audit: AuditLog) -> Callable[[], None]:
    """Make the function that tells what became of audit records since it was last called."""
    told = AuditCounts()

    def tell() -> None:
        for outcome in ("written", "dropped", "failures"):
            total = getattr(audit.counts, outcome)
            metrics.audit_records.labels(outcome).inc(total - getattr(told, outcome))
            setattr(told, outcome, total)
        metrics.audit_waiting.set(audit.waiting)
        metrics.audit_healthy.set(1 if audit.healthy else 0)

    return tell


def first_byte_signal(metrics: Metrics) -> Callable[[web.Request, web.StreamResponse], Any]:
    """Make the signal that times an answer's first byte; it belongs into `app.on_response_prepare`."""
    seconds = cache(metrics.first_byte_seconds.labels)

    async def first_byte(request: web.Request, _response: web.StreamResponse) -> None:
        begun = request.get(_BEGUN)
        if begun is not None:
            seconds(handler_name(request)).observe(time.perf_counter() - begun)

    return first_byte


def _record(
    request: web.Request,
    route: str,
    status: int | None,
    at_ms: int,
    *,
    address: Address | None,
    response: web.StreamResponse | None = None,
    broken: str | None = None,
) -> AuditRecord:
    recipient = request.get(RECIPIENT)
    facts = request[FACTS]
    action = ACTIONS[route]
    if status == web.HTTPOk.status_code:
        action = ANSWERED.get(action, action)
    details = {name: request.match_info.get(name) for name in PARAMETERS if name in request.match_info}
    result: dict[str, str | int | bool | None] = {
        name: facts[name] for name in ("version", "considered", "returned", "format") if name in facts
    }
    if "file_bytes" in facts:
        result["fileBytes"] = facts["file_bytes"]
    if status is not None:
        result["durationMs"] = round((time.perf_counter() - request[_BEGUN]) * 1000)
    if route in STREAMING and status is not None:
        result["complete"] = not broken and "outcome" not in facts and status == web.HTTPOk.status_code
    return AuditRecord(
        at_ms=at_ms,
        action=action,
        request_id=request_id(request),
        recipient=recipient.name if recipient else None,
        source_address=str(address) if address else None,
        user_agent=request.headers.get("User-Agent", "")[:MAX_USER_AGENT_LENGTH] or None,
        status=status,
        error_code=facts.get("error_code") or _error_code(response),
        details=details,
        result=result,
    )


def _error_code(response: web.StreamResponse | None) -> str | None:
    if not isinstance(response, web.Response) or response.status < web.HTTPBadRequest.status_code:
        return None
    try:
        return str(orjson.loads(response.body or b"")["errorCode"])  # type: ignore[arg-type]
    except (ValueError, KeyError, TypeError):
        return None
