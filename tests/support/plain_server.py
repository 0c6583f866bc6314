"""A server with the minimum features of the protocol, for tests of the Spark source.

It replays a Delta log forwards, in the plainest way, and answers /version, /metadata, /query and /changes
in one piece: no pages, no end of stream line, no refresh tokens, no capabilities beyond a format. What it
leaves out, a client must not need. Only tables of JSON commits and classic checkpoints in the local file
system are served.
"""

import copy
import datetime as dt
import hashlib
import json
import re
import threading
from collections.abc import Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, quote, unquote, urlsplit

import pyarrow.parquet as pq

from support import deletion_vectors

_LOG_ONLY = {"v2Checkpoint", "vacuumProtocolCheck"}


class PlainServer:
    """Serves `tables` (name to directory) as share `s`, schema `d`, to clients with the token."""

    def __init__(self, tables: Mapping[str, Path]) -> None:
        self.tables = dict(tables)
        self.history = True
        self.product = "plain/1"
        self.requests: list[tuple[str, str, Any]] = []
        server = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                server._answer(self, None)

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                server._answer(self, json.loads(body))

            def version_string(self) -> str:
                return server.product

            def log_message(self, *args: Any) -> None:
                pass

        self._http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._http.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._http.server_port}"
        threading.Thread(target=self._http.serve_forever, args=(0.02,), daemon=True).start()

    @property
    def profile(self) -> str:
        return json.dumps({"shareCredentialsVersion": 1, "endpoint": f"{self.url}/p", "bearerToken": "t"})

    def close(self) -> None:
        self._http.shutdown()
        self._http.server_close()

    def _answer(self, request: BaseHTTPRequestHandler, body: Any) -> None:
        parts = urlsplit(request.path)
        self.requests.append((request.command, request.path, body))
        if parts.path.startswith("/files/"):
            self._file(request, Path("/" + unquote(parts.path.removeprefix("/files/"))))
            return
        if parts.path == "/p/shares":
            _send(request, 200, b'{"items": [{"name": "s"}]}')
            return
        match = re.fullmatch(
            r"/p/shares/s/schemas/d/tables/([^/]+)/(version|metadata|query|changes)", parts.path
        )
        if request.headers["Authorization"] != "Bearer t" or match is None:
            _send(request, 404, b"{}")
            return
        table = Table(self.tables[unquote(match[1])], f"{self.url}/files")
        words = {name: values[0] for name, values in parse_qs(parts.query).items()} | (body or {})
        if not self.history and {"version", "timestamp", "startingVersion"} & words.keys():
            _send(request, 400, b'{"errorCode": "INVALID_PARAMETER_VALUE", "message": "no history"}')
            return
        delta = "delta" in request.headers.get("delta-sharing-capabilities", "")
        version, lines = getattr(table, match[2])(words)
        headers = {
            "Delta-Table-Version": str(version),
            "delta-sharing-capabilities": f"responseformat={'delta' if delta else 'parquet'}",
        }
        _send(request, 200, "".join(json.dumps(line) + "\n" for line in lines).encode(), headers)

    def _file(self, request: BaseHTTPRequestHandler, path: Path) -> None:
        if not path.is_file():
            _send(request, 404, b"")
            return
        span = re.fullmatch(r"bytes=(\d+)-(\d+)", request.headers.get("Range", ""))
        if span is None:
            _send(request, 200, path.read_bytes())
            return
        with path.open("rb") as file:
            file.seek(int(span[1]))
            _send(request, 206, file.read(int(span[2]) + 1 - int(span[1])))


def _send(request: BaseHTTPRequestHandler, status: int, body: bytes, headers: Any = None) -> None:
    request.send_response(status)
    for name, value in (headers or {}).items():
        request.send_header(name, value)
    request.send_header("Content-Length", str(len(body)))
    request.end_headers()
    request.wfile.write(body)


