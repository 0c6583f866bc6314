"""The cache of answers of one second, for queries of the latest version.

In: a query, and the latest version of its table. Out: the answer that another request has made in the same
second; else the new answer, kept if it is the same for all.
"""

from __future__ import annotations

from collections.abc import Hashable
from copy import copy

from aiohttp import web

from gateway.protocol.queries import TableQuery
from gateway.routes.table_request import TableRequest
from gateway.tables.answer_cache import CachedAnswer
from gateway.tables.open_table import LatestTable
from gateway.web.answer import Answer
from gateway.web.response import WholeResponse


class CachedQuery:
    """One query and its place in the cache."""

    __slots__ = ("_body", "_key", "_now_ms", "_query", "_request")

    def __init__(self, request: TableRequest, body: bytes, query: TableQuery) -> None:
        self._request, self._body, self._query = request, body, query
        self._key: Hashable = None
        self._now_ms = 0

    def find(self, opened: LatestTable) -> CachedAnswer | None:
        """Return the answer from a version in memory, if it was made in this second."""
        request = self._request
        # Everything that the answer depends on, beside the configuration and the second.
        self._key = (
            request.table,
            opened.latest.table_id,
            opened.latest.identity,
            opened.signers,
            request.capabilities_text,
            request.file_id_scheme,
            self._body,
            # A client that excludes `identity` gets another answer, if it accepts another coding.
            request.codings[0],
        )
        self._now_ms = request.state.now_ms()
        return request.state.answer_cache.find(self._key, now_ms=self._now_ms)

    def put(self, answer: Answer, response: web.StreamResponse) -> None:
        """Keep an answer that was sent whole, if it was made in memory and is the same for all."""
        record = answer.record
        is_of_key = self._key is not None and record.files_from == "memory" and not record.stale
        if is_of_key and isinstance(response, WholeResponse) and self._is_same_for_all(answer):
            cached = CachedAnswer(response.body, response.field_lines, copy(record))
            self._request.state.answer_cache.put(self._key, cached, now_ms=self._now_ms)

    def _is_same_for_all(self, answer: Answer) -> bool:
        """Return whether all recipients and codings get this answer: it has no token of a recipient."""
        compression = self._request.state.config.gateway.compression
        is_small = not compression.enabled or (answer.considered or 0) < compression.minimum_files
        has_tokens = bool(self._query.paging) or self._query.refreshes
        return is_small and answer.content_coding == "identity" and not has_tokens
