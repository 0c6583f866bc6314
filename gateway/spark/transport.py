"""HTTP for tasks: kept connections, retries, whole bodies and byte ranges; the standard library only.

Comes in: URLs, some of them signed. Goes out: responses, or an `HttpError` whose message shows no query
string (a signature is a secret). One `Transport` belongs to one thread. Retried: 429, 5xx and broken
connections.
"""

import http.client
import io
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TypeVar
from urllib.parse import SplitResult, urlsplit

Answer = TypeVar("Answer")

RETRIED_STATUSES = frozenset({429, 500, 502, 503, 504})
_LONGEST_WAIT_SECONDS = 30.0
_LONGEST_ERROR_BODY_BYTES = 4096


class HttpError(Exception):
    """A request that did not succeed. `status` is None when no answer came."""

    def __init__(
        self, message: str, status: int | None = None, retry_after_seconds: float | None = None
    ) -> None:
        super().__init__(message)
        self.status = status
        self.retry_after_seconds = retry_after_seconds

    @property
    def worth_a_retry(self) -> bool:
        """Whether the same request may succeed later."""
        return self.status is None or self.status in RETRIED_STATUSES

    def __reduce__(self) -> tuple[type, tuple[str, int | None, float | None]]:
        """Pickle with all fields: an executor's exception is rebuilt on the driver."""
        return HttpError, (str(self), self.status, self.retry_after_seconds)


@dataclass(frozen=True)
class Retries:
    """How often and how patiently."""

    attempts: int = 5
    first_wait_seconds: float = 0.5
    sleep: Callable[[float], None] = time.sleep

    def run(self, attempt: Callable[[], Answer]) -> Answer:
        """Call `attempt` until it succeeds, fails for good, or the attempts are used up."""
        wait_seconds = self.first_wait_seconds
        for _ in range(self.attempts - 1):
            try:
                return attempt()
            except HttpError as error:
                if not error.worth_a_retry:
                    raise
                self.sleep(min(max(wait_seconds, error.retry_after_seconds or 0.0), _LONGEST_WAIT_SECONDS))
                wait_seconds *= 2
        return attempt()


