"""Identities of Azure by its own library: tokens, user delegation keys, and refusals without their text."""

import json
import logging
import threading
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from azure.core.credentials import AccessToken
from support.azure_identity import CLIENT, THROTTLED, Identities, entra_error
from support.azure_identity import TENANT as DIRECTORY
from support.http_service import HttpService, Request, Response, json_response, serving

from gateway.config import Location, Secret, loads
from gateway.server.self_signed import self_signed_pair
from gateway.storage.azure import identity as azure_identity
from gateway.storage.azure.identity import AzureIdentity
from gateway.storage.credentials import CredentialsUnavailable
from gateway.storage.refreshing_credentials import RefreshingCredentials

PREFIX = "abfss://data@acct.dfs.core.windows.net/"
HIDDEN = "the text of an answer"
FORM = "%Y-%m-%dT%H:%M:%SZ"


class Azure:
    """Entra ID and an account that gives out user delegation keys."""

    def __init__(self) -> None:
        self.identities = Identities()
        self.service: HttpService
        self.keys: list[tuple[datetime, datetime]] = []
        self.refusal: tuple[int, str] | None = None

    def answer(self, request: Request) -> Response:
        if request.path.startswith("/acct"):
            return self.account(request)
        return self.identities.answer(request)

    def account(self, request: Request) -> Response:
        assert request.query == {"restype": "service", "comp": "userdelegationkey"}
        assert request.headers["x-ms-version"] == "2022-11-02"
        assert request.bearer in self.identities.granted
        if self.refusal is not None:
            status, code = self.refusal
            body = f"<?xml version='1.0'?><Error><Code>{code}</Code><Message>{HIDDEN}</Message></Error>"
            return Response(
                status, body.encode(), {"Content-Type": "application/xml", "x-ms-error-code": code}
            )
        start, expiry = (
            request.body.decode().partition(f"<{name}>")[2].partition("<")[0] for name in ("Start", "Expiry")
        )
        self.keys.append(
            tuple(datetime.strptime(text, FORM).replace(tzinfo=UTC) for text in (start, expiry))  # type: ignore[arg-type]
        )
        body = (
            "<?xml version='1.0'?><UserDelegationKey><SignedOid>oid</SignedOid>"
            f"<SignedTid>{DIRECTORY}</SignedTid><SignedStart>{start}</SignedStart>"
            f"<SignedExpiry>{expiry}</SignedExpiry><SignedService>b</SignedService>"
            "<SignedVersion>2022-11-02</SignedVersion><Value>a2V5</Value></UserDelegationKey>"
        )
        return Response(200, body.encode(), {"Content-Type": "application/xml"})

    @property
    def url(self) -> str:
        return self.service.url


@pytest.fixture
def azure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Azure]:
    pair = tmp_path / "pair.pem"
    pair.write_bytes(self_signed_pair("127.0.0.1"))
    monkeypatch.setenv("REQUESTS_CA_BUNDLE", str(pair))
    # The second request follows at once.
    at_once = {"initial_backoff": 0, "increment_base": 0, "random_jitter_range": 0}
    monkeypatch.setattr(azure_identity, "ACCOUNT_LIMITS", azure_identity.ACCOUNT_LIMITS | at_once)
    azure = Azure()
    with serving(azure.answer, pair) as azure.service:
        azure.identities.service = azure.service
        yield azure


def identity(azure: Azure, environment: dict[str, str] | None = None, **keys: Any) -> AzureIdentity:
    entry = {"prefix": PREFIX, "endpoint": f"{azure.url}/acct", "authorityHost": azure.url, **keys}
    text = f"version: 1\ngateway: {{anonymous: true, storages: [{json.dumps(entry)}]}}"
    (storage,) = loads(text, environment={}).gateway.storages
    return AzureIdentity(storage, Location.parse(PREFIX), environment or {}, url_seconds=3600)


def client(azure: Azure) -> dict[str, str]:
    return {"tenantId": DIRECTORY, "clientId": CLIENT, "clientSecret": azure.identities.client_secret}


def test_the_key_of_an_account_needs_no_request(azure: Azure) -> None:
    found = identity(azure, accountKey="a2V5").request()
    assert found.account_key == Secret("a2V5")
    assert found.expires is None
    assert azure.service.requests == []


