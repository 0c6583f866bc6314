"""A catalog server of the tests that answers as the published API of Unity Catalog says (`api/all.yaml`).

It has the operations that discovery uses: lists of schemas and tables, in pages by name, with errors as JSON.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from support.http_service import HttpService, Request, Response, json_response, serving

API = "/api/2.1/unity-catalog"
SERVER_PAGE = 100
LARGEST_PAGE = 50


@dataclass
class Catalog:
    """The catalogs of a server, which tests change while it runs.

    Attributes:
        tables: tables by catalog and schema, then by name.
        token: the accepted bearer token; None without a sign-in.
        failing: prepared answers by the path below the API and the schema of a request.
        page: maximum number of entries of a page.

    """

    tables: dict[tuple[str, str], dict[str, dict[str, Any]]] = field(default_factory=dict)
    token: str | None = None
    failing: dict[tuple[str, str], Response] = field(default_factory=dict)
    page: int = SERVER_PAGE
    service: HttpService = field(init=False)
    lock: threading.Lock = field(default_factory=threading.Lock)

    @property
    def url(self) -> str:
        """The URL of the server."""
        return self.service.url

    @property
    def asked(self) -> list[tuple[str, dict[str, str]]]:
        """The paths below the API and the queries of the requests so far."""
        return [(one.path.removeprefix(f"{API}/"), one.query) for one in self.service.requests]

    def add(self, schema: str, name: str, location: str | None, catalog: str = "main", **fields: Any) -> None:
        """Add an external Delta table, or with `fields` another one, or put it in place of the one before."""
        entry = {
            "name": name,
            "catalog_name": catalog,
            "schema_name": schema,
            "table_type": "EXTERNAL",
            "data_source_format": "DELTA",
            "columns": [{"name": "id", "type_text": "bigint", "type_json": "{}", "position": 0}],
            "storage_location": location,
            "properties": {},
            "owner": "someone",
            "created_at": 1,
            "table_id": f"{catalog}-{schema}-{name}",
            **fields,
        }
        with self.lock:
            self.tables.setdefault((catalog, schema), {})[name] = entry

    def drop(self, schema: str, name: str, catalog: str = "main") -> None:
        """Drop a table; its schema stays."""
        with self.lock:
            del self.tables[catalog, schema][name]

    def answer(self, request: Request) -> Response:
        """Answer a request as the server does."""
        if self.token is not None and request.bearer != self.token:
            return _error(401, "UNAUTHENTICATED")
        operation = request.path.removeprefix(f"{API}/")
        catalog, schema = request.query.get("catalog_name", ""), request.query.get("schema_name", "")
        with self.lock:
            if (operation, schema) in self.failing:
                return self.failing[operation, schema]
            schemas = {name: tables for (of, name), tables in self.tables.items() if of == catalog}
            if request.method != "GET" or operation not in ("schemas", "tables"):
                return _error(404, "NOT_FOUND")
            if not schemas:
                return _error(404, "CATALOG_NOT_FOUND")
            if operation == "schemas":
                entries = [{"name": name, "catalog_name": catalog} for name in sorted(schemas)]
            elif schema not in schemas:
                return _error(404, "SCHEMA_NOT_FOUND")
            else:
                entries = [schemas[schema][name] for name in sorted(schemas[schema])]
            return self._page(request, operation, entries)

    def _page(self, request: Request, operation: str, entries: list[dict[str, Any]]) -> Response:
        size = int(request.query.get("max_results", "0"))
        if not 0 <= size <= (LARGEST_PAGE if operation == "tables" else SERVER_PAGE):
            return _error(400, "INVALID_ARGUMENT")
        size = min(size or self.page, self.page)
        after = request.query.get("page_token", "")
        rest = [entry for entry in entries if entry["name"] > after]
        # A page that ends with the last entry has a token, too, and an empty page follows.
        token = rest[size - 1]["name"] if len(rest) >= size else None
        return json_response({operation: rest[:size], "next_page_token": token})


@contextmanager
def running_catalog(pair: Path | None = None, **settings: Any) -> Iterator[Catalog]:
    """Run a catalog server within the block, by TLS with the `pair` of a certificate and its key."""
    catalog = Catalog(**settings)
    with serving(catalog.answer, pair) as service:
        catalog.service = service
        yield catalog


def _error(status: int, code: str) -> Response:
    return json_response({"error_code": code, "message": "secret detail s3://hidden/?sig=1"}, status)
