"""Identities of entries on AWS: roles that other credentials assume, profiles, and their refusals."""

import hashlib
import json
import logging
import sys
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from support.aws_identity import (
    ROLE,
    Sts,
    credential_process_output,
    new_session,
    running_sts,
    single_sign_on_answer,
)
from support.http_service import Request, Response, serving

from gateway.config import Secret, loads
from gateway.config.storages.s3 import S3Entry
from gateway.storage.aws import profiles
from gateway.storage.aws.identity import AwsIdentity
from gateway.storage.credentials import CredentialsUnavailable

HIDDEN = "the text of an answer"


@pytest.fixture
def sts() -> Iterator[Sts]:
    with running_sts(Sts("base-key", "base-secret")) as sts:
        yield sts


@pytest.fixture
def environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sts: Sts) -> dict[str, str]:
    (tmp_path / ".aws").mkdir()
    monkeypatch.setenv("HOME", str(tmp_path))
    for name in ("AWS_PROFILE", "HTTP_PROXY", "http_proxy"):
        monkeypatch.delenv(name, raising=False)
    return {
        "HOME": str(tmp_path),
        "AWS_ENDPOINT_URL_STS": sts.url,
        "AWS_EC2_METADATA_DISABLED": "true",
    }


def entry(**keys: Any) -> S3Entry:
    text = json.dumps({"prefix": "s3://bucket/", **keys})
    config = loads(f"version: 1\ngateway: {{anonymous: true, storages: [{text}]}}", environment={})
    (found,) = config.gateway.storages
    assert isinstance(found, S3Entry)
    return found


def identity(environment: dict[str, str], **keys: Any) -> AwsIdentity:
    return AwsIdentity(entry(**keys), environment, "eu-west-1")


KEYS = {"accessKeyId": "base-key", "secretAccessKey": "base-secret"}


def test_a_role_is_assumed_with_the_keys_of_its_entry(environment: dict[str, str], sts: Sts) -> None:
    sts.external_id = "a-tenant"
    role = {"externalId": "a-tenant", "roleSessionName": "sharing", "sessionSeconds": 900}
    found = identity(environment, **KEYS, roleArn=ROLE, **role).request()
    (session,) = sts.sessions
    assert found.access_key_id == Secret(session.access_key_id)
    assert found.session_token == Secret(session.session_token)
    assert found.expires == session.ends
    assert found.source == f"the role {ROLE}, assumed by accessKeyId of the configuration"
    assert sts.names == ["sharing"]
    assert sts.service is not None
    assert sts.service.requests[0].form["DurationSeconds"] == "900"
    assert "eu-west-1/sts" in sts.service.requests[0].headers["authorization"]


def test_the_endpoint_of_an_entry_is_that_of_its_token_service(environment: dict[str, str], sts: Sts) -> None:
    environment["AWS_ENDPOINT_URL_STS"] = "http://127.0.0.1:1"
    assert identity(environment, **KEYS, roleArn=ROLE, stsEndpoint=sts.url).request().expires
    assert len(sts.sessions) == 1


def test_a_session_that_another_role_assumes_lasts_an_hour(environment: dict[str, str], sts: Sts) -> None:
    base = identity(environment, **KEYS, roleArn=ROLE).request()
    keys = {
        "accessKeyId": base.access_key_id.reveal(),
        "secretAccessKey": base.secret_access_key.reveal(),
        "sessionToken": base.session_token.reveal() if base.session_token else None,
    }
    assert identity(environment, **keys, roleArn=ROLE).request().expires
    with pytest.raises(CredentialsUnavailable, match="or more than 3600 where a session of another role"):
        identity(environment, **keys, roleArn=ROLE, sessionSeconds=3601).request()


