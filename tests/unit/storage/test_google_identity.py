"""Identities of Google by its own library: tokens, what signs beside them, refusals without their text."""

import base64
import json
import logging
import os
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from support.google_identity import EMAIL, GoogleIdentity, google_error, iam_error, running
from support.google_storage import GoogleStorage
from support.http_service import json_response

from gateway.config import Secret, loads
from gateway.storage.credentials import CredentialsUnavailable
from gateway.storage.gcs.identity import GcsIdentity

HIDDEN = "the text of an answer"


@pytest.fixture
def google() -> Iterator[GoogleIdentity]:
    with running(GoogleIdentity(GoogleStorage())) as google:
        yield google


def identity(environment: dict[str, str] | None = None, **keys: Any) -> GcsIdentity:
    entry = json.dumps({"prefix": "gs://bucket/"} | {name: str(value) for name, value in keys.items()})
    config = loads(f"version: 1\ngateway: {{anonymous: true, storages: [{entry}]}}", environment={})
    return GcsIdentity(config.gateway.storages[0], environment or {})


@pytest.fixture
def on_a_machine(google: GoogleIdentity, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    from google.auth.compute_engine import _metadata  # noqa: PLC0415 - slow to import

    host = google.environment()["GCE_METADATA_HOST"]
    # The library reads the variables when it is imported.
    monkeypatch.setattr(_metadata, "_GCE_METADATA_HOST", host)
    monkeypatch.setenv("GCE_METADATA_IP", host)
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:1")
    return {"HOME": "/nonexistent"}


def test_an_hmac_key_needs_no_request(google: GoogleIdentity) -> None:
    found = identity(accessKeyId="GOOG1E", secretAccessKey="s").request()
    assert (found.access_id, found.secret, found.expires) == (Secret("GOOG1E"), Secret("s"), None)
    assert google.service is not None
    assert google.service.requests == []


@pytest.mark.parametrize("place", ["entry", "variable", "gcloud"])
def test_a_service_account_reads_by_tokens_and_signs_by_its_key(
    google: GoogleIdentity, tmp_path: Path, place: str
) -> None:
    file = google.service_account_file(tmp_path)
    if place == "entry":
        reader = identity(credentialsFile=file)
    elif place == "variable":
        reader = identity({"GOOGLE_APPLICATION_CREDENTIALS": str(file)})
    else:
        file = file.rename(tmp_path / "application_default_credentials.json")
        reader = identity({"CLOUDSDK_CONFIG": str(tmp_path)})
    found = reader.request()
    assert found.token is not None
    assert found.token.reveal() in google.storage.tokens
    assert (found.email, found.private_key) == (EMAIL, Secret(google.private_key))
    assert found.signing_token is None
    assert found.expires is not None
    assert 3500 < found.expires.timestamp() - time.time() <= 3600
    assert found.source == f"the service account {EMAIL} of {file}"
    assert reader.request() == found, "the token is used until half of its life is over"


def test_a_token_that_no_header_can_have_is_refused(google: GoogleIdentity, tmp_path: Path) -> None:
    google.failures.append(json_response({"access_token": "two words", "expires_in": 3600}))
    with pytest.raises(CredentialsUnavailable, match=r"the token of the service account .* has a line break"):
        identity(credentialsFile=google.service_account_file(tmp_path)).request()


def test_a_token_of_a_clock_that_was_ahead_is_requested_again(
    google: GoogleIdentity, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reader = identity(credentialsFile=google.service_account_file(tmp_path))
    first, now_seconds = reader.request(), time.time() - 8 * 3600
    monkeypatch.setattr("gateway.storage.gcs.tokens.time", SimpleNamespace(time=lambda: now_seconds))
    second = reader.request()
    assert second.token != first.token
    assert reader.request().token == second.token


def test_a_file_that_is_replaced_is_read_again(google: GoogleIdentity, tmp_path: Path) -> None:
    file = google.service_account_file(tmp_path)
    reader = identity(credentialsFile=file)
    first = reader.request()
    google.service_account_file(tmp_path, private_key_id="another")
    os.utime(file, (1, 1))
    second = reader.request()
    assert second.token != first.token
    file.write_text("{")
    with pytest.raises(CredentialsUnavailable, match="is not JSON"):
        reader.request()
    file.unlink()
    assert reader.request() == second, "a file that is away is being written"


def test_the_metadata_server_gives_tokens_that_sign_by_a_call(
    google: GoogleIdentity, on_a_machine: dict[str, str]
) -> None:
    found = identity(on_a_machine).request()
    assert (found.email, found.private_key) == (EMAIL, None)
    assert found.signing_token == found.token
    assert found.source == "the service account of the metadata server"


def test_a_machine_without_any_identity_says_which_are_supported(
    google: GoogleIdentity, on_a_machine: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GCE_METADATA_IP", "127.0.0.1:1")
    reader = identity(on_a_machine)
    with pytest.raises(CredentialsUnavailable, match="with an HMAC key") as refused:
        reader.request()
    assert refused.value.lasting
    monkeypatch.setenv("GCE_METADATA_IP", google.environment()["GCE_METADATA_IP"])
    assert reader.request().email == EMAIL, "the server may start later"


def test_an_impersonated_account_signs_with_the_token_of_its_source(
    google: GoogleIdentity, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from google.auth import iam  # noqa: PLC0415 - slow to import

    path = "/v1/projects/-/serviceAccounts/{}:generateAccessToken"
    monkeypatch.setattr(iam, "_IAM_ENDPOINT", google.url + path)
    found = identity(credentialsFile=google.service_account_file(tmp_path), impersonate=EMAIL).request()
    assert found.private_key is None
    assert found.signing_token is not None
    assert found.signing_token != found.token
    assert {token.reveal() for token in (found.token, found.signing_token) if token} <= google.storage.tokens
    assert found.source.startswith(f"the service account {EMAIL}, impersonated by the service account")


def test_credentials_end_with_the_token_that_signs(
    google: GoogleIdentity, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from google.auth import iam  # noqa: PLC0415 - slow to import

    monkeypatch.setattr(iam, "_IAM_ENDPOINT", google.url + "/{}")
    # The metadata server gives one token out until its last minutes.
    signing = json_response({"access_token": "signs", "expires_in": 600})
    reading = json_response({"accessToken": "reads", "expireTime": "2100-01-01T00:00:00Z"})
    google.failures += [signing, reading, signing]
    found = identity(credentialsFile=google.service_account_file(tmp_path), impersonate=EMAIL).request()
    assert (found.token, found.signing_token) == (Secret("reads"), Secret("signs"))
    assert found.expires is not None
    assert 500 < found.expires.timestamp() - time.time() <= 600


def test_the_proxy_of_the_environment_is_for_other_services_than_the_metadata_server(
    google: GoogleIdentity, on_a_machine: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    import requests  # noqa: PLC0415 - slow to import

    monkeypatch.setenv("HTTPS_PROXY", "http://127.0.0.1:1")
    send = requests.adapters.HTTPAdapter.send
    proxies: dict[str, str | None] = {}

    def recorded(adapter: Any, request: Any, **options: Any) -> Any:
        scheme = request.url.partition(":")[0]
        proxies[scheme] = requests.utils.select_proxy(request.url, options["proxies"])
        return send(adapter, request, **options)

    monkeypatch.setattr(requests.adapters.HTTPAdapter, "send", recorded)
    with pytest.raises(CredentialsUnavailable, match="the service cannot be reached"):
        identity(on_a_machine, impersonate=EMAIL).request()
    assert proxies == {"http": "", "https": "http://127.0.0.1:1"}


@pytest.mark.parametrize("impersonates", [True, False])
def test_a_federated_identity_signs_for_the_account_that_it_impersonates(
    google: GoogleIdentity, tmp_path: Path, impersonates: bool
) -> None:
    file = google.external_account_file(tmp_path, impersonates=impersonates)
    found = identity(credentialsFile=file).request()
    assert found.token is not None
    assert found.token.reveal() in google.storage.tokens
    assert found.email == (EMAIL if impersonates else None)
    assert found.iam_endpoint == (google.url if impersonates else None)
    assert (found.signing_token is not None) is impersonates


def test_a_user_can_only_read(
    google: GoogleIdentity, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "user.json"
    user = {"type": "authorized_user", "client_id": "c", "client_secret": HIDDEN, "refresh_token": HIDDEN}
    file.write_text(json.dumps(user))
    monkeypatch.setattr("google.oauth2.credentials._GOOGLE_OAUTH2_TOKEN_ENDPOINT", f"{google.url}/token")
    reader = identity(credentialsFile=file)
    with pytest.raises(CredentialsUnavailable, match="invalid_grant") as refused:
        reader.request()
    assert HIDDEN not in str(refused.value)
    google.failures.append(json_response({"access_token": "token", "expires_in": 3600}))
    found = reader.request()
    assert (found.token, found.email, found.signing_token) == (Secret("token"), None, None)


@pytest.mark.parametrize(
    ("kind", "failure", "reason", "lasting"),
    [
        ("service", google_error("invalid_grant", HIDDEN), "the key was deleted", True),
        ("service", google_error("invalid_grant", f"iat {HIDDEN}"), "the clock of this machine", False),
        ("service", google_error("odd", HIDDEN), "it answers with an error", False),
        ("federated", google_error("invalid_target", HIDDEN), "the audience of the federation", True),
        ("impersonated", iam_error(HIDDEN), "roles/iam.serviceAccountTokenCreator", True),
    ],
)
def test_a_refusal_says_who_mends_it_and_nothing_secret(  # noqa: PLR0917 - the cases
    google: GoogleIdentity,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
    kind: str,
    failure: Any,
    reason: str,
    lasting: bool,
) -> None:
    caplog.set_level(logging.DEBUG)
    monkeypatch.setattr("google.auth._exponential_backoff.time.sleep", lambda _: None)
    file = (
        google.service_account_file(tmp_path)
        if kind == "service"
        else google.external_account_file(tmp_path, impersonates=True)
    )
    if kind == "impersonated":
        monkeypatch.setattr(google, "_impersonation", lambda _request: failure)
    else:
        google.failures += [failure] * 9
    with pytest.raises(CredentialsUnavailable, match=reason) as refused:
        identity(credentialsFile=file).request()
    assert refused.value.lasting is lasting
    for secret in (HIDDEN, google.private_key):
        assert secret not in str(refused.value) + caplog.text


def test_a_token_service_that_is_away_is_named(google: GoogleIdentity, tmp_path: Path) -> None:
    file = google.service_account_file(tmp_path, token_uri="http://127.0.0.1:1/token")
    with pytest.raises(CredentialsUnavailable, match="cannot be reached") as refused:
        identity(credentialsFile=file).request()
    assert not refused.value.lasting


def test_a_malformed_key_is_refused_without_its_text(google: GoogleIdentity, tmp_path: Path) -> None:
    content = base64.b64encode(b"\x30\x82\x01\x00\x02\x01\x00" + bytes(253)).decode()
    key = f"-----BEGIN PRIVATE KEY-----\n{content}\n-----END PRIVATE KEY-----\n"
    file = google.service_account_file(tmp_path, private_key=key)
    with pytest.raises(CredentialsUnavailable, match="has no credentials of the type service") as refused:
        identity(credentialsFile=file).request()
    assert refused.value.lasting
    assert content[:20] not in str(refused.value)


def test_no_credentials_are_printed(google: GoogleIdentity, tmp_path: Path) -> None:
    reader = identity(credentialsFile=google.service_account_file(tmp_path))
    found = reader.request()
    assert found.token is not None
    printed = repr(found) + repr(reader._tokens)
    assert "PRIVATE KEY" not in printed
    assert found.token.reveal() not in printed
