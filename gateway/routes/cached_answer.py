"""The cache of answers of one second, for queries of the latest version.

In: a query, and the latest version of its table. Out: the answer that another request has made in the same
second; else the new answer, kept if it is the same for all.
"""

from __future__ import annotations

from collections.abc import Hashable

from aiohttp import web
from msgspec import Struct
from msgspec.structs import replace

from gateway.protocol.queries import TableQuery
from gateway.routes.table_request import TableRequest
from gateway.tables.answer_cache import CachedAnswer
from gateway.tables.open_table import LatestTable
from gateway.web.answer import Answer
from gateway.web.response import WholeResponse


class CachedQuery(Struct, eq=False):
    """One query and its place in the cache."""

    request: TableRequest
    body: bytes
    query: TableQuery
    key: Hashable = None
    """None for an answer that is not kept."""
    now_ms: int = 0

    def find(self, opened: LatestTable) -> CachedAnswer | None:
        """Return the answer from a version in memory, if it was made in this second. Never blocks."""
        request = self.request
        if not opened.url_signers.is_valid:
            return None
        # Everything that the answer depends on, beside the configuration and the second.
        self.key = (
            request.table,
            opened.latest.table_id,
            opened.latest.identity,
            opened.signers,
            request.capabilities_text,
            request.file_id_scheme,
            self.body,
            # A client that excludes `identity` gets another answer, if it accepts another coding.
            request.codings[0],
        )
        self.now_ms = request.state.now_ms()
        return request.state.answer_cache.find(self.key, now_ms=self.now_ms)

    def put(self, answer: Answer, response: web.StreamResponse) -> None:
        """Keep an answer that was sent whole, if it was made in memory and is the same for all."""
        record, cache = answer.record, self.request.state.answer_cache
        if self.key is None or record.files_from != "memory" or record.stale:
            return
        # Of many bodies that differ most find no room.
        if cache.has_room(self.now_ms) and isinstance(response, WholeResponse) and self._is_same(answer):
            cached = CachedAnswer(response.body, response.field_lines, replace(record))
            cache.put(self.key, cached, now_ms=self.now_ms)

    def _is_same(self, answer: Answer) -> bool:
        """Return whether all recipients and codings get this answer: it has no token of a recipient."""
        compression = self.request.state.config.gateway.compression
        is_small = not compression.enabled or (answer.considered or 0) < compression.minimum_files
        has_tokens = bool(self.query.paging) or self.query.refreshes
        return is_small and answer.content_coding == "identity" and not has_tokens
