"""Requests to the REST API of a Unity Catalog: the schemas of a catalog and their tables, page by page.

In: the section of the configuration. Out: entries as the API documents them. Requests are bounded in number,
and answers in bytes; no redirect is followed. Errors have nothing of an answer but its status and error code.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
import msgspec

from gateway.config.unity_catalog import UnityCatalog
from gateway.outgoing import PublicResolver, client_error_text, proxy_hosts, proxy_of
from gateway.storage.unity_catalog import UNAUTHORIZED, authorization, refused
from gateway.tables.native import LogError

REQUEST_SECONDS = 60.0
MAX_ANSWER_BYTES = 8 * 1024 * 1024
PAGE_TABLES = (50, 8, 1)
"""Tables in one page; fewer after an answer that is too long. Databricks accepts no more than the first."""

_CODE = re.compile(r"[A-Z][A-Z0-9_]{0,63}")
_NO_RIGHT = (403, 404)
_MAX_ERROR_BYTES = 64 * 1024


class CatalogError(Exception):
    """Raised when the catalog does not answer as documented; the text is for the operator.

    `is_of_schema`: other schemas may still be listed. `is_lasting`: another search would get the same.
    """

    def __init__(self, text: str, *, is_of_schema: bool = False, is_lasting: bool = False) -> None:
        super().__init__(text)
        self.is_of_schema = is_of_schema
        self.is_lasting = is_lasting


class AnswerTooLong(CatalogError):
    """Raised for an answer of more than `MAX_ANSWER_BYTES`."""

    def __init__(self) -> None:
        text = f"the catalog's answer has more than {MAX_ANSWER_BYTES} bytes"
        super().__init__(text, is_of_schema=True, is_lasting=True)


class CallsSpent(Exception):
    """Raised when the search may send no more requests."""


class _Column(msgspec.Struct):
    mask: Any = None


class _Manifest(msgspec.Struct):
    capabilities: list[str] | None = None


class CatalogTable(msgspec.Struct):
    """A table of the catalog; `TableInfo` of the API."""

    name: str
    table_type: str | None = None
    data_source_format: str | None = None
    storage_location: str | None = None
    columns: list[_Column] | None = None
    properties: dict[str, Any] | None = None
    row_filter: Any = None
    securable_kind_manifest: _Manifest | None = None


class _Schema(msgspec.Struct):
    name: str


class _Refused(msgspec.Struct):
    error_code: str | None = None


class _Page(_Refused):
    schemas: list[_Schema] = []
    tables: list[CatalogTable] = []
    next_page_token: str | None = None


class CatalogClient:
    """A client of one catalog, for one search."""

    def __init__(self, session: aiohttp.ClientSession, settings: UnityCatalog, max_calls: int) -> None:
        self._session = session
        self._settings = settings
        self._max_calls = max_calls
        self.calls = 0

    async def schemas(self) -> AsyncIterator[str]:
        """Iterate over the names of the schemas. Raises CatalogError, CallsSpent."""
        # The server chooses the size of a page.
        query = {"catalog_name": self._settings.catalog}
        is_empty = True
        async for page in self._pages("schemas", query, sizes=(0,)):
            for schema in page.schemas:
                is_empty = False
                yield schema.name
        if is_empty:
            # Each catalog has one. Without the right to see any, the answer is the same.
            raise CatalogError("the catalog lists no schema")

    async def tables(self, schema: str) -> AsyncIterator[CatalogTable]:
        """Iterate over the tables of a schema. Raises CatalogError, CallsSpent."""
        query = {
            "catalog_name": self._settings.catalog,
            "schema_name": schema,
            # Says whether other engines may read the files of a table.
            "include_manifest_capabilities": "true",
        }
        async for page in self._pages("tables", query, sizes=PAGE_TABLES):
            for table in page.tables:
                yield table

    async def _pages(
        self, path: str, query: Mapping[str, str], *, sizes: Sequence[int]
    ) -> AsyncIterator[_Page]:
        """Iterate over pages. One may be empty and not the last.

        A page whose answer is too long is requested again with the next of the `sizes`.
        """
        token: str | None = None
        # By their hashes: tokens may be long.
        named: set[int] = set()
        size, *smaller = sizes
        while True:
            parameters = {
                **query,
                "max_results": str(size),
                **({} if token is None else {"page_token": token}),
            }
            try:
                page = await self._page(path, parameters)
            except AnswerTooLong:
                if not smaller:
                    raise
                size, *smaller = smaller
                continue
            yield page
            if not page.next_page_token:
                return
            token = page.next_page_token
            if hash(token) in named:
                raise CatalogError("the catalog names a page twice as the next one", is_of_schema=True)
            named.add(hash(token))

    async def _page(self, path: str, query: Mapping[str, str]) -> _Page:
        if self.calls >= self._max_calls:
            raise CallsSpent
        self.calls += 1
        try:
            headers = await asyncio.to_thread(authorization, self._settings)
        except LogError as error:
            raise CatalogError(f"there is no token for the catalog: {error.detail}") from None
        url = f"{self._settings.api_url}/{path}"
        try:
            proxy = proxy_of(url)
            async with self._session.get(
                url, params=query, headers=headers, allow_redirects=False, **proxy
            ) as response:
                if response.status == UNAUTHORIZED:
                    refused(self._settings)
                if response.status != 200:  # noqa: PLR2004 - OK
                    raise await _error_of(response)
                page = _page_of(await _body(response, MAX_ANSWER_BYTES), path)
                if page.error_code is not None:
                    raise CatalogError(f"the catalog answers 200{_code(page)}", is_of_schema=True)
                return page
        except (aiohttp.ClientError, OSError) as error:
            raise CatalogError(f"the catalog cannot be reached: {client_error_text(error)}") from None
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            raise CatalogError(
                "the catalog's answer has not the documented form", is_of_schema=True
            ) from None


def _page_of(body: bytes, path: str) -> _Page:
    """Parse a page. Raises CatalogError, DecodeError for a document that is no page of this path.

    Databricks leaves out empty lists, so `{}` is a page without entries, and another document is none.
    """
    page = msgspec.json.decode(body, type=_Page)
    entries = page.schemas if path == "schemas" else page.tables
    if not entries and page.next_page_token is None and page.error_code is None:
        document = msgspec.json.decode(body)
        if document and document.keys().isdisjoint({path, "next_page_token"}):
            raise CatalogError("the catalog's answer has not the documented form", is_of_schema=True)
    return page


@asynccontextmanager
async def catalog_client(settings: UnityCatalog, max_calls: int) -> AsyncIterator[CatalogClient]:
    """Open a client for one search."""
    resolver = None if settings.allow_private_addresses else PublicResolver(proxy_hosts())
    # Compressed answers could be far larger than they are sent.
    headers = {"Accept": "application/json", "Accept-Encoding": "identity"}
    async with aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(resolver=resolver),
        timeout=aiohttp.ClientTimeout(total=REQUEST_SECONDS),
        headers=headers,
        auto_decompress=False,
    ) as session:
        yield CatalogClient(session, settings, max_calls)


async def _body(response: aiohttp.ClientResponse, limit: int) -> bytes:
    """Read an answer. Raises CatalogError for one that is too long or compressed."""
    if response.headers.get("Content-Encoding", "identity") != "identity":
        raise CatalogError("the catalog's answer is compressed, which was not requested")
    body = bytearray()
    async for chunk in response.content.iter_any():
        body += chunk
        if len(body) > limit:
            raise AnswerTooLong
    return bytes(body)


async def _error_of(response: aiohttp.ClientResponse) -> CatalogError:
    """Return the error of a refused request, by its status and the code of its body."""
    try:
        refused = msgspec.json.decode(await _body(response, _MAX_ERROR_BYTES), type=_Refused)
    except (CatalogError, msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        refused = _Refused()
    has_no_right = response.status in _NO_RIGHT
    text = f"the catalog answers {response.status}{_code(refused)}"
    return CatalogError(text, is_of_schema=has_no_right, is_lasting=has_no_right)


def _code(refused: _Refused) -> str:
    """Return the error code of an answer for messages; nothing where it is none."""
    code = refused.error_code or ""
    return f" ({code})" if _CODE.fullmatch(code) else ""
