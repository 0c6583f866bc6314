"""A proxy between a client and a server that rewrites lines of answers to inject faults."""

import http.client
import json
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import urlsplit

Rewrite = Callable[[str, list[Any]], list[Any]]
Ask = Callable[[str, dict[str, Any]], tuple[str, dict[str, Any]]]
_PASSED_ON = ("Delta-Table-Version", "delta-sharing-capabilities", "Content-Type")


class RewritingProxy:
    """`rewrite` gets the request's path and the parsed lines of every NDJSON answer with status 200.

    The body of a POST is the path's query. `ask` changes the path and the body of a request.
    """

    def __init__(self, profile: str, rewrite: Rewrite, ask: Ask = lambda path, body: (path, body)) -> None:
        document = json.loads(profile)
        upstream = urlsplit(document["endpoint"])

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
                connection = http.client.HTTPConnection(upstream.hostname or "", upstream.port)
                headers = {
                    name: value
                    for name, value in self.headers.items()
                    if name.lower() not in {"host", "accept-encoding", "content-length"}
                }
                path, words = ask(self.path, json.loads(body or b"{}"))
                sent = json.dumps(words) if body else None
                connection.request(self.command, upstream.path + path, sent, headers)
                response = connection.getresponse()
                data = response.read()
                if response.status == 200 and data and not self.path.endswith("/version"):
                    asked = f"{path}?{sent}" if sent else path
                    lines = rewrite(asked, [json.loads(line) for line in data.splitlines()])
                    data = "".join(json.dumps(line) + "\n" for line in lines).encode()
                self.send_response(response.status)
                for name in _PASSED_ON:
                    if response.getheader(name):
                        self.send_header(name, response.getheader(name, ""))
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)
                connection.close()

            do_POST = do_GET  # noqa: N815 - the name that http.server looks for

            def log_message(self, *args: Any) -> None:
                pass

        self._http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._http.daemon_threads = True
        threading.Thread(target=self._http.serve_forever, args=(0.02,), daemon=True).start()
        endpoint = f"http://127.0.0.1:{self._http.server_port}"
        self.profile = json.dumps({**document, "endpoint": endpoint})

    def close(self) -> None:
        self._http.shutdown()
        self._http.server_close()
