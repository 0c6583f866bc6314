"""A catalog server of the tests that answers as the published API of Unity Catalog says (`api/all.yaml`).

It has the operations that discovery uses: lists of schemas and tables, in pages by name, with errors as JSON.
Of `api/delta.yaml` it has `loadTable`, and beside them an endpoint of OAuth for its tokens.
DELTA_GATEWAY_UNITY_CATALOG=URL names a real server, without a sign-in, for the tests that take `any_catalog`.
"""

import base64
import json
import os
import re
import threading
import time
import urllib.request
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from support.http_service import HttpService, Request, Response, json_response, serving
from support.ratified_log import RatifiedLog

API = "/api/2.1/unity-catalog"
SERVER_PAGE = 100
LARGEST_PAGE = 50
_LOAD = re.compile(r"delta/v1/catalogs/([^/]+)/schemas/([^/]+)/tables/([^/]+)")


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
        managed: tables whose commits the catalog ratifies, by `catalog/schema/table`.
        loading: prepared answers of `loadTable`, by the same.
        clients: secrets of OAuth clients by their ids; a token is accepted once it is issued.

    """

    tables: dict[tuple[str, str], dict[str, dict[str, Any]]] = field(default_factory=dict)
    name: str = "main"
    token: str | None = None
    failing: dict[tuple[str, str], Response] = field(default_factory=dict)
    pages: dict[tuple[str, str], Response] = field(default_factory=dict)
    page: int = SERVER_PAGE
    managed: dict[str, RatifiedLog] = field(default_factory=dict)
    loading: dict[str, Response] = field(default_factory=dict)
    clients: dict[str, str] = field(default_factory=dict)
    token_seconds: int = 3600
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
        if request.path == "/token":
            return self._issue(request)
        if self.token is not None and request.bearer != self.token:
            return _error(401, "UNAUTHENTICATED")
        operation = request.path.removeprefix(f"{API}/")
        if loaded := _LOAD.fullmatch(operation):
            return self._load("/".join(map(unquote, loaded.groups())))
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

    def _load(self, name: str) -> Response:
        """Answer `loadTable`."""
        if name in self.loading:
            return self.loading[name]
        if name not in self.managed:
            message = {"message": "secret detail", "type": "NoSuchTableException", "code": 404}
            return json_response({"error": message}, 404)
        log = self.managed[name]
        return json_response(loaded_table(log))

    def _issue(self, request: Request) -> Response:
        """Answer a request for a token by client credentials."""
        scheme, _, basic = request.headers.get("authorization", "").partition(" ")
        client, _, secret = base64.b64decode(basic).decode().partition(":")
        if scheme != "Basic" or self.clients.get(unquote(client)) != unquote(secret):
            return json_response({"error": "invalid_client"}, 401)
        assert request.form["grant_type"] == "client_credentials"
        self.token = f"token-{time.time_ns()}"
        body = {"access_token": self.token, "token_type": "Bearer", "expires_in": self.token_seconds}
        return json_response(body)

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


def loaded_table(log: RatifiedLog) -> dict[str, Any]:
    """What `loadTable` answers for a table (`DeltaLoadTableResponse`)."""
    ratified = log.answer()
    return {
        "metadata": {
            "etag": "etag-1",
            "table-type": "MANAGED",
            "table-uuid": "123e4567-e89b-12d3-a456-426614174000",
            "location": log.url or f"file://{log.root}",
            "created-time": 1,
            "updated-time": 2,
            "columns": {"type": "struct", "fields": []},
            "partition-columns": [],
            "properties": {"delta.feature.catalogManaged": "supported"},
            "last-commit-version": 0,
            "last-commit-timestamp-ms": 1,
        },
        "commits": [
            {
                "version": version,
                "timestamp": modified_ms,
                "file-name": name,
                "file-size": size,
                "file-modification-timestamp": modified_ms,
            }
            for version, name, size, modified_ms in reversed(ratified.staged)
        ],
        "latest-table-version": ratified.latest,
    }


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
