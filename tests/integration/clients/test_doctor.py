"""The doctor against the official Python client: the same profiles are accepted, by the same requests."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives import serialization
from support.http_service import HttpService, Request, json_response, serving
from support.identity_provider import private_key
from support.official_client import ClientError, OfficialClient
from support.sharing_server import TOKEN, SharingServer, sharing

from gateway.__main__ import main

SECRETS = {"clientSecret": "the secret of acme", "password": "a password of acme"}
TOKEN_HEADERS = ("authorization", "content-type", "accept")


@pytest.fixture
def tokens() -> Iterator[HttpService]:
    with serving(lambda _: json_response({"access_token": TOKEN, "expires_in": 3600})) as service:
        yield service


@pytest.fixture
def server() -> Iterator[SharingServer]:
    with sharing() as started:
        yield started


def content(server: SharingServer, tokens: HttpService, path: Path, kind: str) -> dict[str, Any]:
    """The fields of a profile of a type."""
    fields: dict[str, Any] = {"shareCredentialsVersion": 2, "endpoint": f"{server.endpoint}/", "type": kind}
    client = {"tokenEndpoint": f"{tokens.url}/token/", "clientId": "acme", "scope": "api://share/.default"}
    if kind == "oauth_client_credentials":
        return fields | client | {"clientSecret": SECRETS["clientSecret"]}
    if kind == "basic":
        return fields | {"username": "acme", "password": SECRETS["password"]}
    if kind == "oauth_jwt_bearer_private_key_jwt":
        key = path / "key.pem"
        pem, pkcs8 = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8
        private = private_key("RS256", "k1").private_bytes(pem, pkcs8, serialization.NoEncryption())
        key.write_bytes(private)
        key.chmod(0o600)
        named = {"privateKeyFile": str(key), "keyId": "k1", "algorithm": "RS256"}
        issuer = {"issuer": "https://login.example", "audience": "https://share.example"}
        return fields | {"auth": client | issuer | {"privateKey": named}}
    del fields["type"]
    return fields | {"shareCredentialsVersion": 1, "bearerToken": TOKEN}


def written(path: Path, fields: dict[str, Any]) -> Path:
    path.write_text(json.dumps(fields))
    path.chmod(0o600)
    return path


@pytest.mark.parametrize(
    "kind", ["bearer", "oauth_client_credentials", "oauth_jwt_bearer_private_key_jwt", "basic"]
)
def test_the_doctor_sends_the_requests_of_the_client(
    *, official_client: OfficialClient, server: SharingServer, tokens: HttpService, tmp_path: Path, kind: str
) -> None:
    profile = written(tmp_path / "a.share", content(server, tokens, tmp_path, kind))
    if kind == "basic":
        # The server of the tests knows its token only; both send the same header to it.
        with pytest.raises(ClientError, match="401"):
            official_client.call("schemas", profile)
    else:
        assert official_client.call("schemas", profile) == ["sales.public.orders"]
    by_table = 0 if kind == "basic" else 1
    by_client = [described(one) for one in (*tokens.requests, *server.http.requests)]
    tokens.requests.clear()
    server.http.requests.clear()
    assert main(["doctor", str(profile)]) == (1 if kind == "basic" else 0)
    by_doctor = [described(one) for one in (*tokens.requests, *server.http.requests)]
    # Of a profile without a table, the doctor lists the tables of all schemas at once.
    assert [one for one in by_client if "/schemas/" not in one[1]] == by_doctor[: len(by_client) - by_table]


def described(request: Request) -> tuple[Any, ...]:
    """What a server sees of a request. Two assertions differ by their ids and times."""
    body: Any = request.body
    if b"assertion=" in body:
        claims = jwt.decode(request.form["assertion"], options={"verify_signature": False})
        header = jwt.get_unverified_header(request.form["assertion"])
        claims = {name: value for name, value in claims.items() if name not in {"iat", "exp", "jti"}}
        names = {name: header[name] for name in ("alg", "kid")}
        body = (request.form["grant_type"], json.dumps(claims, sort_keys=True), json.dumps(names))
    names = TOKEN_HEADERS if request.method == "POST" else ("authorization",)
    headers = {name: request.headers.get(name) for name in names}
    if request.path.startswith("/delta-sharing"):
        headers.pop("accept", None)
    return request.method, request.target, body, tuple(headers.items())


@pytest.mark.parametrize(
    ("change", "is_accepted"),
    [
        ({"shareCredentialsVersion": 2, "type": "bearer_token"}, False),
        ({"shareCredentialsVersion": 3}, False),
        ({"shareCredentialsVersion": 2, "type": "kerberos"}, False),
        ({"bearerToken": None}, False),
        ({"shareCredentialsVersion": "x"}, False),
        ({"shareCredentialsVersion": "1"}, True),
        ({"shareCredentialsVersion": 1.0}, True),
        ({"anything": 1, "icebergEndpoint": "https://x.example"}, True),
    ],
    ids=str,
)
def test_a_profile_that_the_client_refuses_is_refused_by_the_doctor(
    *,
    official_client: OfficialClient,
    server: SharingServer,
    tokens: HttpService,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    change: dict[str, Any],
    is_accepted: bool,
) -> None:
    fields = content(server, tokens, tmp_path, "bearer") | change
    fields = {name: value for name, value in fields.items() if value is not None}
    profile = written(tmp_path / "a.share", fields)
    if is_accepted:
        assert official_client.call("schemas", profile) == ["sales.public.orders"]
    else:
        with pytest.raises(ClientError):
            official_client.call("schemas", profile)
    assert main(["doctor", str(profile)]) == (0 if is_accepted else 1)
    assert ("fail  profile" in capsys.readouterr().out) is not is_accepted
