"""OAuth clients of catalogs, and the check of addresses: what is renewed, refused and never shown."""

import itertools
import logging
import socket
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from support.http_service import HttpService, Request, Response, json_response, serving

from gateway import _native
from gateway.config.locations import Location
from gateway.config.secret import Secret
from gateway.config.table_catalog import CatalogClient, TableCatalog
from gateway.server.self_signed import self_signed_pair
from gateway.storage.refreshing_credentials import RefreshingCredentials
from gateway.storage.service_requests import MAX_ANSWER_BYTES
from gateway.storage.unity_catalog import UnityCatalogTable, authorization

SECRET, TOKEN = "secret-of-the-client", "token-of-the-catalog"
LOADED = {"metadata": {"location": "s3://b/t"}, "commits": [], "latest-table-version": 3}
HERE = Location.parse("s3://b/t")


class Issuer:
    """Issues numbered tokens, or answers as the test says, and is the catalog of a table."""

    def __init__(self) -> None:
        self.issued = 0
        self.fields: dict[str, Any] = {"expires_in": 3600}
        self.answer: Callable[[], Response] | None = None
        self.catalog_answer: Response | None = None
        self.service: HttpService

    def __call__(self, request: Request) -> Response:
        if request.path != "/token":
            if self.catalog_answer is not None:
                return self.catalog_answer
            return json_response(LOADED, 200 if request.bearer == f"{TOKEN}-{self.issued}" else 401)
        if self.answer is not None:
            return self.answer()
        self.issued += 1
        return json_response(
            {"access_token": f"{TOKEN}-{self.issued}", "token_type": "Bearer", **self.fields}
        )

    @property
    def client(self) -> CatalogClient:
        # Of its own for each test: tokens are kept by the client.
        return CatalogClient(f"{self.service.url}/token", "id", Secret(SECRET), "all-apis")


@pytest.fixture
def issuer() -> Iterator[Issuer]:
    made = Issuer()
    with serving(made) as made.service:
        yield made


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Callable[[float], None]:
    """Turns the clock of the tokens."""
    seconds = [1_700_000_000.0]

    def made(request: Callable[[], Any], **options: Any) -> Any:
        return RefreshingCredentials(request, lambda: seconds[0], **options)

    monkeypatch.setattr("gateway.storage.unity_catalog.RefreshingCredentials", made)
    monkeypatch.setattr("gateway.storage.unity_catalog.time.time", lambda: seconds[0])

    def turn(by_seconds: float) -> None:
        seconds[0] += by_seconds

    return turn


def token(issuer: Issuer) -> str:
    return token_of(issuer.client)


def token_of(client: CatalogClient) -> str:
    settings = TableCatalog(
        "https://catalog.example.com", "a.b.t", oauth=client, allow_private_addresses=True
    )
    return authorization(settings)["Authorization"].removeprefix("Bearer ")


@pytest.mark.parametrize(
    ("fields", "half_seconds"),
    [({"expires_in": 3600}, 1800), ({"expires_in": 120.5}, 60), ({}, 150), ({"expires_in": None}, 150)],
)
def test_a_token_is_renewed_at_half_of_its_life(
    issuer: Issuer, clock: Callable[[float], None], fields: dict[str, Any], half_seconds: float
) -> None:
    issuer.fields = fields
    assert token(issuer) == token(issuer) == f"{TOKEN}-1"
    clock(half_seconds - 1)
    assert token(issuer) == f"{TOKEN}-1"
    clock(2)
    assert token(issuer) == f"{TOKEN}-2"
    (first, _) = issuer.service.requests
    assert first.form == {"grant_type": "client_credentials", "scope": "all-apis"}


def test_a_token_is_used_to_its_end_while_the_endpoint_is_away(
    issuer: Issuer, clock: Callable[[float], None]
) -> None:
    token(issuer)
    issuer.answer = lambda: Response(503, TOKEN.encode())
    clock(3500)
    assert token(issuer) == f"{TOKEN}-1"
    clock(101)
    with pytest.raises(_native.StorageUnavailable):
        token(issuer)
    issuer.answer = None
    clock(10)
    assert token(issuer) == f"{TOKEN}-2"