@pytest.mark.parametrize(
    ("keys", "failure", "reason", "lasting"),
    [
        ({"externalId": "wrong"}, None, r"answers 403 \(AccessDenied\): the role's trust policy", True),
        (
            {"secretAccessKey": "wrong"},
            None,
            r"answers 403 \(SignatureDoesNotMatch\): the secret of the access key is wrong, or the clock",
            True,
        ),
        ({"accessKeyId": "wrong"}, None, "or is disabled; the keys of another store .* `stsEndpoint`", True),
        ({}, (400, "PackedPolicyTooLarge", HIDDEN), "the policies and tags of the session are too", True),
        ({}, (403, "RegionDisabledException", HIDDEN), "has not enabled the token service", True),
        ({}, (400, "ExpiredToken", HIDDEN), "the credentials that assume the role have ended", False),
        ({}, (400, "Throttling", HIDDEN), r"answers 400 \(Throttling\)", False),
        ({}, (500, "odd code/", HIDDEN), "the token service answers 500$", False),
    ],
)
def test_a_refusal_says_who_mends_it_and_nothing_secret(  # noqa: PLR0917 - the cases
    environment: dict[str, str],
    sts: Sts,
    caplog: pytest.LogCaptureFixture,
    keys: dict[str, Any],
    failure: tuple[int, str, str] | None,
    reason: str,
    lasting: bool,
) -> None:
    if failure is not None:
        # botocore repeats a call once.
        sts.failures += [failure] * 2
    caplog.set_level(logging.DEBUG)
    with pytest.raises(CredentialsUnavailable, match=reason) as refused:
        identity(environment, **(KEYS | {"roleArn": ROLE} | keys)).request()
    assert refused.value.lasting is lasting
    for secret in (HIDDEN, "base-secret"):
        assert secret not in str(refused.value) + caplog.text


def test_a_clock_that_is_wrong_is_named(environment: dict[str, str], sts: Sts) -> None:
    sts.clock_offset = timedelta(hours=1)
    with pytest.raises(CredentialsUnavailable, match="or the clock of this machine") as refused:
        identity(environment, **KEYS, roleArn=ROLE).request()
    assert not refused.value.lasting


def test_a_throttled_call_is_repeated(environment: dict[str, str], sts: Sts) -> None:
    sts.failures.append((400, "Throttling", ""))
    assert identity(environment, **KEYS, roleArn=ROLE).request().expires


def test_a_token_service_that_is_away_is_named(environment: dict[str, str]) -> None:
    away = identity(environment, **KEYS, roleArn=ROLE, stsEndpoint="http://127.0.0.1:1")
    with pytest.raises(CredentialsUnavailable, match="the token service cannot be reached") as refused:
        away.request()
    assert not refused.value.lasting


@pytest.mark.parametrize("status", [200, 404])
def test_an_answer_without_keys_is_refused(environment: dict[str, str], status: int) -> None:
    with serving(lambda _: Response(status, HIDDEN.encode())) as service:
        odd = identity(environment, **KEYS, roleArn=ROLE, stsEndpoint=service.url)
        reason = "did not answer with keys .*: another service may be at its address; look at `stsEndpoint`"
        with pytest.raises(CredentialsUnavailable, match=reason) as refused:
            odd.request()
    assert HIDDEN not in str(refused.value)


def profile(environment: dict[str, str], config: str, credentials: str = "") -> None:
    directory = Path(environment["HOME"], ".aws")
    (directory / "config").write_text(config)
    (directory / "credentials").write_text(credentials)


def test_a_profile_assumes_its_role_with_its_source(environment: dict[str, str], sts: Sts) -> None:
    profile(
        environment,
        f"[profile reader]\nrole_arn = {ROLE}\nsource_profile = base\nexternal_id = a-tenant\n",
        "[base]\naws_access_key_id = base-key\naws_secret_access_key = base-secret\n",
    )
    sts.external_id = "a-tenant"
    found = identity(environment, profile="reader").request()
    assert found.access_key_id == Secret(sts.sessions[0].access_key_id)
    assert found.expires == sts.sessions[0].ends
    assert found.source == "the profile reader (assume-role)"
    # The environment's own profile, and a role on top of it.
    found = identity(environment | {"AWS_PROFILE": "reader"}, roleArn=ROLE, externalId="a-tenant").request()
    assert found.source == f"the role {ROLE}, assumed by the profile reader (assume-role)"


