"""Tokens of each type of profile, requested in the form of the official Python client."""

import base64
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives import serialization
from support.findings import Examine, failed, steps, warned
from support.http_service import HttpService, Request, Response, json_response, serving
from support.identity_provider import private_key
from support.sharing_server import PREFIX, TOKEN, SharingServer

from gateway.doctor.urls import is_same_host

SECRET = "a-secret-of-the-tests+/ü"
GRANTED = {"access_token": TOKEN, "expires_in": "3600", "token_type": "Bearer"}


class TokenEndpoint:
    """A token endpoint with one answer."""

    def __init__(self) -> None:
        self.response = json_response(GRANTED)
        self.http: HttpService

    def answer(self, _: Request) -> Response:
        return self.response


@pytest.fixture
def provider() -> Iterator[TokenEndpoint]:
    endpoint = TokenEndpoint()
    with serving(endpoint.answer) as endpoint.http:
        yield endpoint


def client_profile(server: SharingServer, provider: TokenEndpoint, path: Path, **changes: Any) -> Path:
    return server.profile(
        path / "a.share",
        shareCredentialsVersion=2,
        type="oauth_client_credentials",
        bearerToken=None,
        **{"tokenEndpoint": f"{provider.http.url}/token/", **changes},
        clientId="acme",
        clientSecret=SECRET,
    )


def test_client_credentials_are_sent_as_clients_send_them(
    sharing_server: SharingServer, provider: TokenEndpoint, tmp_path: Path, examine: Examine
) -> None:
    profile = client_profile(sharing_server, provider, tmp_path, scope="api://share/.default a+b")
    findings = examine(profile)
    assert {status for _, status in steps(findings)} == {"ok"}
    assert "live for 60 minutes" in next(one.message for one in findings if one.step == "token")
    (sent,) = provider.http.requests
    assert (sent.method, sent.target) == ("POST", "/token")
    assert sent.body == b"grant_type=client_credentials&scope=api://share/.default a+b"
    assert sent.headers["authorization"] == f"Basic {base64.b64encode(f'acme:{SECRET}'.encode()).decode()}"
    assert sent.headers["content-type"] == "application/x-www-form-urlencoded"


@pytest.mark.parametrize(
    ("response", "owner", "message", "advice"),
    [
        (
            json_response({"error": "invalid_client", "error_description": f"AADSTS7000215: {SECRET}"}, 401),
            "recipient",
            "401 invalid_client: AADSTS7000215: [hidden]",
            "clientSecret",
        ),
        (
            json_response({"error": "invalid_scope", "errorCode": "70011"}, 400),
            "recipient",
            "answers 400 invalid_scope",
            "/.default",
        ),
        (
            Response(429, b'{"error": "temporarily_unavailable"}', {"Retry-After": "6"}),
            "recipient",
            "answers 429 temporarily_unavailable",
            "wait 6 seconds;",
        ),
        (Response(429, b""), "recipient", "answers 429", "wait;"),
        (json_response({"error": "invalid_scope"}, 400), "recipient", "400 invalid_scope", "/.default"),
        (json_response({"error": "access_denied"}, 401), "recipient", "401 access_denied", "clientSecret"),
        (Response(404, b"Not Found"), "recipient", "answers 404", "tokenEndpoint"),
        (Response(500), "identity provider", "answers 500", "identity provider"),
        (json_response({"expires_in": 3600}), "identity provider", "without access_token", "tokenEndpoint"),
        (json_response({"access_token": "x"}), "identity provider", "without expires_in", "tokenEndpoint"),
        (Response(200, b"hello"), "identity provider", "without access_token", "tokenEndpoint"),
        (
            json_response({"error": "invalid_request"}, 400),
            "recipient",
            "answers 400 invalid_request; the clock of this machine is",
            "NTP",
        ),
        *(
            (
                json_response({**GRANTED, "access_token": token}),
                "identity provider",
                "no header can have",
                "ASCII",
            )
            for token in ("ab\r\nX: y", "a b", "a\x00b", "tökén")
        ),
        (Response(200, b"<html>log in"), "network", "an HTML page", "web filter"),
    ],
)
def test_a_refused_token_says_why_and_who_mends_it(
    sharing_server: SharingServer,
    provider: TokenEndpoint,
    tmp_path: Path,
    examine: Examine,
    *,
    response: Response,
    owner: str,
    message: str,
    advice: str,
) -> None:
    if "clock" in message:
        response = Response(400, response.body, {"Date": "Sat, 21 Nov 2020 00:00:00 GMT"})
    provider.response = response
    found = failed(examine(client_profile(sharing_server, provider, tmp_path)))
    assert (found.step, str(found.owner)) == ("token", owner)
    assert message in found.message
    assert advice in found.advice
    assert not sharing_server.http.requests


OWN_TOKENS = f"{PREFIX}/oauth/token"


def own_error(error: str, code: str, status: int) -> Response:
    """A refusal of this gateway, with the codes of both protocols."""
    both = {"error": error, "error_description": "no", "errorCode": code, "message": "no"}
    return json_response(both, status)


