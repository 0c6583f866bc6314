"""What the routes of a table have in common: who asks for which table, and in what words it is answered."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, TypeVar

from gateway.access.catalog import SharedTable
from gateway.access.sealed_tokens import InvalidToken, Page, digest
from gateway.protocol.capabilities import (
    CAPABILITIES_HEADER,
    FILE_ID_HEADER,
    Capabilities,
    ResponseFormat,
    capabilities_header,
    file_id_scheme,
)
from gateway.protocol.queries import ChangesQuery, Hints, Paging, TableQuery
from gateway.protocol.response import VERSION_HEADER
from gateway.state import Sharing
from gateway.tables.native import AnswerOptions, Stop
from gateway.tables.open_table import OpenTable, metadata_id_of, versions_of
from gateway.tables.visible_errors import shared_error
from gateway.web.answer import Answer
from gateway.web.content_coding import ContentCoding, content_coding
from gateway.web.context import Exchange

if TYPE_CHECKING:
    from gateway.tables.native import Changes, Snapshot, StreamSummary

MILLISECONDS = 1000
STALE_HEADER = "delta-sharing-stale"
"""Says that the storage is down and the answer is from a snapshot that was kept."""

P = ParamSpec("P")
R = TypeVar("R")


@dataclass(frozen=True, slots=True)
class TableRequest:
    """A request about one table, for a recipient who may read it."""

    exchange: Exchange
    sharing: Sharing
    recipient: str
    table: SharedTable
    opened: OpenTable
    capabilities_text: str | None
    """As the client wrote them."""
    capabilities: Capabilities
    file_id_scheme: ResponseFormat | None
    stop: Stop
    """Ends blocking calls at the request's deadline, and where nobody waits for them any more."""

    @staticmethod
    def of(exchange: Exchange) -> TableRequest:
        """Find the table and read the protocol's headers. Raises NotFound, InvalidParameter."""
        sharing, recipient, names = exchange.sharing, exchange.recipient, exchange.names
        headers = exchange.request.headers
        table = sharing.catalog.table(recipient, names["share"], names["schema"], names["table"])
        exchange.facts["table"] = table.full_name
        capabilities_text = _joined(headers.getall(CAPABILITIES_HEADER, []))
        return TableRequest(
            exchange=exchange,
            sharing=sharing,
            opened=sharing.tables.open(table),
            recipient=recipient.name,
            table=table,
            capabilities_text=capabilities_text,
            capabilities=Capabilities.parse(capabilities_text),
            file_id_scheme=file_id_scheme(headers.get(FILE_ID_HEADER)),
            stop=Stop(seconds=sharing.config.request_timeout_seconds or None),
        )

    async def reading(
        self, call: Callable[Concatenate[TableRequest, P], R], *args: P.args, **kwargs: P.kwargs
    ) -> R:
        """Run a call that reads this request's table, on a thread of the table's storage."""
        try:
            return await self.sharing.tables.reading(
                self.table, lambda opened: call(replace(self, opened=opened), *args, **kwargs)
            )
        except BaseException:
            # Where the client is gone or the storage hangs, a thread may still be at the call.
            self.stop.cancel()
            raise

    async def streaming(
        self, call: Callable[Concatenate[TableRequest, P], Answer], *args: P.args, **kwargs: P.kwargs
    ) -> Answer:
        """As `reading`, for a call that begins a stream: the storage may also fail while that is read."""
        sent = await self.reading(call, *args, **kwargs)
        return replace(
            sent,
            ended=partial(self.sharing.tables.stream_ended, self.table),
            shared_error=partial(shared_error, self.table),
        )

    @property
    def accepted_codings(self) -> str:
        """The Accept-Encoding header, of however many lines."""
        return ",".join(self.exchange.request.headers.getall("Accept-Encoding", ()))

    def content_coding(self, paging: Paging, *, files: int | None = None) -> ContentCoding:
        """The coding for an answer of so many files; without a number it counts as large."""
        most = [count for count in (files, self.page_size(paging)) if count is not None]
        compression = self.sharing.config.gateway.compression
        return content_coding(
            self.accepted_codings,
            self.exchange.request.remote,
            compression,
            files=min(most, default=compression.minimum_files),
        )

    def negotiate(self, read: Snapshot | Changes, page: Page | None) -> ResponseFormat:
        """The response format; a page is answered in that and the order of the first page, or not at all."""
        chosen = self.capabilities.negotiate(
            needs_delta_format=read.needs_delta_format, client_reader_features=read.client_reader_features
        )
        if page is not None and not page.continues(metadata_id_of(read), read.identity, chosen):
            raise InvalidToken("page")
        return chosen

    def options(
        self,
        chosen: ResponseFormat,
        paging: Paging,
        page: Page | None,
        coding: ContentCoding,
        hints: Hints = Hints(),  # noqa: B008 - it is frozen
    ) -> AnswerOptions:
        """How native code is to write the answer."""
        config, now_ms = self.sharing.config, self.sharing.now_ms()
        timeout_ms = config.request_timeout_seconds * MILLISECONDS
        return AnswerOptions(
            self.opened.signers,
            response_format=chosen,
            now_ms=now_ms,
            lifetime_seconds=config.pre_signed_url_timeout_seconds,
            file_id_scheme=self.file_id_scheme,
            predicate_hints=hints.predicates,
            json_predicate_hint=hints.json_predicate,
            max_files=self.page_size(paging),
            place=page.place if page else None,
            content_coding=coding,
            deadline_ms=now_ms + timeout_ms if timeout_ms else None,
            history_shared=self.table.history_shared,
            stop=self.stop,
        )

    def page_size(self, paging: Paging) -> int | None:
        """How many files the answer may hold; None for all."""
        if not paging:
            return None
        ceiling = self.sharing.config.query_table_page_size_limit
        return ceiling if paging.max_files is None else min(paging.max_files, ceiling)

    def open_page(self, asked: TableQuery | ChangesQuery) -> Page | None:
        """The place where a following page goes on; None for the first page."""
        token = asked.paging.page_token
        if token is None:
            return None
        bound, now_ms = self._bound(asked.parameters()), self.sharing.now_ms()
        return Page.open(
            self.sharing.sealer, self.recipient, token, table=self.table.id, parameters=bound, now_ms=now_ms
        )

    def ending(
        self,
        read: Snapshot | Changes,
        summary: StreamSummary,
        chosen: ResponseFormat,
        parameters: list[Any],
        page: Page | None,
    ) -> dict[str, Any]:
        """What every endStreamAction says: where the next page begins, and how long all URLs live.

        `page` is the one that is answered; None for the first.
        """
        return {
            "nextPageToken": self._next_page(read, summary.next_place, chosen, parameters, page),
            "minUrlExpirationTimestamp": summary.min_url_expiration_ms,
        }

    def _next_page(
        self,
        read: Snapshot | Changes,
        place: str | None,
        chosen: ResponseFormat,
        parameters: list[Any],
        page: Page | None,
    ) -> str | None:
        if place is None:
            return None
        # A page pins its version, which need be shared no longer: its successors live no longer than itself.
        expires_ms = (
            page.expires_ms
            if page
            else self.sharing.now_ms() + self.sharing.config.query_table_page_token_ttl_ms
        )
        following = Page(
            table=self.table.id,
            metadata_id=metadata_id_of(read),
            identity=read.identity,
            versions=versions_of(read),
            place=place,
            response_format=chosen,
            digest=digest(self._bound(parameters)),
            expires_ms=expires_ms,
        )
        return following.seal(self.sharing.sealer, self.recipient)

    def _bound(self, parameters: list[Any]) -> list[Any]:
        """What a page token is bound to beside its table: the parameters and the scheme of file ids."""
        return [self.file_id_scheme, *parameters]

    def headers(
        self, version: int, response_format: ResponseFormat, *, end_stream_action: bool = False
    ) -> dict[str, str]:
        """The protocol's headers of an answer; they are the same on every page."""
        announced = end_stream_action and self.capabilities.include_end_stream_action
        headers = {
            VERSION_HEADER: str(version),
            CAPABILITIES_HEADER: capabilities_header(response_format, end_stream_action=announced),
        }
        if self.file_id_scheme is not None:
            headers[FILE_ID_HEADER] = self.file_id_scheme
        return headers | self.stale_header()

    def stale_header(self) -> dict[str, str]:
        """What says so, when the answer is from a kept snapshot because the storage is down."""
        if not self.opened.stale:
            return {}
        self.exchange.facts["stale"] = True
        return {STALE_HEADER: "true"}


def _joined(values: Sequence[str]) -> str | None:
    """Several headers of one name say the same as one with all of them."""
    return ";".join(values) if values else None