def test_the_secret_of_the_environment_is_not_that_of_another_client(azure: Azure) -> None:
    environment = {
        "AZURE_TENANT_ID": DIRECTORY,
        "AZURE_CLIENT_ID": CLIENT,
        "AZURE_CLIENT_SECRET": azure.identities.client_secret,
    }
    assert identity(azure, environment).request().source == f"the client {CLIENT}"
    assert identity(azure, environment, clientId=CLIENT).request().source == f"the client {CLIENT}"
    assert identity(azure, environment, clientId="another")._found() == "managedIdentityOrCli"


def test_a_client_secret_gives_a_token_and_a_delegation_key(azure: Azure) -> None:
    found = identity(azure, **client(azure)).request()
    assert found.token == Secret(azure.identities.granted[-1])
    assert found.expires is not None
    assert timedelta(minutes=59) < found.expires - datetime.now(UTC) <= timedelta(hours=1)
    assert found.source == f"the client {CLIENT}"
    ((start, expiry),) = azure.keys
    assert start < datetime.now(UTC) < expiry
    assert timedelta(hours=23) < expiry - datetime.now(UTC) <= timedelta(days=1)
    assert found.delegation_key is not None
    assert found.delegation_key.expiry == expiry.strftime(FORM)


def test_a_token_that_no_header_can_have_is_refused(azure: Azure) -> None:
    azure.identities.failures.append(json_response({"access_token": "two words", "expires_in": 3600}))
    with pytest.raises(CredentialsUnavailable, match=f"the token of the client {CLIENT} has a line break"):
        identity(azure, **client(azure)).request()


def test_the_delegation_key_is_requested_again_at_half_of_its_life(
    azure: Azure, monkeypatch: pytest.MonkeyPatch
) -> None:
    reader = identity(azure, **client(azure))
    first = reader.request()
    assert reader.request() == first
    assert len(azure.keys) == 1
    now = datetime.now(UTC)

    class Clock(datetime):
        @classmethod
        def now(cls, tz: Any = None) -> datetime:
            return now.astimezone(tz)

    monkeypatch.setattr(azure_identity, "datetime", Clock)
    now += timedelta(hours=11)
    assert reader.request().delegation_key is first.delegation_key
    now += timedelta(hours=2)
    azure.refusal = (503, "ServerBusy")
    assert reader.request().delegation_key is first.delegation_key, "the key is valid for some more hours"
    azure.refusal = None
    assert reader.request().delegation_key is not first.delegation_key
    assert len(azure.keys) == 2


def test_urls_live_for_hours_beside_tokens_that_live_as_long_as_the_delegation_key(
    azure: Azure, monkeypatch: pytest.MonkeyPatch
) -> None:
    reader, now = identity(azure, **client(azure)), datetime.now(UTC)

    class Clock(datetime):
        @classmethod
        def now(cls, tz: Any = None) -> datetime:
            return now.astimezone(tz)

    class Credential:
        """An identity whose tokens live for a day. The first request takes the longest."""

        seconds = 10

        def get_token(self, *_scopes: str, **_options: Any) -> AccessToken:
            nonlocal now
            now, self.seconds = now + timedelta(seconds=self.seconds), 0
            token = f"token-{now.timestamp()}"
            azure.identities.granted.append(token)
            return AccessToken(token, int((now + timedelta(days=1)).timestamp()))

    monkeypatch.setattr(azure_identity, "datetime", Clock)
    reader._credential = Credential()
    keys = RefreshingCredentials(reader.request, lambda: now.timestamp())  # noqa: PLW0108 - `now` changes
    end = now + timedelta(days=3)
    while now < end:
        found = keys.get()
        # The account is away at some of the renewals.
        azure.refusal = (503, "ServerBusy") if len(azure.keys) == 2 and azure.refusal is None else None
        assert found.user_delegation_key is not None
        assert found.expires is not None
        key_end = datetime.strptime(found.user_delegation_key.expiry, FORM).replace(tzinfo=UTC)
        assert found.expires <= key_end
        assert key_end - now >= timedelta(hours=3)
        # As many requests do, one comes when the renewal is due.
        now = datetime.fromtimestamp(keys._renew_at_seconds, UTC) + timedelta(milliseconds=1)
        assert key_end - now >= timedelta(hours=3)