@pytest.mark.parametrize(
    ("response", "owner", "message", "advice"),
    [
        (
            own_error("invalid_client", "UNAUTHENTICATED", 401),
            "provider",
            "answers 401 invalid_client: no",
            "recipient client rotate",
        ),
        (
            own_error("unsupported_grant_type", "INVALID_PARAMETER_VALUE", 400),
            "provider",
            "answers 400 unsupported_grant_type: no",
            "oauth_client_credentials",
        ),
        (
            own_error("invalid_request", "MALFORMED_REQUEST", 400),
            "recipient",
            "answers 400 invalid_request: no",
            "that the provider sent",
        ),
        (own_error("temporarily_unavailable", "RESOURCE_EXHAUSTED", 429), "recipient", "429", "wait;"),
        (own_error("server_error", "INTERNAL_ERROR", 500), "provider", "500 server_error", "of the server"),
        (Response(404, b"no"), "recipient", "answers 404", "that the provider sent"),
        (json_response({"access_token": "x"}), "provider", "without expires_in", "update the server"),
        (json_response({"access_token": "a b"}), "provider", "no header can have", "ASCII"),
    ],
)
def test_a_refusal_of_the_server_s_own_token_endpoint_is_not_the_identity_provider_s(
    sharing_server: SharingServer,
    provider: TokenEndpoint,
    tmp_path: Path,
    examine: Examine,
    *,
    response: Response,
    owner: str,
    message: str,
    advice: str,
) -> None:
    sharing_server.answers[OWN_TOKENS] = response
    endpoint = f"{sharing_server.http.url}{OWN_TOKENS}"
    profile = client_profile(sharing_server, provider, tmp_path, tokenEndpoint=endpoint)
    found = failed(examine(profile))
    assert (found.step, str(found.owner)) == ("token", owner)
    assert found.message.startswith("the token endpoint of the server answers")
    assert message in found.message
    assert advice in found.advice
    assert "identity provider" not in f"{found.message} {found.advice}"


def test_a_short_life_at_the_server_itself_is_the_provider_s(
    sharing_server: SharingServer, provider: TokenEndpoint, tmp_path: Path, examine: Examine
) -> None:
    sharing_server.answers[OWN_TOKENS] = json_response({**GRANTED, "expires_in": 0})
    endpoint = f"{sharing_server.http.url}{OWN_TOKENS}"
    found = warned(examine(client_profile(sharing_server, provider, tmp_path, tokenEndpoint=endpoint)))
    assert str(found.owner) == "provider"
    assert "gateway.oauth.tokenLifetimeSeconds" in found.advice


@pytest.mark.parametrize(
    ("url", "other", "is_same"),
    [
        ("https://a.example/x", "https://A.example:443/y", True),
        ("http://a.example", "http://a.example:80/y", True),
        ("http://a.example", "https://a.example", False),
        ("https://a.example:8443", "https://a.example", False),
        ("https://login.a.example", "https://a.example", False),
    ],
)
def test_services_are_one_if_host_and_port_are_the_same(url: str, other: str, is_same: bool) -> None:
    assert is_same_host(url, other) is is_same


def test_a_short_life_is_a_warning(
    sharing_server: SharingServer, provider: TokenEndpoint, tmp_path: Path, examine: Examine
) -> None:
    provider.response = json_response({**GRANTED, "expires_in": 300})
    found = warned(examine(client_profile(sharing_server, provider, tmp_path)))
    assert found.message == "tokens live for 300 seconds, so clients request one for each call"


def assertion_profile(server: SharingServer, provider: TokenEndpoint, path: Path, algorithm: str) -> Path:
    key = path / "key.pem"
    key.write_bytes(
        private_key("RS256", "k1").private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
    )
    key.chmod(0o600)
    auth = {
        "tokenEndpoint": f"{provider.http.url}/token",
        "issuer": "https://login.example",
        "clientId": "acme",
        "audience": "https://share.example",
        "privateKey": {"privateKeyFile": "key.pem", "keyId": "k1", "algorithm": algorithm},
    }
    changes = {"shareCredentialsVersion": 2, "type": "oauth_jwt_bearer_private_key_jwt", "auth": auth}
    return server.profile(path / "a.share", bearerToken=None, **changes)


def test_an_assertion_is_signed_by_the_private_key(
    sharing_server: SharingServer, provider: TokenEndpoint, tmp_path: Path, examine: Examine
) -> None:
    findings = examine(assertion_profile(sharing_server, provider, tmp_path, "RS256"))
    assert {status for _, status in steps(findings)} == {"ok"}
    form = provider.http.requests[0].form
    assert form["grant_type"] == "urn:ietf:params:oauth:grant-type:jwt-bearer"
    public = private_key("RS256", "k1").public_key()
    claims = jwt.decode(form["assertion"], public, algorithms=["RS256"], audience="https://login.example")
    assert (claims["iss"], claims["resource"]) == ("acme", "https://share.example")
    assert claims["exp"] - claims["iat"] == 120
    assert jwt.get_unverified_header(form["assertion"])["kid"] == "k1"


def test_a_private_key_that_does_not_fit_is_the_recipient_s(
    sharing_server: SharingServer, provider: TokenEndpoint, tmp_path: Path, examine: Examine
) -> None:
    found = failed(examine(assertion_profile(sharing_server, provider, tmp_path, "ES256")))
    assert "cannot sign by ES256" in found.message
    assert found.owner == "recipient"


def test_a_user_and_a_password_are_sent_with_each_request(
    sharing_server: SharingServer, tmp_path: Path, examine: Examine
) -> None:
    password = "a-password-of-the-tests"
    changes = {"shareCredentialsVersion": 2, "type": "basic", "username": "acme", "password": password}
    profile = sharing_server.profile(tmp_path / "a.share", bearerToken=None, **changes)
    sharing_server.answers[f"{PREFIX}/shares"] = json_response({"errorCode": "X", "message": password}, 401)
    found = failed(examine(profile))
    assert found.advice.startswith("compare user name and password")
    assert password not in found.message
    first, second = sharing_server.http.requests
    assert (first.method, first.path, first.form) == ("POST", PREFIX, {"grant_type": "client_credentials"})
    expected = f"Basic {base64.b64encode(f'acme:{password}'.encode()).decode()}"
    assert first.headers["authorization"] == second.headers["authorization"] == expected