@pytest.mark.processes
def test_a_profile_runs_its_credential_process(environment: dict[str, str], tmp_path: Path) -> None:
    session = new_session(3600)
    (tmp_path / "keys.json").write_text(credential_process_output(session))
    command = f"{sys.executable} -c \"print(open('{tmp_path}/keys.json').read())\""
    profile(environment, f"[profile process]\ncredential_process = {command}\n")
    found = identity(environment, profile="process").request()
    assert found.access_key_id == Secret(session.access_key_id)
    assert found.expires == session.ends


@pytest.mark.processes
def test_a_credential_process_that_hangs_is_ended(
    environment: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(profiles._Process.communicate, "__defaults__", (None, 0.2))
    profile(environment, "[profile process]\ncredential_process = sleep 60\n")
    with pytest.raises(CredentialsUnavailable, match=r"the profile process .*TimeoutExpired"):
        identity(environment, profile="process").request()


@pytest.mark.parametrize(("token", "reason"), [("sign-on", None), ("ended", "run `aws sso login`")])
def test_a_profile_uses_a_single_sign_on(environment: dict[str, str], token: str, reason: str | None) -> None:
    session = new_session(3600)

    def portal(request: Request) -> Response:
        if request.headers.get("x-amz-sso_bearer_token") != "sign-on":
            kind = {"Content-Type": "application/json", "x-amzn-ErrorType": "UnauthorizedException"}
            return Response(401, json.dumps({"message": HIDDEN}).encode(), kind)
        return single_sign_on_answer(session)

    start = "https://example.awsapps.com/start"
    cache = Path(environment["HOME"], ".aws/sso/cache")
    cache.mkdir(parents=True)
    expires = (datetime.now(UTC) + timedelta(hours=1)).strftime("%Y-%m-%dT%H:%M:%SZ")
    name = hashlib.sha1(start.encode(), usedforsecurity=False).hexdigest()
    (cache / f"{name}.json").write_text(json.dumps({"accessToken": token, "expiresAt": expires}))
    with serving(portal) as service:
        profile(
            environment,
            f"[profile sso]\nsso_start_url = {start}\nsso_region = eu-west-1\nsso_account_id = 1\n"
            f"sso_role_name = reader\nendpoint_url = {service.url}\n",
        )
        signed_on = identity(environment, profile="sso")
        if reason is None:
            found = signed_on.request()
            assert (found.access_key_id.reveal(), found.expires) == (session.access_key_id, session.ends)
            return
        with pytest.raises(CredentialsUnavailable, match=reason) as refused:
            signed_on.request()
    assert HIDDEN not in str(refused.value)


@pytest.mark.processes
@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("[profile other]\nregion = eu\n", "the profile reader has no credentials"),
        (f"[profile reader]\nrole_arn = {ROLE}\nsource_profile = absent\n", "the profile reader"),
        (
            f"[profile reader]\nrole_arn = {ROLE}\ncredential_source = Environment\nmfa_serial = m\n",
            "which a server cannot give",
        ),
        ("[profile reader]\ncredential_process = false\n", "the profile reader"),
    ],
)
def test_a_profile_without_credentials_is_refused(
    environment: dict[str, str], text: str, reason: str
) -> None:
    profile(environment, text)
    with pytest.raises(CredentialsUnavailable, match=reason):
        identity(
            environment | {"AWS_ACCESS_KEY_ID": "variable-key", "AWS_SECRET_ACCESS_KEY": "s"},
            profile="reader",
        ).request()


def test_keys_of_a_named_profile_are_used_in_place_of_variables(environment: dict[str, str]) -> None:
    profile(
        environment,
        "[profile reader]\naws_access_key_id = profile-key\naws_secret_access_key = s\nregion = eu-9\n",
    )
    variables = {"AWS_ACCESS_KEY_ID": "variable-key", "AWS_SECRET_ACCESS_KEY": "s"}
    found = identity(environment | variables, profile="reader").request()
    assert found.access_key_id == Secret("profile-key")
    assert found.file == Path(environment["HOME"], ".aws/config")
