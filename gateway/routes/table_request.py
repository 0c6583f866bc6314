"""A request about one table: what the routes of a table share.

In: the request's context. Out: the shared table, the protocol's headers, the frozen query that is handed
down, and the answer with its headers and last line.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, TypeVar

from msgspec import Struct
from msgspec.structs import replace

from gateway.access.catalog import SharedTable
from gateway.access.sealed_tokens import InvalidToken, Page, Refresh, digest, token_owner
from gateway.errors import PermissionDenied, UnsupportedOperation
from gateway.protocol.capabilities import (
    Capabilities,
    ResponseFormat,
    capabilities_header,
    file_id_scheme,
)
from gateway.protocol.headers import (
    CAPABILITIES_HEADER,
    FILE_ID_HEADER,
    HINT_STATUS_HEADER,
    STALE_HEADER,
    VERSION_HEADER,
)
from gateway.protocol.queries import ChangesQuery, Hints, Paging, TableQuery
from gateway.protocol.response import ContentCoding
from gateway.state import GatewayState
from gateway.tables.files import Files, FilesQuery, start
from gateway.tables.native import Changes, Snapshot, Stop
from gateway.tables.open_table import LatestTable, OpenTable, metadata_id_of, versions_of
from gateway.tables.visible_errors import shared_error
from gateway.telemetry.request_record import RequestRecord
from gateway.web.answer import Answer
from gateway.web.content_coding import content_codings
from gateway.web.context import RequestContext

if TYPE_CHECKING:
    from gateway.tables.native import StreamSummary

NO_HINTS = Hints()
NO_ACCESS = "the table offers directory access only, and your grant for a part of it gives none"
MAX_HINT_STATUS_LENGTH = 1024

P = ParamSpec("P")
R = TypeVar("R")


class TableRequest(Struct, frozen=True):
    """A request about one table, for a recipient who may read it.

    Attributes:
        recipient: the name.
        capabilities_text, accepted_codings: headers as the client sent them.
        remote: the peer's address.
        stop: ends blocking calls at the request's deadline, and when the client has left.

    """

    state: GatewayState
    recipient: str
    table: SharedTable
    opened: OpenTable
    capabilities_text: str | None
    capabilities: Capabilities
    file_id_scheme: ResponseFormat | None
    accepted_codings: str
    remote: str | None
    stop: Stop

    @staticmethod
    def of(context: RequestContext) -> TableRequest:
        """Find the table and parse the protocol's headers. Raises NotFound, InvalidParameter."""
        state, recipient, names = context.state, context.required_recipient, context.names
        headers = context.request.headers
        table = state.catalog.table(recipient, names["share"], names["schema"], names["table"])
        context.record.table = table.full_name
        capabilities_text = _joined(headers.getall(CAPABILITIES_HEADER, []))
        return TableRequest(
            state=state,
            recipient=recipient.name,
            table=table,
            opened=state.tables.open(table),
            capabilities_text=capabilities_text,
            capabilities=Capabilities.parse(capabilities_text),
            file_id_scheme=file_id_scheme(headers.get(FILE_ID_HEADER)),
            accepted_codings=",".join(headers.getall("Accept-Encoding", ())),
            remote=context.request.remote,
            stop=Stop(seconds=state.config.request_timeout_seconds or None),
        )

    @property
    def token_owner(self) -> str:
        """Whom page and refresh tokens of the answer belong to: the recipient, by the rule of its grants."""
        rule = self.opened.rule
        return token_owner(self.recipient, None if rule is None else rule.key)

    async def read(
        self, call: Callable[Concatenate[OpenTable, P], R], *args: P.args, **kwargs: P.kwargs
    ) -> R:
        """Run a call that reads the table, on a thread of its storage."""
        try:
            return await self.state.tables.read(self.table, call, *args, **kwargs)
        except BaseException:
            # Where the client has left or the storage hangs, the thread may still run the call.
            self.stop.cancel()
            raise

    async def read_latest(
        self, call: Callable[[OpenTable], R], at_once: Callable[[LatestTable], R | None]
    ) -> R:
        """Run a call that reads the latest version: on the event loop if `at_once` returns a result."""
        try:
            return await self.state.tables.read_latest(self.opened, call, at_once)
        except BaseException:
            self.stop.cancel()
            raise

    def require_urls(self) -> None:
        """Raise UnsupportedOperation for a table without URL access, PermissionDenied without any."""
        if not self.table.offers_urls and not self.table.offers_directory:
            raise PermissionDenied(NO_ACCESS)
        if not self.table.offers_urls:
            raise UnsupportedOperation(
                "the table offers directory access only (accessModes: dir); request "
                "temporary-table-credentials"
            )

    async def files(self, query: FilesQuery) -> Files:
        """Start the answer of a query, on a thread of the table's storage."""
        return await self.read(start, query)

    def files_query(self, query: TableQuery | ChangesQuery) -> FilesQuery:
        """Return the query with everything that its answer depends on. Raises InvalidToken."""
        config = self.state.config
        small_coding, large_coding = self.codings()
        return FilesQuery(
            query=query,
            capabilities=self.capabilities,
            file_id_scheme=self.file_id_scheme,
            hints=self._enabled_hints(query),
            page=self._open_page(query),
            refresh=self._open_refresh(query),
            page_size=self._page_size(query.paging),
            small_coding=small_coding,
            large_coding=large_coding,
            minimum_files=config.gateway.compression.minimum_files,
            url_seconds=config.pre_signed_url_timeout_seconds,
            timeout_seconds=config.request_timeout_seconds,
            now_ms=self.state.now_ms,
            stop=self.stop,
        )

    def codings(self) -> tuple[ContentCoding, ContentCoding]:
        """Return the codings of an answer with few files, and of one with many."""
        return content_codings(self.accepted_codings, self.remote, self.state.config.gateway.compression)

    def answer(self, query: FilesQuery, files: Files, *, reads_storage: bool = True) -> Answer:
        """Return the answer to send: headers, record and last line of a started answer.

        Where it `reads_storage`, the end of its stream is reported to the storage's circuit breaker.
        """
        read, record = files.read, RequestRecord(table=self.table.full_name)
        version = read.version if isinstance(read, Snapshot) else read.starting_version
        wants_end = query.query.wants_end_stream_action(self.capabilities)
        headers = self.headers(version, files.response_format, end_stream_action=wants_end, stale=files.stale)
        record.version, record.format = version, files.response_format
        record.stale, record.files_from = files.stale or None, files.files_from
        if isinstance(query.query, ChangesQuery) and isinstance(read, Changes):
            record.ending_version = read.ending_version
        if files.hint_problems is not None:
            headers[HINT_STATUS_HEADER] = hint_status(files.hint_problems)
            record.ignored_hints = [f"{hint}: {reason}" for hint, reason in files.hint_problems]
        answer = Answer(
            files.chunks,
            headers,
            files.content_coding,
            partial(self._last_line, query, files) if wants_end else None,
            record,
            files.considered,
        )
        if not reads_storage:
            return answer
        ended = partial(self.state.tables.stream_ended, self.table)
        return replace(answer, ended=ended, shared_error=partial(shared_error, self.table))

    def headers(
        self,
        version: int,
        response_format: ResponseFormat,
        *,
        end_stream_action: bool = False,
        stale: bool = False,
    ) -> dict[str, str]:
        """Return the protocol's headers of an answer; they are the same on every page."""
        announced = end_stream_action and self.capabilities.include_end_stream_action
        headers = {
            VERSION_HEADER: str(version),
            CAPABILITIES_HEADER: capabilities_header(response_format, end_stream_action=announced),
        }
        if self.file_id_scheme is not None:
            headers[FILE_ID_HEADER] = self.file_id_scheme
        return headers | self.stale_header(stale)

    @staticmethod
    def stale_header(stale: bool) -> dict[str, str]:
        """Return the header of an answer from a cached snapshot."""
        return {STALE_HEADER: "true"} if stale else {}

    def _enabled_hints(self, query: TableQuery | ChangesQuery) -> Hints:
        if isinstance(query, ChangesQuery) or query.hints == NO_HINTS:
            return NO_HINTS
        config, hints = self.state.config, query.hints
        json_is_enabled = config.evaluate_json_predicate_hints or config.evaluate_json_predicate_hints_v2
        return Hints(
            predicates=hints.predicates if config.evaluate_predicate_hints else (),
            json_predicate=hints.json_predicate if json_is_enabled else None,
            limit=hints.limit,
        )

    def _page_size(self, paging: Paging) -> int | None:
        if not paging:
            return None
        ceiling = self.state.config.query_table_page_size_limit
        return ceiling if paging.max_files is None else min(paging.max_files, ceiling)

    def _open_page(self, query: TableQuery | ChangesQuery) -> Page | None:
        token = query.paging.page_token
        if token is None:
            return None
        return Page.open(
            self.state.sealer,
            self.token_owner,
            token,
            table=self.table.id,
            parameters=self._bound_parameters(query),
            now_ms=self.state.now_ms(),
        )

    def _open_refresh(self, query: TableQuery | ChangesQuery) -> Refresh | None:
        """Open the refresh token. Raises InvalidToken, also for a version that is no longer shared."""
        if isinstance(query, ChangesQuery) or query.refresh_token is None:
            return None
        refresh = Refresh.open(
            self.state.sealer,
            self.token_owner,
            query.refresh_token,
            table=self.table.id,
            now_ms=self.state.now_ms(),
        )
        if refresh.version < self.table.start_version:
            raise InvalidToken("refresh")
        return refresh

    def _bound_parameters(self, query: TableQuery | ChangesQuery) -> list[Any]:
        """Return what a page token is bound to beside its table."""
        return [self.file_id_scheme, *query.parameters()]

    def _last_line(self, query: FilesQuery, files: Files, summary: StreamSummary) -> dict[str, Any]:
        """Return the fields of the endStreamAction."""
        body = query.query
        refreshes = isinstance(body, TableQuery) and body.refreshes
        refreshed = {"refreshToken": self._refresh_token(files.read, query.refresh)} if refreshes else {}
        return refreshed | {
            "nextPageToken": self._next_page(query, files, summary.next_cursor),
            "minUrlExpirationTimestamp": summary.min_url_expiration_ms,
        }

    def _refresh_token(self, read: Snapshot | Changes, previous: Refresh | None) -> str:
        """Return the token that renews the URLs of the version; it expires with the `previous` one."""
        state = self.state
        expires_ms = previous.expires_ms if previous else state.now_ms() + state.config.refresh_token_ttl_ms
        token = Refresh(self.table.id, metadata_id_of(read), versions_of(read)[0], expires_ms)
        return token.seal(state.sealer, self.token_owner)

    def _next_page(self, query: FilesQuery, files: Files, cursor: str | None) -> str | None:
        if cursor is None:
            return None
        # A page pins a version that may no longer be shared, so all pages expire with the first one.
        state = self.state
        expires_ms = (
            query.page.expires_ms
            if query.page
            else state.now_ms() + state.config.query_table_page_token_ttl_ms
        )
        page = Page(
            table=self.table.id,
            metadata_id=metadata_id_of(files.read),
            identity=files.read.identity,
            versions=versions_of(files.read),
            cursor=cursor,
            response_format=files.response_format,
            digest=digest(self._bound_parameters(query.query)),
            expires_ms=expires_ms,
        )
        return page.seal(state.sealer, self.token_owner)


def hint_status(problems: Sequence[tuple[str, str]]) -> str:
    """Return the header that shows ignored hints: `ok`, or the hints that prune nothing and the reasons."""
    if not problems:
        return "ok"
    reasons = "; ".join(f"{hint}: {reason}" for hint, reason in problems)
    visible = "".join(c if " " <= c <= "~" else "?" for c in reasons)
    return f"ignored {len(problems)}: {visible}"[:MAX_HINT_STATUS_LENGTH]


def _joined(values: Sequence[str]) -> str | None:
    """Join repeated headers, which mean the same as one header with all values."""
    return ";".join(values) if values else None
