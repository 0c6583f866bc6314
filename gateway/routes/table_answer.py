"""The answer of a request about one table: its headers, its last line, and the tokens in that line.

In: the request, and the files that were started for it. Out: the `Answer` that `gateway.web.stream` sends.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

from msgspec.structs import replace

from gateway.authentication.sealed_tokens import Page, Refresh, digest
from gateway.encoding import begin_of
from gateway.protocol.capabilities import ResponseFormat, capabilities_header
from gateway.protocol.headers import (
    CAPABILITIES_HEADER,
    FILE_ID_HEADER,
    HINT_STATUS_HEADER,
    STALE_HEADER,
    VERSION_HEADER,
)
from gateway.protocol.queries import ChangesQuery, TableQuery
from gateway.routes.table_request import TableRequest, bound_parameters
from gateway.tables.files import Files, FilesQuery
from gateway.tables.native import Changes, Snapshot, StreamSummary
from gateway.tables.open_table import metadata_id_of, versions_of
from gateway.tables.visible_errors import shared_error
from gateway.telemetry.request_record import RequestRecord
from gateway.web.answer import Answer

MAX_HINT_STATUS_LENGTH = 1024
MAX_LOGGED_HINT_BYTES = 100
"""There are up to 32 of them, and a pipe of several workers takes 4 KiB in one piece."""


def table_answer(request: TableRequest, query: FilesQuery, files: Files) -> Answer:
    """Return the answer to send: headers, record and last line.

    If it reads the log, the end of its stream is reported to the storage's circuit breaker.
    """
    read = files.read
    version = read.version if isinstance(read, Snapshot) else read.starting_version
    wants_end = query.query.wants_end_stream_action(request.capabilities)
    headers = answer_headers(
        request, version, files.response_format, end_stream_action=wants_end, stale=files.stale
    )
    record = RequestRecord(
        table=request.table.full_name,
        stale=files.stale or None,
        version=version,
        format=files.response_format,
        files_from=files.files_from,
    )
    if isinstance(query.query, ChangesQuery) and isinstance(read, Changes):
        record.ending_version = read.ending_version
    if files.hint_problems is not None:
        headers[HINT_STATUS_HEADER] = hint_status(files.hint_problems)
        record.ignored_hints = [
            begin_of(f"{hint}: {reason}", MAX_LOGGED_HINT_BYTES) for hint, reason in files.hint_problems
        ]
    answer = Answer(
        files.chunks,
        headers,
        files.content_coding,
        partial(_last_line, request, query, files) if wants_end else None,
        # Spark's client asks for refresh tokens without it, and then looks for no error in that line.
        request.capabilities.include_end_stream_action,
        record,
        files.considered,
        # By what files are pruned depends on those beside them in the log, also outside of a rule.
        shows_counts=request.table.rule is None,
        shared_error=partial(shared_error, request.table),
    )
    if files.files_from == "memory":
        return answer
    return replace(answer, ended=partial(request.state.tables.stream_ended, request.table))


def answer_headers(
    request: TableRequest,
    version: int,
    response_format: ResponseFormat,
    *,
    end_stream_action: bool = False,
    stale: bool = False,
) -> dict[str, str]:
    """Return the protocol's headers of an answer; they are the same on every page."""
    announced = end_stream_action and request.capabilities.include_end_stream_action
    headers = {
        VERSION_HEADER: str(version),
        CAPABILITIES_HEADER: capabilities_header(response_format, end_stream_action=announced),
    }
    if request.file_id_scheme is not None:
        headers[FILE_ID_HEADER] = request.file_id_scheme
    if stale:
        headers |= stale_header(stale=stale)
    return headers


def stale_header(*, stale: bool) -> dict[str, str]:
    """Return the header of an answer from a cached snapshot."""
    return {STALE_HEADER: "true"} if stale else {}


def hint_status(problems: Sequence[tuple[str, str]]) -> str:
    """Return the header that shows ignored hints: `ok`, or the hints that prune nothing and the reasons."""
    if not problems:
        return "ok"
    reasons = "; ".join(f"{hint}: {reason}" for hint, reason in problems)
    visible = "".join(c if " " <= c <= "~" else "?" for c in reasons)
    return f"ignored {len(problems)}: {visible}"[:MAX_HINT_STATUS_LENGTH]


def _last_line(
    request: TableRequest, query: FilesQuery, files: Files, summary: StreamSummary
) -> dict[str, Any]:
    """Return the fields of the endStreamAction."""
    body, read, refreshed = query.query, files.read, {}
    if isinstance(body, TableQuery) and body.refreshes and isinstance(read, Snapshot):
        refreshed["refreshToken"] = _refresh_token(request, read, files.only_by)
    return refreshed | {
        "nextPageToken": _next_page(request, query, files, summary.next_cursor),
        "minUrlExpirationTimestamp": summary.min_url_expiration_ms,
    }


def _refresh_token(request: TableRequest, read: Snapshot, only_by: Refresh | None) -> str:
    """Return the token that renews the URLs of the version.

    It expires with the one by which alone the version can be read: no version is renewed for ever.
    """
    lifetime_ms = request.state.config.refresh_token_ttl_ms
    expires_ms = only_by.expires_ms if only_by else request.state.now_ms() + lifetime_ms
    token = Refresh(request.table.id, read.table_id, read.version, expires_ms, read.commit_mark)
    return token.seal(request.state.sealer, request.token_owner)


def _next_page(request: TableRequest, query: FilesQuery, files: Files, cursor: str | None) -> str | None:
    """Return the token of the next page; None after the last one."""
    if cursor is None:
        return None
    # A page pins a version that may no longer be shared, so all pages expire with the first one, and no later
    # than the token by which alone the version can be read.
    expires_ms = request.state.now_ms() + request.state.config.query_table_page_token_ttl_ms
    if files.only_by is not None:
        expires_ms = min(expires_ms, files.only_by.expires_ms)
    page = Page(
        table=request.table.id,
        metadata_id=metadata_id_of(files.read),
        identity=files.read.identity,
        versions=versions_of(files.read),
        cursor=cursor,
        response_format=files.response_format,
        digest=digest(bound_parameters(request.file_id_scheme, query.query)),
        expires_ms=query.page.expires_ms if query.page else expires_ms,
    )
    return page.seal(request.state.sealer, request.token_owner)