def test_what_a_clock_that_was_ahead_has_given_an_end_is_requested_again(
    azure: Azure, monkeypatch: pytest.MonkeyPatch
) -> None:
    reader, now = identity(azure, **client(azure)), datetime.now(UTC)
    first = reader.request()
    assert reader.request().token == first.token

    class Clock(datetime):
        @classmethod
        def now(cls, tz: Any = None) -> datetime:
            return (now - timedelta(hours=8)).astimezone(tz)

    monkeypatch.setattr(azure_identity, "datetime", Clock)
    second = reader.request()
    assert second.token != first.token
    # No URL is valid before the start of its key.
    assert azure.keys[-1][0] <= Clock.now(UTC)
    assert second.delegation_key is not first.delegation_key
    assert reader.request() == second


@pytest.mark.parametrize("place", ["entry", "environment"])
def test_a_workload_identity_sends_the_token_of_its_file(azure: Azure, tmp_path: Path, place: str) -> None:
    file = tmp_path / "token"
    file.write_text("the-token-of-the-cluster")
    azure.identities.federated_tokens.add("the-token-of-the-cluster")
    keys = {"tenantId": DIRECTORY, "clientId": CLIENT, "federatedTokenFile": str(file)}
    variables = {
        "AZURE_TENANT_ID": DIRECTORY,
        "AZURE_CLIENT_ID": CLIENT,
        "AZURE_FEDERATED_TOKEN_FILE": str(file),
    }
    found = identity(azure, **keys) if place == "entry" else identity(azure, variables)
    assert found.request().source == f"the workload identity of the client {CLIENT}"


def test_a_managed_identity_is_asked_without_a_proxy(azure: Azure, monkeypatch: pytest.MonkeyPatch) -> None:
    with serving(azure.identities.answer) as machine:
        monkeypatch.setenv("AZURE_POD_IDENTITY_AUTHORITY_HOST", machine.url)
        monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:1")
        found = identity(azure, identity="managedIdentity", clientId=CLIENT).request()
        assert found.source == f"the managed identity {CLIENT}"
        assert identity(azure).request().source == "the managed identity of the machine"


