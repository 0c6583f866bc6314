"""HTTP over proxies, redirects and servers that request a wait."""

import gzip
import pickle
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from email.utils import formatdate
from threading import Thread
from time import time
from typing import Any
from urllib.parse import urlsplit

import pytest
from support.scripted_server import Answers, listening

from gateway.client.proxies import proxy_of_environment
from gateway.client.transport import (
    HttpError,
    Retries,
    Transport,
    _redirected,
    _same_host,
)


@pytest.fixture
def other() -> Iterator[Answers]:
    with listening() as mine:
        yield mine


@pytest.fixture(autouse=True)
def no_proxies(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http_proxy", "https_proxy", "all_proxy", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)


class Waits:
    """Retries whose waits are written down."""

    def __init__(self, attempts: int = 3, jitter: float = 0.5) -> None:
        self.seconds: list[float] = []
        self.retries = Retries(attempts, sleep=self.seconds.append, jitter=lambda: jitter)


SECRET = {"Authorization": "Bearer secret"}


class TestRedirects:
    @pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
    def test_are_followed(self, answers: Answers, status: int) -> None:
        answers.answers += [(status, {"Location": "/there?s=1"}, b""), (200, {}, b"found")]
        assert Transport().fetch(f"{answers.url}/here") == b"found"
        assert [path for path, _ in answers.requests] == ["/here", "/there?s=1"]

    def test_keep_the_body_of_a_post_but_after_303(self, answers: Answers) -> None:
        for status, sent in ((307, "body"), (308, "body"), (303, "")):
            answers.answers += [(status, {"Location": "/there"}, b""), (200, {}, b"")]
            Transport().open("POST", f"{answers.url}/here", body=b"body").read()
            assert answers.requests[-1] == ("/there", sent)

    def test_take_the_token_to_no_other_host(self, answers: Answers, other: Answers) -> None:
        answers.answers.append((307, {"Location": f"{other.url}/there"}, b""))
        other.answers.append((200, {}, b""))
        Transport().open("GET", f"{answers.url}/here", headers=SECRET).read()
        assert "Authorization" in answers.headers[-1]
        assert "Authorization" not in other.headers[-1]

    def test_keep_the_token_on_the_same_host(self, answers: Answers) -> None:
        answers.answers += [(307, {"Location": f"{answers.url}/there"}, b""), (200, {}, b"")]
        Transport().open("GET", f"{answers.url}/here", headers=SECRET).read()
        assert answers.headers[-1]["Authorization"] == "Bearer secret"

    def test_that_go_in_circles_end(self, answers: Answers) -> None:
        answers.answers += [(302, {"Location": "/here"}, b"")] * 10
        with pytest.raises(HttpError, match="more than 5 redirects"):
            Transport().fetch(f"{answers.url}/here?signature=secret")

    @pytest.mark.parametrize("location", ["http://host/there", "file:///etc/passwd", "ftp://host/x"])
    def test_out_of_https_are_refused(self, location: str) -> None:
        with pytest.raises(HttpError, match="redirect") as refused:
            _redirected(urlsplit("https://host/here?signature=secret"), location)
        assert "secret" not in str(refused.value)

    @pytest.mark.parametrize(
        ("other", "same"),
        [
            ("http://host/x", True),
            ("http://host:80/x", True),
            ("https://host/x", True),
            ("http://host:8080/x", False),
            ("https://host:8443/x", False),
            ("http://host.evil/x", False),
        ],
    )
    def test_the_same_host_is_its_origin_or_its_https(self, other: str, same: bool) -> None:
        assert _same_host(urlsplit("http://host/here"), urlsplit(other)) == same


class TestRetries:
    def test_retry_after_is_waited_for_and_more(self, answers: Answers) -> None:
        waits = Waits()
        answers.answers += [(429, {"Retry-After": "40"}, b""), (200, {}, b"found")]
        assert Transport(retries=waits.retries).fetch(answers.url + "/a") == b"found"
        assert waits.seconds == [40.5]

    def test_retry_after_as_a_date(self, answers: Answers) -> None:
        waits = Waits()
        answers.answers += [(503, {"Retry-After": formatdate(time() + 60, usegmt=True)}, b""), (200, {}, b"")]
        Transport(retries=waits.retries).fetch(answers.url + "/a")
        assert 30 < waits.seconds[0] <= 61

    @pytest.mark.parametrize("text", ["9" * 5000, "Fri, 31 Dec 99999 23:59:59 GMT", "1m0s", "-1"])
    def test_a_retry_after_that_cannot_be_read_is_none(self, answers: Answers, text: str) -> None:
        waits = Waits()
        answers.answers += [(503, {"Retry-After": text}, b""), (200, {}, b"found")]
        assert Transport(retries=waits.retries).fetch(answers.url + "/a") == b"found"
        assert waits.seconds == [0.5]

    def test_a_retry_after_of_an_hour_is_an_error_at_once(self, answers: Answers) -> None:
        waits = Waits()
        answers.answers.append((503, {"Retry-After": "3600"}, b"later"))
        with pytest.raises(HttpError, match="later"):
            Transport(retries=waits.retries).fetch(answers.url + "/a")
        assert waits.seconds == []

    def test_waits_grow_and_are_spread(self, answers: Answers) -> None:
        spread = []
        for jitter in (0.0, 0.99):
            waits = Waits(4, jitter)
            answers.answers += [(500, {}, b"")] * 4
            with pytest.raises(HttpError):
                Transport(retries=waits.retries).fetch(answers.url + "/a")
            spread.append(waits.seconds)
        assert spread[0] == [0.25, 0.5, 1.0]
        assert spread[1] == pytest.approx([0.745, 1.49, 2.98])

    def test_a_gzip_body_that_ends_early_is_a_cut_answer(self, answers: Answers) -> None:
        whole = gzip.compress(b'{"protocol":{}}\n' * 100)
        for _ in range(3):
            answers.answers.append((200, {"Content-Encoding": "gzip"}, whole[: len(whole) // 2]))
        with pytest.raises(HttpError, match="cut"):
            answers.client().head()

    def test_an_error_survives_the_way_to_the_driver(self) -> None:
        error = pickle.loads(pickle.dumps(HttpError("x", 503, 2.0)))
        assert (str(error), error.status, error.retry_after_seconds) == ("x", 503, 2.0)


class Tunnel:
    """A proxy for CONNECT that writes down where to, and refuses."""

    def __init__(self) -> None:
        self.requests: list[bytes] = []
        self.socket = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://user:pass@127.0.0.1:{self.socket.getsockname()[1]}"
        Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        while True:
            try:
                connection, _ = self.socket.accept()
            except OSError:
                return
            with connection:
                self.requests.append(connection.recv(4096))
                connection.sendall(b"HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\n\r\n")


@contextmanager
def tunnel() -> Iterator[Tunnel]:
    mine = Tunnel()
    try:
        yield mine
    finally:
        mine.socket.close()


class TestProxies:
    def test_http_goes_through_the_proxy_of_the_environment(
        self, answers: Answers, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("http_proxy", answers.url)
        answers.answers.append((200, {}, b"found"))
        assert Transport().fetch("http://share.example/a?s=1") == b"found"
        assert answers.requests == [("http://share.example/a?s=1", "")]

    def test_https_goes_through_a_tunnel(self, monkeypatch: pytest.MonkeyPatch) -> None:
        with tunnel() as proxy:
            monkeypatch.setenv("HTTPS_PROXY", proxy.url)
            with pytest.raises(HttpError) as refused:
                Transport(retries=Waits(1).retries).fetch("https://share.example/a?signature=secret")
        assert proxy.requests[0].startswith(b"CONNECT share.example:443 ")
        assert b"roxy-authorization: basic dxnlcjpwyxnz" in proxy.requests[0].lower()
        assert "pass" not in str(refused.value).replace("Forbidden", "")
        assert "secret" not in str(refused.value)

    @pytest.mark.parametrize("listed", ["::1", "[::1]", "[::1]:8080"])
    def test_no_proxy_has_addresses_of_ipv6_with_brackets_or_without(
        self, monkeypatch: pytest.MonkeyPatch, listed: str
    ) -> None:
        monkeypatch.setenv("http_proxy", "http://127.0.0.1:1")
        monkeypatch.setenv("no_proxy", listed)
        assert proxy_of_environment(urlsplit("http://[::1]:8080/a")) is None
        assert proxy_of_environment(urlsplit("http://[::2]:8080/a")) == "http://127.0.0.1:1"

    @pytest.mark.parametrize("listed", ["127.0.0.1", "*", "example.com,127.0.0.1"])
    def test_no_proxy_is_heeded(self, answers: Answers, monkeypatch: pytest.MonkeyPatch, listed: str) -> None:
        monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:1")
        monkeypatch.setenv("http_proxy", "http://127.0.0.1:1")
        monkeypatch.setenv("NO_PROXY", listed)
        answers.answers.append((200, {}, b"found"))
        assert Transport().fetch(answers.url + "/a") == b"found"


class TestLongBodies:
    """A server decides what it sends, but not how much of the memory it takes."""

    @pytest.fixture(autouse=True)
    def most(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("gateway.client.transport.LONGEST_BODY_BYTES", 100_000)

    @pytest.mark.parametrize("is_zipped", [False, True])
    def test_an_answer_is_read_to_a_limit_also_without_its_coding(
        self, answers: Answers, is_zipped: bool
    ) -> None:
        lines = b'{"protocol":{}}\n' * 10_000
        answers.answers += [
            (
                200,
                {"Content-Encoding": "gzip"} if is_zipped else {},
                gzip.compress(lines) if is_zipped else lines,
            )
        ]
        with pytest.raises(HttpError, match="limit of 100,000 bytes") as refused:
            answers.client().head()
        assert not refused.value.worth_a_retry

    @pytest.mark.parametrize(
        "ask", [lambda client: client.version(), lambda client: client.temporary_credentials()]
    )
    def test_a_body_without_lines_is_read_to_the_same_limit(self, answers: Answers, ask: Any) -> None:
        answers.answers.append((200, {"Delta-Table-Version": "1"}, b" " * 100_001))
        with pytest.raises(HttpError, match="limit of 100,000 bytes"):
            ask(answers.client())

    def test_an_endless_body_in_chunks_is_left(self, answers: Answers) -> None:
        chunks = b"4000\r\n" + b"x" * 0x4000 + b"\r\n"
        answers.answers.append((200, {"Transfer-Encoding": "chunked"}, chunks * 10))
        with pytest.raises(HttpError, match="limit of 100,000 bytes"):
            Transport().fetch(f"{answers.url}/a")

    def test_a_file_and_a_range_are_read_to_the_length_that_is_wanted(self, answers: Answers) -> None:
        transport = Transport(retries=Waits(1).retries)
        answers.answers += [(200, {}, b"123456"), (206, {}, b"123456")]
        with pytest.raises(HttpError, match="limit of 5 bytes"):
            transport.fetch(f"{answers.url}/a", 5)
        with pytest.raises(HttpError, match="limit of 5 bytes"):
            transport.fetch_range(f"{answers.url}/a", 0, 5)


def test_dots_in_a_key_are_sent_as_they_are(answers: Answers) -> None:
    answers.answers.append((200, {}, b""))
    Transport().fetch(f"{answers.url}/a/../b//c%2F%c3%bc?x=%2f")
    assert answers.requests[0][0] == "/a/../b//c%2F%C3%BC?x=%2F"


def test_a_range_with_the_status_of_a_whole_file_is_read(answers: Answers) -> None:
    answers.answers.append((200, {"Content-Range": "bytes 2-4/6"}, b"345"))
    assert Transport(retries=Waits(1).retries).fetch_range(answers.url + "/a", 2, 3) == b"345"


def test_a_store_that_ignores_ranges_is_not_read_whole(answers: Answers) -> None:
    answers.answers.append((200, {}, b"x" * 100_000))
    with pytest.raises(HttpError, match="ignores ranges"):
        Transport(retries=Waits(1).retries).fetch_range(answers.url + "/a", 0, 10)


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (b"<?xml version='1.0'?><Error><Code>AccessDenied</Code><StringToSign>secret", "AccessDenied"),
        (b"\xef\xbb\xbf<Error><AWSAccessKeyId>secret</AWSAccessKeyId></Error>", ""),
        (b'{"errorCode":"RESOURCE_DOES_NOT_EXIST"}', '{"errorCode":"RESOURCE_DOES_NOT_EXIST"}'),
    ],
)
def test_an_error_quotes_of_a_store_the_code_alone(answers: Answers, body: bytes, said: str) -> None:
    answers.answers += [(404, {}, body)]
    with pytest.raises(HttpError) as caught:
        Transport().fetch(f"{answers.url}/file?signature=secret")
    assert str(caught.value).endswith(f"HTTP 404 {said}".rstrip())
    assert "secret" not in str(caught.value)
