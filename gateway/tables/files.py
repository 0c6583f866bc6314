"""Starts the answers of `/query` and `/changes`.

In: an open table and one frozen `FilesQuery`. Out: `Files`, whose native threads make the chunks ahead. The
calls block while the log is read, so they run on a thread of the table's storage.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Literal

from msgspec import Struct

from gateway.authentication.sealed_tokens import InvalidToken, Page, Refresh
from gateway.protocol.capabilities import Capabilities, ResponseFormat
from gateway.protocol.queries import ChangesQuery, Hints, TableQuery, TimeTravel
from gateway.protocol.response import ContentCoding
from gateway.tables.native import (
    AnswerOptions,
    Changes,
    CorruptLog,
    NdjsonChunks,
    Snapshot,
    Stop,
    UnsupportedFeature,
)
from gateway.tables.open_table import OpenTable, from_readable_files, lacks_file, metadata_id_of
from gateway.times import MILLISECONDS


class FilesQuery(Struct, frozen=True):
    """A query with everything that its answer depends on beside the table.

    Attributes:
        query: of the client.
        hints: the query's hints that the configuration enables.
        page: the page to continue with; None for the first one.
        refresh: the opened refresh token.
        page_size: the largest number of files; None for all.
        small_coding, large_coding: for an answer of fewer than `minimum_files`, and for others.
        url_seconds: the lifetime of signed URLs.
        timeout_seconds: after which the work stops; 0 for never.
        now_ms: the clock.
        stop: ends blocking calls.

    """

    query: TableQuery | ChangesQuery
    capabilities: Capabilities
    file_id_scheme: ResponseFormat | None
    hints: Hints
    page: Page | None
    refresh: Refresh | None
    page_size: int | None
    small_coding: ContentCoding
    large_coding: ContentCoding
    minimum_files: int
    url_seconds: int
    timeout_seconds: float
    now_ms: Callable[[], int]
    stop: Stop

    def negotiate(self, read: Snapshot | Changes) -> ResponseFormat:
        """Return the response format. Raises InvalidToken for a page of another order of files or format."""
        chosen = self.capabilities.negotiate(
            needs_delta_format=read.needs_delta_format, client_reader_features=read.client_reader_features
        )
        if self.page is not None and not self.page.continues(metadata_id_of(read), read.identity, chosen):
            raise InvalidToken("page")
        return chosen

    def content_coding(self, files: int | None = None) -> ContentCoding:
        """Return the coding for an answer of that many files; an unknown number counts as large."""
        for count in (files, self.page_size):
            if count is not None and count < self.minimum_files:
                return self.small_coding
        return self.large_coding

    def options(self, opened: OpenTable, chosen: ResponseFormat, coding: ContentCoding) -> AnswerOptions:
        """Return the options of the native answer."""
        now_ms, hints = self.now_ms(), self.hints
        return AnswerOptions(
            opened.signers,
            response_format=chosen,
            now_ms=now_ms,
            lifetime_seconds=self.url_seconds,
            file_id_scheme=self.file_id_scheme,
            predicate_hints=hints.predicates,
            json_predicate_hint=hints.json_predicate,
            max_files=self.page_size,
            cursor=self.page.cursor if self.page else None,
            content_coding=coding,
            deadline_ms=now_ms + int(self.timeout_seconds * MILLISECONDS) if self.timeout_seconds else None,
            history_shared=opened.shared.history_shared,
            access=opened.shared.access_members,
            rule=opened.rule,
            stop=self.stop,
        )


class Files(Struct, frozen=True):
    """A started answer.

    Attributes:
        read: the snapshot or the range.
        hint_problems: predicates that prune nothing, with the reason; None where the query has none.
        considered: the number of files before pruning, where it is known.
        files_from: where the files of a snapshot are listed from.
        only_by: the refresh token without which the recipient cannot read the version.
        stale: the storage is down, and the answer comes from a cached snapshot.

    """

    read: Snapshot | Changes
    chunks: NdjsonChunks
    response_format: ResponseFormat
    content_coding: ContentCoding
    stale: bool
    hint_problems: Sequence[tuple[str, str]] | None = None
    considered: int | None = None
    files_from: Literal["memory", "log"] | None = None
    only_by: Refresh | None = None


def is_worth_another_try(query: FilesQuery, read: Snapshot | Changes, error: Exception) -> bool:
    """Return whether an answer that failed before its first line may succeed from other files of the log.

    A damaged checkpoint is ignored from now on, and a log that was cleaned up or replaced is listed again.
    A page continues the order of its files.
    """
    return query.page is None and isinstance(read, Snapshot) and lacks_file(read, error)


def start(opened: OpenTable, query: FilesQuery) -> Files:
    """Start the answer of a query. Blocks."""
    if isinstance(query.query, ChangesQuery):
        return start_change_feed(opened, query, query.query)
    if query.query.starting_version is not None:
        return start_changes(opened, query, query.query)
    return start_snapshot(opened, query, query.query)


def start_snapshot(opened: OpenTable, query: FilesQuery, body: TableQuery) -> Files:
    """Start the answer of one version. Blocks, except for a `LatestTable` in memory."""
    find = partial(_find_snapshot, opened, query, body)
    use = partial(_start_files, opened, query, body)
    # A page continues the order of its files.
    return use(find()) if query.page else from_readable_files(find, use)


def _start_files(opened: OpenTable, query: FilesQuery, body: TableQuery, snapshot: Snapshot) -> Files:
    opened.require_files(snapshot)
    chosen = query.negotiate(snapshot)
    rule = opened.rule
    files_from: Literal["memory", "log"] = "memory" if snapshot.is_in_memory_within(rule) else "log"
    files = snapshot.totals(query.stop, rule=rule)[0]
    coding = query.content_coding(files)
    chunks = snapshot.files(
        query.options(opened, chosen, coding), limit_hint=query.hints.limit, with_version=bool(body.at)
    )
    return Files(
        snapshot,
        chunks,
        chosen,
        coding,
        opened.stale,
        hint_problems=_hint_problems(snapshot, query.hints),
        considered=None if query.page else files,
        files_from=files_from,
        only_by=query.refresh if query.refresh and not _is_shared(opened, snapshot) else None,
    )


def start_changes(opened: OpenTable, query: FilesQuery, body: TableQuery) -> Files:
    """Start the answer of what changed since a version. Blocks."""
    ending_version = query.page.versions[1] if query.page else body.ending_version
    find = partial(
        opened.changes,
        start=TimeTravel(version=body.starting_version),
        end=TimeTravel(version=ending_version),
        change_data_feed=False,
        stop=query.stop,
    )
    use = partial(
        _start_changes,
        opened,
        query,
        include_historical_metadata=True,
        include_historical_protocol=body.include_historical_protocol,
    )
    return from_readable_files(find, use)


def start_change_feed(opened: OpenTable, query: FilesQuery, parameters: ChangesQuery) -> Files:
    """Start the answer of the change data feed of a range. Blocks.

    The metadata of the latest version comes first; with historical metadata, the metadata of the first
    version. A latest version that cannot be read fails the request, because its metadata is part of the
    answer.
    """
    page = query.page
    latest: Literal["latest"] | int = "latest" if page is None else page.versions[-1]
    heading: Literal["start", "latest"] | int = "start" if parameters.include_historical_metadata else latest
    if page is not None:
        first, last = TimeTravel(version=page.versions[0]), TimeTravel(version=page.versions[1])
    else:
        first = TimeTravel(parameters.starting_version, parameters.starting_timestamp_ms)
        last = TimeTravel(parameters.ending_version, parameters.ending_timestamp_ms)
    find = partial(
        opened.changes, start=first, end=last, change_data_feed=True, heading=heading, stop=query.stop
    )
    use = partial(
        _start_changes,
        opened,
        query,
        include_historical_metadata=parameters.include_historical_metadata,
        include_historical_protocol=parameters.include_historical_protocol,
    )
    return from_readable_files(find, use)


def _start_changes(opened: OpenTable, query: FilesQuery, changes: Changes, **included: bool) -> Files:
    chosen, coding = query.negotiate(changes), query.content_coding()
    chunks = changes.files(query.options(opened, chosen, coding), **included)
    problems = _hint_problems(changes.snapshot, query.hints)
    return Files(changes, chunks, chosen, coding, opened.stale, hint_problems=problems)


def _find_snapshot(opened: OpenTable, query: FilesQuery, body: TableQuery) -> Snapshot:
    """Return the version that a page or refresh token pins, or the requested one. Blocks."""
    if query.page is not None:
        if query.page.versions[0] < opened.shared.start_version:
            raise InvalidToken("page")
        if body.at:
            opened.require_history()
        return opened.pinned(identity=query.page.identity)
    if query.refresh is None:
        return opened.snapshot(version=body.at.version, timestamp_ms=body.at.timestamp_ms)
    snapshot = opened.refreshed(query.refresh.version)
    if not query.refresh.is_of(snapshot.table_id, snapshot.commit_mark):
        raise InvalidToken("refresh")
    return snapshot


def _is_shared(opened: OpenTable, snapshot: Snapshot) -> bool:
    """Return whether a version can be read without a refresh token. Blocks."""
    if opened.shared.history_shared:
        return True
    try:
        return opened.snapshot().version == snapshot.version
    except (CorruptLog, UnsupportedFeature):
        # A newer version that cannot be read leaves the token what it has.
        return False


def _hint_problems(snapshot: Snapshot, hints: Hints) -> Sequence[tuple[str, str]] | None:
    if not hints.predicates and hints.json_predicate is None:
        return None
    return snapshot.hint_problems(hints.predicates, hints.json_predicate)
