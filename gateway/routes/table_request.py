"""A request about one table: what the routes of a table share.

In: the request's context. Out: the shared table, the negotiated capabilities, and the frozen query that is
handed down, with its tokens opened.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Concatenate, ParamSpec, TypeVar

from aiohttp import hdrs
from msgspec import Struct
from msgspec.structs import replace

from gateway.authentication.sealed_tokens import InvalidToken, Page, Refresh, token_owner
from gateway.catalog.catalog import SharedTable
from gateway.errors import PermissionDenied, UnsupportedOperation
from gateway.protocol.capabilities import Capabilities, ResponseFormat, file_id_scheme
from gateway.protocol.headers import CAPABILITIES_HEADER, FILE_ID_HEADER
from gateway.protocol.queries import ChangesQuery, Hints, Paging, TableQuery
from gateway.protocol.response import ContentCoding
from gateway.state import GatewayState
from gateway.tables.files import Files, FilesQuery, start
from gateway.tables.native import Stop
from gateway.tables.open_table import LatestTable, OpenTable
from gateway.web.content_coding import content_codings
from gateway.web.context import RequestContext

NO_HINTS = Hints()
CAPABILITIES, FILE_ID = map(type(hdrs.ACCEPT), (CAPABILITIES_HEADER, FILE_ID_HEADER))
"""As names of aiohttp, which are folded to lower case once and not for each lookup."""
NO_ACCESS = "the table offers directory access only, and your grant for a part of it gives none"

P = ParamSpec("P")
R = TypeVar("R")


class TableRequest(Struct, frozen=True):
    """A request about one table, for a recipient who may read it.

    Attributes:
        recipient: the name.
        capabilities_text: the header as the client sent it.
        codings: of an answer with few files, and of an answer with many files.
        stop: ends blocking calls at the request's deadline, and when the client has left.

    """

    state: GatewayState
    recipient: str
    table: SharedTable
    opened: OpenTable
    capabilities_text: str | None
    capabilities: Capabilities
    file_id_scheme: ResponseFormat | None
    codings: tuple[ContentCoding, ContentCoding]
    stop: Stop

    @staticmethod
    def of(context: RequestContext) -> TableRequest:
        """Find the table and parse the protocol's headers. Raises NotFound, InvalidParameter."""
        state, recipient, names = context.state, context.required_recipient, context.names
        headers = context.request.headers
        table = state.catalog.table(recipient, names["share"], names["schema"], names["table"])
        context.record.table = table.full_name
        context.storage = state.tables.storages.name(table.location)
        # Repeated headers mean the same as one header with all values.
        sent = headers.getall(CAPABILITIES, None)
        capabilities_text = None if sent is None else ";".join(sent)
        return TableRequest(
            state=state,
            recipient=recipient.name,
            table=table,
            opened=state.tables.open(table),
            capabilities_text=capabilities_text,
            capabilities=Capabilities.parse(capabilities_text),
            file_id_scheme=file_id_scheme(headers.get(FILE_ID)),
            codings=content_codings(
                ",".join(headers.getall(hdrs.ACCEPT_ENCODING, ())),
                context.request.remote,
                state.config.gateway.compression,
            ),
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
            return await self.state.tables.read(self.recipient, self.table, call, *args, **kwargs)
        except BaseException:
            # Where the client has left or the storage hangs, the thread may still run the call.
            self.stop.cancel()
            raise

    async def read_latest(
        self,
        call: Callable[[OpenTable], R],
        at_once: Callable[[LatestTable], R | None],
        before_call: Callable[[], Awaitable[None]] | None = None,
    ) -> R:
        """Run a call that reads the latest version: on the event loop if `at_once` returns a result."""
        try:
            return await self.state.tables.read_latest(
                self.recipient, self.opened, call, at_once, before_call
            )
        except BaseException:
            self.stop.cancel()
            raise

    def require_urls(self) -> None:
        """Raise UnsupportedOperation for a table without URL access, PermissionDenied without any."""
        if self.table.offers_urls:
            return
        if not self.table.offers_directory:
            raise PermissionDenied(NO_ACCESS)
        raise UnsupportedOperation(
            "the table offers directory access only (accessModes: dir); request temporary-table-credentials"
        )

    async def files(self, query: FilesQuery, *, in_memory: bool = False) -> Files:
        """Start the answer of a query, on a thread of the table's storage unless its files are in memory."""
        # The catalog of a managed table is asked for each page.
        if not in_memory or self.opened.managed is not None:
            return await self.read(start, query)
        try:
            return await self.state.tables.in_memory(self.table, start, query)
        except BaseException:
            self.stop.cancel()
            raise

    def files_query(self, query: TableQuery | ChangesQuery) -> FilesQuery:
        """Return the query with everything that its answer depends on. Raises InvalidToken."""
        config = self.state.config
        small_coding, large_coding = self.codings
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

    def _enabled_hints(self, query: TableQuery | ChangesQuery) -> Hints:
        if isinstance(query, ChangesQuery) or query.hints == NO_HINTS:
            return NO_HINTS
        config, hints = self.state.config, query.hints
        json_is_enabled = config.evaluate_json_predicate_hints or config.evaluate_json_predicate_hints_v2
        enabled = replace(
            hints,
            predicates=hints.predicates if config.evaluate_predicate_hints else (),
            json_predicate=hints.json_predicate if json_is_enabled else None,
        )
        # The client needs that many rows of its predicates.
        return enabled if enabled == hints else replace(enabled, limit=None)

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
            parameters=bound_parameters(self.file_id_scheme, query),
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


def bound_parameters(scheme: ResponseFormat | None, query: TableQuery | ChangesQuery) -> list[Any]:
    """Return the values that a page token is bound to beside its table."""
    return [scheme, *query.parameters()]
