"""Profiles of every version and type, and the mistakes in them."""

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from gateway.client.table_name import TableName
from gateway.doctor.findings import Findings, Problem
from gateway.doctor.profile import RecipientProfile, read_profile, split_reference
from gateway.protocol.profile import oauth_profile

NOW = datetime(2026, 11, 22, tzinfo=UTC)
ENDPOINT = "https://share.example.com/delta-sharing"
BEARER = {"shareCredentialsVersion": 1, "endpoint": ENDPOINT, "bearerToken": "a-token-of-the-tests"}
CLIENT = {
    "shareCredentialsVersion": 2,
    "type": "oauth_client_credentials",
    "endpoint": ENDPOINT,
    "tokenEndpoint": "https://login.example.com/token/",
    "clientId": "acme",
    "clientSecret": "a-secret-of-the-tests",
    "scope": "api://share/.default",
}
ASSERTION = {
    "shareCredentialsVersion": 2,
    "type": "oauth_jwt_bearer_private_key_jwt",
    "endpoint": ENDPOINT,
    "auth": {
        "tokenEndpoint": "https://login.example.com/token",
        "issuer": "https://login.example.com",
        "clientId": "acme",
        "audience": "https://share.example.com",
        "privateKey": {"privateKeyFile": "key.pem", "keyId": "k1"},
    },
}
BASIC = {
    "shareCredentialsVersion": 2,
    "type": "basic",
    "endpoint": ENDPOINT,
    "username": "acme",
    "password": "a-password-of-the-tests",
}


def read(path: Path, content: Any) -> tuple[RecipientProfile | None, list[tuple[str, str, str]]]:
    """Read a profile, and return it with its findings."""
    profile = path / "acme.share"
    profile.write_bytes(content if isinstance(content, bytes) else json.dumps(content).encode())
    profile.chmod(0o600)
    findings = Findings()
    found = None
    try:
        found = read_profile(profile, findings, NOW)
    except Problem as problem:
        findings.fail("profile", problem)
    text = repr(findings.items)
    assert not [secret for secret in ("-of-the-tests",) if secret in text]
    return found, [(one.step, str(one.status), one.message) for one in findings.items]


@pytest.mark.parametrize(
    ("content", "accepted"),
    [
        (BEARER, "accepted by every client"),
        (BEARER | {"icebergEndpoint": "https://x.example", "anything": 1}, "accepted by every client"),
        (CLIENT, "accepted by the official Python client (from 1.2) and Spark client (1.4)"),
        (ASSERTION, "accepted by the official Python client (1.4); refused by the Spark client"),
        (BASIC, "accepted by the official Python client (1.4); refused by the Spark client"),
    ],
    ids=["bearer", "further keys", "client credentials", "assertion", "basic"],
)
def test_a_profile_of_each_type_says_which_clients_accept_it(
    tmp_path: Path, content: Any, accepted: str
) -> None:
    key = tmp_path / "key.pem"
    key.write_text("a key")
    key.chmod(0o600)
    profile, findings = read(tmp_path, content)
    assert profile is not None
    assert [status for _, status, _ in findings] == ["ok", "ok"]
    assert findings[1][2].startswith(accepted)


def test_no_client_accepts_a_bearer_token_at_version_2(tmp_path: Path) -> None:
    profile, findings = read(tmp_path, BEARER | {"shareCredentialsVersion": 2, "type": "bearer_token"})
    assert profile is not None
    assert profile.kind == "bearer"
    assert findings == [("profile", "fail", "every client refuses `bearer_token` at version 2")]


def test_a_profile_of_a_server_that_needs_no_token_is_used(tmp_path: Path) -> None:
    profile, findings = read(tmp_path, BEARER | {"bearerToken": ""})
    assert profile is not None
    assert profile.bearer_token == ""
    assert findings[0][1:] == ("warn", "bearerToken is empty, which a server that needs no token accepts")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"<!doctype html><html>login</html>", "an HTML or XML page"),
        (b'{"shareCredentialsVersion": 1,', "is not JSON: line 1, column"),
        (b"[]", "is not a JSON object"),
        (b"", "is not JSON"),
        (b" " * (1024 * 1024 + 1), "more than 1 MiB"),
        ({"shareCredentialsVersion": 1}, "missing or empty: endpoint, bearerToken"),
        (BEARER | {"endpoint": "share.example.com/delta-sharing"}, "endpoint is not a URL"),
        (BEARER | {"endpoint": "https://[x"}, "endpoint is not a URL"),
        (BEARER | {"endpoint": "https://share.example.com:x"}, "endpoint is not a URL"),
        (BEARER | {"bearerToken": "a b"}, "bearerToken has a blank"),
        (BEARER | {"bearerToken": "tökén"}, "not ASCII"),
        (BEARER | {"bearerToken": "a\x00b"}, "not ASCII"),
        (BEARER | {"bearerToken": "<token>"}, "placeholder of a template: bearerToken"),
        (BEARER | {"shareCredentialsVersion": 2, "type": "kerberos"}, "`type` is one that no client knows"),
        (BEARER | {"shareCredentialsVersion": 2}, "`type` is missing"),
        (
            oauth_profile(ENDPOINT, token_endpoint=None, client_id=None, scope=None),
            "placeholder of a template: tokenEndpoint, clientId, clientSecret",
        ),
        (CLIENT | {"clientSecret": ""}, "missing or empty: clientSecret"),
        (ASSERTION | {"auth": "x"}, "missing or empty: auth.tokenEndpoint"),
        (ASSERTION, "privateKeyFile does not exist"),
        (json.dumps(ASSERTION).replace("key.pem", "k" * 300).encode(), "privateKeyFile does not exist"),
    ],
    ids=range(20),
)
def test_a_profile_that_cannot_be_used_names_the_mistake(tmp_path: Path, content: Any, message: str) -> None:
    profile, findings = read(tmp_path, content)
    assert profile is None
    assert findings[-1][1] == "fail"
    assert message in findings[-1][2]


