"""A server of the protocol with one table and its store, in the form of several implementations.

Answers are prepared by path; a test replaces single ones. Requests are kept by `HttpService`.
"""

import json
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from support.http_service import HttpService, Request, Response, json_response, serving

TOKEN = "a-token-of-the-doctor-tests"
PREFIX = "/delta-sharing"
TABLE = f"{PREFIX}/shares/sales/schemas/public/tables/orders"
STORED_FILE = "/bucket/private-directory/part-0.parquet"
SIGNATURE = "0123456789abcdef0123456789abcdef"
SCHEMA = json.dumps({"type": "struct", "fields": []})
DELTA_PROTOCOL = {"minReaderVersion": 3, "minWriterVersion": 7, "readerFeatures": ["deletionVectors"]}

Handler = Callable[[Request], Response]


@dataclass
class SharingServer:
    """A running server; `answers` are by method and path, or by path alone."""

    http: HttpService
    answers: dict[str, Handler | Response] = field(default_factory=dict)
    store: str = ""

    @property
    def endpoint(self) -> str:
        """The endpoint of profiles."""
        return f"{self.http.url}{PREFIX}"

    def profile(self, path: Path, **changes: Any) -> Path:
        """Write a profile; a change to None removes a field."""
        fields = {"shareCredentialsVersion": 1, "endpoint": self.endpoint, "bearerToken": TOKEN, **changes}
        path.write_text(json.dumps({name: value for name, value in fields.items() if value is not None}))
        path.chmod(0o600)
        return path

    def say(self, path: str, *lines: Any, status: int = 200, **headers: str) -> None:
        """Answer a path with lines."""
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        self.answers[path] = Response(status, ndjson(*lines), named)

    def answer(self, request: Request) -> Response:
        """Answer a request."""
        prepared = self.answers.get(f"{request.method} {request.path}", self.answers.get(request.path))
        if prepared is None:
            return self._default(request)
        return prepared(request) if callable(prepared) else prepared

    def _default(self, request: Request) -> Response:
        if request.path == STORED_FILE:
            return ranged(request)
        if request.headers.get("authorization") != f"Bearer {TOKEN}":
            return json_response({"errorCode": "UNAUTHENTICATED", "message": "unknown token"}, 401)
        lists = {
            f"{PREFIX}/shares": [{"name": "sales"}],
            f"{PREFIX}/shares/sales/schemas": [{"name": "public", "share": "sales"}],
            f"{PREFIX}/shares/sales/all-tables": [{"name": "orders", "schema": "public", "share": "sales"}],
            f"{PREFIX}/shares/sales/schemas/public/tables": [
                {"name": "orders", "schema": "public", "share": "sales"}
            ],
        }
        if request.path in lists:
            return json_response({"items": lists[request.path]})
        versions = {"Delta-Table-Version": "7"}
        if request.path == f"{TABLE}/version":
            return Response(200, b"", versions)
        if request.path in {f"{TABLE}/metadata", f"{TABLE}/query"}:
            is_delta = "responseformat=delta" in request.headers.get("delta-sharing-capabilities", "")
            lines = self.delta() if is_delta else self.parquet()
            capability = f"responseformat={'delta' if is_delta else 'parquet'}"
            kept = lines if request.path.endswith("query") else lines[:2]
            return Response(200, ndjson(*kept), {**versions, "delta-sharing-capabilities": capability})
        return json_response({"errorCode": "RESOURCE_DOES_NOT_EXIST", "message": "no such thing"}, 404)

    def parquet(self) -> list[Any]:
        """The lines of a query in the parquet format."""
        metadata = {"id": "1", "format": {"provider": "parquet"}, "schemaString": SCHEMA}
        return [
            {"protocol": {"minReaderVersion": 1}},
            {"metaData": {**metadata, "partitionColumns": []}},
            {"file": {"url": self.url(), "id": "f", "partitionValues": {}, "size": 4, **expiry()}},
        ]

    def delta(self) -> list[Any]:
        """The lines of a query in the delta format."""
        add = {"path": self.url(), "partitionValues": {}, "size": 4}
        metadata = {"id": "1", "schemaString": SCHEMA, "partitionColumns": []}
        return [
            {"protocol": {"deltaProtocol": DELTA_PROTOCOL}},
            {"metaData": {"deltaMetadata": metadata}},
            {"file": {"id": "f", "deltaSingleAction": {"add": add}, **expiry()}},
        ]

    def url(self) -> str:
        """A signed URL of the data file."""
        return f"{self.store or self.http.url}{STORED_FILE}?X-Amz-Signature={SIGNATURE}"


def expiry() -> Mapping[str, int]:
    """The end of a URL, in an hour."""
    return {"expirationTimestamp": int(time.time() * 1000) + 3_600_000}


def ranged(request: Request) -> Response:
    """A range of a Parquet file, of which only the first bytes exist."""
    assert "authorization" not in request.headers
    if request.query.get("X-Amz-Signature") != SIGNATURE:
        return Response(403, b"<Error><Code>SignatureDoesNotMatch</Code></Error>")
    return Response(206, b"PAR1", {"Content-Range": "bytes 0-3/4"})


def ndjson(*lines: Any) -> bytes:
    """Lines of JSON."""
    return b"".join(json.dumps(line).encode() + b"\n" for line in lines)


@contextmanager
def sharing(pair: Path | None = None) -> Iterator[SharingServer]:
    """Run a server until the block ends."""
    server = SharingServer(HttpService(""))
    with serving(server.answer, pair) as server.http:
        yield server
