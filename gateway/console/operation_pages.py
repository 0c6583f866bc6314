"""Pages of the server's operation: the overview, recent activity, storages, and the configuration."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from aiohttp import web
from prometheus_client.parser import text_string_to_metric_families

from gateway.admin import handlers
from gateway.admin.call import Call
from gateway.admin.messages import Reloaded
from gateway.console.charts import plots_of
from gateway.console.listing import Wanted, listing, stream_listing
from gateway.console.questions import ReloadRecord, StatusAnswer, StorageStatus
from gateway.console.recipient_pages import file_entries, file_row
from gateway.console.rendering import respond
from gateway.console.site import SITE, Site, session_of
from gateway.database.errors import DatabaseMissing
from gateway.governance.recipient_listing import EndingRecipients
from gateway.report.style import icon, style_sheet
from gateway.report.times import SOON_SECONDS
from gateway.telemetry.activity import RecentQuery
from gateway.telemetry.metrics import PREFIX as METRICS
from gateway.times import MILLISECONDS

SHOWN_ENDING = 10
UNAUTHORIZED = 401
CLIENT_ERRORS_FROM, SERVER_ERRORS_FROM = 400, 500
CLOSED = "closed"
ORDERS: Mapping[str, Callable[[RecentQuery], float]] = {
    "time": lambda query: -query.seconds,
    "files": lambda query: -(query.considered or 0),
    "returned": lambda query: -(query.returned or 0),
}
"""Orders of the recent queries, besides the order of their ends."""


STORAGE_ORDERS: Mapping[str, Callable[[StorageStatus], float]] = {
    "breaker": lambda storage: storage.breaker == CLOSED,
    "ends": lambda storage: storage.credentials_expire_ms or math.inf,
    "error": lambda storage: -(storage.last_error_ms or 0),
}


@dataclass(frozen=True, slots=True)
class Totals:
    """Sums of the metrics of all workers, since their start."""

    requests: float
    client_errors: float
    server_errors: float
    streams: float
    stream_bytes: float
    considered: float
    signed: float
    unauthenticated: float
    refused: Mapping[str, float]
    """The refused and failed requests by reason, the most frequent first."""
    limited: float
    missing: Mapping[str, float]
    """Known tables that the last search has not found, by its source."""


async def overview(request: web.Request) -> web.Response:
    """Show what needs attention, and the sums of the metrics."""
    site = request.app[SITE]
    recipients, ending = await _recipients(request)
    totals = await asyncio.to_thread(_totals, site)
    statuses = await site.statuses()
    storages = [storage for storage in merged(statuses) if storage.breaker != CLOSED]
    last = last_reload(statuses)
    return await respond(
        request,
        "overview.html",
        totals=totals,
        plots=await plots_of(request),
        shares=max((status.shares for status in statuses), default=0),
        tables=max((status.tables for status in statuses), default=0),
        recipients=recipients,
        ending=ending.first,
        ending_total=ending.total,
        storages=storages,
        refused_reload=last if last is not None and last.refused is not None else None,
        processes=len(statuses),
        start_ms=min((status.start_ms for status in statuses), default=None),
    )


async def _recipients(request: web.Request) -> tuple[int, EndingRecipients]:
    """Return the number of recipients, and those whose credentials end soon, the first ones first."""
    site = request.app[SITE]
    before_ms = site.now_ms() + SOON_SECONDS * MILLISECONDS

    def of_the_file() -> tuple[int, list[tuple[str, int]]]:
        rows = [file_row(entry) for entry in file_entries(site, "").values()]
        ends = ((row.name, row.ends_ms) for row in rows)
        return len(rows), [(name, end) for name, end in ends if end is not None and end < before_ms]

    number, of_file = await asyncio.to_thread(of_the_file)
    try:
        stored, ending = await Call(request).with_database(
            lambda database: database.ending(before_ms, SHOWN_ENDING), read_only=True
        )
    except DatabaseMissing:
        stored, ending = 0, EndingRecipients((), 0)
    first = sorted([*ending.first, *of_file], key=lambda pair: pair[1])[:SHOWN_ENDING]
    return stored + number, EndingRecipients(first, ending.total + len(of_file))


async def activity(request: web.Request) -> web.Response:
    """Show recent queries and live streams."""
    site = request.app[SITE]
    queries, streams = await site.activity()
    wanted = Wanted.by(request, only=["refused"], sorts=[*ORDERS])
    if wanted.only:
        queries = [query for query in queries if query.failure is not None]
    listed = listing(
        wanted, queries, lambda query: f"{query.recipient} {query.table}", ORDERS.get(wanted.sort)
    )
    return await respond(
        request,
        "activity.html",
        found=listed,
        streams=stream_listing(request, streams),
        workers=site.workers,
    )


async def storages(request: web.Request) -> web.Response:
    """Show the storages that have been used, and the plots of one of them."""
    used = merged(await request.app[SITE].statuses())
    names = [storage.name for storage in used]
    wanted = Wanted.by(request, only=["failing"], sorts=[*STORAGE_ORDERS])
    accepted = [
        storage for storage in used if not wanted.only or storage.breaker != CLOSED or storage.last_error
    ]
    listed = listing(wanted, accepted, lambda storage: storage.name, STORAGE_ORDERS.get(wanted.sort))
    asked = request.query.get("storage", "")
    shown = asked if asked in names else next(iter(names), None)
    plots = None if shown is None else await plots_of(request, "storage", shown)
    return await respond(request, "storages.html", found=listed, shown=shown, plots=plots)


async def configuration(request: web.Request, result: Reloaded | None = None) -> web.Response:
    """Show the reloads of the configuration, and the result of one."""
    processes = await request.app[SITE].statuses()
    return await respond(request, "configuration.html", processes=processes, result=result)


async def reload(request: web.Request) -> web.Response:
    """Read the configuration again, and show the result."""
    return await configuration(request, await handlers.reload(Call(request, session_of(request).actor)))


async def style(_request: web.Request) -> web.Response:
    """Answer the style sheet."""
    return _kept(await asyncio.to_thread(style_sheet), "text/css")


async def picture(_request: web.Request) -> web.Response:
    """Answer the icon of the pages."""
    return _kept(await asyncio.to_thread(icon), "image/svg+xml")


def _kept(text: str, content_type: str) -> web.Response:
    headers = {"Cache-Control": "private, max-age=300"}
    return web.Response(text=text, content_type=content_type, headers=headers)


def merged(statuses: Sequence[StatusAnswer]) -> list[StorageStatus]:
    """Return the storages of all processes by name: the worst breaker, the first end and the last error."""
    by_name: dict[str, StorageStatus] = {}
    for storage in (storage for status in statuses for storage in status.storages):
        known = by_name.get(storage.name)
        by_name[storage.name] = storage if known is None else _worse(known, storage)
    return sorted(by_name.values(), key=lambda storage: storage.name)


def last_reload(statuses: Sequence[StatusAnswer]) -> ReloadRecord | None:
    """Return the last reload of any process."""
    records = [record for status in statuses for record in status.reloads]
    return max(records, key=lambda record: record.at_ms, default=None)


def _worse(first: StorageStatus, other: StorageStatus) -> StorageStatus:
    breaker = first.breaker if first.breaker != CLOSED else other.breaker
    ends = [end for end in (first.credentials_expire_ms, other.credentials_expire_ms) if end is not None]
    failed = max((first, other), key=lambda storage: storage.last_error_ms or 0)
    return StorageStatus(
        first.name, breaker, min(ends, default=None), failed.last_error, failed.last_error_ms
    )


def _totals(site: Site) -> Totals:
    """Add up the page that Prometheus reads. Blocks."""
    page = site.administration.metrics_page().decode()
    samples = [
        (sample.name.removeprefix(f"{METRICS}_"), sample.labels, sample.value)
        for family in text_string_to_metric_families(page)
        for sample in family.samples
    ]

    def total(name: str, accepts: Callable[[Mapping[str, str]], bool] = lambda _labels: True) -> float:
        return sum(value for sample_name, labels, value in samples if sample_name == name and accepts(labels))

    def status(least: int, most: int) -> float:
        return total("requests_total", lambda labels: least <= int(labels["status"]) < most)

    refused = {
        labels["reason"]: value
        for name, labels, value in samples
        if name == "refused_requests_total" and value
    }
    return Totals(
        requests=total("requests_total"),
        client_errors=status(CLIENT_ERRORS_FROM, SERVER_ERRORS_FROM),
        server_errors=status(SERVER_ERRORS_FROM, 600),
        streams=total("streams"),
        stream_bytes=total("stream_bytes_total"),
        considered=total("files_total", lambda labels: labels["outcome"] == "considered"),
        signed=total("files_total", lambda labels: labels["outcome"] == "signed"),
        unauthenticated=status(UNAUTHORIZED, UNAUTHORIZED + 1),
        refused=dict(sorted(refused.items(), key=lambda pair: -pair[1])),
        limited=total("limited_requests_total"),
        missing={
            labels["source"]: value
            for name, labels, value in samples
            if name == "discovery_missing_tables" and value
        },
    )
