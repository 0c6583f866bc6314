"""A catalog server of the tests that answers as the published API of Unity Catalog says (`api/all.yaml`).

It has the operations that discovery uses: lists of schemas and tables, in pages by name, with errors as JSON.
DELTA_GATEWAY_UNITY_CATALOG=URL names a real server, without a sign-in, for the tests that take `any_catalog`.
"""

from __future__ import annotations

import json
import os
import threading
import time
import urllib.request
from collections.abc import Iterator
from contextlib import closing, contextmanager
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
        name: name of the catalog of `add` and `drop`.
        token: the accepted bearer token; None without a sign-in.
        failing: prepared answers by the path below the API and the schema of a request.
        pages: prepared answers for the tables of a schema, by the schema and the page token.
        page: maximum number of entries of a page.

    """

    tables: dict[tuple[str, str], dict[str, dict[str, Any]]] = field(default_factory=dict)
    name: str = "main"
    token: str | None = None
    failing: dict[tuple[str, str], Response] = field(default_factory=dict)
    pages: dict[tuple[str, str], Response] = field(default_factory=dict)
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

    def add(self, schema: str, name: str, location: str | None, **fields: Any) -> None:
        """Add an external Delta table, or with `fields` another one, or put it in place of the one before."""
        with self.lock:
            entry = self.entry(schema, name, location, **fields)
            self.tables.setdefault((self.name, schema), {})[name] = entry

    def entry(self, schema: str, name: str, location: str | None, **fields: Any) -> dict[str, Any]:
        """An external Delta table as a page has it, or with `fields` another one."""
        return {
            "name": name,
            "catalog_name": self.name,
            "schema_name": schema,
            "table_type": "EXTERNAL",
            "data_source_format": "DELTA",
            "columns": [{"name": "id", "type_text": "bigint", "type_json": "{}", "position": 0}],
            "storage_location": location,
            "properties": {},
            "owner": "someone",
            "created_at": 1,
            "table_id": f"{self.name}-{schema}-{name}",
            **fields,
        }

    def drop(self, schema: str, name: str) -> None:
        """Drop a table; its schema stays."""
        with self.lock:
            del self.tables[self.name, schema][name]

    def answer(self, request: Request) -> Response:
        """Answer a request as the server does."""
        if self.token is not None and request.bearer != self.token:
            return _error(401, "UNAUTHENTICATED")
        operation = request.path.removeprefix(f"{API}/")
        catalog, schema = request.query.get("catalog_name", ""), request.query.get("schema_name", "")
        with self.lock:
            if (operation, schema) in self.failing:
                return self.failing[operation, schema]
            page = schema, request.query.get("page_token", "")
            if operation == "tables" and page in self.pages:
                return self.pages[page]
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


class RealCatalog:
    """A catalog of its own in a server of Unity Catalog, by the operations of its API."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.name = f"tests_{os.getpid()}_{time.time_ns()}"
        self._schemas: set[str] = set()
        self._call("POST", "catalogs", {"name": self.name})

    def add(self, schema: str, name: str, location: str, **fields: Any) -> None:
        """Add an external Delta table, or with `fields` another one."""
        if schema not in self._schemas:
            self._call("POST", "schemas", {"name": schema, "catalog_name": self.name})
            self._schemas.add(schema)
        column = {"name": "id", "type": "long", "nullable": True, "metadata": {}}
        columns = [{"name": "id", "type_text": "bigint", "type_name": "LONG", "position": 0}]
        entry = {
            "name": name,
            "catalog_name": self.name,
            "schema_name": schema,
            "table_type": "EXTERNAL",
            "data_source_format": "DELTA",
            "columns": [one | {"type_json": json.dumps(column), "nullable": True} for one in columns],
            "storage_location": location,
            **fields,
        }
        self._call("POST", "tables", entry)

    def drop(self, schema: str, name: str) -> None:
        """Drop a table; its schema stays."""
        self._call("DELETE", f"tables/{self.name}.{schema}.{name}")

    def close(self) -> None:
        """Remove the catalog with what is in it."""
        self._call("DELETE", f"catalogs/{self.name}?force=true")

    def _call(self, method: str, path: str, body: dict[str, Any] | None = None) -> None:
        headers = {"Content-Type": "application/json"}
        content = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(f"{self.url}{API}/{path}", content, headers, method=method)
        urllib.request.urlopen(request, timeout=30).close()


@contextmanager
def any_catalog(token: str) -> Iterator[Catalog | RealCatalog]:
    """Run a catalog server within the block, or use the real one that the environment names."""
    url = os.environ.get("DELTA_GATEWAY_UNITY_CATALOG")
    if url is None:
        with running_catalog(token=token) as catalog:
            yield catalog
    else:
        with closing(RealCatalog(url)) as real:
            yield real


def _error(status: int, code: str) -> Response:
    return json_response({"error_code": code, "message": "secret detail s3://hidden/?sig=1"}, status)