@pytest.mark.parametrize(
    ("content", "status", "message"),
    [
        (b"\xef\xbb\xbf" + json.dumps(BEARER).encode(), "fail", "UTF-8 with a byte order mark"),
        (json.dumps(BEARER).encode("utf-16"), "fail", "UTF-16"),
        (BEARER | {"shareCredentialsVersion": "x"}, "fail", "shareCredentialsVersion is not a number"),
        (BEARER | {"shareCredentialsVersion": None}, "fail", "shareCredentialsVersion is not a number"),
        (BEARER | {"endpoint": f"{ENDPOINT}//"}, "fail", "more than one slash"),
        (BEARER | {"endpoint": f"{ENDPOINT}/shares"}, "fail", "ends with a route"),
        (BEARER | {"endpoint": f"{ENDPOINT}?x=1"}, "fail", "a user, a query or a fragment"),
        (
            BEARER | {"bearerToken": " a-token-of-the-tests\n"},
            "fail",
            "begin or end with a blank: bearerToken",
        ),
        (BEARER | {"bearerToken": "Bearer-of-the-tests"}, "fail", "begins with the word Bearer"),
        (BEARER | {"endpoint": "http://share.example.com"}, "warn", "endpoint is http"),
        (BEARER | {"expirationTime": "tomorrow"}, "warn", "expirationTime is not a time"),
        (BEARER | {"expirationTime": "2026-11-21T10:00:00.000Z"}, "fail", "expired on 2026-11-21 10:00 UTC"),
        (BEARER | {"expirationTime": "2026-11-25T10:00:00"}, "warn", "expires on 2026-11-25 10:00 UTC"),
        (BASIC | {"shareCredentialsVersion": 1}, "fail", "clients read `basic` only at version 2"),
    ],
    ids=range(14),
)
def test_a_mistake_does_not_keep_the_server_from_being_examined(
    tmp_path: Path, content: Any, status: str, message: str
) -> None:
    profile, findings = read(tmp_path, content)
    assert profile is not None
    assert profile.endpoint.startswith(("https://share.example.com", "http://share.example.com"))
    assert not profile.endpoint.endswith(("/", "shares"))
    assert [found for found in findings if found[1] == status and message in found[2]], findings


@pytest.mark.parametrize("version", ["1", " 1 ", 1.0, True])
def test_a_version_that_the_python_client_converts_is_a_warning(tmp_path: Path, version: Any) -> None:
    profile, findings = read(tmp_path, BEARER | {"shareCredentialsVersion": version})
    assert profile is not None
    assert profile.kind == "bearer"
    assert [status for _, status, _ in findings] == ["warn", "ok", "ok"]
    assert "is not an integer" in findings[0][2]


@pytest.mark.parametrize("text", ["9999-12-31T23:59:59-12:00", "0001-01-01T00:00:00+12:00"])
def test_an_expiry_beyond_the_calendar_is_no_error(tmp_path: Path, text: str) -> None:
    profile, findings = read(tmp_path, BEARER | {"expirationTime": text})
    assert profile is not None
    assert [message for _, status, message in findings if status == "fail"] == (
        [] if text.startswith("9999") else ["the token expired on a time that is out of range"]
    )


def test_one_slash_at_the_end_and_a_late_expiry_are_no_mistakes(tmp_path: Path) -> None:
    late = (NOW + timedelta(days=300)).isoformat()
    profile, findings = read(tmp_path, BEARER | {"endpoint": f"{ENDPOINT}/", "expirationTime": late})
    assert profile is not None
    assert profile.endpoint == ENDPOINT
    assert {status for _, status, _ in findings} == {"ok"}


def test_a_file_that_others_can_read_and_one_that_is_not_there(tmp_path: Path) -> None:
    file = tmp_path / "a.share"
    file.write_text(json.dumps(BEARER))
    file.chmod(0o644)
    findings = Findings()
    read_profile(file, findings, NOW)
    assert [one.message for one in findings.items if one.status == "warn"] == [
        "other users of this machine can read the file, which has a secret"
    ]
    with pytest.raises(Problem, match="No such file"):
        read_profile(tmp_path / "b.share", findings, NOW)


def test_a_table_follows_the_profile_after_a_hash(tmp_path: Path) -> None:
    assert split_reference("a.share") == (Path("a.share"), None)
    assert split_reference("a#b.share#s.x.d.t") == (Path("a#b.share"), TableName("s.x", "d", "t"))
    with pytest.raises(ValueError, match=r"share\.schema\.table"):
        split_reference("a.share#t")
    named = tmp_path / "a#b.share"
    named.touch()
    assert split_reference(str(named)) == (named, None)


def test_secrets_are_not_in_representations() -> None:
    profile = RecipientProfile("basic", ENDPOINT, "token-x", client_secret="secret-x", password="password-x")
    assert "-x" not in repr(profile)