@pytest.mark.parametrize(
    ("answer", "kind", "detail"),
    [
        (
            json_response({"error": "invalid_client", "hint": TOKEN}, 401),
            _native.StorageDenied,
            "answers 401",
        ),
        (Response(400, TOKEN.encode()), _native.StorageDenied, "answers 400"),
        (Response(302, b"", {"Location": "http://127.0.0.1:1/"}), _native.StorageDenied, "answers 302"),
        (Response(429), _native.StorageUnavailable, "answers 429"),
        (Response(500, TOKEN.encode()), _native.StorageUnavailable, "answers 500"),
        (Response(200, b""), _native.StorageUnavailable, "without a token"),
        (Response(200, b'{"access_token": "token-of-the-cat'), _native.StorageUnavailable, "without a token"),
        (json_response({"token": TOKEN}), _native.StorageUnavailable, "without a token"),
        (json_response({"access_token": None}), _native.StorageUnavailable, "without a token"),
        (json_response({"access_token": TOKEN, "expires_in": "1h"}), _native.StorageUnavailable, "without a"),
        (json_response({"access_token": f"{TOKEN}\r\nX: y"}), _native.StorageDenied, "no header can have"),
        # The connection is closed before the promised end.
        (
            Response(200, b'{"access_token": "token-of-the-catalog"}', {"Content-Length": "900"}),
            _native.StorageUnavailable,
            "cannot be reached",
        ),
    ],
)
def test_what_is_no_token_is_an_error_without_anything_of_the_answer(
    *,
    issuer: Issuer,
    caplog: pytest.LogCaptureFixture,
    answer: Response,
    kind: type[_native.LogError],
    detail: str,
) -> None:
    caplog.set_level(logging.DEBUG)
    if "Content-Length" in answer.headers:
        answer = Response(200, answer.body, {"Content-Length": "900", "Connection": "close"})
    issuer.answer = lambda: answer
    settings = TableCatalog(issuer.service.url, "a.b.t", oauth=issuer.client, allow_private_addresses=True)
    with pytest.raises(kind) as refused:
        UnityCatalogTable(settings).ratified(HERE)
    assert detail in (refused.value.detail or "")
    assert str(refused.value).startswith("the provider's keys to the catalog cannot be found or renewed")
    shown = f"{refused.value} {refused.value.detail}"
    assert "127.0.0.1" not in shown
    for word in (SECRET, TOKEN):
        assert word not in f"{shown} {caplog.text} {settings!r}", word
    assert all(request.path == "/token" for request in issuer.service.requests)


@pytest.mark.parametrize("reason", ["answers more than 8 MiB", "does not end its answer in 10 seconds"])
@pytest.mark.parametrize("of_token", [False, True])
def test_an_answer_beyond_a_bound_is_named_by_the_bound(
    *, issuer: Issuer, monkeypatch: pytest.MonkeyPatch, of_token: bool, reason: str
) -> None:
    if "MiB" in reason:
        issuer.catalog_answer = Response(200, bytes(MAX_ANSWER_BYTES + 1))
        issuer.answer = lambda: issuer.catalog_answer or Response(500)
    else:
        seconds = itertools.count(0, 20)
        hurried = SimpleNamespace(time=time.time, monotonic=lambda: next(seconds))
        monkeypatch.setattr("gateway.storage.service_requests.time", hurried)
    issuer.issued = 1
    secret: dict[str, Any] = {"oauth": issuer.client} if of_token else {"token": Secret(f"{TOKEN}-1")}
    settings = TableCatalog(issuer.service.url, "a.b.t", allow_private_addresses=True, **secret)
    with pytest.raises(_native.StorageUnavailable) as failed:
        UnityCatalogTable(settings).ratified(HERE)
    service = "the token endpoint of the catalog" if of_token else "the catalog: it"
    assert failed.value.detail == f"{service} {reason}"


def test_a_token_is_requested_again_where_a_kept_connection_ends(issuer: Issuer) -> None:
    def token(name: str) -> str:
        return token_of(CatalogClient(f"{issuer.service.url}/token", name, Secret(SECRET)))

    assert token("first") == f"{TOKEN}-1"

    def cut() -> Response:
        issuer.answer = None
        raise ConnectionAbortedError

    issuer.answer = cut
    assert token("second") == f"{TOKEN}-2"
    assert len(issuer.service.requests) == 3


