"""A small HTTP server of a test: one function answers the requests, which are kept."""

import json
import ssl
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl


@dataclass(frozen=True)
class Request:
    """A request as it came in, the target undecoded."""

    method: str
    target: str
    headers: Mapping[str, str]
    """Names in lower case."""
    body: bytes

    @property
    def path(self) -> str:
        """The path, still percent-encoded."""
        return self.target.partition("?")[0]

    @property
    def raw_query(self) -> str:
        """The query, still percent-encoded."""
        return self.target.partition("?")[2]

    @cached_property
    def query(self) -> dict[str, str]:
        """The parameters of the query."""
        return dict(parse_qsl(self.raw_query, keep_blank_values=True))

    @cached_property
    def form(self) -> dict[str, str]:
        """The fields of a form in the body."""
        return dict(parse_qsl(self.body.decode(), keep_blank_values=True))

    @property
    def bearer(self) -> str | None:
        """The bearer token."""
        scheme, _, token = self.headers.get("authorization", "").partition(" ")
        return token if scheme.lower() == "bearer" else None


@dataclass(frozen=True)
class Response:
    """An answer."""

    status: int = 200
    body: bytes = b""
    headers: Mapping[str, str] = field(default_factory=dict)


def json_response(document: Any, status: int = 200) -> Response:
    """An answer in JSON."""
    return Response(status, json.dumps(document).encode(), {"Content-Type": "application/json"})


Answer = Callable[[Request], Response]


@dataclass
class HttpService:
    """A running server and the requests that it had."""

    url: str
    requests: list[Request] = field(default_factory=list)
    certificate: Path | None = None


@contextmanager
def serving(answer: Answer, pair: Path | None = None) -> Iterator[HttpService]:
    """Serves by a function until the block ends, with TLS if a file has certificate and key."""
    service = HttpService("", certificate=pair)

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        # The headers and the body are two writes.
        disable_nagle_algorithm = True

        def answer(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            headers = {name.lower(): value for name, value in self.headers.items()}
            request = Request(self.command, self.path, headers, body)
            service.requests.append(request)
            response = answer(request)
            self.send_response(response.status)
            for name, value in ({"Content-Length": str(len(response.body))} | {**response.headers}).items():
                self.send_header(name, value)
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(response.body)

        do_GET = do_HEAD = do_PUT = do_POST = do_DELETE = answer  # noqa: N815 - the names that http.server looks for

        def log_message(self, *_: object) -> None:
            pass

    class Server(ThreadingHTTPServer):
        daemon_threads = True
        block_on_close = False

        def handle_error(self, *_: object) -> None:
            """A client that closes its connection is no error here."""

    with Server(("127.0.0.1", 0), Handler) as server:
        if pair:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(pair)
            # Handshakes are made by the threads of the connections.
            server.socket = context.wrap_socket(
                server.socket, server_side=True, do_handshake_on_connect=False
            )
        service.url = f"{'https' if pair else 'http'}://127.0.0.1:{server.server_port}"
        thread = threading.Thread(target=server.serve_forever, args=(0.05,))
        thread.start()
        try:
            yield service
        finally:
            server.shutdown()
            thread.join()
