"""Temporary credentials of R2, against a service with the form of Cloudflare's API."""

import json
import socket
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest
from support.http_service import HttpService, Request, Response, json_response, serving

from gateway.config import ConfigError, Location, loads
from gateway.config.networks import parse_networks
from gateway.storage.credentials import CredentialsUnavailable
from gateway.storage.registry import Storages
from gateway.storage.vending.credential import CredentialRequest, TemporaryCredential

ACCOUNT = "0123456789abcdef0123456789abcdef"
NOW_MS = 1_795_000_000_123
RESULT = {"accessKeyId": "id", "secretAccessKey": "hidden-secret", "sessionToken": "hidden-token"}


@dataclass
class Cloudflare:
    """An API that answers one call."""

    answers: Response = field(default_factory=lambda: json_response({"success": True, "result": RESULT}))
    service: HttpService | None = None

    def answer(self, _request: Request) -> Response:
        return self.answers


@pytest.fixture
def api() -> Iterator[Cloudflare]:
    api = Cloudflare()
    with serving(api.answer) as api.service:
        yield api


def issue(api: Cloudflare, key: str = "t", *networks: str, host: str = ACCOUNT) -> TemporaryCredential:
    assert api.service is not None
    entry = {
        "prefix": "s3://bucket/",
        "endpoint": f"https://{host}.r2.cloudflarestorage.com",
        "region": "auto",
        "accessKeyId": "parent",
        "secretAccessKey": "parent-secret",
        "cloudflareApiToken": "api-token",
        "stsEndpoint": api.service.url,
    }
    config = loads(f"version: 1\ngateway: {{anonymous: true, storages: [{json.dumps(entry)}]}}")
    storages = Storages(config, url_key=bytes(32), environment={})
    location = Location("s3", "bucket", key)
    request = CredentialRequest(location, "alice", parse_networks(networks), 1800)
    return storages.store(location).issuer(now_ms=lambda: NOW_MS)(request)


@pytest.mark.parametrize("key", ["t", "a*b", "a?b", "a$b", 'a"b', "a'b", "é"])
def test_a_credential_reads_the_objects_below_one_prefix(api: Cloudflare, key: str) -> None:
    issued = issue(api, key)
    assert api.service is not None
    (request,) = api.service.requests
    assert request.path == f"/accounts/{ACCOUNT}/r2/temp-access-credentials"
    assert request.bearer == "api-token"
    assert request.headers["cf-r2-jurisdiction"] == "default"
    assert json.loads(request.body) == {
        "bucket": "bucket",
        "parentAccessKeyId": "parent",
        "permission": "object-read-only",
        "prefixes": [f"{key}/"],
        "ttlSeconds": 1800,
    }
    assert (issued.form, issued.key_id) == ("r2Credentials", "id")
    assert issued.expires_ms == 1_795_000_000_000 + 1_800_000
    assert {name: value.reveal() for name, value in issued.fields.items()} == RESULT
    assert "hidden" not in repr(issued)


def test_the_jurisdiction_is_that_of_the_endpoint(api: Cloudflare) -> None:
    issue(api, host=f"{ACCOUNT}.eu")
    assert api.service is not None
    assert api.service.requests[0].headers["cf-r2-jurisdiction"] == "eu"


@pytest.mark.parametrize(
    ("answer", "lasting"),
    [
        (json_response({"errors": [{"message": "the text of an answer"}]}, 403), True),
        (json_response({"errors": []}, 500), False),
        (json_response({"errors": []}, 405), True),
        (json_response({"errors": []}, 429), False),
        (json_response({"success": True, "result": {}}), False),
        (json_response([]), False),
        (Response(200, b"no JSON"), False),
        (json_response({"result": RESULT | {"sessionToken": None}}), False),
        (json_response({"result": RESULT | {"accessKeyId": ""}}), False),
        (json_response({"result": RESULT | {"secretAccessKey": 5}}), False),
        (json_response({"result": None}), False),
    ],
)
def test_an_answer_without_credentials_is_an_error_without_its_text(
    api: Cloudflare, answer: Response, lasting: bool
) -> None:
    api.answers = answer
    with pytest.raises(CredentialsUnavailable) as refused:
        issue(api)
    assert refused.value.lasting is lasting
    assert "the text" not in str(refused.value)


def test_networks_are_refused(api: Cloudflare) -> None:
    with pytest.raises(CredentialsUnavailable, match="cannot be limited"):
        issue(api, "t", "192.0.2.0/24")


@pytest.mark.parametrize("without", ["endpoint", "accessKeyId"])
def test_an_api_token_needs_an_account_and_a_key(without: str) -> None:
    entry: dict[str, Any] = {
        "prefix": "s3://bucket/",
        "endpoint": f"https://{ACCOUNT}.r2.cloudflarestorage.com",
        "accessKeyId": "parent",
        "secretAccessKey": "secret",
        "cloudflareApiToken": "api-token",
    }
    del entry[without]
    if without == "accessKeyId":
        del entry["secretAccessKey"]
    with pytest.raises(ConfigError, match=r"cloudflareApiToken.*R2"):
        loads(f"version: 1\ngateway: {{anonymous: true, storages: [{json.dumps(entry)}]}}")


def test_a_redirect_is_an_error_and_the_api_token_stays_with_one_host(api: Cloudflare) -> None:
    with serving(lambda _request: json_response({"result": RESULT})) as another:
        for status in (301, 302, 303, 307, 308):
            api.answers = Response(status, headers={"Location": f"{another.url}/stolen"})
            with pytest.raises(CredentialsUnavailable, match=str(status)):
                issue(api)
        assert another.requests == []


def test_an_answer_that_is_no_http_is_an_error(api: Cloudflare, monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:

        def answer() -> None:
            connection, _ = server.accept()
            with connection:
                connection.recv(65536)
                connection.sendall(b"nonsense\r\n\r\n")

        thread = threading.Thread(target=answer)
        thread.start()
        assert api.service is not None
        monkeypatch.setattr(api.service, "url", f"http://127.0.0.1:{server.getsockname()[1]}")
        with pytest.raises(CredentialsUnavailable, match="cannot be reached"):
            issue(api)
        thread.join()
