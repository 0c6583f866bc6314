"""HTTP of clients, by urllib3: connection reuse, proxies, redirects, retries, byte ranges.

In: URLs, some of them signed. Out: responses, or an `HttpError` whose message shows no query string (a
signature is a secret). Proxies come from HTTPS_PROXY, HTTP_PROXY, ALL_PROXY and NO_PROXY. A redirect never
sends the token to another host and never changes from https to http. Retried, with jitter: 408, 429, 5xx
and broken connections. The bodies that are kept in memory are bounded.
"""

import gzip
import http.client
import io
import random
import re
import ssl
import time
import zlib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from http import HTTPStatus
from typing import Any, TypeVar
from urllib.parse import SplitResult, unquote, urljoin, urlsplit

import urllib3
from urllib3.exceptions import HTTPError, InvalidHeader, ProtocolError

from gateway.client.proxies import proxy_of_environment

Answer = TypeVar("Answer")
Response = urllib3.BaseHTTPResponse

MALFORMED = 0
"""The status of a complete answer that does not follow the protocol. The next one would be equal."""
RETRIED_STATUSES = frozenset({408, 429, 500, 502, 503, 504})
_REFUSALS = frozenset({400, 403, 404})
_REDIRECTS = frozenset({301, 302, 303, 307, 308})
_MOST_REDIRECTS = 5
_LONGEST_WAIT_SECONDS = 30.0
# A longer Retry-After is an error instead of a wait.
_LONGEST_RETRY_AFTER_SECONDS = 300.0
_LONGEST_ERROR_BODY_BYTES = 4096
LONGEST_BODY_BYTES = 2 << 30
"""The longest body, also without its coding: the files of a query in one answer, at 1 KB each two million."""
_PIECE_BYTES = 1 << 20
_CODE = re.compile(r"<Code>(\w{1,64})</Code>")
DEFAULT_PORTS = {"http": 80, "https": 443}
_SECRET_HEADERS = frozenset({"authorization", "cookie"})


class HttpError(Exception):
    """Raised when a request does not succeed.

    `status` is None without an answer or with a part of one, and `MALFORMED` for an answer without a meaning.
    """

    def __init__(
        self, message: str, status: int | None = None, retry_after_seconds: float | None = None
    ) -> None:
        super().__init__(message)
        self.status = status
        self.retry_after_seconds = retry_after_seconds

    @property
    def worth_a_retry(self) -> bool:
        """Return whether the same request may succeed later."""
        if (self.retry_after_seconds or 0) > _LONGEST_RETRY_AFTER_SECONDS:
            return False
        return self.status is None or self.status in RETRIED_STATUSES

    @property
    def is_refusal(self) -> bool:
        """Return whether the server refused the request, such as one for a version that is not shared."""
        return self.status in _REFUSALS

    def __reduce__(self) -> tuple[type, tuple[str, int | None, float | None]]:
        """Pickle with all fields: an executor's exception is rebuilt on the driver."""
        return HttpError, (str(self), self.status, self.retry_after_seconds)


@dataclass(frozen=True)
class Retries:
    """The number of attempts and the waits between them. `jitter` returns a number in [0, 1)."""

    attempts: int = 5
    first_wait_seconds: float = 0.5
    sleep: Callable[[float], None] = time.sleep
    jitter: Callable[[], float] = random.random

    def run(self, attempt: Callable[[], Answer]) -> Answer:
        """Call `attempt` until it succeeds, fails for good, or the attempts are used up."""
        backoff_seconds = self.first_wait_seconds
        for _ in range(self.attempts - 1):
            try:
                return attempt()
            except HttpError as error:
                if not error.worth_a_retry:
                    raise
                # Many tasks are refused together: without jitter they would all retry together.
                wait_seconds = backoff_seconds * (0.5 + self.jitter())
                self.sleep(min(wait_seconds, _LONGEST_WAIT_SECONDS) + (error.retry_after_seconds or 0.0))
                backoff_seconds *= 2
        return attempt()


class Connections:
    """Connections that are kept by proxy, TLS context and host. For one thread."""

    def __init__(self) -> None:
        self._managers: dict[tuple[str | None, ssl.SSLContext | None], urllib3.PoolManager] = {}

    def send(
        self,
        method: str,
        parts: SplitResult,
        *,
        proxy: str | None,
        timeout: urllib3.Timeout,
        headers: Mapping[str, str] | None = None,
        body: bytes | None = None,
        context: ssl.SSLContext | None = None,
    ) -> Response:
        """Send one request and follow no redirect.

        The response must be read to its end, or closed, before the next request. Raises the errors of
        urllib3, OSError and ValueError, whose texts can quote the whole URL.
        """
        words: dict[str, Any] = {
            "headers": headers,
            "body": body,
            "redirect": False,
            "retries": False,
            "preload_content": False,
            "timeout": timeout,
        }
        manager = self._manager(proxy, context)
        pool = manager.connection_from_host(parts.hostname, _port(parts), parts.scheme)

        def send() -> Response:
            if proxy is not None and parts.scheme == "http":
                return manager.urlopen(method, parts.geturl(), **words)
            # The path is sent unchanged: the manager would remove `..`, which a key may contain.
            target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
            return pool.urlopen(method, target, **words)

        connections = pool.num_connections
        try:
            return send()
        except (ProtocolError, ConnectionError):
            # The other side may close a kept connection at this moment.
            if connections == 0 or pool.num_connections > connections:
                raise
            return send()

    def close(self) -> None:
        for manager in self._managers.values():
            manager.clear()
        self._managers.clear()

    def _manager(self, proxy: str | None, context: ssl.SSLContext | None) -> urllib3.PoolManager:
        if (proxy, context) not in self._managers:
            manager = proxy_manager(proxy, context) if proxy else urllib3.PoolManager(ssl_context=context)
            self._managers[proxy, context] = manager
        return self._managers[proxy, context]