class Table:
    """One Delta table, replayed for every request."""

    def __init__(self, root: Path, files_url: str) -> None:
        self._root = root
        self._files_url = files_url
        log = root / "_delta_log"
        self._commits = {int(p.stem): p for p in log.glob("*.json") if re.fullmatch(r"\d{20}", p.stem)}
        self._checkpoints = {
            int(p.name[:20]): p for p in log.glob("*.checkpoint.parquet") if p.name[20] == "."
        }
        self.latest = max(self._commits)

    def version(self, words: Mapping[str, Any]) -> tuple[int, list[Any]]:
        wanted = words.get("startingTimestamp")
        times = {version: self._time(version) for version in self._commits}
        found = (
            version for version, time in times.items() if wanted is None or time >= _milliseconds(wanted)
        )
        return (max if wanted is None else min)(found), []

    def metadata(self, words: Mapping[str, Any]) -> tuple[int, list[Any]]:
        version = self._asked(words)
        protocol, metadata, files = self._replay(version)
        return version, _head(protocol, metadata, files)

    def query(self, words: Mapping[str, Any]) -> tuple[int, list[Any]]:
        if "startingVersion" in words:
            return self._range(words, cdc=False)
        version = self._asked(words)
        protocol, metadata, files = self._replay(version)
        return version, _head(protocol, metadata, files) + [self._line("add", add) for add in files.values()]

    def changes(self, words: Mapping[str, Any]) -> tuple[int, list[Any]]:
        return self._range(words, cdc=True)

    def _range(self, words: Mapping[str, Any], *, cdc: bool) -> tuple[int, list[Any]]:
        first = int(words["startingVersion"])
        last = min(int(words.get("endingVersion", self.latest)), self.latest)
        lines = _head(*self._replay(first))
        for version in range(first, last + 1):
            actions = _commit(self._commits[version])
            timestamp = self._time(version)
            kinds = ["cdc"] if cdc and any("cdc" in a for a in actions) else ["add", "remove"]
            lines += [
                self._line(kind, action[kind], version, timestamp)
                for action in actions
                for kind in kinds
                if kind in action and (kind == "cdc" or action[kind]["dataChange"])
            ]
        return first, lines

    def _time(self, version: int) -> int:
        when = next((a["commitInfo"] for a in _commit(self._commits[version]) if "commitInfo" in a), {})
        # Seconds as a float are up to 0.1 µs early: just after a whole millisecond they give the one before.
        return int(when.get("inCommitTimestamp", self._commits[version].stat().st_mtime_ns // 1_000_000))

    def _asked(self, words: Mapping[str, Any]) -> int:
        if "timestamp" in words:
            wanted = _milliseconds(words["timestamp"])
            return max(version for version in self._commits if self._time(version) <= wanted)
        return int(words.get("version", self.latest))

    def _replay(self, version: int) -> tuple[Any, Any, dict[Any, Any]]:
        start = max((v for v in self._checkpoints if v <= version), default=-1)
        protocol = metadata = None
        files: dict[Any, Any] = {}
        if start >= 0:
            for row in pq.read_table(self._checkpoints[start]).to_pylist():
                protocol = row.get("protocol") or protocol
                metadata = _with_maps(row["metaData"]) if row.get("metaData") else metadata
                if row.get("add"):
                    add = _with_maps({k: v for k, v in row["add"].items() if not k.endswith("_parsed")})
                    files[_key(add)] = add
        for number in range(start + 1, version + 1):
            actions = _commit(self._commits[number])
            for action in actions:
                if "remove" in action:
                    files.pop(_key(action["remove"]), None)
            for action in actions:
                protocol = action.get("protocol", protocol)
                metadata = action.get("metaData", metadata)
                if "add" in action:
                    files[_key(action["add"])] = action["add"]
        return protocol, metadata, files

    def _line(self, kind: str, action: Any, version: int | None = None, timestamp: int | None = None) -> Any:
        path = action["path"]
        action = copy.deepcopy(action)
        action["path"] = self._url(unquote(path))
        line: dict[str, Any] = {
            "id": hashlib.md5(path.encode()).hexdigest(),
            "deltaSingleAction": {kind: action},
        }
        if version is not None:
            line |= {"version": version, "timestamp": timestamp}
        vector = action.get("deletionVector")
        if vector and vector["storageType"] == "u":
            name = vector["pathOrInlineDv"]
            line["deletionVectorFileId"] = hashlib.md5(f"{name}@{vector.get('offset')}".encode()).hexdigest()
            vector |= {"storageType": "p", "pathOrInlineDv": self._url(deletion_vectors.file_name(name))}
        return {"file": line}

    def _url(self, path: str) -> str:
        return f"{self._files_url}{quote(str(self._root.resolve() / path))}?signature=secret"


def _commit(path: Path) -> list[Any]:
    return [json.loads(line) for line in path.read_text().splitlines() if line.strip()]


def _key(action: Mapping[str, Any]) -> Any:
    vector = action.get("deletionVector")
    return action["path"], (vector["pathOrInlineDv"], vector.get("offset")) if vector else None


def _with_maps(action: dict[str, Any]) -> dict[str, Any]:
    """Arrow's maps are lists of pairs."""
    return {
        key: dict(value) if key in {"partitionValues", "configuration"} and value is not None else value
        for key, value in action.items()
    }


def _milliseconds(text: str) -> int:
    return round(dt.datetime.fromisoformat(text).timestamp() * 1000)


def _head(protocol: Any, metadata: Any, files: Mapping[Any, Any]) -> list[Any]:
    protocol = {key: value for key, value in protocol.items() if value is not None}
    for name in ("readerFeatures", "writerFeatures"):
        if name in protocol:
            protocol[name] = [feature for feature in protocol[name] if feature not in _LOG_ONLY]
    totals = {"size": sum(file["size"] for file in files.values()), "numFiles": len(files)}
    return [{"protocol": {"deltaProtocol": protocol}}, {"metaData": {"deltaMetadata": metadata, **totals}}]
