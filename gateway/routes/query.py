"""`POST .../query`: the files of a version, or what changed since one.

Validate, enforce what is shared, then let native code read. All that blocks happens in one call on a thread:
it finds the snapshot, negotiates the format and starts the stream.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import TYPE_CHECKING, Any

from aiohttp import web

from gateway.access.sealed_tokens import InvalidToken, Page, Refresh
from gateway.protocol.capabilities import ResponseFormat
from gateway.protocol.queries import Hints, TableQuery
from gateway.protocol.response import HINT_STATUS_HEADER
from gateway.routes.table_request import TableRequest
from gateway.tables.answer_cache import Repeated
from gateway.tables.open_table import Moment, metadata_id_of, versions_of
from gateway.web import stream
from gateway.web.answer import Answer
from gateway.web.content_coding import acceptable_codings
from gateway.web.context import Exchange
from gateway.web.response import WholeResponse

if TYPE_CHECKING:
    from gateway.tables.native import Changes, Snapshot, StreamSummary


NO_HINTS = Hints()
LARGE_BODY_BYTES = 16 * 1024
"""To read a body of more, and the hints in it, is not for the event loop."""


async def query(exchange: Exchange) -> web.StreamResponse:
    """Answer a query."""
    asked = TableRequest.of(exchange)
    is_large = len(exchange.body) > LARGE_BODY_BYTES
    if is_large:
        body = await asked.sharing.tables.blocking(TableQuery.parse, exchange.body)
    else:
        body = TableQuery.parse(exchange.body)
    page = asked.open_page(body)
    if body.starting_version is not None:
        return await stream.answer(exchange, await asked.streaming(answer_changes, body, page))
    latest = None if is_large else latest_in_memory(asked, body, page)
    if latest is None:
        return await stream.answer(exchange, await asked.streaming(answer_snapshot, body, page))
    return await answer_latest(asked, body, latest)


async def answer_latest(asked: TableRequest, body: TableQuery, latest: Snapshot) -> web.StreamResponse:
    """Answer by the latest version, which is in memory; again, if the same was asked within this second."""
    exchange, repeats = asked.exchange, asked.sharing.repeats
    now_ms, question = asked.sharing.now_ms(), question_of(asked, latest)
    known = repeats.find(question, now_ms=now_ms)
    if known is not None:
        exchange.facts |= known.facts
        return WholeResponse(known.body, known.field_lines)
    sent = answer_snapshot(asked, body, None, latest)
    response = await stream.answer(exchange, sent)
    if isinstance(response, WholeResponse) and is_same_for_all(asked, body, sent):
        made = Repeated(response.body, response.field_lines, dict(exchange.facts))
        repeats.keep(question, made, now_ms=now_ms)
    return response


def question_of(asked: TableRequest, latest: Snapshot) -> Hashable:
    """All that the answer depends on, beside the configuration and the second."""
    return (
        asked.table,
        latest.table_id,
        latest.identity,
        asked.opened.signers,
        asked.capabilities_text,
        asked.file_id_scheme,
        asked.exchange.body,
        # Whoever excludes what is not coded is not answered by it.
        "identity" in acceptable_codings(asked.accepted_codings),
    )


def is_same_for_all(asked: TableRequest, body: TableQuery, sent: Answer) -> bool:
    """Whether an answer holds no token, which is one recipient's, and no client would have it coded."""
    compression = asked.sharing.config.gateway.compression
    is_small = not compression.enabled or (sent.considered or 0) < compression.minimum_files
    return is_small and sent.content_coding == "identity" and not body.paging and not body.refreshes


def latest_in_memory(asked: TableRequest, body: TableQuery, page: Page | None) -> Snapshot | None:
    """The latest version, if it is asked for and a thread is not worth its while: nothing has to be read."""
    if page is not None or body.refresh_token is not None or body.at:
        return None
    return asked.opened.latest_in_memory()


def answer_snapshot(
    asked: TableRequest, body: TableQuery, page: Page | None, found: Snapshot | None = None
) -> Answer:
    """Start the answer of one version. Blocks, unless it is `found` in memory."""
    refresh = open_refresh(asked, body)
    snapshot = found or find_snapshot(asked, body, page, refresh)
    asked.opened.require_files(snapshot)
    chosen = asked.negotiate(snapshot, page)
    hints = applied_hints(asked, body)
    files_from = "memory" if snapshot.is_in_memory else "log"
    files = snapshot.totals(asked.stop)[0]
    coding = asked.content_coding(body.paging, files=files)
    chunks = snapshot.files(
        asked.options(chosen, body.paging, page, coding, hints),
        limit_hint=hints.limit,
        with_version=bool(body.at),
    )
    last_line = last_line_of(asked, body, snapshot, chosen, page=page, refresh=refresh)
    headers = asked.headers(snapshot.version, chosen, end_stream_action=last_line is not None)
    facts: dict[str, Any] = {"version": snapshot.version, "format": chosen, "files_from": files_from}
    tell_ignored_hints(snapshot, hints, headers, facts)
    considered = None if page else files
    return Answer(chunks, headers, coding, last_line, facts, considered)