class Transport:
    """Requests with retries, over kept connections. For one thread: a further request takes `another`."""

    def __init__(
        self, *, timeout_seconds: float = 120.0, retries: Retries | None = None, uses_proxies: bool = True
    ) -> None:
        self.retries = retries or Retries()
        self._timeout_seconds = timeout_seconds
        self._timeout = urllib3.Timeout(connect=min(timeout_seconds, 30.0), read=timeout_seconds)
        self._uses_proxies = uses_proxies
        self._connections = Connections()

    def another(self) -> "Transport":
        """Return a transport with the same settings and new connections."""
        return Transport(
            timeout_seconds=self._timeout_seconds, retries=self.retries, uses_proxies=self._uses_proxies
        )

    def open(
        self, method: str, url: str, *, headers: Mapping[str, str] | None = None, body: bytes | None = None
    ) -> Response:
        """Send one request and follow its redirects.

        The response must be read to its end before the next request. Raises HttpError.
        """
        parts, sent = _parts(url), dict(headers or {})
        for _ in range(_MOST_REDIRECTS + 1):
            response = self._send(parts, method, sent, body)
            if response.status in {HTTPStatus.OK, HTTPStatus.PARTIAL_CONTENT}:
                return response
            location = response.headers.get("Location")
            if response.status not in _REDIRECTS or location is None:
                raise _failure(parts, response)
            response.close()
            target = _redirected(parts, location)
            if response.status == HTTPStatus.SEE_OTHER:
                method, body = "GET", None
            if not _same_host(parts, target):
                sent = {name: value for name, value in sent.items() if name.lower() not in _SECRET_HEADERS}
            parts = target
        raise HttpError(f"{_shown(parts)}: more than {_MOST_REDIRECTS} redirects", 0)

    def fetch(self, url: str, most_bytes: int | None = None) -> bytes:
        """Return the whole body, with retries."""
        return self.retries.run(lambda: self._body(url, {}, most_bytes))

    def fetch_range(self, url: str, start: int, length: int) -> bytes:
        """Return exactly `length` bytes from `start`, with retries."""

        def attempt() -> bytes:
            data = self._body(url, {"Range": f"bytes={start}-{start + length - 1}"}, length, is_part=True)
            if len(data) != length:
                raise HttpError(f"{_shown(urlsplit(url))}: {len(data)} bytes received, {length} requested")
            return data

        return self.retries.run(attempt)

    def close(self) -> None:
        self._connections.close()

    def _body(
        self, url: str, headers: Mapping[str, str], most_bytes: int | None, *, is_part: bool = False
    ) -> bytes:
        response = self.open("GET", url, headers=headers)
        # Some stores, such as rclone's, answer a range with the status of a whole file.
        is_whole = response.status != HTTPStatus.PARTIAL_CONTENT and "Content-Range" not in response.headers
        if is_part and is_whole:
            # The body is the whole file, which may be large: a new connection is cheaper than its reading.
            response.close()
            raise HttpError(f"{_shown(urlsplit(url))}: the store ignores ranges", response.status)
        return body_of(response, _shown(urlsplit(url)), most_bytes)

    def _send(
        self, parts: SplitResult, method: str, headers: Mapping[str, str], body: bytes | None
    ) -> Response:
        if parts.scheme not in DEFAULT_PORTS or not parts.hostname:
            raise HttpError(f"only http and https can be read, not {parts.scheme or 'a relative URL'}", 0)
        try:
            proxy = proxy_of_environment(parts) if self._uses_proxies else None
            return self._connections.send(
                method, parts, proxy=proxy, timeout=self._timeout, headers=headers, body=body
            )
        except (OSError, HTTPError, http.client.HTTPException, ValueError) as error:
            # The error's own text may quote the whole URL.
            raise HttpError(f"{_shown(parts)}: {_cause(error)}") from None


def _parts(url: str) -> SplitResult:
    try:
        parts = urlsplit(url)
        _ = parts.port
    except ValueError:
        # The error quotes the text that it cannot parse.
        raise HttpError("this URL cannot be read", 0) from None
    return parts