@pytest.mark.processes
def test_the_sign_on_of_the_cli_is_the_last_resort(
    azure: Azure, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    expires = int((datetime.now(UTC) + timedelta(hours=1)).timestamp())
    answer = json.dumps({"accessToken": "cli-token", "expires_on": expires})
    azure.identities.granted.append("cli-token")
    az = tmp_path / "bin" / "az"
    az.parent.mkdir()
    az.write_text(f"#!/bin/sh\necho '{answer}'\n")
    az.chmod(0o755)
    monkeypatch.setenv("PATH", f"{az.parent}:/usr/bin:/bin")
    # Nothing listens there: no managed identity.
    monkeypatch.setattr("azure.identity._credentials.imds.IMDS_AUTHORITY", "http://127.0.0.1:1")
    found = identity(azure).request()
    assert found.token == Secret("cli-token")
    assert found.source == "the sign-on of the CLI `az`"
    late = identity(azure)
    az.unlink()
    with pytest.raises(CredentialsUnavailable):
        late.request()
    with serving(azure.identities.answer) as machine:
        monkeypatch.setattr("azure.identity._credentials.imds.IMDS_AUTHORITY", machine.url)
        monkeypatch.setenv("AZURE_POD_IDENTITY_AUTHORITY_HOST", machine.url)
        assert late.request().source == "the managed identity of the machine", "it may start later"
    with pytest.raises(CredentialsUnavailable, match="the sign-on of the CLI `az` is not there") as refused:
        identity(azure, identity="cli").request()
    assert refused.value.lasting


@pytest.mark.parametrize(
    ("failure", "reason", "lasting"),
    [
        (entra_error("invalid_client", 7000215, 401), "AADSTS7000215: the client secret is wrong", True),
        (entra_error("invalid_client", 7000222, 401), "AADSTS7000222: the client secret has ended", True),
        (entra_error("unauthorized_client", 700016, 400), "the client does not exist in the dir", True),
        (entra_error("odd", 99, 400), "gives no token", True),
        (json_response({"error": HIDDEN, "error_description": HIDDEN}, 400), "gives no token", True),
    ],
)
def test_a_refusal_of_entra_says_who_mends_it(
    azure: Azure, caplog: pytest.LogCaptureFixture, failure: Response, reason: str, lasting: bool
) -> None:
    caplog.set_level(logging.DEBUG)
    azure.identities.failures.append(failure)
    with pytest.raises(CredentialsUnavailable, match=reason) as refused:
        identity(azure, **client(azure)).request()
    assert refused.value.lasting is lasting
    for secret in (HIDDEN, azure.identities.client_secret):
        assert secret not in str(refused.value) + caplog.text


@pytest.mark.parametrize(
    ("status", "code", "reason", "lasting"),
    [
        (403, "AuthorizationPermissionMismatch", "Storage Blob Delegator on the account", True),
        (403, "AuthorizationFailure", "a network rule of the account excludes this machine", True),
        (403, "AuthenticationFailed", "at `tenantId`", True),
        (400, "odd-" + HIDDEN, "the account acct answers 400$", False),
        (503, "ServerBusy", r"the account acct answers 503 \(ServerBusy\)", False),
    ],
)
def test_a_refusal_of_the_account_says_who_mends_it(
    azure: Azure, status: int, code: str, reason: str, lasting: bool
) -> None:
    azure.refusal = (status, code)
    with pytest.raises(CredentialsUnavailable, match=reason) as refused:
        identity(azure, **client(azure)).request()
    assert refused.value.lasting is lasting
    assert HIDDEN not in str(refused.value)


def test_throttled_tokens_and_an_absent_service_are_not_lasting(azure: Azure) -> None:
    azure.identities.failures += [THROTTLED] * 2
    with pytest.raises(CredentialsUnavailable):
        identity(azure, **client(azure)).request()
    away = identity(azure, **(client(azure) | {"authorityHost": "https://127.0.0.1:1"}))
    with pytest.raises(CredentialsUnavailable, match="cannot be reached") as refused:
        away.request()
    assert not refused.value.lasting


def test_an_identity_that_lacks_its_keys_names_them(azure: Azure) -> None:
    with pytest.raises(CredentialsUnavailable, match="AZURE_FEDERATED_TOKEN_FILE"):
        identity(azure, identity="workloadIdentity").request()


def test_no_credentials_are_printed(azure: Azure) -> None:
    found = identity(azure, **client(azure)).request()
    printed = repr(found) + repr(identity(azure, accountKey="a2V5").request())
    assert "a2V5" not in printed
    assert azure.identities.granted[-1] not in printed


@pytest.mark.parametrize("service", ["machine", "app"])
def test_a_managed_identity_that_hangs_fails_in_time(
    azure: Azure, monkeypatch: pytest.MonkeyPatch, service: str
) -> None:
    monkeypatch.setitem(azure_identity.LIMITS, "read_timeout", 0.2)
    released = threading.Event()

    def hang(request: Request) -> Response:
        released.wait(10)
        return azure.identities.answer(request)

    with serving(hang) as machine:
        if service == "machine":
            monkeypatch.setenv("AZURE_POD_IDENTITY_AUTHORITY_HOST", machine.url)
        else:
            for name, value in azure.identities.environment().items():
                monkeypatch.setenv(name, value.replace(azure.url, machine.url))
        with pytest.raises(CredentialsUnavailable):
            identity(azure, identity="managedIdentity").request()
        released.set()


def test_a_service_that_throttles_for_long_is_not_waited_for(azure: Azure) -> None:
    azure.identities.failures.append(Response(429, b"{}", {"Retry-After": "8"}))
    start = time.monotonic()
    with pytest.raises(CredentialsUnavailable):
        identity(azure, **client(azure)).request()
    assert time.monotonic() - start < 8


def test_a_machine_of_another_cloud_is_asked_without_pauses(
    azure: Azure, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with serving(lambda _request: Response(404, b"no such path")) as machine:
        monkeypatch.setattr("azure.identity._credentials.imds.IMDS_AUTHORITY", machine.url)
        monkeypatch.setenv("AZURE_POD_IDENTITY_AUTHORITY_HOST", machine.url)
        with pytest.raises(CredentialsUnavailable, match="the sign-on of the CLI `az` is not there"):
            identity(azure).request()
        assert len(machine.requests) <= 2