def answer_changes(asked: TableRequest, body: TableQuery, page: Page | None) -> Answer:
    """Start the answer of what changed since a version. Blocks."""
    ending_version = page.versions[1] if page else body.ending_version
    changes = asked.opened.changes(
        start=Moment(version=body.starting_version),
        end=Moment(version=ending_version),
        change_data_feed=False,
        stop=asked.stop,
    )
    chosen = asked.negotiate(changes, page)
    hints = applied_hints(asked, body)
    coding = asked.content_coding(body.paging)
    chunks = changes.files(
        asked.options(chosen, body.paging, page, coding, hints),
        include_historical_metadata=True,
        include_historical_protocol=body.include_historical_protocol,
    )
    version = changes.starting_version
    last_line = last_line_of(asked, body, changes, chosen, page=page)
    headers = asked.headers(version, chosen, end_stream_action=last_line is not None)
    facts: dict[str, Any] = {"version": version, "format": chosen}
    tell_ignored_hints(changes.snapshot, hints, headers, facts)
    return Answer(chunks, headers, coding, last_line, facts)


def open_refresh(asked: TableRequest, body: TableQuery) -> Refresh | None:
    """The refresh token of the request. Raises InvalidToken, also for a version that is shared no longer."""
    if body.refresh_token is None:
        return None
    refresh = Refresh.open(
        asked.sharing.sealer,
        asked.recipient,
        body.refresh_token,
        table=asked.table.id,
        now_ms=asked.sharing.now_ms(),
    )
    if refresh.version < asked.table.start_version:
        raise InvalidToken("refresh")
    return refresh


def find_snapshot(
    asked: TableRequest, body: TableQuery, page: Page | None, refresh: Refresh | None
) -> Snapshot:
    """The version that a page or refresh token pins, or the one that is asked for. Blocks."""
    opened = asked.opened
    if page is not None:
        if page.versions[0] < asked.table.start_version:
            raise InvalidToken("page")
        if body.at:
            opened.require_history()
        return opened.pinned(identity=page.identity)
    if refresh is None:
        return opened.snapshot(version=body.at.version, timestamp_ms=body.at.timestamp_ms)
    snapshot = opened.given(refresh.version)
    if snapshot.table_id != refresh.metadata_id:
        raise InvalidToken("refresh")
    return snapshot


def applied_hints(asked: TableRequest, body: TableQuery) -> Hints:
    """The hints that the configuration lets count."""
    config, hints = asked.sharing.config, body.hints
    if hints == NO_HINTS:
        return hints
    json_counts = config.evaluate_json_predicate_hints or config.evaluate_json_predicate_hints_v2
    return Hints(
        predicates=hints.predicates if config.evaluate_predicate_hints else (),
        json_predicate=hints.json_predicate if json_counts else None,
        limit=hints.limit,
    )


def tell_ignored_hints(
    snapshot: Snapshot, hints: Hints, headers: dict[str, str], facts: dict[str, Any]
) -> None:
    """Say which predicates prune nothing, and why: to the client, and in the log."""
    if hints.predicates or hints.json_predicate is not None:
        problems = snapshot.hint_problems(hints.predicates, hints.json_predicate)
        headers[HINT_STATUS_HEADER] = hint_status(problems)
        facts["ignored_hints"] = [f"{hint}: {reason}" for hint, reason in problems]


def hint_status(problems: list[tuple[str, str]]) -> str:
    """The header that makes a silently ignored hint visible: `ok`, or which ones prune nothing, and why."""
    if not problems:
        return "ok"
    reasons = "; ".join(f"{hint}: {reason}" for hint, reason in problems)
    visible = "".join(c if " " <= c <= "~" else "?" for c in reasons)
    return f"ignored {len(problems)}: {visible}"[:1024]


def last_line_of(
    asked: TableRequest,
    body: TableQuery,
    read: Snapshot | Changes,
    chosen: ResponseFormat,
    *,
    page: Page | None,
    refresh: Refresh | None = None,
) -> Callable[[StreamSummary], dict[str, Any]] | None:
    """What the endStreamAction will say, where the client asked for it."""
    if not body.wants_end_stream_action(asked.capabilities):
        return None

    def fields(summary: StreamSummary) -> dict[str, Any]:
        refreshed = {"refreshToken": refresh_token(asked, read, refresh)} if body.refreshes else {}
        return refreshed | asked.ending(read, summary, chosen, body.parameters(), page)

    return fields


def refresh_token(asked: TableRequest, read: Snapshot | Changes, before: Refresh | None) -> str:
    """The token that gives the same version new URLs; it expires with the one `before`, if there is one."""
    sharing = asked.sharing
    expires_ms = before.expires_ms if before else sharing.now_ms() + sharing.config.refresh_token_ttl_ms
    token = Refresh(asked.table.id, metadata_id_of(read), versions_of(read)[0], expires_ms)
    return token.seal(sharing.sealer, asked.recipient)