class Transport:
    """Connections kept by host, for one thread."""

    def __init__(self, *, timeout_seconds: float = 120.0, retries: Retries | None = None) -> None:
        self.retries = retries or Retries()
        self._timeout_seconds = timeout_seconds
        self._connections: dict[tuple[str, str], http.client.HTTPConnection] = {}

    def open(
        self, method: str, url: str, *, headers: Mapping[str, str] | None = None, body: bytes | None = None
    ) -> http.client.HTTPResponse:
        """One attempt. The response must be read to its end before the next request. Raises HttpError."""
        parts = urlsplit(url)
        try:
            response = self._send(parts, method, dict(headers or {}), body)
        except OSError as error:
            self._forget(parts)
            raise HttpError(f"{_shown(parts)}: {type(error).__name__}: {error}") from error
        except http.client.HTTPException as error:
            self._forget(parts)
            # Its own text may quote the whole URL.
            raise HttpError(f"{_shown(parts)}: {type(error).__name__}") from None
        if response.status not in {http.client.OK, http.client.PARTIAL_CONTENT}:
            raise self._failure(parts, response)
        return response

    def fetch(self, url: str) -> bytes:
        """The whole body, with retries."""
        return self.retries.run(lambda: self._body(url, {}))

    def fetch_range(self, url: str, start: int, length: int) -> bytes:
        """Exactly `length` bytes from `start`, with retries."""

        def attempt() -> bytes:
            data = self._body(url, {"Range": f"bytes={start}-{start + length - 1}"}, partial=True)
            if len(data) != length:
                raise HttpError(
                    f"{_shown(urlsplit(url))}: {len(data)} bytes came where {length} were asked for"
                )
            return data

        return self.retries.run(attempt)

    def close(self) -> None:
        """Close all connections."""
        for connection in self._connections.values():
            connection.close()
        self._connections.clear()

    def _body(self, url: str, headers: Mapping[str, str], *, partial: bool = False) -> bytes:
        response = self.open("GET", url, headers=headers)
        try:
            data = response.read()
        except (OSError, http.client.HTTPException) as error:
            self._forget(urlsplit(url))
            raise HttpError(f"{_shown(urlsplit(url))}: {type(error).__name__}") from error
        if partial and response.status != http.client.PARTIAL_CONTENT:
            raise HttpError(f"{_shown(urlsplit(url))}: the store ignores ranges", response.status)
        return data

    def _send(
        self, parts: SplitResult, method: str, headers: dict[str, str], body: bytes | None
    ) -> http.client.HTTPResponse:
        target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        kept = (parts.scheme, parts.netloc) in self._connections
        connection = self._connection(parts)
        try:
            connection.request(method, target, body=body, headers=headers)
            return connection.getresponse()
        except (http.client.RemoteDisconnected, ConnectionError, http.client.CannotSendRequest):
            # A kept connection may have been closed by the other side while it was idle.
            self._forget(parts)
            if not kept:
                raise
        connection = self._connection(parts)
        connection.request(method, target, body=body, headers=headers)
        return connection.getresponse()

    def _connection(self, parts: SplitResult) -> http.client.HTTPConnection:
        key = (parts.scheme, parts.netloc)
        if key not in self._connections:
            kind = {"https": http.client.HTTPSConnection, "http": http.client.HTTPConnection}.get(
                parts.scheme
            )
            if kind is None or parts.hostname is None:
                raise HttpError(f"only http and https can be read, not {parts.scheme or 'a relative URL'}", 0)
            self._connections[key] = kind(parts.hostname, parts.port, timeout=self._timeout_seconds)
        return self._connections[key]

    def _forget(self, parts: SplitResult) -> None:
        connection = self._connections.pop((parts.scheme, parts.netloc), None)
        if connection is not None:
            connection.close()

    def _failure(self, parts: SplitResult, response: http.client.HTTPResponse) -> HttpError:
        retry_after = response.getheader("Retry-After", "")
        body = response.read(_LONGEST_ERROR_BODY_BYTES).decode("utf-8", "replace")
        self._forget(parts)
        message = f"{_shown(parts)}: HTTP {response.status} {body}".rstrip()
        return HttpError(message, response.status, float(retry_after) if retry_after.isdigit() else None)


class RangedFile(io.RawIOBase):
    """A read-only, seekable file over ranged GETs: what a Parquet reader needs of a large remote file."""

    def __init__(self, read_range: Callable[[int, int], bytes], size_bytes: int) -> None:
        super().__init__()
        self._read_range = read_range
        self._size_bytes = size_bytes
        self._position = 0

    def readable(self) -> bool:
        """Yes."""
        return True

    def seekable(self) -> bool:
        """Yes."""
        return True

    def size(self) -> int:
        """Bytes of the whole file."""
        return self._size_bytes

    def tell(self) -> int:
        """Where the next read starts."""
        return self._position

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        """Move without reading."""
        base = {io.SEEK_SET: 0, io.SEEK_CUR: self._position, io.SEEK_END: self._size_bytes}[whence]
        self._position = base + offset
        return self._position

    def read(self, size: int = -1, /) -> bytes:
        """Read `size` bytes, fewer only at the end of the file."""
        left = max(self._size_bytes - self._position, 0)
        length = left if size < 0 else min(size, left)
        if length == 0:
            return b""
        data = self._read_range(self._position, length)
        self._position += length
        return data


def lines_of(response: http.client.HTTPResponse, stream: io.BufferedIOBase) -> list[bytes]:
    """Read the lines of an NDJSON body to its end. A cut body raises HttpError (worth a retry)."""
    try:
        return [line for line in stream.read().split(b"\n") if line.strip()]
    except (OSError, EOFError, http.client.HTTPException) as error:
        response.close()
        raise HttpError(f"the answer was cut: {type(error).__name__}") from error


def _shown(parts: SplitResult) -> str:
    return f"{parts.scheme}://{parts.netloc}{parts.path}"