def test_tokens_are_of_one_client_and_sent_to_the_catalog_alone(issuer: Issuer) -> None:
    settings = TableCatalog(issuer.service.url, "a.b.t", oauth=issuer.client, allow_private_addresses=True)
    assert UnityCatalogTable(settings).ratified(HERE).latest == 3
    other = CatalogClient(f"{issuer.service.url}/token", "id", Secret("another"))
    assert token_of(other) == f"{TOKEN}-2"
    assert [request.bearer for request in issuer.service.requests if request.path == "/token"] == [None, None]


def trusted(host: str, directory: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A certificate of a host and its key, which this process trusts."""
    file = directory / "pair.pem"
    file.write_bytes(self_signed_pair(host))
    monkeypatch.setenv("SSL_CERT_FILE", str(file))
    return file


@pytest.fixture
def resolved(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Lets every name be that of this machine; the names that were looked up."""
    names: list[str] = []
    look_up = socket.getaddrinfo

    def found(host: str, *others: Any, **options: Any) -> Any:
        names.append(host)
        return look_up("127.0.0.1", *others, **options)

    monkeypatch.setattr(socket, "getaddrinfo", found)
    return names


@pytest.mark.parametrize("is_token", [False, True])
def test_nothing_is_sent_to_a_name_with_a_private_address(
    *,
    issuer: Issuer,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    resolved: list[str],
    caplog: pytest.LogCaptureFixture,
    is_token: bool,
) -> None:
    pair = trusted("catalog.example", tmp_path, monkeypatch)
    with serving(issuer, pair) as service:
        url = f"https://catalog.example:{service.url.rpartition(':')[2]}"
        client = CatalogClient(f"{url}/token", "id", Secret(SECRET))
        secret = {"oauth": client} if is_token else {"token": Secret(TOKEN)}
        with pytest.raises(_native.StorageUnavailable) as refused:
            UnityCatalogTable(TableCatalog(url, "a.b.t", **secret)).ratified(HERE)
        assert "catalog.example" in resolved
        assert service.requests == []
    shown = f"{refused.value} {refused.value.detail} {caplog.text}"
    for word in (SECRET, TOKEN, "catalog.example", "127.0.0.1"):
        assert word not in shown


@pytest.mark.parametrize("is_trusted", [True, False])
def test_a_public_address_is_called_if_its_certificate_is_trusted(
    issuer: Issuer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, is_trusted: bool
) -> None:
    pair = trusted("127.0.0.1", tmp_path, monkeypatch)
    checked: list[str] = []

    def is_public(address: str) -> bool:
        checked.append(address)
        return True

    monkeypatch.setattr("gateway.storage.service_requests.is_public_text", is_public)
    if not is_trusted:
        monkeypatch.delenv("SSL_CERT_FILE")
    issuer.issued = 1
    with serving(issuer, pair) as service:
        settings = TableCatalog(service.url, "a.b.t", Secret(f"{TOKEN}-1"), allow_private_addresses=True)
        object.__setattr__(settings, "allow_private_addresses", False)
        table = UnityCatalogTable(settings)
        if is_trusted:
            assert [table.ratified(HERE).latest for _ in range(2)] == [3, 3]
            assert checked == ["127.0.0.1"], "a kept connection is checked once"
        else:
            with pytest.raises(_native.StorageUnavailable, match="unavailable"):
                table.ratified(HERE)
            assert service.requests == []


def test_a_proxy_is_asked_for_names_that_it_resolves_itself(
    issuer: Issuer, monkeypatch: pytest.MonkeyPatch, resolved: list[str]
) -> None:
    monkeypatch.setenv("HTTPS_PROXY", issuer.service.url)
    with pytest.raises(_native.StorageUnavailable):
        UnityCatalogTable(TableCatalog("https://catalog.example", "a.b.t", Secret(TOKEN))).ratified(HERE)
    assert "catalog.example" not in resolved
