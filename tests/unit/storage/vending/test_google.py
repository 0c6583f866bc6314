"""Tokens with an access boundary, against a store that holds the boundary that it was given."""

import json
import os
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

import pytest
from support.access_boundary import Boundary
from support.google_identity import GoogleIdentity, google_error
from support.google_identity import running as running_identity
from support.google_storage import GoogleStorage
from support.google_storage import running as running_storage
from support.http_service import Response, json_response, serving

from gateway.config import Location, loads
from gateway.config.networks import parse_networks
from gateway.storage.credentials import CredentialsUnavailable
from gateway.storage.gcs.vendor import access_boundary, string_literal
from gateway.storage.registry import Storages
from gateway.storage.vending.credential import CredentialRequest, TemporaryCredential

HOSTILE = ["t", "a*b", "a?b", "a$b", "a'b", 'a"b', "a\\b", "a\\", "a`b", "a%20b", "é", "\u2028", "\U0001f600"]
INJECTED = "x') || resource.name.startsWith('"
NOW_MS = int(time.time() * 1000)


@pytest.fixture
def storage() -> Iterator[GoogleStorage]:
    with running_storage() as storage:
        for key in (*HOSTILE, INJECTED, "t2", "other"):
            storage.put("bucket", f"{key}/_delta_log/0.json", b"{}")
        storage.put("another", "t/_delta_log/0.json", b"{}")
        yield storage


@pytest.fixture
def google(storage: GoogleStorage) -> Iterator[GoogleIdentity]:
    with running_identity(GoogleIdentity(storage)) as google:
        yield google


def issue(google: GoogleIdentity, directory: Path, key: str, *networks: str) -> TemporaryCredential:
    file = google.service_account_file(directory)
    entry = {"prefix": "gs://bucket/", "credentialsFile": str(file), "stsEndpoint": google.url}
    config = loads(f"version: 1\ngateway: {{anonymous: true, storages: [{json.dumps(entry)}]}}")
    storages = Storages(config, url_key=bytes(32), environment=os.environ)
    location = Location("gs", "bucket", key)
    request = CredentialRequest(location, "alice", parse_networks(networks), 900)
    return storages.store(location).issuer(now_ms=lambda: NOW_MS)(request)


def status(storage: GoogleStorage, token: str, path: str) -> int:
    request = urllib.request.Request(
        f"{storage.endpoint}/{path}", headers={"Authorization": f"Bearer {token}"}
    )
    try:
        with urllib.request.urlopen(request) as response:
            return int(response.status)
    except urllib.error.HTTPError as error:
        with error:
            return error.code


def may_list(storage: GoogleStorage, token: str, prefix: str, bucket: str = "bucket") -> bool:
    return status(storage, token, f"{bucket}?prefix={quote(prefix, safe='')}") == 200


@pytest.mark.parametrize("key", [*HOSTILE, INJECTED])
def test_a_token_reads_and_lists_its_directory_and_no_other(
    tmp_path: Path, storage: GoogleStorage, google: GoogleIdentity, key: str
) -> None:
    token = issue(google, tmp_path, key).fields["oauthToken"].reveal()
    assert status(storage, token, f"bucket/{quote(key)}/_delta_log/0.json") == 200
    assert may_list(storage, token, f"{key}/")
    assert may_list(storage, token, f"{key}/_delta_log/")
    for other in {*HOSTILE, INJECTED, "t2", "other"} - {key}:
        assert status(storage, token, f"bucket/{quote(other)}/_delta_log/0.json") == 403
        assert not may_list(storage, token, f"{other}/")
    assert status(storage, token, f"another/{quote(key)}/_delta_log/0.json") == 403
    assert not may_list(storage, token, f"{key}/", "another")
    assert not may_list(storage, token, "")
    assert not may_list(storage, token, key)


def test_the_store_of_these_tests_holds_a_condition_as_it_is_written() -> None:
    def injected(literal: str) -> object:
        rule = access_boundary(Location("gs", "bucket", "x"))["accessBoundary"]["accessBoundaryRules"][0]
        rule["availabilityCondition"]["expression"] = f"resource.name.startsWith({literal})"
        return {"accessBoundary": {"accessBoundaryRules": [rule]}}

    unescaped = Boundary.parse(injected(f"'projects/_/buckets/bucket/objects/{INJECTED}'"))
    assert unescaped.permits("bucket", "anything", None)
    escaped = Boundary.parse(injected(string_literal(f"projects/_/buckets/bucket/objects/{INJECTED}")))
    assert not escaped.permits("bucket", "anything", None)


def test_the_end_is_that_of_the_token_that_was_exchanged_or_an_earlier_one(
    tmp_path: Path, google: GoogleIdentity
) -> None:
    issued = issue(google, tmp_path, "t")
    assert abs(issued.expires_ms / 1000 - time.time() - google.seconds) < 60
    assert (issued.form, len(issued.key_id)) == ("gcpOauthToken", 64)
    assert "ya29" not in repr(issued)
    google.downscoped_life = {"expires_in": 600}
    assert abs(issue(google, tmp_path, "t").expires_ms / 1000 - time.time() - 600) < 60


def test_networks_and_a_refused_exchange_give_no_token(tmp_path: Path, google: GoogleIdentity) -> None:
    with pytest.raises(CredentialsUnavailable, match="cannot be limited"):
        issue(google, tmp_path, "t", "192.0.2.0/24")
    assert google.storage.boundaries == {}


def test_a_refusal_of_the_token_service_shows_no_text_of_its_answer(
    tmp_path: Path, google: GoogleIdentity, monkeypatch: pytest.MonkeyPatch
) -> None:
    refusal = google_error("invalid_request", "the text of an answer")
    monkeypatch.setattr(google, "_downscoped", lambda _form: refusal)
    with pytest.raises(CredentialsUnavailable) as refused:
        issue(google, tmp_path, "t")
    assert "the text" not in str(refused.value)


@pytest.mark.parametrize(
    "answer",
    [
        {},
        None,
        [],
        {"access_token": None},
        {"access_token": ""},
        {"access_token": "ya29", "expires_in": "soon"},
        {"access_token": "ya29", "expires_in": [1]},
    ],
)
def test_an_answer_without_a_token_or_with_an_unreadable_end_is_an_error(
    tmp_path: Path, google: GoogleIdentity, monkeypatch: pytest.MonkeyPatch, answer: object
) -> None:
    monkeypatch.setattr(google, "_downscoped", lambda _form: json_response(answer))
    with pytest.raises(CredentialsUnavailable):
        issue(google, tmp_path, "t")


def test_a_redirect_of_the_token_service_is_not_followed(
    tmp_path: Path, google: GoogleIdentity, monkeypatch: pytest.MonkeyPatch
) -> None:
    with serving(lambda _request: json_response({"access_token": "ya29", "expires_in": 60})) as another:
        redirect = Response(307, headers={"Location": another.url})
        monkeypatch.setattr(google, "_downscoped", lambda _form: redirect)
        with pytest.raises(CredentialsUnavailable):
            issue(google, tmp_path, "t")
        assert another.requests == []