def proxy_manager(proxy: str, context: ssl.SSLContext | None = None) -> urllib3.PoolManager:
    """Return a client of a proxy, with the user and the password of its URL."""
    parts = urlsplit(proxy)
    headers = None
    if parts.username is not None:
        user = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
        headers = urllib3.make_headers(proxy_basic_auth=user)
    host = parts.netloc.rpartition("@")[2]
    return urllib3.ProxyManager(
        f"{parts.scheme}://{host}", proxy_headers=headers, ssl_context=context, proxy_ssl_context=context
    )


def _redirected(parts: SplitResult, location: str) -> SplitResult:
    """Return the target of a redirect. Raises HttpError if it must not be followed."""
    target = _parts(urljoin(parts.geturl(), location))
    if target.scheme not in DEFAULT_PORTS or not target.hostname:
        raise HttpError(f"{_shown(parts)}: a redirect to another scheme than http or https", 0)
    if parts.scheme == "https" and target.scheme != "https":
        raise HttpError(f"{_shown(parts)}: a redirect from https to http is not followed", 0)
    return target


def _same_host(first: SplitResult, other: SplitResult) -> bool:
    """Return whether a token for one URL may be sent to the other: the same origin, or its https variant."""
    if first.hostname != other.hostname:
        return False
    upgraded = (first.scheme, _port(first), other.scheme, _port(other)) == ("http", 80, "https", 443)
    return upgraded or (first.scheme, _port(first)) == (other.scheme, _port(other))


def _port(parts: SplitResult) -> int:
    return parts.port or DEFAULT_PORTS[parts.scheme]


def _cause(error: BaseException) -> str:
    """Describe an error, without the URL that urllib3 quotes."""
    reason = getattr(error, "reason", None)
    inner = error.__cause__ or (reason if isinstance(reason, BaseException) else None)
    words = f"{type(error).__name__}"
    return f"{words}: {inner}" if isinstance(inner, OSError) and not isinstance(inner, HTTPError) else words


def _failure(parts: SplitResult, response: Response) -> HttpError:
    try:
        body = response.read(_LONGEST_ERROR_BODY_BYTES, decode_content=True).decode("utf-8", "replace")
    except (OSError, HTTPError):
        body = ""
    response.close()
    message = f"{_shown(parts)}: HTTP {response.status} {_reason(body)}".rstrip()
    return HttpError(message, response.status, _retry_after(response))


def _reason(body: str) -> str:
    """Return what a message quotes of an error's body: of a store's XML the code alone.

    Stores repeat the signed request, and no part of it may be in a message or in the logs of executors.
    """
    if not body.lstrip("\ufeff \t\r\n").startswith("<"):
        return body
    code = _CODE.search(body)
    return code[1] if code else ""


def _retry_after(response: Response) -> float | None:
    """Return the seconds of either form of the header; None without a valid one."""
    text = response.headers.get("Retry-After")
    try:
        return None if text is None else urllib3.Retry().parse_retry_after(text)
    except (InvalidHeader, ValueError, OverflowError):
        # urllib3 does not check the size of a number or the year of a date.
        return None


def body_of(response: Response, cut: str = "the answer was cut", most_bytes: int | None = None) -> bytes:
    """Read a body to its end, in its sent coding. Raises HttpError for a cut one, which is worth a retry."""
    try:
        return _joined(response.stream(_PIECE_BYTES, decode_content=False), most_bytes)
    except (OSError, HTTPError) as error:
        raise HttpError(f"{cut}: {type(error).__name__}") from None
    finally:
        # The connection of a body that was read to its end is kept.
        response.close()


def _joined(pieces: Iterable[bytes], most_bytes: int | None = None) -> bytes:
    """Join the pieces of a body. Raises HttpError for a body that is too long."""
    whole, most_bytes = io.BytesIO(), LONGEST_BODY_BYTES if most_bytes is None else most_bytes
    for piece in pieces:
        if whole.tell() + len(piece) > most_bytes:
            raise HttpError(f"the answer is longer than the limit of {most_bytes:,} bytes", MALFORMED)
        whole.write(piece)
    return whole.getvalue()


def lines_of(response: Response) -> list[bytes]:
    """Read an NDJSON body, gzip or not, to its end. A cut body raises HttpError (worth a retry)."""
    zipped = response.headers.get("Content-Encoding", "").lower() == "gzip"
    data = body_of(response)
    try:
        # urllib3's own decoding accepts a gzip stream that ends early.
        if zipped:
            with gzip.open(io.BytesIO(data)) as file:
                data = _joined(iter(partial(file.read, _PIECE_BYTES), b""))
    except (OSError, EOFError, zlib.error) as error:
        raise HttpError(f"the answer was cut: {type(error).__name__}") from None
    return [line for line in data.split(b"\n") if line.strip()]


def _shown(parts: SplitResult) -> str:
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"
