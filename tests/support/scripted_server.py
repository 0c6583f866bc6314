"""An HTTP server that gives prepared answers in order and records its requests."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any

from gateway.client.pages import ShareClient
from gateway.client.profile import Profile
from gateway.client.table_name import TableName
from gateway.client.transport import Retries, Transport

HEAD: tuple[Any, ...] = (
    {"protocol": {"minReaderVersion": 1}},
    {"metaData": {"schemaString": "{}", "partitionColumns": []}},
)


def file_line(name: str) -> Any:
    return {"file": {"id": name, "url": "http://x/y?secret", "size": 1, "partitionValues": {}}}


class Answers:
    """Prepared answers in order, and the requests so far."""

    def __init__(self) -> None:
        self.answers: list[tuple[int, dict[str, str], bytes]] = []
        self.requests: list[tuple[str, str]] = []
        self.headers: list[dict[str, str]] = []
        mine = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                length = int(self.headers.get("Content-Length", 0))
                mine.headers.append(dict(self.headers.items()))
                mine.requests.append((self.path, self.rfile.read(length).decode()))
                status, headers, body = mine.answers.pop(0)
                self.send_response(status)
                for name, value in ({"Content-Length": str(len(body))} | headers).items():
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(body)
                self.close_connection = True

            do_POST = do_GET  # noqa: N815 - the name that http.server looks for

            def log_message(self, *args: Any) -> None:
                pass

        self.http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        Thread(target=self.http.serve_forever, args=(0.02,), daemon=True).start()
        self.url = f"http://127.0.0.1:{self.http.server_port}"

    def client(self) -> ShareClient:
        transport = Transport(retries=Retries(attempts=3, sleep=lambda _: None))
        return ShareClient(Profile(self.url, "t"), TableName("s", "d", "t"), transport)

    def say(self, *lines: Any, status: int = 200, **headers: str) -> None:
        body = "".join(json.dumps(line) + "\n" for line in lines).encode()
        self.answers.append((status, {"Delta-Table-Version": "1", **headers}, body))


@contextmanager
def listening() -> Iterator[Answers]:
    """Runs the server until the block ends."""
    mine = Answers()
    try:
        yield mine
    finally:
        mine.http.shutdown()
        mine.http.server_close()
